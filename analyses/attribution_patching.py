"""Attribution patching: what activation patching would find in every cell of a site, estimated from one gradient.

    Î(cell) = Σ over the cell's components n of (n_source − n_base) · ∂M/∂n at the base run

*Denoising* has the corrupted run for its base, so that its gradient is taken there; *noising* the clean one. Two
forward passes and one backward pass give all cells of all pairs: the metric is summed over pairs, and since no pair
sees another, each keeps its own gradient, whatever the size of the batch. A cell that leaves axes out (a head at all
positions) is the sum of what it holds.

An estimate is a straight line where the model curves, so that some cells are patched exactly and set beside it: those
of the largest estimates, and a random sample of the others. Pearson and Spearman correlation, the share of equal signs
and the worst misses are part of the result. The sample speaks for the map, the largest for what is read off it.

Papers: Nanda 2023, Attribution patching (neelnanda.io); Syed et al. 2023 (arXiv 2310.10348); Kramár et al. 2024, AtP*
(arXiv 2403.00745) on where it fails: attention that is saturated, whose gradient is nought, and effects that cancel
out; and the residual stream of early layers, where a patch is no small step.

What it does NOT tell: more than activation patching would, which see; and of effects whose gradient is nought at the
base run (a divergence at its own reference) nothing at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.cell_map import CellMap
from interp.analyses.patching import share, token_labels
from interp.analyses.patching_cells import Cells, Labels, cells_of
from interp.analyses.patching_runs import Direction, Logits, Metrics, Runs, Tokens, measures, runs_of
from interp.analyses.sites import SITES, Site, Values
from interp.cache import ActivationCache
from interp.errors import UsageError
from interp.models.replay import Metric, Progress, Replay, Sweep
from interp.pairs import Pairs
from interp.results import provenance
from interp.selection import Index

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

SAMPLES = ("top", "random")
"""Which cells were patched exactly: those of the largest estimates, and some of the others."""

NO_SIGN = 1e-5
"""Exact effects below this share of the metric's size are rounding, and have no sign."""


class AttributionMap(CellMap, kind="attribution-patching"):
    """Estimates of what patching every cell would do to a metric, and how far they are off.

    `estimate` [*axes, pair] in units of the metric; `mean_estimate` [*axes] over pairs, `magnitude` [*axes] the mean of
    its absolute value, and `recovered` [*axes] the mean as a share of the way from base to source. `clean` and
    `corrupted` [pair]: the metric of both runs.

    Of the cells that were patched exactly: `checked_` and the axis [cell] where they lie, `sample` [cell] why they were
    chosen, `exact` [cell, pair], `exact_effect` and `estimated_effect` [cell]. By sample, `top` and `random`:
    `pearson`, `spearman`, `sign_agreement` (of the cells whose exact effect is more than rounding), `largest_miss`, and
    `cells_checked`; NaN where there are too few cells to tell.
    """

    title = "Attribution patching"
    caution = (
        "An estimate from one gradient, to be checked: it misleads where attention is saturated or effects cancel."
    )

    @property
    def shown(self) -> str:
        """The mean over pairs."""
        return "mean_estimate"

    def checks(self, sample: str | None = None) -> "pd.DataFrame":
        """The cells that were patched exactly, one row each: where they lie, both effects, and the miss between them.

        `sample`: `top` or `random` alone.
        """
        frame = self.to_frame(("cell",)).rename(columns={f"checked_{axis}": axis for axis in self.over})
        frame["miss"] = frame["estimated_effect"] - frame["exact_effect"]
        return frame if sample is None else frame[frame["sample"] == sample]

    def misses(self, count: int = 10) -> "pd.DataFrame":
        """The checked cells whose estimates are furthest from the exact effect, the furthest first."""
        frame = self.checks()
        order = frame["miss"].abs().sort_values(ascending=False, kind="stable").index
        return frame.loc[order].head(count).reset_index(drop=True)

    def figure(self) -> "Figure":
        """The map, the last axis across; and beside it the estimates of checked cells over their exact effects."""
        from interp.plots import beside_check, effect_heatmap

        heatmap = effect_heatmap(**self.drawn())
        if "cell" not in self.axes:
            return heatmap
        points = {}
        for sample in SAMPLES:
            own = self.checks(sample)
            names = [self.place(row) for row in own.to_dict(orient="records")]
            points[f"{sample} cells"] = (names, own["exact_effect"].to_numpy(), own["estimated_effect"].to_numpy())
        return beside_check(heatmap, points)

    def headline(self) -> list[str]:
        """What was asked, the metric of both runs, and what exact patching says of the estimates."""
        count, (clean, corrupted) = len(self["clean"]), (float(self[run].mean()) for run in ("clean", "corrupted"))
        lines = [
            f"{self.asked()}; {count} pair{'s' * (count > 1)}",
            f"  {self.settings['metric']}: clean {clean:.3f}, corrupted {corrupted:.3f}",
        ]
        if "cell" not in self.axes:
            return [*lines, "  not checked against exact patching"]
        return [*lines, *(self._agreement(place) for place in range(len(SAMPLES)) if self["cells_checked"][place])]

    def summary(self) -> list[str]:
        """The headline, the largest estimates, and the worst misses among those that were checked."""
        worst = (
            []
            if "cell" not in self.axes
            else [
                f"  missed most: {self.place(row)}: {row['estimated_effect']:+.3f}, exactly {row['exact_effect']:+.3f}"
                for row in self.misses(3).to_dict(orient="records")
            ]
        )
        return [*self.headline(), *self.strongest(5), *worst, f"  {self.caution}"]

    def _agreement(self, place: int) -> str:
        pearson, spearman, signs = (float(self[name][place]) for name in ("pearson", "spearman", "sign_agreement"))
        which = f"{int(self['cells_checked'][place])} {SAMPLES[place]} cells"
        return f"  {which} patched exactly: Pearson {pearson:.3f}, Spearman {spearman:.3f}, same sign {signs:.0%}"


def attribution_patching(
    model: "Transformer",
    clean: Pairs | str | Tokens,
    corrupted: str | Tokens | None = None,
    *,
    site: Site | Sequence[Site],
    metric: Metrics = "logit_difference",
    direction: Direction = "denoise",
    by: Sequence[str] | None = None,
    check: tuple[int, int] | None = (10, 30),
    layers: Index | None = None,
    positions: Index | None = None,
    keys: Index | None = None,
    heads: Index | None = None,
    neurons: Sequence[int] | None = None,
    experts: Sequence[int] | None = None,
    prefix: "PrefixPolicy" = "doc",
    seed: int = 0,
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> AttributionMap:
    """Estimate every cell of a site from one backward pass, and check some of them by patching.

    Pairs, `site`, `direction`, `by` and the places as in `patching.plan_sweep`, which the estimates stand for; several
    sites are patched together in every cell, so that theirs are added. `metric`: one, which can be differentiated.
    `check`: how many of the largest estimates, and how many other cells drawn with `seed`, are patched exactly; None
    for no check. `budget` and `shortcuts` are those of the check's `Replay`, `progress` and `cancelled` too.

    Raises `UsageError` as `plan_sweep` does, for several metrics, for one that has no gradient, and for sites of single
    query heads behind shared keys or values (`k_by_head`, `v_by_head`), which are no values that a run computes.
    """
    runs = runs_of(model, clean, corrupted, prefix=prefix, direction=direction)
    places = {
        "layers": layers,
        "positions": positions,
        "keys": keys,
        "heads": heads,
        "neurons": neurons,
        "experts": experts,
    }
    cells = cells_of(model, runs, site, by, 1, places)
    _check(cells, check)
    found = _both_runs(model, runs, cells.points, metric, budget)
    estimate = _estimates(model, cells, found).cpu().double().numpy()
    arrays = _arrays(estimate, tuple(cells.axes), found, direction) | token_labels(model, cells, runs)
    if check is not None:
        chosen = _chosen(np.abs(estimate.mean(-1)).ravel(), *check, seed=seed)
        where = _places(cells, np.concatenate([*chosen.values()]))
        replay = _exact(model, runs, cells, found, where, budget=budget, shortcuts=shortcuts)
        swept = replay.run(progress=progress, cancelled=cancelled)
        exact = swept[found.name].values.astype(np.float64) - swept.base[found.name].values
        arrays |= _compared(estimate, exact, chosen, where, float(np.abs(found.base_value).max()))
    return AttributionMap(
        arrays=arrays,
        axes={**cells.axes, **({} if check is None else {"checked": SAMPLES})},
        settings={
            "sites": list(cells.sites),
            "by": list(cells.axes),
            "metric": found.name,
            "direction": direction,
            "source": "pair",
            "check": None if check is None else list(check),
            "answer": runs.said("answer"),
            "foil": runs.said("foil"),
            "seed": seed,
        },
        provenance=provenance(
            model.provenance, tokens=torch.cat([runs.clean, runs.corrupted]).cpu(), prefix=runs.prefix, seed=seed
        ),
    )


def _check(cells: Cells, check: tuple[int, int] | None) -> None:
    """Raise `UsageError` for what has no gradient of its own, and for a check of no cells."""
    shared = [site for site in cells.sites if site in ("k_by_head", "v_by_head")]
    if shared:
        raise UsageError(
            f"{shared[0]} is no value that a run computes, so that it has no gradient; take {shared[0][0]!r}, by "
            "KV head, or patch it exactly with `patching.sweep`."
        )
    numbers = check is None or (
        isinstance(check, tuple) and len(check) == 2 and all(type(count) is int and count >= 0 for count in check)
    )
    if not numbers or (check is not None and sum(check) == 0):
        raise UsageError(
            f"The check is {check!r}; expected (how many of the largest, how many of the others), or None for none."
        )


@dataclass(frozen=True)
class _Found:
    """What both runs computed at the points of a site; the base run's cache has gradients."""

    source: ActivationCache
    base: ActivationCache
    name: str
    metric: Metric
    base_value: np.ndarray
    source_value: np.ndarray


def _both_runs(model: "Transformer", runs: Runs, points: Sequence[str], metric: Metrics, budget: int) -> _Found:
    """Two forward passes and one backward pass, of the metric summed over pairs."""
    with torch.no_grad():
        logits, source = model.run_with_cache(runs.other, points, mask=runs.mask, budget=budget)
    last = logits[:, -1:].clone()
    measured: dict[str, Metric] = {}
    values: list[Tensor] = []

    def summed(live: Float[Tensor, "pair pos d_vocab"]) -> Tensor:
        base = live[:, -1:]
        measured.update(measures(metric, runs, Logits(base.detach(), last)))
        if len(measured) != 1:
            raise UsageError(f"One gradient is that of one metric; {', '.join(measured)} came.")
        (measure,) = measured.values()
        values.append(measure(base))
        return values[0].sum()

    _, base = model.run_with_cache(runs.base, points, mask=runs.mask, gradients_of=summed, budget=budget)
    ((name, measure),) = measured.items()
    base_value, source_value = (each.detach().cpu().double().numpy() for each in (values[0], measure(last)))
    return _Found(source, base, name, measure, base_value, source_value)


def _estimates(model: "Transformer", cells: Cells, found: _Found) -> Float[Tensor, "*axes pair"]:
    """Î of every cell and pair."""
    places = {**cells.fixed, **cells.axes}
    layers = places.pop("layer", [0])
    swept = [axis for axis in cells.axes if axis != "layer"]
    by_layer = [
        torch.stack([_at_site(model, site, layer, places, swept, found) for site in cells.sites]).sum(0)
        for layer in layers
    ]
    together = torch.stack(by_layer)
    return together.movedim(0, list(cells.axes).index("layer")) if "layer" in cells.axes else together.sum(0)


def _at_site(
    model: "Transformer",
    site: Site,
    layer: int,
    places: Mapping[str, Sequence[int]],
    swept: Sequence[str],
    found: _Found,
) -> Float[Tensor, "*swept pair"]:
    """Î at one site of one layer: products of change and gradient, summed over all axes but the swept ones."""
    if site == "expert":
        products, axes = _expert_products(SITES[site].needed(layer), found, model), ["batch", "pos", "expert"]
    else:
        name = SITES[site].name(layer)
        products = _change(found.source[name], found.base[name]) * _gradient(found, name)
        axes = ["neuron" if axis == "d_mlp" else axis for axis in model.points()[name].axes]
    for axis, where in places.items():
        if axis in axes:
            products = products.index_select(axes.index(axis), torch.tensor(list(where), device=products.device))
    summed = [dim for dim, axis in enumerate(axes) if axis not in (*swept, "batch")]
    products = products.sum(summed) if summed else products
    left = [axis for axis in axes if axis in (*swept, "batch")]
    return products.permute([left.index(axis) for axis in (*swept, "batch")])


def _change(source: Tensor, base: Tensor) -> Tensor:
    """Source less base, in float32 at least; masked scores, −inf in both, do not change."""
    wide = torch.promote_types(base.dtype, torch.float32)
    return (source.to(wide) - base.to(wide)).masked_fill(base == -torch.inf, 0)


def _gradient(found: _Found, name: str) -> Tensor:
    gradients = found.base.gradients
    assert gradients is not None
    return gradients[name]


def _expert_products(needed: Sequence[str], found: _Found, model: "Transformer") -> Float[Tensor, "pair pos expert"]:
    """Change times gradient of what experts write, in the slots of the base run, where the source chose them too."""
    name, chosen = needed
    same = found.base[chosen][..., :, None] == found.source[chosen][..., None, :]
    slots = same.to(torch.int8).argmax(-1)[..., None].expand_as(found.source[name])
    change = _change(found.source[name].gather(2, slots), found.base[name])
    products = (change * _gradient(found, name)).sum(-1) * same.any(-1)
    experts = products.new_zeros(*products.shape[:2], model.points().sizes["expert"])
    return experts.scatter_add(2, found.base[chosen], products)


def _arrays(estimate: np.ndarray, axes: tuple[str, ...], found: _Found, direction: Direction) -> Labels:
    """The map itself, and the metric of both runs."""
    base, source = found.base_value, found.source_value
    clean, corrupted = (source, base) if direction == "denoise" else (base, source)
    mean = estimate.mean(-1)
    return {
        "estimate": (estimate, (*axes, "pair")),
        "mean_estimate": (mean, axes),
        "magnitude": (np.abs(estimate).mean(-1), axes),
        "recovered": (share(mean, (source - base).mean(), np.abs(source).mean()), axes),
        "clean": (clean, ("pair",)),
        "corrupted": (corrupted, ("pair",)),
    }


def _chosen(sizes: np.ndarray, top: int, others: int, *, seed: int) -> dict[str, np.ndarray]:
    """Cells to patch exactly: the largest, and as many of the others, drawn at random."""
    order = np.argsort(-sizes, kind="stable")
    drawn = np.random.default_rng(seed).permutation(order[top:])[:others]
    return {"top": order[:top], "random": drawn}


def _places(cells: Cells, chosen: np.ndarray) -> dict[str, list[int]]:
    """Where these cells lie: by axis, a place each."""
    shape = [len(places) for places in cells.axes.values()]
    at = np.unravel_index(chosen, shape)
    return {
        axis: [places[index] for index in where] for (axis, places), where in zip(cells.axes.items(), at, strict=True)
    }


@torch.no_grad()
def _exact(
    model: "Transformer",
    runs: Runs,
    cells: Cells,
    found: _Found,
    where: Mapping[str, Sequence[int]],
    *,
    budget: int,
    shortcuts: bool,
) -> Replay:
    """Exact patching of some cells."""
    values = Values(found.source)
    count = len(next(iter(where.values())))
    sweep = Sweep(
        {"cell": range(count)},
        lambda cell: cells.edits({axis: places[cell] for axis, places in where.items()}, values),
    )
    texts = {"pair": len(runs.base)}
    measured = {found.name: found.metric}
    return Replay(model, runs.base, sweep, measured, mask=runs.mask, texts=texts, budget=budget, shortcuts=shortcuts)


def _compared(
    estimate: np.ndarray,
    exact: np.ndarray,
    chosen: Mapping[str, np.ndarray],
    where: Mapping[str, Sequence[int]],
    size: float,
) -> Labels:
    """Checked cells beside their estimates, and how well these agree, sample by sample."""
    everything = np.concatenate([*chosen.values()])
    estimated = estimate.mean(-1).ravel()[everything]
    patched = exact.mean(-1)
    sample = np.repeat(SAMPLES, [len(each) for each in chosen.values()])
    by_sample = [agreement(estimated[sample == each], patched[sample == each], size) for each in SAMPLES]
    return {
        **{f"checked_{axis}": (list(places), ("cell",)) for axis, places in where.items()},
        "sample": (sample, ("cell",)),
        "exact": (exact, ("cell", "pair")),
        "exact_effect": (patched, ("cell",)),
        "estimated_effect": (estimated, ("cell",)),
        **{name: ([each[name] for each in by_sample], ("checked",)) for name in by_sample[0]},
    }


def agreement(estimated: np.ndarray, exact: np.ndarray, size: float) -> dict[str, float]:
    """How well estimates [cell] agree with exact effects [cell] of a metric of this size; NaN where too few tell.

    `pearson`, `spearman`, `sign_agreement`, `largest_miss` and `cells_checked`, as in `AttributionMap`.
    """
    import pandas as pd

    told = np.abs(exact) > NO_SIGN * size
    signs = (np.sign(estimated) == np.sign(exact))[told]
    both = pd.DataFrame({"estimated": estimated, "exact": exact})
    return {
        "pearson": _correlation(both),
        "spearman": _correlation(both.rank()),
        "sign_agreement": float(signs.mean()) if told.any() else np.nan,
        "largest_miss": float(np.abs(estimated - exact).max(initial=0.0)),
        "cells_checked": len(exact),
    }


def _correlation(both: "pd.DataFrame") -> float:
    """Pearson's; NaN where one side does not vary."""
    varies = len(both) > 1 and bool((both.max() > both.min()).all())
    return float(np.corrcoef(both["estimated"], both["exact"])[0, 1]) if varies else np.nan
