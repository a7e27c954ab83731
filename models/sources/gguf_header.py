"""The head of a GGUF file: metadata and the table of tensors, read without trusting a single length.

Layout (little-endian): magic, version, tensor count, pair count; the pairs (key, type, value); the tensor table (name,
shape fastest axis first, storage type, offset); padding; the tensors back to back, each padded to the alignment.
`gguf.GGUFReader` reads the same but wraps each of the vocabulary's hundred thousand strings in arrays of its own, and
trusts offsets; storage types and block sizes are taken from the `gguf` package.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from interp.errors import LoadError
from interp.models.sources.files import Cursor, file_size

_HEAD = struct.Struct("<4sIQQ")
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_STORAGE = {int(kind): kind for kind in GGML_QUANT_SIZES}
_MAX_NESTING = 4
_MAX_AXES = 4


@dataclass(frozen=True)
class GgufTensor:
    """Where one tensor lies. `shape` has the leading axis first; `offset` counts from the start of the file."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: the last axis, in blocks of the storage type."""
        block, size = GGML_QUANT_SIZES[self.kind]
        return self.shape[-1] // block * size

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key, and tensors by name in the order of the file."""

    fields: Mapping[str, object]
    tensors: Mapping[str, GgufTensor]


def read_header(path: Path) -> GgufHeader:
    """Read and check the head of a GGUF file; raises `LoadError` if it is no GGUF, truncated or damaged."""
    size = file_size(path)
    try:
        with open(path, "rb") as file:
            cursor = Cursor(file, size, str(path))
            n_tensors, n_pairs = _counts(cursor)
            fields = _pairs(cursor, n_pairs)
            entries = [_entry(cursor) for _ in range(n_tensors)]
            return GgufHeader(fields, _placed(entries, cursor, fields.get("general.alignment", 32), size))
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error


def _counts(cursor: Cursor) -> tuple[int, int]:
    magic, version, n_tensors, n_pairs = _HEAD.unpack(cursor.take(_HEAD.size))
    if magic != b"GGUF":
        raise LoadError(f"{cursor.source} is not a GGUF file: it begins with {magic!r}, not b'GGUF'.")
    if version not in (2, 3):
        raise LoadError(f"{cursor.source} is GGUF version {version}; known are 2 and 3, little-endian.")
    cursor.expect(n_pairs * 13 + n_tensors * 32)  # the least that so many entries can take
    return n_tensors, n_pairs


def _pairs(cursor: Cursor, count: int) -> dict[str, object]:
    fields: dict[str, object] = {}
    for _ in range(count):
        key = _string(cursor)
        if key in fields:
            raise _damaged(cursor, f"the metadata key {key!r} stands twice")
        fields[key] = _value(cursor, _u32(cursor), 0)
    return fields


def _value(cursor: Cursor, kind: int, depth: int) -> object:
    if kind == _STRING:
        return _string(cursor)
    if kind == _ARRAY:
        return _array(cursor, depth + 1)
    if kind not in _NUMBERS:
        raise _damaged(cursor, f"the metadata type {kind} does not exist")
    return cursor.unpack(struct.Struct("<" + _NUMBERS[kind]))[0]


def _array(cursor: Cursor, depth: int) -> list[object]:
    if depth > _MAX_NESTING:
        raise _damaged(cursor, f"metadata arrays are nested more than {_MAX_NESTING} deep")
    kind, count = _u32(cursor), _u64(cursor)
    if kind in _NUMBERS:
        dtype = np.dtype(_NUMBERS[kind]).newbyteorder("<")
        cursor.expect(count * dtype.itemsize)
        return np.frombuffer(cursor.take(count * dtype.itemsize), dtype).tolist()
    if kind not in (_STRING, _ARRAY):
        raise _damaged(cursor, f"the metadata type {kind} does not exist")
    cursor.expect(count * 8)  # a string takes at least its length, an array at least its type and count
    return [_value(cursor, kind, depth) for _ in range(count)]


def _string(cursor: Cursor) -> str:
    data = cursor.take(_u64(cursor))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _damaged(cursor, f"a string is not UTF-8 ({error.reason})") from error


def _u32(cursor: Cursor) -> int:
    return _U32.unpack(cursor.take(4))[0]


def _u64(cursor: Cursor) -> int:
    return _U64.unpack(cursor.take(8))[0]


def _entry(cursor: Cursor) -> tuple[str, GgufTensor]:
    """One row of the tensor table; its offset still counts from the start of the tensor data."""
    name, n_axes = _string(cursor), _u32(cursor)
    if not 1 <= n_axes <= _MAX_AXES:
        raise _damaged(cursor, f"tensor {name!r} has {n_axes} axes")
    shape = tuple(_u64(cursor) for _ in range(n_axes))[::-1]
    kind, offset = _u32(cursor), _u64(cursor)
    if kind not in _STORAGE:
        raise LoadError(
            f"{cursor.source}: tensor {name!r} is stored as type {kind}, which the gguf package does not know."
        )
    tensor = GgufTensor(shape, _STORAGE[kind], offset)
    block = GGML_QUANT_SIZES[tensor.kind][0]
    if 0 in shape or shape[-1] % block:
        raise _damaged(cursor, f"tensor {name!r} of shape {shape} cannot be stored in blocks of {block}")
    return name, tensor


def _placed(
    entries: list[tuple[str, GgufTensor]], cursor: Cursor, alignment: object, size: int
) -> dict[str, GgufTensor]:
    """The tensors with offsets from the start of the file: back to back, in order, inside the file."""
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _damaged(cursor, f"the alignment {alignment!r} is no power of two")
    start = -(-cursor.position // alignment) * alignment
    placed: dict[str, GgufTensor] = {}
    expected = 0
    for name, tensor in entries:
        if name in placed:
            raise _damaged(cursor, f"tensor {name!r} stands twice")
        if tensor.offset != expected:
            raise _damaged(cursor, f"tensor {name!r} starts at {tensor.offset} instead of {expected}")
        if start + expected + tensor.n_bytes > size:
            missing = start + expected + tensor.n_bytes - size
            raise LoadError(
                f"{cursor.source} is truncated: tensor {name!r} reaches {missing} bytes beyond its end. "
                "Fetch the file again."
            )
        placed[name] = GgufTensor(tensor.shape, tensor.kind, start + expected)
        expected += -(-tensor.n_bytes // alignment) * alignment
    return placed


def _damaged(cursor: Cursor, what: str) -> LoadError:
    return LoadError(f"{cursor.source} is damaged before byte {cursor.position}: {what}. Fetch the file again.")
