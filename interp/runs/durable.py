"""Files that are whole or not there, whatever happens meanwhile: written beside, made durable, renamed into place.

A process that is killed leaves at worst a hidden file `.name.….partial`, which the next writer of the run removes. A
disk that takes no more raises `StorageError`, and leaves the file that stood there before.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from interp.errors import StorageError

PARTIAL = ".partial"
_FULL = {errno.ENOSPC: "Free some space", errno.EDQUOT: "Free some of the quota", errno.EFBIG: "Free some space"}


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turns what the system says while `path` is written into `StorageError`, with what to do."""
    try:
        yield
    except OSError as error:
        advice = _FULL.get(error.errno or 0, "Make it writable, or choose another folder")
        reason = error.strerror or str(error)
        raise StorageError(f"Cannot write {path}: {reason}. Nothing of it was left half-written. {advice}.") from error


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte: the system may take fewer than it is given."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a file system that cannot do this does not need it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Put a file there, or replace it, in one step. Raises `StorageError`."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    with storing(path):
        try:
            _write_new(beside, content)
            os.replace(beside, path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file, all of it or nothing, and make it durable. Raises `StorageError`."""
    with storing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        length = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, length)
            raise
        finally:
            os.close(descriptor)
        if length == 0:
            sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing, durably. Raises `StorageError`."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with storing(folder):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there, durably. Raises `StorageError`."""
    if path.exists():
        with storing(path):
            path.unlink()
            sync_folder(path.parent)
