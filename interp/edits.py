"""Edits: small functions that write at a hook point. Pass them to `model.hooks` or `model.run_with_hooks`.

    model.run_with_hooks(tokens, [("blocks.3.attn.hook_z", edits.zero(heads=2))])

Every factory takes the same optional selection, by keyword: `batch`, `positions`, `heads` (KV heads at points that have
those) and `neurons`; each is an index, a list or a slice, negative indices count from the end, and what is left out
selects everything. A selection that touches no cell is a `UsageError`: an edit never silently does nothing. Positions
are columns of the token grid. While a text is read piece by piece through a cache they keep that meaning, counted from
its start: the edit acts when that column is read.

What each ablation tells differs: zero takes a component out of its usual range; mean and resample keep it there
(Chan et al. 2022, "Causal scrubbing"; Zhang & Nanda 2024). Report which one was used.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.hooks import HookFn, HookPoint
from interp.selection import Index, indices, whole_numbers

_AXES = {
    "batch": ("batch",),
    "positions": ("pos", "query_pos"),
    "heads": ("head", "kv_head"),
    "neurons": ("d_mlp",),
}


class Where(TypedDict, total=False):
    """Which cells an edit touches; see the module's text."""

    batch: Index
    positions: Index
    heads: Index
    neurons: Index


def replace(new: Tensor | float, **where: Unpack[Where]) -> HookFn:
    """Put `new` (broadcast to the selected cells) in their place: a patch, if it comes from another run."""

    def change(cells: Tensor, point: HookPoint, real: Tensor | None) -> Tensor:
        try:
            value = torch.as_tensor(new, dtype=cells.dtype, device=cells.device)
        except (TypeError, ValueError) as error:
            raise UsageError(f"A tensor or a number is put in place of cells, not {new!r}.") from error
        try:
            return value.expand_as(cells)
        except RuntimeError:
            came, wanted = tuple(value.shape), tuple(cells.shape)
            raise UsageError(
                f"A value of shape {came} does not fit the cells {wanted} selected at {point.name}."
            ) from None

    return _edit(change, where)


def zero(**where: Unpack[Where]) -> HookFn:
    """Zero-ablate. At softmax outputs prefer `knock_out`, which renormalises."""
    return _edit(lambda cells, point, real: torch.zeros_like(cells), where)


def mean(over: str | Sequence[str] = "batch", **where: Unpack[Where]) -> HookFn:
    """Replace every selected cell by the mean of the selected cells over the named axes (`batch`, `pos`, …).

    Padding is left out of the mean.
    """
    axes = [over] if isinstance(over, str) else list(over)

    def change(cells: Tensor, point: HookPoint, real: Tensor | None) -> Tensor:
        missing = [axis for axis in axes if axis not in point.spec.axes]
        if missing:
            raise UsageError(f"{point.name} has no axis {missing[0]!r}; its axes are {' '.join(point.spec.axes)}.")
        dims = [point.spec.axes.index(axis) for axis in axes]
        if real is None:
            return cells.mean(dims, keepdim=True).expand_as(cells)
        count = real.sum(dims, keepdim=True).clamp(min=1)
        return (cells.masked_fill(~real, 0).sum(dims, keepdim=True) / count).expand_as(cells)

    return _edit(change, where)


def resample(seed: int, **where: Unpack[Where]) -> HookFn:
    """Replace each example's cells by those of another example of the batch, never its own (a seeded rotation).

    Refused where padding would take the place of real cells.
    """

    def change(cells: Tensor, point: HookPoint, real: Tensor | None) -> Tensor:
        size = cells.shape[0]
        if size < 2:
            raise UsageError(
                f"Resampling at {point.name} needs at least two examples in the batch, {size} is selected."
            )
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        source = torch.empty_like(order)
        source[order] = order.roll(1)
        source = source.to(cells.device)
        if real is not None and bool((real & ~real[source]).any()):
            raise UsageError(
                f"Resampling at {point.name} would put padding in place of tokens; use texts of one length."
            )
        return cells[source]

    return _edit(change, where)


def scale(factor: float, **where: Unpack[Where]) -> HookFn:
    """Multiply by a factor."""
    return _edit(lambda cells, point, real: cells * factor, where)


def add_noise(std: float, seed: int, **where: Unpack[Where]) -> HookFn:
    """Add Gaussian noise of standard deviation `std`; the same seed gives the same noise at every call."""
    if not std > 0:
        raise UsageError(f"Noise needs a positive standard deviation, not {std}.")

    def change(cells: Tensor, point: HookPoint, real: Tensor | None) -> Tensor:
        noise = torch.randn(cells.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        return cells + std * noise.to(cells)

    return _edit(change, where)


def steer(direction: Float[Tensor, "*axes"], strength: float = 1.0, **where: Unpack[Where]) -> HookFn:
    """Add `strength · direction`, broadcast over the selected cells."""

    def change(cells: Tensor, point: HookPoint, real: Tensor | None) -> Tensor:
        try:
            return cells + (strength * direction.to(cells)).expand_as(cells)
        except RuntimeError:
            came, wanted = tuple(direction.shape), tuple(cells.shape)
            raise UsageError(f"A direction of shape {came} does not fit the cells {wanted} at {point.name}.") from None

    return _edit(change, where)


def knock_out(*, keys: Index, queries: Index | None = None, heads: Index | None = None) -> HookFn:
    """Block attention edges, for `attn.hook_attn_scores`: no selected query reads a selected key.

    The scores become −inf before the softmax, so the rest of each row is renormalised by construction and keeps its
    ratios (Geva et al. 2023, "Dissecting recall"). A query left with no key at all is a `UsageError`.
    """
    where: Where = {}
    if queries is not None:
        where["positions"] = queries
    if heads is not None:
        where["heads"] = heads

    def change(cells: Tensor, point: HookPoint, real: Tensor | None) -> Tensor:
        if point.spec.axes[-1] != "key_pos" or "scores" not in point.name:
            raise UsageError(
                f"Attention is knocked out before the softmax, at attn.hook_attn_scores, not at {point.name}."
            )
        label, partial = f"key of {point.name}", point.rows.partial
        columns = _columns(keys, 0, cells.shape[-1], label) if partial else _indices(keys, cells.shape[-1], label)
        blocked = cells.clone()
        blocked[..., columns.to(cells.device)] = -torch.inf
        if not partial and torch.equal(blocked, cells):
            raise UsageError(f"The edit blocks nothing: at {point.name} no selected query can read a selected key.")
        if (cells.isfinite().any(-1) & ~blocked.isfinite().any(-1)).any():
            raise UsageError(f"At {point.name} a query would be left with no key to read; keep at least one unblocked.")
        return blocked

    return _edit(change, where)


def compose(*edits: HookFn) -> HookFn:
    """One edit after the other, at the same point."""

    def edit(value: Tensor, point: HookPoint) -> Tensor:
        for each in edits:
            result = each(value, point)
            if not isinstance(result, Tensor | None):
                raise UsageError(f"A composed edit returned {type(result).__name__}; return a tensor, or None.")
            value = value if result is None else result
        return value

    return edit


Change = Callable[[Tensor, HookPoint, Tensor | None], Tensor]
"""`change(cells, point, real)`: the new cells; `real` is False at padding, None where there is none."""


def _edit(change: Change, where: Where) -> HookFn:
    """A hook that replaces the selected cells; it may write in place, the copy is its own.

    Attention edges that are masked stay masked: no edit lets a query read what lies ahead of it.
    """
    unknown = set(where) - set(_AXES)
    if unknown:
        raise UsageError(f"Cells are selected by {', '.join(_AXES)}, not by {sorted(unknown)[0]!r}.")

    def edit(value: Tensor, point: HookPoint) -> Tensor | None:
        index = _open_index(value, point, where)
        if index is None:
            return None
        real = _real(value, point)
        cells = value[index] if where else value
        changed = change(cells, point, real if real is None or not where else real[index])
        if "scores" in point.name:
            changed = torch.where(cells == -torch.inf, cells, changed)
        if where:
            value[index] = changed
            return value
        return value.copy_(changed)

    return edit


def _real(value: Tensor, point: HookPoint) -> Tensor | None:
    """Where the rows of a value are real tokens, in its own shape; None if none of them is padding."""
    mask = point.rows.mask
    if mask is None:
        return None
    axis = point.spec.position_axis
    shape = [size if index in (0, axis) else 1 for index, size in enumerate(value.shape)]
    return mask.view(shape).expand_as(value)


def _open_index(value: Tensor, point: HookPoint, where: Where) -> tuple[Tensor, ...] | None:
    """Index tensors, one an axis, that broadcast to the selected block; None if this piece of the text holds none."""
    chosen = [torch.arange(size) for size in value.shape]
    for key, selection in cast("dict[str, Index]", where).items():
        axis = next((i for i, name in enumerate(point.spec.axes) if name in _AXES[key]), None)
        if axis is None:
            raise UsageError(f"{point.name} has no axis to select {key} on; its axes are {' '.join(point.spec.axes)}.")
        label = f"{key} of {point.name}"
        if key == "positions" and point.rows.partial:
            chosen[axis] = _columns(selection, point.rows.start, value.shape[axis], label)
        else:
            chosen[axis] = _indices(selection, value.shape[axis], label)
    if any(len(indices) == 0 for indices in chosen):
        return None
    rank = value.dim()
    return tuple(ix.to(value.device).view([-1 if i == j else 1 for j in range(rank)]) for i, ix in enumerate(chosen))


def _columns(selection: Index, start: int, count: int, what: str) -> Tensor:
    """Rows of the `count` that are being read, for a selection of columns of a text that is read piece by piece."""
    if isinstance(selection, slice):
        wanted = list(range(start + count))[selection]
    else:
        wanted = whole_numbers(selection, what)
        if any(index < 0 for index in wanted):
            raise UsageError(f"A text that is read piece by piece has no end to count from: {what} {wanted}.")
    return torch.tensor([index - start for index in wanted if start <= index < start + count], dtype=torch.long)


def _indices(selection: Index, size: int, what: str) -> Tensor:
    try:
        return torch.tensor(indices(selection, size, what))
    except UsageError as error:
        raise UsageError(f"The edit touches no cell. {error}") from None
