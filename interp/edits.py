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
from typing import TypedDict, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.hooks import HookFn, HookPoint

Index = int | slice | Sequence[int]

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

    def change(cells: Tensor, point: HookPoint) -> Tensor:
        value = torch.as_tensor(new, dtype=cells.dtype, device=cells.device)
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
    return _edit(lambda cells, point: torch.zeros_like(cells), where)


def mean(over: str | Sequence[str] = "batch", **where: Unpack[Where]) -> HookFn:
    """Replace every selected cell by the mean of the selected cells over the named axes (`batch`, `pos`, …)."""
    axes = [over] if isinstance(over, str) else list(over)

    def change(cells: Tensor, point: HookPoint) -> Tensor:
        missing = [axis for axis in axes if axis not in point.spec.axes]
        if missing:
            raise UsageError(f"{point.name} has no axis {missing[0]!r}; its axes are {' '.join(point.spec.axes)}.")
        return cells.mean([point.spec.axes.index(axis) for axis in axes], keepdim=True).expand_as(cells)

    return _edit(change, where)


def resample(seed: int, **where: Unpack[Where]) -> HookFn:
    """Replace each example's cells by those of another example of the batch, never its own (a seeded rotation)."""

    def change(cells: Tensor, point: HookPoint) -> Tensor:
        size = cells.shape[0]
        if size < 2:
            raise UsageError(
                f"Resampling at {point.name} needs at least two examples in the batch, {size} is selected."
            )
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        source = torch.empty_like(order)
        source[order] = order.roll(1)
        return cells[source.to(cells.device)]

    return _edit(change, where)


def scale(factor: float, **where: Unpack[Where]) -> HookFn:
    """Multiply by a factor."""
    return _edit(lambda cells, point: cells * factor, where)


def add_noise(std: float, seed: int, **where: Unpack[Where]) -> HookFn:
    """Add Gaussian noise of standard deviation `std`; the same seed gives the same noise at every call."""
    if not std > 0:
        raise UsageError(f"Noise needs a positive standard deviation, not {std}.")

    def change(cells: Tensor, point: HookPoint) -> Tensor:
        noise = torch.randn(cells.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        return cells + std * noise.to(cells)

    return _edit(change, where)


def steer(direction: Float[Tensor, "*axes"], strength: float = 1.0, **where: Unpack[Where]) -> HookFn:
    """Add `strength · direction`, broadcast over the selected cells."""

    def change(cells: Tensor, point: HookPoint) -> Tensor:
        if direction.shape[-1] != cells.shape[-1]:
            came, wanted = direction.shape[-1], cells.shape[-1]
            raise UsageError(
                f"The direction has {came} numbers; {point.name} has {wanted} along {point.spec.axes[-1]}."
            )
        return cells + strength * direction.to(cells)

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

    def change(cells: Tensor, point: HookPoint) -> Tensor:
        if point.spec.axes[-1] != "key_pos" or "scores" not in point.name:
            raise UsageError(
                f"Attention is knocked out before the softmax, at attn.hook_attn_scores, not at {point.name}."
            )
        readable = cells.isfinite().any(-1)
        blocked = cells.clone()
        blocked[..., _indices(keys, cells.shape[-1], f"key of {point.name}").to(cells.device)] = -torch.inf
        if (readable & ~blocked.isfinite().any(-1)).any():
            raise UsageError(f"At {point.name} a query would be left with no key to read; keep at least one unblocked.")
        return blocked

    return _edit(change, where)


def compose(*edits: HookFn) -> HookFn:
    """One edit after the other, at the same point."""

    def edit(value: Tensor, point: HookPoint) -> Tensor:
        for each in edits:
            result = each(value, point)
            value = value if result is None else result
        return value

    return edit


def _edit(change: Callable[[Tensor, HookPoint], Tensor], where: Where) -> HookFn:
    """A hook that replaces the selected cells by `change(cells, point)`; it may write in place, the copy is its own."""
    unknown = set(where) - set(_AXES)
    if unknown:
        raise UsageError(f"Cells are selected by {', '.join(_AXES)}, not by {sorted(unknown)[0]!r}.")

    def edit(value: Tensor, point: HookPoint) -> Tensor | None:
        index = _open_index(value, point, where)
        if index is None:
            return None
        if where:
            value[index] = change(value[index], point)
        else:
            value.copy_(change(value, point))
        return value

    return edit


def _open_index(value: Tensor, point: HookPoint, where: Where) -> tuple[Tensor, ...] | None:
    """Index tensors, one an axis, that broadcast to the selected block; None if this piece of the text holds none."""
    chosen = [torch.arange(size) for size in value.shape]
    for key, selection in where.items():
        axis = next((i for i, name in enumerate(point.spec.axes) if name in _AXES[key]), None)
        if axis is None:
            raise UsageError(f"{point.name} has no axis to select {key} on; its axes are {' '.join(point.spec.axes)}.")
        label = f"{key} of {point.name}"
        if key == "positions" and point.rows.partial:
            chosen[axis] = _columns(selection, point.rows.start, value.shape[axis], label)  # type: ignore[arg-type]
        else:
            chosen[axis] = _indices(selection, value.shape[axis], label)  # type: ignore[arg-type]
    if any(len(indices) == 0 for indices in chosen):
        return None
    rank = value.dim()
    return tuple(ix.to(value.device).view([-1 if i == j else 1 for j in range(rank)]) for i, ix in enumerate(chosen))


def _columns(selection: Index, start: int, count: int, label: str) -> Tensor:
    """Rows of the `count` that are being read, for a selection of columns of a text that is read piece by piece."""
    if isinstance(selection, slice):
        indices = list(range(start + count))[selection]
    else:
        indices = [selection] if isinstance(selection, int) else [int(index) for index in selection]
        if any(index < 0 for index in indices):
            raise UsageError(f"A text that is read piece by piece has no end to count from: {label} {indices}.")
    return torch.tensor([index - start for index in indices if start <= index < start + count], dtype=torch.long)


def _indices(selection: Index, size: int, label: str) -> Tensor:
    if isinstance(selection, slice):
        indices = list(range(size))[selection]
    else:
        indices = [selection] if isinstance(selection, int) else [int(index) for index in selection]
    outside = [index for index in indices if not -size <= index < size]
    if outside or not indices:
        what = f"{outside[0]} lies outside 0 to {size - 1}" if outside else "the selection is empty"
        raise UsageError(f"The edit touches no cell: for {label}, {what}.")
    return torch.tensor([index % size for index in indices])
