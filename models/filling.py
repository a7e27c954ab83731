"""From an opened checkpoint to the weights of a model: every stored tensor is accounted for, then copied in place.

The table of a family says how each published tensor's axes become ours. Read backwards, the same row turns our weight
into a writable view in the published arrangement, and rows of the file are copied into it a few megabytes at a time:
the model is the only full copy of its weights that ever stands in memory.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from interp.errors import LoadError
from interp.models.config import ModelConfig
from interp.models.families.family import Family, axis_sizes, conditions
from interp.models.sources.checkpoint import Checkpoint, Progress

CHUNK_BYTES = 1 << 21
_ONE_THREAD = 1 << 15
"""Elements up to which torch works in one thread. Waking the others for a few megabytes gains nothing, and on a busy
machine each of the thousands of calls would wait milliseconds for a core."""
_SHOWN = 6


class Axes(NamedTuple):
    """One side of an einops pattern: for each axis of the tensor, the named axes that it is made of."""

    groups: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, side: str) -> "Axes":
        """Read a side such as `(head d_head) d_model`."""
        words = side.replace("(", " ( ").replace(")", " ) ").split()
        groups: list[tuple[str, ...]] = []
        inside: list[str] | None = None
        for word in words:
            if word == "(":
                inside = []
            elif word == ")" and inside is not None:
                groups.append(tuple(inside))
                inside = None
            elif inside is not None:
                inside.append(word)
            else:
                groups.append((word,))
        return cls(tuple(groups))

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a tensor arranged like this."""
        return tuple(math.prod(sizes[name] for name in group) for group in self.groups)

    def flat(self) -> list[str]:
        """The named axes in order, none joined."""
        return [name for group in self.groups for name in group]


class Assignment(NamedTuple):
    """One published tensor and the weight of ours that it fills."""

    published: str
    ours: str
    axes: str

    @property
    def stored(self) -> Axes:
        """The arrangement of the published tensor."""
        return Axes.parse(self.axes.split("->")[0])


def assignments(family: Family, config: ModelConfig, checkpoint: Checkpoint) -> list[Assignment]:
    """What fills what. Raises `LoadError` naming tensors that are missing, left over, or of another shape."""
    if config.n_layers > len(checkpoint.shapes):
        raise LoadError(
            f"{checkpoint.source} should have {config.n_layers} layers but holds only {len(checkpoint.shapes)} tensors."
        )
    found = list(_expanded(family, config))
    _check_names(family, config, checkpoint, found)
    sizes = axis_sizes(config)
    for assignment in found:
        came, expected = checkpoint.shapes[assignment.published], assignment.stored.shape(sizes)
        if came != expected:
            raise LoadError(
                f"{checkpoint.source} contradicts its own configuration: {assignment.published} has the shape {came}, "
                f"the configuration makes it {expected} ({assignment.axes.split(' ->')[0]})."
            )
    return found


def fill(
    weights: Mapping[str, Tensor],
    todo: Sequence[Assignment],
    config: ModelConfig,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
) -> None:
    """Copy every assigned tensor into its weight; raises `LoadError` for values that are not finite."""
    assert weights.keys() == {assignment.ours for assignment in todo}, "the tables and the model name the same weights"
    sizes = axis_sizes(config)
    total = sum(weight.numel() * weight.element_size() for weight in weights.values())
    done = 0
    for assignment in todo:
        weight = weights[assignment.ours]
        _fill_one(weight, assignment, sizes, checkpoint)
        done += weight.numel() * weight.element_size()
        if progress is not None:
            progress(done, total)


def check_copies(family: Family, config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Where embeddings are tied, a stored unembedding must repeat them exactly."""
    for copy, original in family.copies if config.tied_embeddings else ():
        if copy not in checkpoint.shapes:
            continue
        same_shape = checkpoint.shapes[copy] == checkpoint.shapes[original]
        if not same_shape or not all(
            torch.equal(checkpoint.read(copy, rows), checkpoint.read(original, rows))
            for rows in _row_ranges(checkpoint.shapes[copy], 1)
        ):
            raise LoadError(
                f"{checkpoint.source} contradicts itself: embeddings are said to be tied, but {copy} differs from "
                f"{original}. Set tie_word_embeddings to false in its configuration if the two are meant to differ."
            )


def _expanded(family: Family, config: ModelConfig) -> Iterator[Assignment]:
    holds = conditions(config)
    for row in family.rows:
        if not holds[row.when]:
            continue
        for layer in range(config.n_layers) if "{layer}" in row.published else (0,):
            yield Assignment(row.published.format(layer=layer), row.ours.format(layer=layer), row.axes)


def _check_names(family: Family, config: ModelConfig, checkpoint: Checkpoint, found: Sequence[Assignment]) -> None:
    needed = {assignment.published for assignment in found}
    allowed = {copy for copy, _ in family.copies} if config.tied_embeddings else set()
    missing = sorted(needed - checkpoint.shapes.keys())
    unused = sorted(
        name
        for name in checkpoint.shapes.keys() - needed - allowed
        if not any(fnmatchcase(name, pattern) for pattern in family.ignored)
    )
    if missing or unused:
        parts = [
            f"{len(names)} {what} ({_listed(names)})"
            for what, names in (("missing", missing), ("unused", unused))
            if names
        ]
        raise LoadError(
            f"{checkpoint.source} does not hold exactly the weights of its architecture: {'; '.join(parts)}."
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, …"


def _fill_one(weight: Tensor, assignment: Assignment, sizes: Mapping[str, int], checkpoint: Checkpoint) -> None:
    stored, ours = assignment.stored, assignment.axes.split("->")[1]
    target = rearrange(weight, f"{ours} -> {' '.join(stored.flat())}", **_named(sizes, stored))
    assert target.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr(), "splitting axes makes a view"
    inner = math.prod(target.shape[1 : len(stored.groups[0])])
    for rows in _row_ranges(stored.shape(sizes), inner):
        values = checkpoint.read(assignment.published, rows)
        part = target[rows.start // inner : rows.stop // inner]
        _copy(_finite(values, weight.dtype, assignment.published, checkpoint).view(part.shape), part)


def _named(sizes: Mapping[str, int], axes: Axes) -> dict[str, int]:
    return {name: sizes[name] for name in axes.flat()}


def _row_ranges(shape: tuple[int, ...], multiple: int) -> Iterator[slice]:
    """Ranges of the leading axis of about `CHUNK_BYTES` in float32, each a whole multiple of `multiple` rows."""
    row_bytes = 4 * math.prod(shape[1:])
    step = max(1, CHUNK_BYTES // (row_bytes * multiple)) * multiple
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))


def _finite(values: Tensor, dtype: torch.dtype, name: str, checkpoint: Checkpoint) -> Tensor:
    """The values in the model's dtype; infinities and NaN are refused, also those that a narrow dtype would make."""
    pieces = [piece.to(dtype) for piece in torch.split(values.flatten(), _ONE_THREAD)]
    converted = pieces[0] if len(pieces) == 1 else torch.cat(pieces) if dtype != values.dtype else values
    if all(math.isfinite(piece.sum(dtype=torch.float32).item()) for piece in pieces) or bool(
        converted.isfinite().all()
    ):
        return converted
    if bool(values.isfinite().all()):
        raise LoadError(f"Tensor {name} of {checkpoint.source} holds values too large for {dtype}; load it as float32.")
    raise LoadError(f"Tensor {name} of {checkpoint.source} holds NaN or infinite values; the file is damaged.")


def _copy(values: Tensor, target: Tensor) -> None:
    """Copy between tensors of one dtype and shape; on the CPU by numpy, which keeps to one thread."""
    if target.device.type != "cpu":
        target.copy_(values)
    elif target.dtype == torch.bfloat16:  # numpy has no such type, but moves two bytes as well
        np.copyto(target.view(torch.int16).numpy(), values.view(torch.int16).numpy())
    else:
        np.copyto(target.numpy(), values.numpy())
