"""What the costs of analyses are added up from: forward passes, gradients, readings of the vocabulary, sweeps.

All of it follows from the model's configuration and the lengths of texts. A sweep is described by cells that are alike:
so many join the walk at one layer and are computed from one column on; what they take is counted as `Replay` counts it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from interp.models.config import ModelConfig
from interp.models.operations import run_flops
from interp.models.planner.memory import kv_bytes, run_bytes, weight_bytes
from interp.models.planner.shape import with_layers
from interp.models.replay_cost import TOKENS_A_WALK, token_numbers
from interp.models.transformer import point_table
from interp.points import PointTable


@dataclass(frozen=True)
class Work:
    """Something to do, one step after the other."""

    cells: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    """Operations of each step, and bytes that it must move at least."""
    held: int = 0
    """Bytes beside the model at the widest moment."""

    def __add__(self, other: "Work") -> "Work":
        """One after the other: what is held is that of the wider one."""
        return Work(self.cells + other.cells, self.steps + other.steps, max(self.held, other.held))

    def __mul__(self, times: int) -> "Work":
        """The same several times."""
        return Work(self.cells * times, tuple((flops * times, moved * times) for flops, moved in self.steps), self.held)

    @property
    def flops(self) -> int:
        """Operations of all steps."""
        return sum(flops for flops, _ in self.steps)

    @property
    def moved(self) -> int:
        """Bytes that all steps move."""
        return sum(moved for _, moved in self.steps)

    def of_cells(self, count: int) -> "Work":
        """The same, counted as so many cells."""
        return replace(self, cells=count)


@dataclass(frozen=True)
class Alike:
    """Cells of a sweep that cost the same."""

    count: int
    join: int
    """The layer whose input they start from."""
    start: int
    """The first column that is computed."""
    whole: bool = False
    """Whether all of these columns are computed behind the last attention too, and not those alone that are read."""


@dataclass(frozen=True)
class Costing:
    """One model's shape and number format, by which work is counted."""

    config: ModelConfig
    itemsize: int = 4

    def forward(
        self,
        length: int,
        rows: int = 1,
        *,
        read: int | None = None,
        kept: Sequence[str] = (),
        columns: int | None = None,
    ) -> Work:
        """Forward passes over `rows` texts at once, logits at `read` columns of each (None: all).

        `kept`: points that are recorded, with stars for layers, at `columns` of each text (None: all).
        """
        c, logits = self.config, length if read is None else read
        numbers = token_numbers(c, self.points, (), length, length)
        held = rows * (length * (numbers + c.d_model) + logits * c.d_vocab) * self.itemsize
        done = run_flops(c, length, batch=rows, read=logits)
        moved = run_bytes(c, length, batch=rows, itemsize=self.itemsize, logits=logits > 0)
        recorded = rows * self.recorded(kept, length, length if columns is None else columns)
        return Work(0, ((done, moved),), held + recorded)

    def gradient(self, length: int, rows: int = 1, *, read: int = 1, kept: Sequence[str] = ()) -> Work:
        """A forward pass and the way back to values recorded on the way: gradients of activations, not of weights.

        The way back does each product of activations and weights once more, and each of two activations twice.
        """
        once = self.forward(length, rows, read=read)
        attention = run_flops(self.config, length, batch=rows, read=0) - rows * length * self._products
        kept_numbers = (
            rows * length * self.config.n_layers * token_numbers(self.config, self.points, (), length, length)
        )
        held = once.held + kept_numbers * self.itemsize + 2 * rows * self.recorded(kept, length, length)
        return Work(0, ((2 * once.flops + attention, 2 * once.moved),), held)

    def up_to(self, layers: int) -> "Costing":
        """The same model as far as a run goes that ends behind so many layers."""
        return replace(self, config=with_layers(self.config, layers))

    def product(self, flops: int, read: int = 0) -> Work:
        """Other products of matrices, for which so many numbers are read."""
        return Work(0, ((flops, read * self.itemsize),), read * self.itemsize)

    def unembed(self, rows: int, at_once: int = 2**26) -> Work:
        """So many vectors read over the vocabulary, in blocks of at most `at_once` bytes."""
        c = self.config
        table, logits = c.d_vocab * c.d_model, rows * c.d_vocab * self.itemsize
        blocks = max(1, -(-logits // max(1, at_once)))
        return Work(0, ((2 * rows * table, blocks * table * self.itemsize + logits),), min(logits, at_once))

    def sweep(
        self,
        length: int,
        cells: Sequence[Alike],
        rows: int = 1,
        *,
        points: Iterable[str] = (),
        budget: int = 2**30,
        read: int = 1,
        shortcuts: bool = True,
    ) -> Work:
        """A sweep over texts of one length, its last `read` columns being read; the base run apart.

        `points`: full names of those that are edited.
        """
        if not shortcuts:
            cells, read = [Alike(sum(each.count for each in cells), 0, 0)], length
        last = self.config.n_layers  # behind the layers only what is read is computed
        cells = [replace(each, start=max(each.start, length - read)) if each.join == last else each for each in cells]
        count = sum(each.count for each in cells)
        if count == 0:
            return Work()
        base, token = self._held_by_base(length, cells, rows, read), self._token_bytes(length, cells, points)
        tokens = sum(each.count * rows * (length - each.start) for each in cells)
        largest = max(rows * (length - each.start) for each in cells)
        limit = max(min(TOKENS_A_WALK, (budget - base) // token), largest)
        logits = 3 * rows * read * self.config.d_vocab * self.itemsize
        done = sum(each.count * self._cell_flops(length, each, rows, read) for each in cells)
        moved = self._moved(length, cells, rows, limit)
        return Work(count, ((done, moved),), base + max(token * min(tokens, limit), logits))

    def some(self, cells: Sequence[Alike], count: int) -> list[Alike]:
        """So many of these cells, taken evenly from all."""
        every = sum(each.count for each in cells)
        step = max(1, every // max(1, count))
        spread = [each for each in cells for _ in range(each.count)][::step][:count]
        return [replace(each, count=1) for each in spread]

    def recorded(self, names: Sequence[str], length: int, columns: int) -> int:
        """Bytes of what is recorded of one text of `length` tokens at these points, at so many of its columns."""
        if not names:
            return 0
        return self.points.nbytes(list(names), batch=1, pos=length, rows=columns, itemsize=self.itemsize)

    @cached_property
    def points(self) -> PointTable:
        """The hook points of such a model."""
        return point_table(self.config)

    @property
    def _products(self) -> int:
        """Operations of a token that do not depend on the length of its text, logits apart."""
        c = self.config
        return run_flops(c, 1, read=0) - 4 * c.n_layers * c.n_heads * c.d_head

    def _cell_flops(self, length: int, cell: Alike, rows: int, read: int) -> int:
        kept = cell.start if cell.whole else max(cell.start, length - read)
        logits = min(read, length - cell.start)
        return run_flops(self.config, length, batch=rows, join=cell.join, start=cell.start, kept=kept, read=logits)

    def _moved(self, length: int, cells: Sequence[Alike], rows: int, limit: int) -> int:
        """Weights once a walk, and every cell's keys and values."""
        weights = {each.join: weight_bytes(self.config, limit, self.itemsize, join=each.join) for each in cells}
        shares = (each.count * rows * (length - each.start) / limit * weights[each.join] for each in cells)
        layer = kv_bytes(self.config, length, self.itemsize) / self.config.n_layers
        read = sum(each.count * rows * layer * (self.config.n_layers - each.join) for each in cells)
        return round(max(sum(shares), max(weights.values())) + read)

    def _held_by_base(self, length: int, cells: Sequence[Alike], rows: int, read: int) -> int:
        """Residual streams where cells join, the keys and values that they read, and the base run's logits."""
        c = self.config
        streams = len({c.n_layers, *(each.join for each in cells)}) * length * c.d_model
        layers = c.n_layers - min(each.join for each in cells) if any(each.start for each in cells) else 0
        numbers = streams + layers * 2 * length * c.n_kv_heads * c.d_head + read * c.d_vocab
        return rows * numbers * self.itemsize

    def _token_bytes(self, length: int, cells: Sequence[Alike], points: Iterable[str]) -> int:
        shortest = min(length - each.start for each in cells)
        return token_numbers(self.config, self.points, points, length, shortest) * self.itemsize
