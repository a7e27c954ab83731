"""From an opened checkpoint to the weights of a model: every stored tensor is copied into its place.

The table of a family says how each published tensor's axes become ours. Read backwards, the same row turns our weight
into a writable view in the published arrangement, and rows of the file are copied into it a few megabytes at a time:
the model is the only full copy of its weights that ever stands in memory. A tensor that holds several weights is read
once for each of them, only those rows that hold some of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from interp.errors import LoadError
from interp.models.assignments import Assignment, Axes, Names, assignments
from interp.models.config import ModelConfig
from interp.models.families.family import Family, axis_sizes
from interp.models.sources.checkpoint import Checkpoint
from interp.models.sources.files import Progress

__all__ = ["Axes", "assignments", "check_copies", "fill"]

CHUNK_BYTES = 1 << 21
_ONE_THREAD = 1 << 15
"""Elements up to which torch works in one thread. Waking the others for a few megabytes gains nothing, and on a busy
machine each of the thousands of calls would wait milliseconds for a core."""


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
        whole = weights[assignment.ours]
        weight = whole if assignment.expert is None else whole[assignment.expert]
        _fill_one(weight, assignment, sizes, checkpoint)
        done += weight.numel() * weight.element_size()
        if progress is not None:
            progress(done, total)
    assert done == total, "the tables fill every weight once"


def check_copies(family: Family, config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Where embeddings are tied, a stored unembedding must repeat them exactly."""
    names = Names.of(family, checkpoint)
    for pair in family.copies if config.tied_embeddings else ():
        copy, original = map(names.spelled, pair)
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


def _fill_one(weight: Tensor, assignment: Assignment, sizes: Mapping[str, int], checkpoint: Checkpoint) -> None:
    start, at, stored = _place(assignment, sizes)
    names = [name for name in stored.flat() if at is None or name != at[0]]
    target = _arranged(weight, assignment.axes.split("->")[1], names, sizes)
    inner = math.prod(sizes[name] for name in stored.groups[0][1:])
    for rows in _row_ranges(stored.shape(sizes), inner):
        values = checkpoint.read(assignment.published, slice(start + rows.start, start + rows.stop))
        if at is not None:
            by_axis = values.reshape(-1, *(sizes[name] for name in stored.flat()[1:]))
            values = by_axis.select(stored.flat().index(at[0]), at[1])
        part = target[rows.start // inner : rows.stop // inner]
        shifted = _shifted(values, assignment.shift)
        _copy(_finite(shifted, weight.dtype, assignment.published, checkpoint).reshape(part.shape), part)


def _place(assignment: Assignment, sizes: Mapping[str, int]) -> tuple[int, tuple[str, int] | None, Axes]:
    """The row where a part begins, what is to be taken of each row read, and how the rows are arranged.

    Stacked along the leading axis, a part is a range of rows, and nothing else need be read.
    """
    stored, at = assignment.stored, assignment.at
    (leading, *inner), *others = stored.groups
    if at is None or at[0] != leading:
        return assignment.first, at, stored
    start = assignment.first + at[1] * math.prod(sizes[name] for name in inner)
    return start, None, Axes((tuple(inner) or ("1",), *others))


def _arranged(weight: Tensor, ours: str, names: Sequence[str], sizes: Mapping[str, int]) -> Tensor:
    """A writable view of a weight with the named axes in this order, none joined."""
    named = {name: sizes[name] for name in names if name != "1"}
    view = rearrange(weight, f"{ours} -> {' '.join(names)}", **named)
    assert view.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr(), "splitting axes makes a view"
    return view


def _row_ranges(shape: tuple[int, ...], multiple: int) -> Iterator[slice]:
    """Ranges of the leading axis of about `CHUNK_BYTES` in float32, each a whole multiple of `multiple` rows."""
    row_bytes = 4 * math.prod(shape[1:])
    step = max(1, CHUNK_BYTES // (row_bytes * multiple)) * multiple
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))


def _shifted(values: Tensor, shift: float) -> Tensor:
    """In float32 or wider, so that half precision does not round the sum before the model's own dtype does."""
    return values.to(torch.promote_types(values.dtype, torch.float32)) + shift if shift else values


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
