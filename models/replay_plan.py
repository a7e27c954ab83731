"""Where each cell of a sweep parts from the base run: its first layer and its first column, found by looking.

While the base run is under way, every edit is tried on the values that it will meet. What it changes first says from
where on the cell must be computed; an edit that changes nothing there is none. That is exact for edits that treat each
position by itself, since earlier positions of a cell hold the base run's values in every layer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.edits import Edit
from interp.hooks import HookFn, HookPoint, edits_replaced, recorders_active
from interp.models.attention import reading
from interp.models.positions import row_positions
from interp.models.walk import Base, Cell, Edits, behind_layers, layer_of_join
from interp.points import PointTable

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

BETWEEN_LAYERS = ("hook_embed", "blocks.*.hook_resid_post")
READ_LATER = ("blocks.*.attn.hook_rot_k", "blocks.*.attn.hook_v")


@dataclass(frozen=True)
class Plan:
    """The base run, the cells that must be computed, and the indices of those whose values are the base run's."""

    base: Base
    cells: list[Cell]
    known: list[int]


def unshortened(
    model: "Transformer", tokens: Tensor, mask: Tensor | None, base_edits: Edits, cells: Sequence[Edits]
) -> Plan:
    """Every cell from the tokens on, all columns: nothing is taken from the base run."""
    base = _base(model, tokens, mask, tokens.shape[1], base_edits, {}, {}, {}, None)
    return Plan(base, [Cell(index, edits) for index, edits in enumerate(cells)], [])


def shortened(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    mask: Bool[Tensor, "batch pos"] | None,
    base_edits: Edits,
    cells: Sequence[Edits],
    read: Sequence[int],
    budget: int,
) -> Plan:
    """Run the base run once, and note where each cell parts from it."""
    points, length = model.points(), tokens.shape[1]
    watcher = _Watcher(points, cells, length)
    last = model.config.n_layers
    with torch.no_grad(), edits_replaced(dict(_tuples(base_edits))), recorders_active(watcher, watcher.seen_in_layers):
        names = [*BETWEEN_LAYERS, *READ_LATER, *(name for name in ("hook_pos_embed",) if name in points)]
        _, cache = model.run_with_cache(tokens, names, mask=mask, stop_at_layer=last, budget=budget)
    parted = [
        _cell(points, index, edits, watcher.changes[index], base_edits, read, length)
        for index, edits in enumerate(cells)
    ]
    moving = [cell for cell in parted if cell is not None]
    earliest = min((cell.join for cell in moving), default=last)
    boundaries = {0: cache["hook_embed"]} | {layer + 1: cache["resid_post", layer] for layer in range(last)}
    joins = {last, *(cell.join for cell in moving)}
    shared = range(earliest, last) if any(cell.start for cell in moving) else range(0)
    base = _base(
        model,
        tokens,
        mask,
        max(read) + 1 if all(map(_cuttable, _all_edits([base_edits, *cells]))) else length,
        base_edits,
        {join: boundaries[join] for join in joins},
        {layer: cache["attn.rot_k", layer] for layer in shared},
        {layer: cache["attn.v", layer] for layer in shared},
        cache.get("hook_pos_embed"),
    )
    return Plan(base, moving, [index for index, cell in enumerate(parted) if cell is None])


def _base(
    model: "Transformer",
    tokens: Tensor,
    mask: Tensor | None,
    stop: int,
    edits: Edits,
    boundaries: Mapping[int, Tensor],
    keys: Mapping[int, Tensor],
    values: Mapping[int, Tensor],
    pos_embed: Tensor | None,
) -> Base:
    batch, length = tokens.shape
    positions = row_positions(batch, 0, length, mask, tokens.device)
    shared = reading(model.config, positions, mask, length)
    return Base(tokens, mask, positions, stop, shared, boundaries, pos_embed, keys, values, edits)


def unedited(model: "Transformer", base: Base, read: Sequence[int], *, shortcuts: bool) -> Cell:
    """The base run itself as a cell."""
    if not shortcuts:
        return Cell(-1, {})
    last, length = model.config.n_layers, base.tokens.shape[1]
    free = [
        first
        for name, first in _fixed(model.points(), base.edits, length)
        if layer_of_join(name, model.points()) >= last
    ]
    kept = min([min(read), *free])
    return Cell(-1, {}, join=last, start=kept, kept=kept)


class _Watcher:
    """A recorder that tries every cell's edits on the base run's values, and keeps what they would change first."""

    def __init__(self, points: PointTable, cells: Sequence[Edits], length: int) -> None:
        self.points = points
        self.changes: list[list[tuple[int, int]]] = [[] for _ in cells]
        """For each cell: (layer to join at, first column that changes) of every edit that changes anything."""
        self.by_name: dict[str, list[tuple[int, HookFn]]] = {}
        for index, edits in enumerate(cells):
            for name, functions in edits.items():
                if behind_layers(name, points):
                    self.changes[index] += [(points.n_layers, _first_column(each, length)) for each in functions]
                else:
                    self.by_name.setdefault(name, []).extend((index, each) for each in functions)

    @property
    def seen_in_layers(self) -> list[str]:
        return list(self.by_name)

    def __call__(self, value: Tensor, point: HookPoint) -> Tensor:
        join = layer_of_join(point.name, self.points)
        for index, edit in self.by_name[point.name]:
            first = edit.first_change(value, point) if isinstance(edit, Edit) else 0
            if first is not None:
                self.changes[index].append((join, first))
        return value


def _cell(
    points: PointTable,
    index: int,
    edits: Edits,
    changes: Sequence[tuple[int, int]],
    base_edits: Edits,
    read: Sequence[int],
    length: int,
) -> Cell | None:
    """The cell, from where it parts on; None where nothing that is read can differ from the base run."""
    if not changes:
        return None
    join = min(layer for layer, _ in changes)
    acting = [
        (name, first)
        for source in (edits, base_edits)
        for name, first in _fixed(points, source, length)
        if source is edits or layer_of_join(name, points) >= join
    ]
    start = min([first for _, first in changes] + [first for _, first in acting])
    if start > max(read):
        return None
    kept = min([max(start, min(read)), *(start for name, _ in acting if _behind_last_attention(name, points))])
    return Cell(index, edits, join, start if join < points.n_layers else kept, kept)


def _fixed(points: PointTable, edits: Edits, length: int) -> Iterable[tuple[str, int]]:
    """(point, first column that must be there) for each edit that cannot be given part of its positions."""
    for name, functions in edits.items():
        for function in functions:
            if not (isinstance(function, Edit) and function.positionwise):
                yield name, _first_column(function, length)


def _first_column(edit: HookFn, length: int) -> int:
    return edit.first_column(length) if isinstance(edit, Edit) else 0


def _behind_last_attention(name: str, points: PointTable) -> bool:
    """Whether a point lies where only the columns that are read are still computed."""
    order = list(points)
    return order.index(name) > order.index(f"blocks.{points.n_layers - 1}.attn.hook_rot_k")


def _cuttable(named: tuple[str, HookFn]) -> bool:
    """Whether an edit may be given fewer columns than the text has: not where keys are an axis of the value."""
    name, edit = named
    return isinstance(edit, Edit) and edit.positionwise and not name.endswith(("hook_attn_scores", "hook_pattern"))


def _all_edits(sources: Iterable[Edits]) -> Iterable[tuple[str, HookFn]]:
    return ((name, edit) for source in sources for name, functions in source.items() for edit in functions)


def _tuples(edits: Edits) -> Mapping[str, tuple[HookFn, ...]]:
    return {name: tuple(functions) for name, functions in edits.items()}
