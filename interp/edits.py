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

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import TypedDict, Unpack, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.hooks import HookFn, HookPoint, Rows
from interp.selection import Index, indices, whole_numbers

_AXES = {
    "batch": ("batch",),
    "positions": ("pos", "query_pos"),
    "heads": ("head", "kv_head"),
    "neurons": ("d_mlp", "d_shared"),
}


class Where(TypedDict, total=False):
    """Which cells an edit touches; see the module's text."""

    batch: Index
    positions: Index
    heads: Index
    neurons: Index


def replace(new: Tensor | float, **where: Unpack[Where]) -> "Edit":
    """Put `new` (broadcast to the selected cells) in their place: a patch, if it comes from another run."""
    if not isinstance(new, Tensor | int | float):
        raise UsageError(f"A tensor or a number is put in place of cells, not {new!r}.")
    return Edit(lambda chosen: chosen.fitted(torch.as_tensor(new), "value"), where)


def zero(**where: Unpack[Where]) -> "Edit":
    """Zero-ablate. At softmax outputs prefer `knock_out`, which renormalises."""
    return Edit(lambda chosen: torch.zeros_like(chosen.cells), where)


def mean(over: str | Sequence[str] = "batch", **where: Unpack[Where]) -> "Edit":
    """Replace every selected cell by the mean of the selected cells over the named axes (`batch`, `pos`, …).

    Padding is left out of the mean.
    """
    axes = [over] if isinstance(over, str) else list(over)

    def change(chosen: Selected) -> Tensor:
        cells, real, point = chosen.cells, chosen.real, chosen.point
        missing = [axis for axis in axes if axis not in point.spec.axes]
        if missing:
            raise UsageError(f"{point.name} has no axis {missing[0]!r}; its axes are {' '.join(point.spec.axes)}.")
        dims = [point.spec.axes.index(axis) for axis in axes]
        if real is None:
            return cells.mean(dims, keepdim=True).expand_as(cells)
        count = real.sum(dims, keepdim=True).clamp(min=1)
        return (cells.masked_fill(~real, 0).sum(dims, keepdim=True) / count).expand_as(cells)

    return Edit(change, where, positionwise=not set(axes) & set(_AXES["positions"]))


def resample(seed: int, **where: Unpack[Where]) -> "Edit":
    """Replace each example's cells by those of another example of the batch, never its own (a seeded rotation).

    Refused where padding would take the place of real cells.
    """

    def change(chosen: Selected) -> Tensor:
        cells, real, name = chosen.cells, chosen.real, chosen.point.name
        size = cells.shape[0]
        if size < 2:
            raise UsageError(f"Resampling at {name} needs at least two examples in the batch, {size} is selected.")
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        source = torch.empty_like(order)
        source[order] = order.roll(1)
        source = source.to(cells.device)
        if real is not None and bool((real & ~real[source]).any()):
            raise UsageError(f"Resampling at {name} would put padding in place of tokens; use texts of one length.")
        return cells[source]

    return Edit(change, where)


def scale(factor: float, **where: Unpack[Where]) -> "Edit":
    """Multiply by a factor."""
    return Edit(lambda chosen: chosen.cells * factor, where)


def add_noise(std: float, seed: int, **where: Unpack[Where]) -> "Edit":
    """Add Gaussian noise of standard deviation `std`; the same seed gives the same noise at every call.

    The noise of a column of the token grid comes from (seed, column), so that a text which is read piece by piece gets
    the noise that it would get at once.
    """
    if not std > 0:
        raise UsageError(f"Noise needs a positive standard deviation, not {std}.")

    def change(chosen: Selected) -> Tensor:
        axis = chosen.point.spec.position_axis
        shape = [size for index, size in enumerate(chosen.cells.shape) if index != axis]
        draws = [np.random.default_rng([seed, column]).standard_normal(shape, np.float32) for column in chosen.columns]
        noise = torch.from_numpy(np.stack(draws, axis))
        return chosen.cells + std * noise.to(chosen.cells)

    return Edit(change, where)


def steer(direction: Float[Tensor, "*axes"], strength: float = 1.0, **where: Unpack[Where]) -> "Edit":
    """Add `strength · direction`, broadcast over the selected cells."""
    return Edit(lambda chosen: chosen.cells + strength * chosen.fitted(direction, "direction"), where)


def knock_out(*, keys: Index, queries: Index | None = None, heads: Index | None = None) -> "Edit":
    """Block attention edges, for `attn.hook_attn_scores`: no selected query reads a selected key.

    The scores become −inf before the softmax, so the rest of each row is renormalised by construction and keeps its
    ratios (Geva et al. 2023, "Dissecting recall"). A query left with no key at all is a `UsageError`.
    """
    where: Where = {}
    if queries is not None:
        where["positions"] = queries
    if heads is not None:
        where["heads"] = heads

    def change(chosen: Selected) -> Tensor:
        cells, point = chosen.cells, chosen.point
        if point.spec.axes[-1] != "key_pos" or "scores" not in point.name:
            raise UsageError(
                f"Attention is knocked out before the softmax, at attn.hook_attn_scores, not at {point.name}."
            )
        columns = _columns(keys, replace_fields(point.rows, start=0), cells.shape[-1], f"key of {point.name}").here
        blocked = cells.clone()
        blocked[..., torch.tensor(columns, device=cells.device)] = -torch.inf
        if not point.rows.partial and torch.equal(blocked, cells):
            raise UsageError(f"The edit blocks nothing: at {point.name} no selected query can read a selected key.")
        if (cells.isfinite().any(-1) & ~blocked.isfinite().any(-1)).any():
            raise UsageError(f"At {point.name} a query would be left with no key to read; keep at least one unblocked.")
        return blocked

    return Edit(change, where)


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


@dataclass(frozen=True)
class Columns:
    """Columns of the token grid that were selected, and those of them that are being read now."""

    here: list[int]
    """Places among the rows that are being read."""
    absolute: list[int]
    """The same, as columns of the whole text."""
    places: list[int]
    """The same, as places of the selection."""
    count: int | None
    """How many the whole text has of them; None while it has no end yet."""


@dataclass(frozen=True)
class Selected:
    """The cells that an edit changes at one point: what it needs to know to give the same values to part of a text."""

    cells: Tensor
    point: HookPoint
    real: Tensor | None
    """False at padding, in the shape of the cells; None where there is none."""
    within: Columns

    @property
    def columns(self) -> list[int]:
        """Column of the token grid of each selected position that is here."""
        return self.within.absolute

    def fitted(self, value: Tensor, what: str) -> Tensor:
        """A value broadcast to all that was selected, of which the part that is here is taken."""
        axis, whole = self.point.spec.position_axis, list(self.cells.shape)
        if self.within.count is not None:
            whole[axis] = self.within.count
        try:
            spread = value.to(self.cells).expand(whole)
        except RuntimeError:
            came, name = tuple(value.shape), self.point.name
            raise UsageError(f"A {what} of shape {came} does not fit the cells {tuple(whole)} at {name}.") from None
        if len(self.within.places) == whole[axis]:
            return spread
        return spread.index_select(axis, torch.tensor(self.within.places, device=spread.device))


@dataclass(frozen=True)
class Edit:
    """A hook that replaces the selected cells. It may write in place: the copy that it is given is its own.

    Attention edges that are masked stay masked: no edit lets a query read what lies ahead of it.
    """

    change: Callable[[Selected], Tensor]
    where: Where
    positionwise: bool = True
    """Whether what becomes of one position depends on no other, so that part of a text can be edited by itself."""

    def __post_init__(self) -> None:
        unknown = set(self.where) - set(_AXES)
        if unknown:
            raise UsageError(f"Cells are selected by {', '.join(_AXES)}, not by {sorted(unknown)[0]!r}.")

    def __call__(self, value: Tensor, point: HookPoint) -> Tensor | None:
        """The value with its selected cells changed; None if none of them is among the rows that are being read."""
        found = self._changed(value, point)
        if found is None:
            return None
        index, _, changed = found
        value[index] = changed
        return value

    def first_change(self, value: Tensor, point: HookPoint) -> int | None:
        """The first column that this edit would change in `value`, which it leaves alone; None if it changes none."""
        found = self._changed(value, point)
        if found is None:
            return None
        index, chosen, changed = found
        differs = (changed != value[index]).movedim(point.spec.position_axis, 0).flatten(1).any(1)
        columns = [column for column, here in zip(chosen.columns, differs.tolist(), strict=True) if here]
        return min(columns, default=None) if self.positionwise or not columns else min(chosen.columns)

    def first_column(self, length: int) -> int:
        """The first column of a text of `length` tokens that is selected."""
        return min(indices(self.where.get("positions", slice(None)), length, "positions"))

    def _changed(self, value: Tensor, point: HookPoint) -> tuple[tuple[Tensor | slice, ...], Selected, Tensor] | None:
        opened = _opened(value, point, self.where)
        if opened is None:
            return None
        index, within = opened
        real, cells = _real(value, point), value[index]
        chosen = Selected(cells, point, None if real is None else real[index], within)
        changed = self.change(chosen)
        if "scores" in point.name:
            changed = torch.where(cells == -torch.inf, cells, changed)
        return index, chosen, changed


def _real(value: Tensor, point: HookPoint) -> Tensor | None:
    """Where the rows of a value are real tokens, in its own shape; None if none of them is padding."""
    mask = point.rows.mask
    if mask is None:
        return None
    axis = point.spec.position_axis
    shape = [size if index in (0, axis) else 1 for index, size in enumerate(value.shape)]
    return mask.view(shape).expand_as(value)


def _opened(value: Tensor, point: HookPoint, where: Where) -> tuple[tuple[Tensor | slice, ...], Columns] | None:
    """An index of the selected block, one entry an axis, and its columns; None if this piece of the text holds none."""
    chosen: dict[int, list[int]] = {}
    positions, count = point.spec.position_axis, value.shape[point.spec.position_axis]
    within = _columns(slice(None), point.rows, count, "positions")
    for key, selection in cast("dict[str, Index]", where).items():
        axis = next((i for i, name in enumerate(point.spec.axes) if name in _AXES[key]), None)
        if axis is None:
            raise UsageError(f"{point.name} has no axis to select {key} on; its axes are {' '.join(point.spec.axes)}.")
        label = f"{key} of {point.name}"
        if axis == positions:
            within = _columns(selection, point.rows, count, label)
            chosen[axis] = within.here
        else:
            chosen[axis] = _indices(selection, value.shape[axis], label)
    if any(len(places) == 0 for places in chosen.values()):
        return None
    return _block(chosen, value), within


def _block(chosen: Mapping[int, list[int]], value: Tensor) -> tuple[Tensor | slice, ...]:
    """Index tensors that broadcast to a block; slices where the places follow each other, which is faster."""
    sequences = {axis: slice(places[0], places[-1] + 1) for axis, places in chosen.items() if _follow(places)}
    if len(sequences) == len(chosen):
        return tuple(sequences.get(axis, slice(None)) for axis in range(value.dim()))
    places = [chosen.get(axis, range(size)) for axis, size in enumerate(value.shape)]
    rank = range(value.dim())
    return tuple(
        torch.tensor(list(each), device=value.device).view([-1 if i == j else 1 for j in rank])
        for i, each in enumerate(places)
    )


def _follow(places: Sequence[int]) -> bool:
    return all(later == earlier + 1 for earlier, later in itertools.pairwise(places))


def _columns(selection: Index, rows: Rows, count: int, what: str) -> Columns:
    """Which of the `count` rows that are being read are selected."""
    total = rows.total if rows.partial else count
    if total is not None:
        wanted = _indices(selection, total, what)
    elif isinstance(selection, slice):
        wanted = list(range(rows.start + count))[selection]
    else:
        wanted = whole_numbers(selection, what)
        if any(column < 0 for column in wanted):
            raise UsageError(f"A text that is read piece by piece has no end to count from: {what} {wanted}.")
    endless = total is None and isinstance(selection, slice)
    here = [(place, column) for place, column in enumerate(wanted) if rows.start <= column < rows.start + count]
    return Columns(
        here=[column - rows.start for _, column in here],
        absolute=[column for _, column in here],
        places=[place for place, _ in here],
        count=None if endless else len(wanted),
    )


def _indices(selection: Index, size: int, what: str) -> list[int]:
    try:
        return indices(selection, size, what)
    except UsageError as error:
        raise UsageError(f"The edit touches no cell. {error}") from None
