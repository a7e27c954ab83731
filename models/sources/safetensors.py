"""Weights from a folder in Hugging Face layout: `config.json`, safetensors in one file or several, `tokenizer.json`.

A safetensors file is eight bytes of header length, a JSON header (name → dtype, shape, byte range), and the values back
to back. It is read with plain file reads: a memory map would count the whole file as this process's memory.
"""

import functools
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from interp.errors import LoadError
from interp.models.sources.checkpoint import Checkpoint
from interp.models.sources.files import (
    PICKLE_SUFFIXES,
    Cursor,
    combined_sha256,
    file_of,
    file_size,
    parse_json,
    read_bytes,
    read_json,
    refuse_pickle,
)
from interp.models.tokenizer import Tokenizer

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_ITEM_BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2},
    **{"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8},
}
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_MAX_AXES, _MAX_AXIS = 8, 2**48


@dataclass(frozen=True)
class _Stored:
    """One tensor in a safetensors file; `offset` counts from the start of the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int


def open_folder(folder: str | Path, source: str | None = None) -> Checkpoint:
    """Open a model folder; `source` is what to call it, if not its path. Raises `LoadError` for a damaged one."""
    folder = Path(folder)
    source = source or str(folder)
    config = file_of(folder, "config.json")
    if config is None:
        raise LoadError(f"{source} has no config.json, so it is no model folder in Hugging Face layout.")
    fields = read_json(config)
    files = _weight_files(folder, source)
    tensors = _merged(files, source)
    return Checkpoint(
        source=source,
        layout="hf",
        architecture=_architecture(fields, config),
        fields=fields,
        shapes={name: tensor.shape for name, tensor in tensors.items()},
        read=functools.partial(_read, tensors),
        tokenizer=functools.partial(_tokenizer, folder),
        sha256=functools.partial(combined_sha256, files),
    )


def _architecture(fields: Mapping[str, object], config: Path) -> str:
    match fields.get("architectures"):
        case [str(name)]:
            return name
        case stated:
            raise LoadError(f"{config} must name one architecture under 'architectures', not {reprlib.repr(stated)}.")


def _weight_files(folder: Path, source: str) -> list[Path]:
    """The safetensors files of the model: the shards that the index names, or the single file."""
    index, single = file_of(folder, _INDEX), file_of(folder, _SINGLE)
    if index is not None:
        return _shards(folder, index)
    if single is not None:
        return [single]
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLE_SUFFIXES)
    if pickles:
        refuse_pickle(f"{source}: {pickles[0]}")
    raise LoadError(f"{source} holds neither {_SINGLE} nor {_INDEX}, so there are no weights to load.")


def _shards(folder: Path, index: Path) -> list[Path]:
    """The files that an index names, each of which must lie in the folder itself."""
    placement = read_json(index).get("weight_map")
    if not isinstance(placement, dict) or not all(isinstance(name, str) for name in placement.values()):
        raise LoadError(f"{index} has no weight_map from tensor names to file names.")
    names = sorted(set(placement.values()))
    outside = [name for name in names if Path(name).name != name or not name.isprintable() or len(name) > 255]
    if not outside:
        found = {name: file_of(folder, name) for name in names}
        outside = [name for name, path in found.items() if path is None]
    if outside:
        raise LoadError(f"{index} names files that are not in the folder: {', '.join(outside)}.")
    return [folder / name for name in names]


def _merged(files: list[Path], source: str) -> dict[str, _Stored]:
    tensors: dict[str, _Stored] = {}
    for path in files:
        found = read_header(path)
        if twice := sorted(found.keys() & tensors.keys()):
            raise LoadError(f"{source} holds the tensor {twice[0]!r} in two files.")
        tensors |= found
    return tensors


def read_header(path: Path) -> dict[str, _Stored]:
    """Where each tensor of a safetensors file lies; every byte must belong to exactly one tensor."""
    size = file_size(path)
    try:
        with open(path, "rb") as file:
            cursor = Cursor(file, size, str(path))
            header = parse_json(cursor.take(int.from_bytes(cursor.take(8), "little")), f"The header of {path}")
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error
    header.pop("__metadata__", None)
    spans = sorted((_span(name, entry, path), name) for name, entry in header.items())
    tensors: dict[str, _Stored] = {}
    end = 0
    for (first, last, dtype, shape), name in spans:
        if first != end:
            raise LoadError(f"{path} is damaged: tensor {name!r} starts at byte {first} of the data instead of {end}.")
        tensors[name] = _Stored(path, dtype, shape, cursor.position + first)
        end = last
    if end != cursor.left:
        raise LoadError(
            f"{path} is truncated or damaged: its header describes {end} bytes of data, the file holds {cursor.left}. "
            "Fetch the file again."
        )
    return tensors


def _span(name: str, entry: object, path: Path) -> tuple[int, int, str, tuple[int, ...]]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(first), int(last)]} if dtype in _ITEM_BYTES:
            whole = len(shape) <= _MAX_AXES and all(type(axis) is int and 0 <= axis <= _MAX_AXIS for axis in shape)
            if whole and first >= 0 and last - first == math.prod(shape) * _ITEM_BYTES[dtype]:
                return first, last, dtype, tuple(shape)
    raise LoadError(
        f"{path} is damaged: its header describes tensor {name!r} as {reprlib.repr(entry)}, which cannot be."
    )


def _read(tensors: Mapping[str, _Stored], name: str, rows: slice | None = None) -> Tensor:
    """Rows of a tensor, in the dtype stored."""
    tensor = tensors[name]
    if tensor.dtype not in _DTYPES:
        raise LoadError(
            f"Tensor {name!r} in {tensor.path} is stored as {tensor.dtype}; weights must be {', '.join(_DTYPES)}. "
            "Convert a quantised model to one of these, or load it as GGUF."
        )
    leading = tensor.shape[0] if tensor.shape else 1
    first, last, _ = (rows or slice(None)).indices(leading)
    stride = math.prod(tensor.shape[1:]) * _ITEM_BYTES[tensor.dtype]
    data = read_bytes(tensor.path, tensor.offset + first * stride, (last - first) * stride)
    values = torch.from_numpy(data).view(_DTYPES[tensor.dtype])
    return values.view(last - first, *tensor.shape[1:]) if tensor.shape else values.view(())


def _tokenizer(folder: Path) -> Tokenizer | None:
    if file_of(folder, "tokenizer.json") is not None:
        return Tokenizer.from_file(folder)
    older = [name for name in ("tokenizer.model", "vocab.json", "merges.txt") if file_of(folder, name) is not None]
    if older:
        raise LoadError(
            f"{folder} has {older[0]} but no tokenizer.json. Write one with transformers: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
        )
    return None
