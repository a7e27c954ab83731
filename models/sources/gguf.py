"""Weights from a GGUF file, in any of its storage types.

Rows are decoded a few at a time straight out of the file, so that neither the file nor a decoded copy of it ever
stands in memory next to the model.
"""

import functools
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from interp.errors import LoadError
from interp.models.sources.checkpoint import Checkpoint
from interp.models.sources.files import file_sha256, read_bytes
from interp.models.sources.gguf_header import GgufHeader, GgufTensor, read_header
from interp.models.tokenizer import Tokenizer


def open_gguf(path: str | Path, sha256: str | None = None) -> Checkpoint:
    """Open a GGUF file, whose hash may be known already; raises `LoadError` if it is no GGUF, truncated or damaged."""
    path = Path(path)
    header = read_header(path)
    architecture = header.fields.get("general.architecture")
    if not isinstance(architecture, str):
        raise LoadError(f"{path} does not say which architecture it holds (general.architecture is {architecture!r}).")
    return Checkpoint(
        source=str(path),
        layout="gguf",
        architecture=architecture,
        fields=header.fields,
        shapes={name: tensor.shape for name, tensor in header.tensors.items()},
        read=functools.partial(_read, path, header),
        tokenizer=functools.partial(_tokenizer, path, header),
        sha256=lambda: sha256 or file_sha256(path),
    )


def _tokenizer(path: Path, header: GgufHeader) -> Tokenizer | None:
    if not any(key.startswith("tokenizer.ggml.") for key in header.fields):
        return None
    return Tokenizer.from_gguf(header.fields, str(path))


def _read(path: Path, header: GgufHeader, name: str, rows: slice | None = None) -> Tensor:
    """Rows of a tensor: float16 as stored, everything else decoded to float32."""
    tensor = header.tensors[name]
    if len(tensor.shape) == 1:  # a vector is one row of blocks
        values = _decode(read_bytes(path, tensor.offset, tensor.n_bytes), tensor, name)
        return values if rows is None else values[rows]
    first, last, _ = (rows or slice(None)).indices(tensor.shape[0])
    stride = tensor.n_bytes // tensor.shape[0]
    data = read_bytes(path, tensor.offset + first * stride, (last - first) * stride)
    return _decode(data, tensor, name).view(last - first, *tensor.shape[1:])


def _decode(data: npt.NDArray[np.uint8], tensor: GgufTensor, name: str) -> Tensor:
    if tensor.kind == GGMLQuantizationType.F16:
        return torch.from_numpy(data.view(np.float16))
    try:
        with np.errstate(all="ignore"):  # damaged scales decode to infinities, which the caller refuses by name
            values = gguf.dequantize(data.reshape(-1, tensor.row_bytes), tensor.kind)
    except NotImplementedError as error:
        raise LoadError(
            f"Tensor {name!r} is stored as {tensor.kind.name}, which the gguf package cannot decode."
        ) from error
    return torch.from_numpy(values).view(-1)
