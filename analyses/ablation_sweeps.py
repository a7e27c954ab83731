"""Sets of components taken away from texts, in as few sweeps as the memory budget allows.

A metric is made for the texts that it reads, so that what is measured is given as a function of them: texts can then be
processed a batch at a time. Batches change nothing, since what takes the place of a component comes from all texts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int
from torch import Tensor

from interp.analyses.ablation_sets import Sets
from interp.analyses.removal import Method, Removal, removal
from interp.errors import BudgetError
from interp.models.replay import Metric, Progress, Replay, Sweep, Swept

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FROM_OTHER_TEXTS: tuple[Method, ...] = ("mean", "resample")
"""Methods by which other texts say what takes a component's place."""


@dataclass(frozen=True)
class Measured:
    """Texts, the columns to read, and the metrics of what is read there, made for a batch of the texts.

    What other texts say that takes a component's place comes from each other, or from a `reference` of their length.
    """

    tokens: Int[Tensor, "text pos"]
    read: Sequence[int]
    metrics: Callable[[Tensor], Sequence[Metric]]
    reference: Int[Tensor, "other pos"] | None = None


@dataclass
class _Counter:
    """Progress over several sweeps, in texts of all runs."""

    progress: Progress | None
    total: int
    done: int = 0

    def walked(self, rows: int, of: int) -> None:
        """So many rows of the sweep under way are done; its end is announced by `ended`."""
        if self.progress is not None and rows < of:
            self.progress(self.done + rows, self.total)

    def ended(self, rows: int) -> None:
        """A sweep is done, with the runs that it left out because they change nothing."""
        self.done += rows
        if self.progress is not None:
            self.progress(self.done, self.total)


@dataclass(frozen=True)
class Removals:
    """All sets and their controls, taken away from any texts by one method."""

    model: "Transformer"
    sets: Sets
    method: Method
    seed: int
    budget: int

    def swept(self, asked: Sequence[Measured], progress: Progress | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each, the metrics' values in every run, [run, metric, text], and with everything, [metric, text]."""
        counter = _Counter(progress, len(self.sets.runs) * sum(len(each.tokens) for each in asked))
        return [self._swept(each, counter) for each in asked]

    def _swept(self, asked: Measured, counter: _Counter) -> tuple[np.ndarray, np.ndarray]:
        shared = self._removal(asked.tokens, asked.reference) if self.method in FROM_OTHER_TEXTS else None
        found = list(self._in_batches(asked, slice(0, len(asked.tokens)), shared, counter))
        values, base = (
            np.concatenate([np.stack([named.values for named in each.values()], -2) for each in parts], -1)
            for parts in ([swept.values for swept in found], [swept.base for swept in found])
        )
        return values, base

    def _in_batches(self, asked: Measured, which: slice, shared: Removal | None, counter: _Counter) -> Iterator[Swept]:
        """The sweep over these texts, or over halves of them where they exceed the budget."""
        count = which.stop - which.start
        replay = None
        try:
            replay = self._replay(asked, which, shared)
        except BudgetError:
            if count == 1:
                raise
        if replay is not None:
            yield replay.run(progress=counter.walked)
            counter.ended(count * len(self.sets.runs))
            return
        middle = which.start + count // 2
        for half in (slice(which.start, middle), slice(middle, which.stop)):
            yield from self._in_batches(asked, half, shared, counter)

    def _replay(self, asked: Measured, which: slice, shared: Removal | None) -> Replay:
        tokens, runs = asked.tokens[which], self.sets.runs
        taken = self._removal(tokens) if shared is None else shared.of_texts(which)
        held = taken.nbytes if shared is None else shared.nbytes
        return Replay(
            self.model,
            tokens,
            Sweep({"run": range(len(runs))}, lambda run: taken.hooks(runs[run])),
            {str(number): metric for number, metric in enumerate(asked.metrics(tokens))},
            hooks=taken.held,
            read=list(asked.read),
            texts={"text": len(tokens)},
            budget=self.budget - held,
        )

    def _removal(self, tokens: Tensor, reference: Tensor | None = None) -> Removal:
        """What takes the components' place in these texts, from these texts or from others."""
        return removal(
            self.model,
            tokens,
            self.sets.components,
            method=self.method,
            reference=reference,
            seed=self.seed,
            budget=self.budget,
        )
