"""Activation patching: what happens if this one value were that of another run.

    pair = pairs.of_texts(model.tokenizer, clean, corrupted, " Mary", " John")
    found = patching.sweep(model, pair, site="resid_pre", metric="logit_difference")
    found["logit_difference"]             # [layer, pos, pair]: measured with the value patched
    found["logit_difference_recovered"]   # [layer, pos]: 0 as in the base run, 1 as in the source run

*Denoising* puts clean values into the corrupted run: what is enough to bring the answer back. *Noising* puts corrupted
values into the clean run: what the answer cannot do without. They are no mirror images of each other: of two components
that can each do the work alone denoising finds both and noising none (Heimersheim & Nanda 2024, arXiv 2404.15255).

Recovery is (M_patched − M_base) / (M_source − M_base), never clipped: below 0 and above 1 are findings. Over several
pairs it is the ratio of the means, with a bootstrap interval; per pair it is NaN where the two runs hardly differ,
since a ratio of two small numbers says nothing. Which corruption, metric and window were chosen changes what is found
(Zhang & Nanda 2024, arXiv 2309.16042), so every result states them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.analyses.cell_map import TOKENS, CellMap
from interp.analyses.intervals import ratio_interval
from interp.analyses.patching_cells import Cells, Labels, cells_of, check_renormalised, row_sums
from interp.analyses.patching_runs import (
    Direction,
    Metrics,
    Reference,
    Runs,
    Source,
    Tokens,
    measures,
    recorded,
    runs_of,
)
from interp.analyses.sites import Site as Site
from interp.analyses.sites import Values
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.metrics import kl_divergence as kl_divergence
from interp.metrics import log_probability as log_probability
from interp.metrics import logit as logit
from interp.metrics import logit_difference as logit_difference
from interp.metrics import loss as loss
from interp.metrics import probability as probability
from interp.metrics import rank as rank
from interp.models.replay import Progress, Replay, SoFar, Sweep, Swept, made_of
from interp.models.replay_cost import Cost
from interp.pairs import Pairs
from interp.results import provenance
from interp.selection import Index

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

NOTHING, LEAST = 1e-3, 1e-5
"""Two runs that differ by less than this share of their size, or by less than LEAST, are not told apart."""
ENDS = ("", "_clean", "_corrupted", "_recovered", "_low", "_high", "_recovered_each")
"""What the arrays of a metric are called, behind its name."""


class Patching(CellMap, kind="patching"):
    """A metric with one value after the other patched.

    For every metric `m`: `m` [*axes, pair], raw, with the value patched; `m_clean` and `m_corrupted` [pair];
    `m_recovered` [*axes], the ratio of means, with `m_low` and `m_high`, its 95 % bootstrap interval over pairs;
    `m_recovered_each` [*axes, pair], NaN where the pair's two runs hardly differ. `token` names what stands at a
    swept position, in the first pair. `row_sum` [*axes, pair]: what a patched pattern's rows add up to, on average.
    """

    title = "Activation patching"
    caution = "A patched value is what the other run would have had; it need not be one that this run could have."

    @property
    def shown(self) -> str:
        """The recovered share of the metric that stands first."""
        return f"{self.metric}_recovered"

    @property
    def metric(self) -> str:
        """The metric that stands first."""
        return str(self.settings["metrics"][0])  # type: ignore[index]

    def figure(self) -> "Figure":
        """The recovered share of the first metric, the sweep's last axis across; cells without one stay blank."""
        from interp.plots import effect_heatmap

        return effect_heatmap(**self.drawn())

    def headline(self) -> list[str]:
        """What was asked, and every metric in the two runs."""
        count = len(self.axes["pair"])
        lines = [f"{self.asked()}; {count} pair{'s' * (count > 1)}"]
        for name in self.settings["metrics"]:  # type: ignore[attr-defined]
            clean, corrupted = (float(self[f"{name}_{run}"].mean()) for run in ("clean", "corrupted"))
            unknown = int(np.isnan(self[f"{name}_recovered_each"]).reshape(-1, count).all(0).sum())
            alike = f"; in {unknown} of them the two runs hardly differ" if unknown else ""
            lines.append(f"  {name}: clean {clean:.3f}, corrupted {corrupted:.3f}{alike}")
        return lines

    def summary(self) -> list[str]:
        """The headline, and the cells that move the first metric furthest."""
        return [*self.headline(), *self.strongest(5), f"  {self.caution}"]


@dataclass(frozen=True)
class PatchingSweep:
    """A sweep that is planned and ready to run: `cost()` before it, `run()` for the result."""

    model: "Transformer"
    replay: Replay
    runs: Runs
    other: Mapping[str, np.ndarray]
    """Each metric [pair] in the run that is not the base."""
    labels: Labels
    settings: Mapping[str, object]
    seed: int

    def cost(self) -> Cost:
        """Rows, operations, bytes and seconds of the sweep."""
        return self.replay.cost()

    def run(
        self,
        *,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
        so_far: SoFar[Patching] | None = None,
    ) -> Patching:
        """Patch one cell after the other; `so_far` may ask for the map by then, as in `Replay.run`."""
        told = made_of(so_far, self._result)
        return self._result(self.replay.run(progress=progress, cancelled=cancelled, so_far=told))

    def _result(self, swept: Swept) -> Patching:
        axes = {name: list(places) for name, places in self.replay.sweep.axes.items()}
        arrays = dict(self.labels)
        for name, found in swept.values.items():
            base = swept.base[name].values
            arrays |= _effects(name, found.values, base, self.other[name], tuple(axes), self.runs.direction, self.seed)
        facts = {"prefix": self.runs.prefix, "seed": self.seed}
        tokens = torch.cat([self.runs.clean, self.runs.corrupted]).cpu()
        return Patching(
            arrays=arrays,
            axes=axes,
            settings=self.settings,
            provenance=provenance(self.model.provenance, tokens=tokens, **facts),
        )


def sweep(
    model: "Transformer",
    clean: Pairs | str | Tokens,
    corrupted: str | Tokens | None = None,
    *,
    site: Site | Sequence[Site],
    metric: Metrics = "logit_difference",
    direction: Direction = "denoise",
    source: Source = "pair",
    reference: Reference | None = None,
    by: Sequence[str] | None = None,
    window: int = 1,
    layers: Index | None = None,
    positions: Index | None = None,
    keys: Index | None = None,
    heads: Index | None = None,
    neurons: Sequence[int] | None = None,
    experts: Sequence[int] | None = None,
    renormalise: bool = False,
    prefix: "PrefixPolicy" = "doc",
    seed: int = 0,
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Patching:
    """Patch every cell of a site in turn; parameters and errors as in `plan_sweep`."""
    planned = plan_sweep(
        model,
        clean,
        corrupted,
        site=site,
        metric=metric,
        direction=direction,
        source=source,
        reference=reference,
        by=by,
        window=window,
        layers=layers,
        positions=positions,
        keys=keys,
        heads=heads,
        neurons=neurons,
        experts=experts,
        renormalise=renormalise,
        prefix=prefix,
        seed=seed,
        budget=budget,
        shortcuts=shortcuts,
    )
    return planned.run(progress=progress, cancelled=cancelled)


@torch.no_grad()
def plan_sweep(
    model: "Transformer",
    clean: Pairs | str | Tokens,
    corrupted: str | Tokens | None = None,
    *,
    site: Site | Sequence[Site],
    metric: Metrics = "logit_difference",
    direction: Direction = "denoise",
    source: Source = "pair",
    reference: Reference | None = None,
    by: Sequence[str] | None = None,
    window: int = 1,
    layers: Index | None = None,
    positions: Index | None = None,
    keys: Index | None = None,
    heads: Index | None = None,
    neurons: Sequence[int] | None = None,
    experts: Sequence[int] | None = None,
    renormalise: bool = False,
    prefix: "PrefixPolicy" = "doc",
    seed: int = 0,
    budget: int = 2**30,
    shortcuts: bool = True,
) -> PatchingSweep:
    """A sweep over the cells of a site, planned but not run. Both runs of the pairs are done.

    `clean`: aligned pairs; or a text or tokens, with `corrupted`, of equally many tokens. `site`: one of `SITES`, or
    several that are patched together in every cell. `by`: the axes to sweep over, the site's usual ones if None; an
    axis that is left out is patched whole, or at the places that `layers`, `positions`, `keys`, `heads` (KV heads
    where the site has those), `neurons` and `experts` name. `window`: how many layers around each are patched together.

    `source`: the pair's other run; `zero`; `mean` over the `reference` texts, by position where they are as long as
    the pairs, else over all positions; or `resample`, another text of the reference for each pair, never its own.
    Without a reference these take the base run's own texts. `renormalise`: divide patched rows of a pattern by their
    sum. `budget` and `shortcuts` as in `Replay`.

    Raises `UsageError` for prompts of unequal length (with the tokens where they part), for sites, axes and places
    that do not exist, for metrics that need an answer or a foil that is not there, and `PointError` for a site that
    this model lacks; `BudgetError` where not even one cell fits. All before the sweep starts.
    """
    runs = runs_of(model, clean, corrupted, prefix=prefix, direction=direction)
    chosen = {
        "layers": layers,
        "positions": positions,
        "keys": keys,
        "heads": heads,
        "neurons": neurons,
        "experts": experts,
    }
    cells = cells_of(model, runs, site, by, window, chosen)
    if renormalise:
        check_renormalised(cells)
    sums = bool(cells.edges_of) and not renormalise
    patched, base, logits = recorded(
        model, runs, cells.points, source=source, reference=reference, seed=seed, budget=budget, base_too=sums
    )
    values = Values(patched, renormalise)
    measured = measures(metric, runs, logits)
    replay = Replay(
        model,
        runs.base,
        Sweep(cells.axes, lambda **places: cells.edits(places, values)),
        measured,
        mask=runs.mask,
        texts={"pair": len(runs.base)},
        budget=budget,
        shortcuts=shortcuts,
    )
    settings = {
        "sites": list(cells.sites),
        "by": list(cells.axes),
        "metrics": list(measured),
        "direction": direction,
        "source": source,
        "reference": None if reference is None else list(reference.shape),
        "window": window,
        "at": {axis: list(places) for axis, places in cells.fixed.items()},
        "renormalise": renormalise,
        "answer": runs.said("answer"),
        "foil": runs.said("foil"),
        "shortcuts": shortcuts,
    }
    other = {name: each(logits.other).double().cpu().numpy() for name, each in measured.items()}
    labels = token_labels(model, cells, runs) | (row_sums(cells, patched, base) if sums else {})
    _check_names(measured, [*labels, *cells.axes, "pair"])
    return PatchingSweep(model, replay, runs, other, labels, settings, seed)


def _check_names(metrics: Collection[str], taken: Collection[str]) -> None:
    """Raises `UsageError` where two arrays of the result would have one name."""
    names = [*taken, *(f"{metric}{end}" for metric in metrics for end in ENDS)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"The name {twice[0]!r} would stand for two things in the result; call the metric otherwise.")


def token_labels(model: "Transformer", cells: Cells, runs: Runs) -> Labels:
    """What stands at the swept positions, in the first pair's base run."""
    if not model.has_tokenizer:
        return {}
    texts = token_texts(model, runs.base[0].tolist())
    swept = {axis: places for axis, places in cells.axes.items() if axis in TOKENS}
    return {TOKENS[axis]: ([texts[place] for place in places], (axis,)) for axis, places in swept.items()}


def _effects(
    name: str,
    patched: np.ndarray,
    base: np.ndarray,
    other: np.ndarray,
    axes: tuple[str, ...],
    direction: Direction,
    seed: int,
) -> Labels:
    """The arrays of one metric: raw values, and how much of the way from base to source they have gone."""
    moved, way = (patched - base).astype(np.float64), (other - base).astype(np.float64)
    size = np.maximum(np.abs(base), np.abs(other))
    recovered = share(moved.mean(-1), way.mean(-1), size.mean())
    low, high = (np.where(np.isnan(recovered), np.nan, end) for end in ratio_interval(moved, way, seed=seed))
    clean, corrupted = (other, base) if direction == "denoise" else (base, other)
    return {
        name: (patched, (*axes, "pair")),
        f"{name}_clean": (clean, ("pair",)),
        f"{name}_corrupted": (corrupted, ("pair",)),
        f"{name}_recovered": (recovered, axes),
        f"{name}_low": (low, axes),
        f"{name}_high": (high, axes),
        f"{name}_recovered_each": (share(moved, way, size), (*axes, "pair")),
    }


def share(moved: np.ndarray, way: np.ndarray, size: np.ndarray) -> np.ndarray:
    """How much of the way was moved; NaN where the way is nothing beside the size of the values, and has no shares."""
    known = np.abs(way) > np.maximum(NOTHING * size, LEAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(known, moved / way, np.nan)
