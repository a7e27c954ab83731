"""Folders that appear whole or not at all: written beside their place, then renamed into it."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interp.errors import UsageError


def _sync(folder: Path) -> None:
    """Ask the disk to keep the written files before the rename that makes them visible."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refuse_foreign(target: Path, replaceable: Callable[[Path], bool]) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(
            f"Cannot write the folder {target}: something that is not a folder is there. Choose another name."
        )
    if target.is_dir() and any(target.iterdir()) and not replaceable(target):
        raise UsageError(
            f"Cannot write into {target}: the folder holds other files, and saving replaces a whole folder. "
            f"Choose a new one, for example {target / 'result'}."
        )


def _put_in_place(fresh: Path, target: Path) -> None:
    if not target.exists():
        fresh.rename(target)
        return
    aside = fresh.with_name(fresh.name + ".old")
    target.rename(aside)
    try:
        fresh.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside)


@contextmanager
def fresh_folder(target: Path, replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to write in that becomes `target` when the block ends, and vanishes when the block raises.

    An existing `target` is replaced if it is empty or if `replaceable(target)` says so; otherwise `UsageError`.
    A process killed outright leaves `target` as it was, and at worst a hidden `.name.partial-…` folder beside it.
    """
    _refuse_foreign(target, replaceable)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.partial-{secrets.token_hex(4)}"
    fresh.mkdir()
    try:
        yield fresh
        _sync(fresh)
        _put_in_place(fresh, target)
    finally:
        if fresh.exists():
            shutil.rmtree(fresh)
