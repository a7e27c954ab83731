"""Weights from a `transformers` model that is already in memory, without importing `transformers`."""

import functools
import hashlib
from collections.abc import Mapping
from typing import Protocol

import torch
from tokenizers import Tokenizer as Backend
from torch import Tensor

from interp.errors import LoadError, UsageError
from interp.models.sources.checkpoint import Checkpoint
from interp.models.tokenizer import Tokenizer

_CHUNK_BYTES = 1 << 24
_ROLES = ("bos", "eos", "pad", "unk")


class PublishedConfig(Protocol):
    """The configuration object of a `transformers` model."""

    def to_dict(self) -> dict[str, object]:
        """All fields, defaults included."""
        ...


class PublishedModel(Protocol):
    """What is asked of a `transformers` model."""

    config: PublishedConfig

    def state_dict(self) -> Mapping[str, Tensor]:
        """Every parameter and buffer by name."""
        ...


def open_memory(hf_model: PublishedModel, tokenizer: object | None = None) -> Checkpoint:
    """Open a model in memory. Its weights will be copied: later changes to `hf_model` do not reach ours."""
    _check_model(hf_model)
    architecture = type(hf_model).__name__
    tensors = dict(hf_model.state_dict())
    return Checkpoint(
        source=f"{architecture} in memory",
        layout="hf",
        architecture=architecture,
        fields=hf_model.config.to_dict(),
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        read=functools.partial(_read, tensors),
        tokenizer=functools.partial(_wrapped, tokenizer),
        sha256=functools.partial(_sha256, tensors),
    )


def _check_model(hf_model: object) -> None:
    state, config = getattr(hf_model, "state_dict", None), getattr(hf_model, "config", None)
    if callable(state) and callable(getattr(config, "to_dict", None)):
        return
    came = repr(hf_model) if isinstance(hf_model, str) else f"an object of type {type(hf_model).__name__}"
    raise UsageError(
        f"A transformers model in memory is expected, such as AutoModelForCausalLM.from_pretrained(…) gives, not "
        f"{came}. A name, a folder or a file goes to load."
    )


def _read(tensors: Mapping[str, Tensor], name: str, rows: slice | None = None) -> Tensor:
    tensor = tensors[name].detach()
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        raise LoadError(f"Tensor {name!r} holds {tensor.dtype}; only unquantised floating-point weights can be copied.")
    return (tensor if rows is None else tensor[rows]).cpu()


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    """Hash of names, dtypes, shapes and values; a tied tensor that appears under two names counts under both."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.reshape(-1)
        step = _CHUNK_BYTES // tensor.dtype.itemsize
        for first in range(0, flat.numel(), step):
            total.update(flat[first : first + step].cpu().contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


def _wrapped(tokenizer: object | None) -> Tokenizer | None:
    """Our tokenizer around a `tokenizers` pipeline, by itself or inside a tokenizer of `transformers`."""
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    backend = tokenizer if isinstance(tokenizer, Backend) else getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise UsageError(
            f"A tokenizer of type {type(tokenizer).__name__} has no `tokenizers` pipeline inside. Give a fast "
            "tokenizer of transformers, a tokenizers.Tokenizer, an interp Tokenizer, or None."
        )
    stated = {role: getattr(tokenizer, f"{role}_token", None) for role in _ROLES}
    return Tokenizer.from_json(
        backend.to_str(), {role: token for role, token in stated.items() if isinstance(token, str)}
    )
