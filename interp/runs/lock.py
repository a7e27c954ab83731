"""One writer per run: an advisory lock of the system on the file `lock`, which also says who holds it.

The system lets go of the lock when the process ends, however it ends, so that a file left by a dead process holds
nothing. Where the file system knows no such locks, the process number, the machine and its boot decide.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from interp.errors import LockedError
from interp.runs.durable import storing, write_all

LOCK = "lock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TRIES, _PAUSE = 5, 0.05  # a reader that asks who holds the lock has it for an instant
_UNKNOWN = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    pid: int
    host: str
    started: str
    boot: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started}"

    def alive(self) -> bool:
        """Whether it may still run: certainly not if this machine was booted since, or has no such process."""
        here = _me()
        if self.host != here.host:
            return True
        return self.boot == here.boot and _runs(self.pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def _me() -> Holder:
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return Holder(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"), boot)


def _stated(descriptor: int) -> Holder | None:
    """Who the file says holds the lock; None where it is empty or torn."""
    try:
        return Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError, OSError, RecursionError):
        return None


def _try(descriptor: int, kind: int) -> bool | None:
    """Whether the lock was free, and is now ours; None where the file system cannot say."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _UNKNOWN:
            return None
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


class Lock:
    """The lock of a run directory, held until `release`. Raises `LockedError` where another process holds it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._descriptor = self._acquire(folder)
        try:
            with storing(self._path):
                os.ftruncate(self._descriptor, 0)
                write_all(self._descriptor, json.dumps(asdict(_me())).encode())
        except BaseException:
            self.release()
            raise

    def _acquire(self, folder: Path) -> int:
        for _ in range(_TRIES):
            with storing(self._path):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            free, stated = _try(descriptor, fcntl.LOCK_EX), _stated(descriptor)
            if free is None:
                free = stated is None or not stated.alive()
            if free and self._still_there(descriptor):
                return descriptor
            os.close(descriptor)
            time.sleep(_PAUSE)
        who = str(stated) if stated else "another process"
        raise LockedError(f"{folder} is being written by {who}. Wait until it has ended, or stop it; then try again.")

    def _still_there(self, descriptor: int) -> bool:
        """Whether the file that was locked is the one that others will see: its last holder may have removed it."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        return False

    def release(self) -> None:
        """Let go, and remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)


def holder(folder: Path) -> Holder | None:
    """Who holds the lock of a run directory just now, if anybody does."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        stated, free = _stated(descriptor), _try(descriptor, fcntl.LOCK_SH)
        if free is None:
            return stated if stated and stated.alive() else None
        return None if free else stated or Holder(0, "an unknown machine", "an unknown time", "")
    finally:
        os.close(descriptor)
