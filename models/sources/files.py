"""Reading files that may be damaged: every length is checked against what is left before anything is allocated."""

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from interp.errors import LoadError

Progress = Callable[[int, int], None]
"""`progress(done, total)`, in bytes: first of a download, where one is needed, then of the weights read."""
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
MAX_TEXT_BYTES = 100 * 10**6
"""The longest description of a model that is taken apart; in memory it is many times as large. The `safetensors`
library draws the line for headers at the same place."""
_MAX_NESTING = 32


class Cursor:
    """Reads the head of a file front to back; asking for more than is left is a `LoadError`, never a short read."""

    def __init__(self, file: BinaryIO, size: int, source: str) -> None:
        self._file = file
        self._size = size
        self.source = source
        self.left = size

    @property
    def position(self) -> int:
        """How many bytes have been read."""
        return self._size - self.left

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        self.expect(count)
        data = self._file.read(count)
        if len(data) != count:
            raise LoadError(f"{self.source} became shorter while it was read.")
        self.left -= count
        return data

    def unpack(self, form: struct.Struct) -> tuple[int | float | bool, ...]:
        """The next values of a fixed binary form."""
        return form.unpack(self.take(form.size))

    def expect(self, count: int) -> None:
        """Refuse to go on if fewer than `count` bytes are left."""
        if count > self.left:
            raise LoadError(
                f"{self.source} is truncated or damaged: at byte {self.position} it announces {count} more bytes, "
                f"but only {self.left} are left. Fetch the file again."
            )
        check_length(self.position + count, f"The description at the head of {self.source}")


def read_bytes(path: Path, offset: int, count: int) -> npt.NDArray[np.uint8]:
    """`count` bytes from `offset`, copied: a memory map would keep the file's pages in the process's memory."""
    buffer = np.empty(count, dtype=np.uint8)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            filled = 0
            while filled < count and (step := file.readinto(buffer[filled:].data)):
                filled += step
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error
    if filled != count:
        raise LoadError(f"{path} became shorter while it was read.")
    return buffer


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file."""
    check_length(file_size(path), str(path))
    try:
        return parse_json(path.read_bytes(), str(path))
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error


def check_length(count: int, source: str) -> None:
    """Refuse a text too long to be the description of a model."""
    if count > MAX_TEXT_BYTES:
        raise LoadError(
            f"{source} has {count} bytes, more than the {MAX_TEXT_BYTES} that the description of a model can need; "
            "it is damaged. Fetch it again."
        )


def parse_json(data: bytes, source: str) -> dict[str, object]:
    """The JSON object in `data`; anything else is a `LoadError` naming `source`, and so is a key that stands twice."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise LoadError(f"{source} is damaged: {twice!r} stands twice in one object.")
        return found

    try:
        stated = json.loads(data.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{source} is not valid JSON: {error}.") from error
    if not isinstance(stated, dict):
        raise LoadError(f"{source} must hold a JSON object, not a {type(stated).__name__}.")
    _check_nesting(stated, source)
    _check_characters(data, stated, source)
    return stated


def _check_nesting(stated: object, source: str) -> None:
    """Refuse what is nested so deep that comparing or showing it would overflow Python's stack."""
    level: list[object] = [stated]
    for _ in range(_MAX_NESTING):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise LoadError(f"{source} is damaged: its JSON is nested more than {_MAX_NESTING} deep.")


def _check_characters(data: bytes, stated: object, source: str) -> None:
    """Refuse halves of characters (surrogates), which only an escape can bring in and no library takes as text."""
    if b"\\u" in data:
        try:
            json.dumps(stated, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise LoadError(f"{source} is damaged: it holds half of a character, which is no text.") from error


def _inside(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def file_of(folder: Path, name: str) -> Path | None:
    """A regular file of a model's folder, or None where there is none.

    A link that leads out of the folder is a `LoadError`: a model from somebody else must not choose what is read here.
    The hub's cache is known: there a snapshot's files are links to `blobs`, beside all snapshots of its repository.
    """
    path, root = folder / name, folder.resolve()
    try:
        if not path.exists() and not path.is_symlink():
            return None
        target = path.resolve()
        allowed = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
        if not any(target.is_relative_to(place) for place in allowed):
            raise LoadError(f"{path} is a link that leads out of its folder, to {target}. Put a copy in its place.")
        if path.exists() and not path.is_file() and not path.is_dir():
            raise LoadError(f"{path} is not a regular file. Put a regular file in its place.")
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError) as error:  # no file can have such a name; links in a circle
        raise LoadError(f"{path} cannot be looked up: {error}.") from error


def file_size(path: Path) -> int:
    """The size of a regular file, or a `LoadError` saying why there is none."""
    try:
        if not path.is_file():
            raise LoadError(f"{path} is not a file.")
        return path.stat().st_size
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error


def combined_sha256(paths: Iterable[Path]) -> str:
    """One hash for a set of files: of a single file its own, of several the hash of their names and hashes in order."""
    hashes = {path.name: file_sha256(path) for path in sorted(paths)}
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in hashes.items()).encode()).hexdigest()


def refuse_pickle(name: str) -> None:
    """Raise the error for weights stored as a Python pickle, which runs code when it is opened."""
    raise LoadError(
        f"{name} is a Python pickle. Opening one can run any code that its author put in, so it is never opened here. "
        "Convert it once, where you trust it: in Python with transformers, AutoModelForCausalLM"
        ".from_pretrained(folder).save_pretrained(new_folder) writes model.safetensors; then load new_folder."
    )
