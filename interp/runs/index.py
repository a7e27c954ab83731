"""Where an item stands in a ledger, without reading the ledger: a table of hashes, searched by halves.

The file is derived, and believed only as far as it can be checked: it states the length of the ledger that it was made
for, and who reads a line that it points to looks whether that is the line of the item.

    16 bytes   "interp-index-1" and two line breaks
    8 bytes    length of the ledger
    8 bytes a line, in ascending order: the first 8 bytes of SHA-256("job NUL item")
    8 bytes a line, in the same order: where the line begins
"""

import hashlib
import mmap
from collections.abc import Iterable
from pathlib import Path

import numpy as np

INDEX = "items.index"
_MAGIC = b"interp-index-1\n\n"
_HEADER = len(_MAGIC) + 8


def _key(job: str, item: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{job}\0{item}".encode()).digest()[:8], "little")


def index(lines: Iterable[tuple[str, str, int]], ledger_bytes: int) -> bytes:
    """The file's content, for lines given as (job, item, offset)."""
    found = sorted((_key(job, item), offset) for job, item, offset in lines)
    keys = np.array([key for key, _ in found], dtype="<u8")
    offsets = np.array([offset for _, offset in found], dtype="<u8")
    return _MAGIC + ledger_bytes.to_bytes(8, "little") + keys.tobytes() + offsets.tobytes()


def offsets_of(path: Path, ledger_bytes: int, job: str, item: str) -> list[int]:
    """Where lines of the item may begin, ascending; none if the index is absent, of another ledger, or torn."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _search(content, ledger_bytes, _key(job, item))
    except (OSError, ValueError):  # absent, or empty, which cannot be mapped
        return []


def _search(content: mmap.mmap, ledger_bytes: int, key: int) -> list[int]:
    count, rest = divmod(len(content) - _HEADER, 16)
    if rest or content[:_HEADER] != _MAGIC + ledger_bytes.to_bytes(8, "little"):
        return []
    keys = np.frombuffer(content, "<u8", count, _HEADER)
    place, last = (int(np.searchsorted(keys, np.uint64(key), side)) for side in ("left", "right"))
    offsets = np.frombuffer(content, "<u8", count, _HEADER + 8 * count)[place:last].tolist()
    del keys  # the map cannot be closed while an array looks into it
    return offsets
