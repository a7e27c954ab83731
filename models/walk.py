"""One walk through the layers for many edited runs at once.

A *cell* of a sweep is one re-run of all texts with some edits. Cells join the walk at their own layer, each from its
first changed position on; earlier keys and values are those of the base run, which no later position can change. In
between, the tokens of all cells lie side by side in one line, so that each weight is read once for all of them; only
attention takes them apart, in groups of cells that begin at the same position. The layers themselves are those of the
ordinary forward pass, hook points included.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from interp.hooks import HookFn, HookPoint, Rows, edited, edits_replaced, rows_active
from interp.models.attention import Attention, Reading
from interp.models.config import RotaryConfig
from interp.models.positions import Rotation
from interp.points import PointTable

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Edits = Mapping[str, Sequence[HookFn]]
"""Full name of a point → the edits there, in order."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One edited run of all texts, and where it parts from the base run."""

    index: int
    """Its place in the sweep, in reading order of the axes."""
    edits: Edits
    join: int = 0
    """The layer whose input it starts from; the number of layers for one that only edits what follows them."""
    start: int = 0
    """The first column of the token grid that differs from the base run."""
    kept: int = 0
    """The first column that is computed behind the attention of the last layer."""


@dataclass(frozen=True)
class Base:
    """The unedited run: what cells start from, and what they read of earlier positions."""

    tokens: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch pos"] | None
    positions: Int[Tensor, "batch pos"]
    stop: int
    """Columns from here on are never computed: nobody reads them."""
    reading: Reading
    """What the attention layers of the whole run share."""
    boundaries: Mapping[int, Float[Tensor, "batch pos d_model"]]
    """The residual stream between layers: 0 the embedding of the tokens, then what each layer leaves."""
    pos_embed: Float[Tensor, "batch pos d_model"] | None
    """What position embeddings add to it, in models that have them."""
    keys: Mapping[int, Float[Tensor, "batch pos kv_head d_head"]]
    values: Mapping[int, Float[Tensor, "batch pos kv_head d_head"]]
    edits: Edits = field(default_factory=dict)
    """Edits of the base run itself, which act in every cell too."""

    @property
    def batch(self) -> int:
        return self.tokens.shape[0]

    def rows(self, start: int) -> Rows:
        """What hooks are told of the rows from a column on."""
        total = self.tokens.shape[1]
        mask = None if self.mask is None else self.mask[:, start : self.stop]
        partial = start > 0 or self.stop < total
        return Rows(self.positions[:, start : self.stop], start, mask, partial, total)


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that begin at the same column, whose tokens lie together: cell by cell, text by text, column by column."""

    cells: tuple[Cell, ...]
    start: int
    kept: int
    tokens: slice
    rows: Rows
    reading: Reading

    @property
    def key(self) -> tuple[int, int]:
        """Cells of one group agree in this."""
        return self.start, self.kept


class Layout:
    """How the tokens of several cells lie side by side."""

    def __init__(self, base: Base, cells: Iterable[Cell], *, late: bool = False) -> None:
        self.base, self.late = base, late
        by_key: dict[tuple[int, int], list[Cell]] = {}
        for cell in cells:
            by_key.setdefault((cell.start, cell.kept), []).append(cell)
        self.groups: list[Group] = []
        self.place: dict[Cell, tuple[Group, slice, int]] = {}
        self.length = 0
        for members in by_key.values():
            self._add(tuple(members))

    @property
    def cells(self) -> list[Cell]:
        """All cells, as they lie."""
        return list(self.place)

    def columns(self, cell: Cell) -> int:
        """How many columns of that cell there are."""
        return self.base.stop - (cell.kept if self.late else cell.start)

    def _add(self, cells: tuple[Cell, ...]) -> None:
        base, columns, first = self.base, self.columns(cells[0]), self.length
        each = base.batch * columns
        start = base.stop - columns
        tokens = slice(first, first + len(cells) * each)
        group = Group(cells, cells[0].start, cells[0].kept, tokens, base.rows(start), _reading(base, start, len(cells)))
        self.groups.append(group)
        for number, cell in enumerate(cells):
            self.place[cell] = (group, slice(first + number * each, first + (number + 1) * each), number)
        self.length = tokens.stop

    def spread(self, x: Shaped[Tensor, "batch pos *rest"]) -> Shaped[Tensor, "1 line *rest"]:
        """One run's values, laid out for every cell from its own first column on."""
        parts = []
        for group in self.groups:
            part = x[:, group.rows.start : self.base.stop].flatten(0, 1)
            parts.append(part.repeat(len(group.cells), *[1] * (part.dim() - 1)))
        return torch.cat(parts)[None]

    def rotations(self) -> dict[RotaryConfig, Rotation]:
        """The base run's rotations, laid out like the tokens."""
        batch, found = self.base.batch, {}
        for config, turn in self.base.reading.rotations.items():
            cos, sin = (self.spread(table.expand(batch, -1, -1, -1)) for table in (turn.cos, turn.sin))
            found[config] = replace(turn, cos=cos, sin=sin)
        return found

    def view(self, line: Tensor, cell: Cell) -> Tensor:
        """One cell's part of a line of tokens, as [batch, pos, …]."""
        _, tokens, _ = self.place[cell]
        part = line[0, tokens]
        return part.view(self.base.batch, self.columns(cell), *part.shape[1:])


class Walk:
    """Cells on their way through the layers. Use it once: `run` gives what reached the end.

    A `differentiable` walk lets gradients pass, to what the edits put in; all its layers stay in memory until then.
    """

    def __init__(
        self,
        model: "Transformer",
        base: Base,
        cells: Sequence[Cell],
        *,
        from_tokens: bool = False,
        differentiable: bool = False,
    ) -> None:
        self.model, self.base, self.cells, self.from_tokens = model, base, cells, from_tokens
        self.differentiable = differentiable
        self.layout = self._before = Layout(base, [])
        self._square: tuple[Group, Group] | None = None
        self._reading = Reading(side_by_side=self)
        self._edited: dict[str, list[Cell]] = {name: list(cells) for name in base.edits}
        for cell in cells:
            for name in cell.edits:
                if name not in base.edits:
                    self._edited.setdefault(name, []).append(cell)

    def run(self, read: Sequence[int], at_once: int, sink: Callable[[Cell, Tensor], None]) -> None:
        """Walk through all layers; `sink(cell, logits [batch, read, d_vocab])` takes each cell's end.

        Of the columns to read come those from `cell.kept` on, in the order asked for. Logits are made for `at_once`
        cells at a time, while all edits are still active.
        """
        model, last = self.model, self.model.config.n_layers
        joining: dict[int, list[Cell]] = {}
        for cell in self.cells:
            joining.setdefault(cell.join, []).append(cell)
        line = torch.empty((1, 0, model.config.d_model), dtype=model.dtype, device=model.device)
        with torch.set_grad_enabled(self.differentiable), edits_replaced(dict.fromkeys(self._edited, (self._edit,))):
            for layer in range(min(joining), last):
                line = self._joined(line, joining.get(layer, []), layer)
                line = model.layers[layer](line, self._reading)
            self.layout = self._late()
            line = self._joined(line, joining.get(last, []), last)
            everything = self.layout
            cells = everything.cells
            for first in range(0, len(cells), at_once):
                self._read(line, everything, cells[first : first + at_once], read, sink)

    def _read(
        self,
        line: Tensor,
        everything: Layout,
        cells: Sequence[Cell],
        read: Sequence[int],
        sink: Callable[[Cell, Tensor], None],
    ) -> None:
        """Logits of some cells at those of the columns to read that they have kept.

        They are made at all columns where edits still act behind the layers.
        """
        self.layout = Layout(self.base, cells, late=True)
        whole = self.from_tokens or any(behind_layers(name, self.model.points()) for name in self._edited)
        parts = []
        for cell in self.layout.cells:
            view = everything.view(line, cell)
            first = self.base.stop - view.shape[1]
            wanted = [column - first for column in read if column >= first]
            parts.append((view if whole else view[:, wanted]).flatten(0, 1))
        logits = self.model.unembed_rows(torch.cat(parts)[None])[0]
        for cell, own in zip(self.layout.cells, torch.split(logits, [len(part) for part in parts]), strict=True):
            found = own.view(self.base.batch, -1, own.shape[-1])
            if whole:
                first = self.base.stop - found.shape[1]
                found = found[:, [column - first for column in read if column >= first]]
            sink(cell, found)

    # --------------------------------------------------------------------------- what a layer's attention asks for

    def attend(self, attention: Attention, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "1 kept head d_head"]:
        """z, group by group: each cell's queries read the base run's earlier keys and values, then the cell's own."""
        before = self.layout
        after = self._late() if attention.layer == self.model.config.n_layers - 1 else before
        found = []
        for early, late in zip(before.groups, after.groups, strict=True):
            self._square = (early, late)
            skipped = late.rows.start - early.rows.start
            keys, values = (
                self._with_base(run[attention.layer] if early.start else None, own, early)
                for run, own in ((self.base.keys, k), (self.base.values, v))
            )
            queries = _taken_apart(q, early, self.base)[:, skipped:]
            found.append(attention.attend(queries, keys, values, late.reading).flatten(0, 1))
        self._square, self._before, self.layout = None, before, after
        return torch.cat(found)[None]

    def kept(self, resid: Float[Tensor, "1 pos d_model"]) -> Float[Tensor, "1 kept d_model"]:
        """The residual stream where it is still needed behind the attention."""
        if self._before.length == self.layout.length:
            return resid
        return _cut(resid, self._before, self.layout)

    # -------------------------------------------------------------------------------------------------- private

    def _late(self) -> Layout:
        """The layout behind the last attention: only the columns that somebody reads."""
        if self.layout.late:
            return self.layout
        return Layout(self.base, self.layout.cells, late=True)

    def _with_base(self, base: Tensor | None, own: Tensor, group: Group) -> Tensor:
        """A cell's own keys or values behind those of the base run: [cell · batch, key_pos, kv_head, d_head]."""
        mine = _taken_apart(own, group, self.base)
        if base is None:
            return mine
        earlier = base[:, : group.start].repeat(len(group.cells), 1, 1, 1)
        return torch.cat([earlier, mine], 1)

    def _joined(self, line: Tensor, cells: list[Cell], layer: int) -> Tensor:
        """The line of tokens with these cells added to it, each beside those of its group."""
        if not cells:
            return line
        old, new = self.layout, Layout(self.base, cells, late=self.layout.late)
        self.layout = new
        added = self._beginning(new, layer)
        merged = Layout(self.base, [*old.cells, *new.cells], late=old.late)
        parts = {group.key: [line[0, group.tokens]] for group in old.groups}
        for group in new.groups:
            parts.setdefault(group.key, []).append(added[0, group.tokens])
        self.layout = merged
        self._reading = Reading(merged.rotations(), side_by_side=self)
        return torch.cat([part for group in merged.groups for part in parts[group.key]])[None]

    def _beginning(self, layout: Layout, layer: int) -> Tensor:
        """What new cells start from: the base run's residual stream, with what they change at that very point."""
        if self.from_tokens:
            return self.model.embedded(layout.spread(self.base.tokens), layout.spread(self.base.positions))
        if layer > 0:
            return self._edited_base(layout, self.base.boundaries[layer], self.model.layers[layer - 1].hook_resid_post)
        line = self._edited_base(layout, self.base.boundaries[0], self.model.hook_embed)
        if self.base.pos_embed is None:
            return line
        return line + self._edited_base(layout, self.base.pos_embed, self.model.hook_pos_embed)

    def _edited_base(self, layout: Layout, value: Tensor, point: HookPoint) -> Tensor:
        """A value of the base run, laid out for cells, with what they change at that very point."""
        line = layout.spread(value)
        if point.name in self._edited:
            self._apply(line, point, base_too=False)
        return line

    def _edit(self, value: Tensor, point: HookPoint) -> Tensor:
        """The one hook that the walk places at every point: each cell's edits, on its own part."""
        self._apply(value, point, base_too=True)
        return value

    def _apply(self, value: Tensor, point: HookPoint, *, base_too: bool) -> None:
        square = point.spec.axes[-1] == "key_pos"
        for cell in self._edited[point.name]:
            if cell not in self.layout.place and not square:
                continue
            edits = [*(self.base.edits.get(point.name, ()) if base_too else ()), *cell.edits.get(point.name, ())]
            part = self._square_part(value, cell) if square else (self.layout.view(value, cell), self._rows(cell))
            if part is None or not edits:
                continue
            own, rows = part
            with rows_active(rows):
                changed = own
                for edit in edits:
                    changed = edited(edit, changed, point)
            own.copy_(changed)

    def _rows(self, cell: Cell) -> Rows:
        return self.layout.place[cell][0].rows

    def _square_part(self, value: Tensor, cell: Cell) -> tuple[Tensor, Rows] | None:
        """A cell's scores or pattern, while the group that it belongs to is attending."""
        assert self._square is not None
        early, late = self._square
        found = self.layout.place.get(cell)
        if found is None or found[0] is not early:
            return None
        batch = self.base.batch
        return value[found[2] * batch : (found[2] + 1) * batch], late.rows


def _reading(base: Base, start: int, count: int) -> Reading:
    """Who may read whom, for `count` cells whose queries begin at a column."""

    def for_all(x: Tensor) -> Tensor:
        return x if len(x) == 1 else x.repeat(count, *[1] * (x.dim() - 1))

    whole, stop = base.reading, base.stop
    return Reading(
        edges={
            window: None if edges is None else for_all(edges[:, start:stop, :stop])
            for window, edges in whole.edges.items()
        },
        bias=None if whole.bias is None else for_all(whole.bias[..., :stop]),
        padded=None if whole.padded is None else for_all(whole.padded[:, start:stop]),
    )


def _taken_apart(line: Tensor, group: Group, base: Base) -> Tensor:
    """A group's part of a line of tokens, as [cell · batch, pos, …]."""
    part = line[0, group.tokens]
    return part.view(len(group.cells) * base.batch, -1, *part.shape[1:])


def _cut(line: Tensor, before: Layout, after: Layout) -> Tensor:
    """The columns of a line that the later layout keeps."""
    parts = []
    for early, late in zip(before.groups, after.groups, strict=True):
        skipped = late.rows.start - early.rows.start
        parts.append(_taken_apart(line, early, before.base)[:, skipped:].flatten(0, 1))
    return torch.cat(parts)[None]


def behind_layers(name: str, points: PointTable) -> bool:
    """Whether a point lies behind all layers: at the final norm or the logits."""
    return not points[name].per_layer and name not in ("hook_embed", "hook_pos_embed")


def layer_of_join(name: str, points: PointTable) -> int:
    """The layer whose input a run must start from for an edit at this point to act."""
    if name in ("hook_embed", "hook_pos_embed"):
        return 0
    if behind_layers(name, points):
        return points.n_layers
    layer = int(name.split(".", 2)[1])
    return layer + 1 if name.endswith(".hook_resid_post") else layer
