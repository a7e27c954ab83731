"""Replay: many edited re-runs of the same texts, for the price of what they change.

Patching, tracing, ablation and knockout ask the same thing thousands of times: this run, with one thing changed. What
cannot have changed is never computed again:

    1. nothing before the first layer that is edited: a cell starts from the base run's residual stream there;
    2. nothing before the first position that changes: the model is causal, earlier keys and values are the base run's;
    3. no cell that changes nothing: an edit that leaves the base run's own values as they are is known to be none;
    4. no logits but those that are read, and behind the last attention no position but those;
    5. one walk through the layers serves all cells that fit the memory budget, so weights are read once for all.

`shortcuts=False` switches 1 to 4 off. Either way the values are those of

    metric(model.run_with_hooks(tokens, [*hooks, *sweep.edits(**cell)], mask=mask)[:, read])

for every cell, one forward pass after the other, within rounding. A sweep of every layer and position:

    sweep = Sweep(
        {"layer": range(model.config.n_layers), "pos": range(tokens.shape[1])},
        lambda layer, pos: [
            (f"blocks.{layer}.hook_resid_pre", edits.replace(clean["resid_pre", layer][:, [pos]], positions=pos))
        ],
    )
    replay = Replay(model, tokens, sweep, metrics.logit_difference(mary, john))
    print(replay.cost())                  # rows, FLOPs, bytes, seconds: before it starts
    found = replay.run()
    found["logit_difference"].values      # [layer, pos, batch]

Edits from `interp.edits` say which positions they touch, and rules 2 to 4 follow. A function of your own may do
anything, so that a cell with one is computed from the first position on.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import Cancelled, UsageError
from interp.hooks import HookFn, Hooks, active_edits
from interp.models.checks import check_tokens
from interp.models.replay_cost import Clock, Cost, Footprint, flops, full_flops, packed
from interp.models.replay_plan import shortened, unedited, unshortened
from interp.models.walk import Cell, Edits, Walk
from interp.named import NamedArray
from interp.selection import Index, indices
from interp.stopping import check_wanted, stopping

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Metric = Callable[[Tensor], Tensor]
"""`metric(logits [batch, read, d_vocab]) -> [batch]`: one number a text; see `interp.metrics`."""

Progress = Callable[[int, int], None]
"""`progress(done, total)`, in rows, after every walk."""

Found = TypeVar("Found")
Made = TypeVar("Made")
SoFar = Callable[[Callable[[], Found]], None]
"""`so_far(found)`, after every walk: `found()` is what there is by then, NaN in the cells that are not done."""


def made_of(so_far: SoFar[Made] | None, make: Callable[[Found], Made]) -> SoFar[Found] | None:
    """What to tell of what is found, where `so_far` is told of what is made of it."""
    return None if so_far is None else lambda found: so_far(lambda: make(found()))


@dataclass(frozen=True)
class Sweep:
    """What is changed in each cell: `edits(**coordinates)` for every combination of the axes' coordinates."""

    axes: Mapping[str, Sequence[int | str]]
    edits: Callable[..., Hooks]

    def __post_init__(self) -> None:
        taken = inspect.signature(self.edits)
        try:
            taken.bind(**dict.fromkeys(self.axes))
        except TypeError as error:
            raise UsageError(f"`edits{taken}` does not take the axes {list(self.axes)} by name: {error}.") from None

    def cells(self) -> Iterator[Hooks]:
        """The edits of each cell, the last axis varying fastest."""
        names = list(self.axes)
        for coordinates in itertools.product(*self.axes.values()):
            yield self.edits(**dict(zip(names, coordinates, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(places) for places in self.axes.values())


@dataclass(frozen=True)
class Swept:
    """What a sweep found: by metric, an array over the sweep's axes and then the texts; `base` has the texts alone."""

    values: Mapping[str, NamedArray]
    base: Mapping[str, NamedArray]

    def __getitem__(self, metric: str) -> NamedArray:
        return self.values[metric]


class Replay:
    """A sweep that is planned and ready to run. The base run is done when it is made.

    `metric`: one, or several by name. `hooks` act in the base run and in every cell, as do those of an active
    `model.hooks` context. `read`: the columns whose logits the metrics see. `texts`: named axes that the batch stands
    for, such as `{"prompt": 4, "sample": 10}`. `budget`: bytes that may be allocated beside the model.

    Raises `UsageError` for edits that touch no cell, `PointError` for points that do not exist, `BudgetError` where not
    even one cell fits; all before the sweep starts. Only edits behind the layers, and all edits without shortcuts, are
    tried on the way.
    """

    def __init__(
        self,
        model: "Transformer",
        tokens: Int[Tensor, "batch pos"],
        sweep: Sweep,
        metric: Metric | Mapping[str, Metric],
        *,
        hooks: Hooks = (),
        mask: Bool[Tensor, "batch pos"] | None = None,
        read: Index = -1,
        texts: Mapping[str, int] | None = None,
        budget: int = 2**30,
        shortcuts: bool = True,
    ) -> None:
        check_tokens(tokens, mask, model.config)
        self.model, self.sweep, self.shortcuts, self.budget = model, sweep, shortcuts, budget
        self.metrics = dict(metric) if isinstance(metric, Mapping) else {getattr(metric, "name", "metric"): metric}
        self.read = indices(read, tokens.shape[1], "the columns to read")
        self.texts = {"batch": tokens.shape[0]} if texts is None else dict(texts)
        self._check(mask, tokens.shape[0])
        tokens, mask = tokens.to(model.device).long(), None if mask is None else mask.to(model.device)
        base_edits = _by_point(model, hooks, active_edits())
        cells = [_by_point(model, each) for each in sweep.cells()]
        if shortcuts:
            plan = shortened(model, tokens, mask, base_edits, cells, self.read, budget)
        else:
            plan = unshortened(model, tokens, mask, base_edits, cells)
        self.base, self.cells, self.known = plan.base, plan.cells, plan.known
        self.footprint = Footprint.of(model, plan, self.read, shortcuts=shortcuts)
        self.walks = packed(self.base, self.cells, self.footprint.tokens_that_fit(self.base, self.cells, budget))

    @property
    def rows(self) -> int:
        """Texts that are computed again, all cells together."""
        return len(self.cells) * self.base.batch

    def cost(self, clock: Clock | None = None) -> Cost:
        """Rows, operations, bytes and seconds of this sweep.

        Times the model for a moment (under 2 seconds), unless a `clock` that did so comes along.
        """
        config, base, read = self.model.config, self.base, len(self.read) if self.shortcuts else self.base.stop
        if clock is None:
            clock = Clock(
                self.model,
                max((sum(base.batch * (base.stop - cell.start) for cell in walk) for walk in self.walks), default=1),
            )
        return Cost(
            cells=len(self.cells),
            rows=self.rows,
            walks=len(self.walks),
            flops=flops(self.model, base, self.walks, self.read, shortcuts=self.shortcuts),
            full_flops=full_flops(config, base, len(self.cells) + len(self.known)),
            bytes=max((self.footprint.walk(base, walk) for walk in self.walks), default=self.footprint.base),
            seconds=sum(clock.walk_seconds(base, walk, config.n_layers, read) for walk in self.walks),
        )

    def run(
        self,
        *,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
        so_far: SoFar[Swept] | None = None,
    ) -> Swept:
        """Walk, and put every cell's metrics in its place.

        `cancelled` is asked in every layer; where it says True, `Cancelled` is raised.
        """
        done, open_cells = 0, torch.zeros(len(self.cells) + len(self.known), dtype=torch.bool)
        open_cells[[cell.index for cell in self.cells]] = True
        with stopping(cancelled):
            try:
                unchanged = self._unchanged()
                base = self._measured(unchanged)
                found = {name: values.repeat(len(self.cells) + len(self.known), 1) for name, values in base.items()}
                for cells in self.walks:
                    check_wanted()
                    places = [cell.index for cell in cells]
                    for name, values in self._walked(cells, unchanged).items():
                        found[name][places] = values
                    open_cells[places] = False
                    done += len(cells) * self.base.batch
                    if progress is not None:
                        progress(done, self.rows)
                    if so_far is not None:
                        so_far(lambda: self._swept(found, base, open_cells))
            except Cancelled:
                raise Cancelled(f"The sweep was stopped when {done} of {self.rows} rows were done.") from None
        return self._swept(found, base, open_cells)

    def _swept(self, found: Mapping[str, Tensor], base: Mapping[str, Tensor], open_cells: Tensor) -> Swept:
        blank = open_cells[:, None].to(self.model.device)
        return Swept(
            {name: self._named(values.masked_fill(blank, math.nan), self.sweep.axes) for name, values in found.items()},
            {name: self._named(values, {}) for name, values in base.items()},
        )

    def _walked(self, cells: Sequence[Cell], unchanged: Tensor) -> dict[str, Tensor]:
        """Each metric's values, [cell, batch], of one walk."""
        found: dict[int, dict[str, Tensor]] = {}

        def keep(cell: Cell, logits: Tensor) -> None:
            found[cell.index] = self._measured(_completed(logits, cell, unchanged, self.read))

        self._walk(cells, keep)
        return {name: torch.stack([found[cell.index][name] for cell in cells]) for name in self.metrics}

    def _unchanged(self) -> Tensor:
        """The base run's logits, [batch, read, d_vocab]."""
        found: list[Tensor] = []
        base = unedited(self.model, self.base, self.read, shortcuts=self.shortcuts)
        self._walk([base], lambda _, logits: found.append(logits))
        return found[0]

    def _walk(self, cells: Sequence[Cell], sink: Callable[[Cell, Tensor], None]) -> None:
        walk = Walk(self.model, self.base, cells, from_tokens=not self.shortcuts)
        walk.run(self.read, self.footprint.cells_read_at_once(self.budget), sink)

    def _measured(self, logits: Tensor) -> dict[str, Tensor]:
        return {name: _checked(metric(logits), name, self.base.batch) for name, metric in self.metrics.items()}

    def _named(self, values: Tensor, axes: Mapping[str, Sequence[int | str]]) -> NamedArray:
        shape = [*(len(places) for places in axes.values()), *self.texts.values()]
        values = values.float() if values.dtype == torch.bfloat16 else values  # which numpy does not know
        return NamedArray(values.reshape(shape).cpu().numpy(), (*axes, *self.texts))

    def _check(self, mask: Tensor | None, batch: int) -> None:
        clash = set(self.texts) & set(self.sweep.axes)
        if math.prod(self.texts.values()) != batch or clash:
            raise UsageError(
                f"The axes of the texts are {self.texts}; expected sizes whose product is the batch of {batch}, and "
                f"other names than the sweep's {list(self.sweep.axes)}."
            )
        if not self.metrics:
            raise UsageError("There is no metric; give one, or several by name.")
        if 0 in self.sweep.shape:
            raise UsageError(f"An axis of the sweep has no places: its shape is {self.sweep.shape}.")
        if mask is not None and not bool(mask[:, self.read].all()):
            raise UsageError(
                f"Column {self.read} of the logits is padding in some text; pad on the left, or read other columns."
            )


def _by_point(model: "Transformer", hooks: Hooks, outer: Edits | None = None) -> dict[str, tuple[HookFn, ...]]:
    """Hooks by the full name of their point, behind those of an outer context."""
    found = {name: tuple(functions) for name, functions in (outer or {}).items() if name in model.points()}
    for names, function in hooks:
        for name in model.points().resolve(names):
            found[name] = (*found.get(name, ()), function)
    return found


def _completed(logits: Tensor, cell: Cell, unchanged: Tensor, read: Sequence[int]) -> Tensor:
    """A cell's logits at all columns that are read: those before its first one are the base run's."""
    own = [place for place, column in enumerate(read) if column >= cell.kept]
    if len(own) == len(read):
        return logits
    return unchanged.index_copy(1, torch.tensor(own, device=logits.device), logits)


def _checked(values: object, name: str, batch: int) -> Tensor:
    if not isinstance(values, Tensor) or tuple(values.shape) != (batch,):
        came = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise UsageError(
            f"The metric {name!r} returned {came}; a tensor with one number a text, ({batch},), was expected."
        )
    return values.detach().clone()  # a view would keep all logits alive
