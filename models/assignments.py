"""Which stored tensor fills which weight: the rows of a family's table written out, and held against what is stored.

Nothing is read here. Every stored tensor must be accounted for, and where several weights are parts of one, the parts
must make it up exactly once.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from interp.errors import LoadError
from interp.models.config import ModelConfig
from interp.models.families.family import Family, Row, axis_sizes, holds
from interp.models.sources.checkpoint import Checkpoint

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
    """One published tensor, or a part of one, and the weight of ours that it fills.

    `first` is the row of the tensor where the part begins; `at` as in `Row`; `expert` is the index of the weight's
    leading axis that is filled, where it is not the whole weight.
    """

    published: str
    ours: str
    axes: str
    first: int = 0
    at: tuple[str, int] | None = None
    expert: int | None = None
    shift: float = 0.0

    @property
    def stored(self) -> Axes:
        """The arrangement of these rows of the published tensor."""
        return Axes.parse(self.axes.split("->")[0])

    def __str__(self) -> str:
        """Its place among the parts of its tensor, for messages."""
        place = f"from row {self.first}" if self.at is None else f"from row {self.first}, {self.at[0]} {self.at[1]}"
        return f"{self.ours} ({place}, as {self.axes.split(' ->')[0]})"


class Names(NamedTuple):
    """How a checkpoint spells the names of a table: `prefix` stands before all of them, or all but the `outer` ones."""

    prefix: str
    outer: frozenset[str]
    stored: frozenset[str]

    @classmethod
    def of(cls, family: Family, checkpoint: Checkpoint) -> "Names":
        """The spelling found. The unembedding, and a stored copy of it, may go without the prefix."""
        rows = [row for table in family.tables for row in table]
        outer = frozenset(row.published for row in rows if row.ours.startswith("unembed."))
        outer |= {copy for copy, _ in family.copies}
        stored = frozenset(checkpoint.shapes)
        inner = stored - outer
        found = (prefix for prefix in family.prefixes if inner and all(name.startswith(prefix) for name in inner))
        return cls(next(found, ""), outer, stored)

    def spelled(self, name: str) -> str:
        """A name of the table, as the checkpoint has it or should have it."""
        whole = self.prefix + name
        return name if name in self.outer and whole not in self.stored else whole


class Draft(NamedTuple):
    """What one table of a family makes of a checkpoint, and which names speak against it."""

    found: list[Assignment]
    missing: list[str]
    unused: list[str]


def assignments(family: Family, config: ModelConfig, checkpoint: Checkpoint) -> list[Assignment]:
    """What fills what. Raises `LoadError` naming tensors that are missing, left over, or of another shape."""
    if config.n_layers > len(checkpoint.shapes):
        raise LoadError(
            f"{checkpoint.source} should have {config.n_layers} layers but holds only {len(checkpoint.shapes)} tensors."
        )
    names, sizes = Names.of(family, checkpoint), axis_sizes(config)
    drafts = (_draft(family, table, config, names) for table in _of_possible_length(family, config, checkpoint))
    closest = min(drafts, key=lambda draft: len(draft.missing) + len(draft.unused))
    _check_names(closest, checkpoint)
    parts: dict[str, list[Assignment]] = {}
    for assignment in closest.found:
        parts.setdefault(assignment.published, []).append(assignment)
    for together in parts.values():
        _check_parts(together, sizes, checkpoint)
    return closest.found


def _of_possible_length(family: Family, config: ModelConfig, checkpoint: Checkpoint) -> list[tuple[Row, ...]]:
    """The tables none of whose rows names more tensors than there are: others would be long to write out."""
    present = len(checkpoint.shapes)
    possible = [table for table in family.tables if all(_n_tensors(row, config) <= present for row in table)]
    if not possible:
        raise LoadError(
            f"{checkpoint.source} should have {axis_sizes(config)['expert']} experts in a layer but holds only "
            f"{present} tensors."
        )
    return possible


def _n_tensors(row: Row, config: ModelConfig) -> int:
    n_layers = len(_layers(row, config))
    return n_layers * axis_sizes(config)["expert"] if n_layers and "{expert}" in row.published else n_layers


def _layers(row: Row, config: ModelConfig) -> list[int]:
    """The layers that have what the row is for; layer 0 stands for what belongs to none."""
    layers = range(config.n_layers) if "{layer}" in row.published else (0,)
    return [layer for layer in layers if holds(config, row.when, layer)]


def _draft(family: Family, table: Sequence[Row], config: ModelConfig, names: Names) -> Draft:
    found = list(_written_out(table, config, names))
    needed = {assignment.published for assignment in found}
    allowed = {names.spelled(copy) for copy, _ in family.copies} if config.tied_embeddings else set()
    unused = [
        name
        for name in sorted(names.stored - needed - allowed)
        if not any(fnmatchcase(name.removeprefix(names.prefix), pattern) for pattern in family.ignored)
    ]
    return Draft(found, sorted(needed - names.stored), unused)


def _written_out(table: Sequence[Row], config: ModelConfig, names: Names) -> Iterator[Assignment]:
    """The rows for every layer and expert that has what they are for."""
    sizes = axis_sizes(config)
    for row in table:
        first = sum(math.prod(sizes[name] for name in product.split()) for product in row.after)
        for layer in _layers(row, config):
            for expert in range(sizes["expert"]) if "{expert}" in row.published else (None,):
                published = names.spelled(row.published.format(layer=layer, expert=expert))
                ours = row.ours.format(layer=layer)
                yield Assignment(published, ours, row.axes, first, row.at, expert, row.shift)


def _check_names(draft: Draft, checkpoint: Checkpoint) -> None:
    if draft.missing or draft.unused:
        parts = [
            f"{len(names)} {what} ({_listed(names)})"
            for what, names in (("missing", draft.missing), ("unused", draft.unused))
            if names
        ]
        raise LoadError(
            f"{checkpoint.source} does not hold exactly the weights of its architecture: {'; '.join(parts)}."
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, …"


def _check_parts(parts: Sequence[Assignment], sizes: Mapping[str, int], checkpoint: Checkpoint) -> None:
    """The parts of one tensor (often one, the whole) must make it up: all of it, no part twice for one weight."""
    blocks: dict[tuple[int, tuple[int, ...]], list[Assignment]] = {}
    for part in sorted(parts, key=lambda part: part.first):
        blocks.setdefault((part.first, part.stored.shape(sizes)), []).append(part)
    _check_shape(blocks, checkpoint)
    ends = [0, *(first + shape[0] for first, shape in blocks)]
    adjoining = all(first == end for (first, _), end in zip(blocks, ends, strict=False))
    if not adjoining or not all(_is_whole(block, sizes) for block in blocks.values()):
        name = parts[0].published
        raise LoadError(
            f"{name} of {checkpoint.source} has the shape {checkpoint.shapes[name]}, but what the model takes from it "
            f"is not the whole of it, once: {'; '.join(map(str, parts))}."
        )


def _check_shape(blocks: Mapping[tuple[int, tuple[int, ...]], list[Assignment]], checkpoint: Checkpoint) -> None:
    """Blocks of rows, by their first row and their shape, stand one above the other in the tensor."""
    firsts = [block[0] for block in blocks.values()]
    name = firsts[0].published
    came, rows = checkpoint.shapes[name], sum(shape[0] for _, shape in blocks)
    for _, (_, *rest) in blocks:
        if came != (expected := (rows, *rest)):
            raise LoadError(
                f"{checkpoint.source} contradicts its own configuration: {name} has the shape {came}, the "
                f"configuration makes it {expected} ({' + '.join(part.axes.split(' ->')[0] for part in firsts)})."
            )


def _is_whole(block: Sequence[Assignment], sizes: Mapping[str, int]) -> bool:
    """Whether the parts of the same rows are all that there is along the axis they are taken from.

    Several weights may take the whole of them: one norm can serve both sublayers.
    """
    taken = [part.at for part in block if part.at is not None]
    if not taken:
        return len({part.ours for part in block}) == len(block)
    axis, _ = taken[0]
    return len(taken) == len(block) and sorted(taken) == [(axis, index) for index in range(sizes[axis])]
