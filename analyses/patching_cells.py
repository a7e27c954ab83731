"""The cells of a patching sweep: which axes it runs over, which places each has, and the edits of every cell."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from interp.analyses.patching_runs import Runs
from interp.analyses.sites import SITES, Site, Values, layer_window, patch, site_spec
from interp.errors import UsageError
from interp.hooks import Hooks
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Labels = dict[str, tuple[object, Sequence[str]]]
"""Arrays by name, each with the names of its axes."""

_PLACES = {
    "layers": ("layer",),
    "positions": ("pos", "query_pos"),
    "keys": ("key_pos",),
    "heads": ("head", "kv_head"),
    "neurons": ("neuron",),
    "experts": ("expert",),
}
"""What names places, and of which axes."""


@dataclass(frozen=True)
class Cells:
    """A sweep's cells: places by axis, and those of axes that every cell patches at the same places."""

    model: "Transformer"
    sites: tuple[Site, ...]
    axes: Mapping[str, Sequence[int]]
    fixed: Mapping[str, Sequence[int]]
    window: int

    @property
    def points(self) -> list[str]:
        """Full names of all points whose values are read."""
        touched = self.axes.get("layer", self.fixed.get("layer", [0]))
        layers = dict.fromkeys(other for layer in touched for other in self._around(layer))
        return list(
            dict.fromkeys(name for site in self.sites for layer in layers for name in SITES[site].needed(layer))
        )

    def edits(self, places: Mapping[str, int], values: Values) -> Hooks:
        """What one cell changes."""
        where: dict[str, int | Sequence[int]] = {**self.fixed, **places}
        layers = where.pop("layer", [0])
        around = self._around(layers) if isinstance(layers, int) else layers
        return [
            hook
            for site in self.sites
            for layer in (around if SITES[site].layered else [0])
            for hook in patch(self.model, site, layer, where, values)
        ]

    def _around(self, layer: int) -> Sequence[int]:
        """The layers of a window where the sites are: some models lack them in some layers."""
        found = layer_window(layer, self.window, self.model.config.n_layers)
        return [each for each in found if each in available(self.model, self.sites)] or [layer]


def available(model: "Transformer", sites: Sequence[Site]) -> list[int]:
    """Layers in which every site is there."""
    points = model.points()
    return [
        layer
        for layer in range(model.config.n_layers)
        if all(name in points for site in sites for name in SITES[site].needed(layer))
    ]


def cells_of(
    model: "Transformer",
    runs: Runs,
    site: Site | Sequence[Site],
    by: Sequence[str] | None,
    window: int,
    chosen: Mapping[str, Index | Sequence[int] | None],
) -> Cells:
    """The cells of a sweep; `chosen` holds places by the parameter that names them.

    Raises `UsageError`, and `PointError` for a site that the model lacks.
    """
    sites = _sites(site)
    shared = [axis for axis in SITES[sites[0]].axes if all(axis in SITES[each].axes for each in sites)]
    swept = list(SITES[sites[0]].usual if by is None else by)
    if not swept or not set(swept) <= set(shared) or len(set(swept)) < len(swept):
        raise UsageError(f"A sweep of {' + '.join(sites)} runs over some of {shared}, each once, not over {swept}.")
    if runs.mask is not None and {"pos", "query_pos", "key_pos"} & set(swept):
        raise UsageError(
            "The pairs have different lengths, so that a position is not one place in all of them. Sweep over other "
            "axes, or take pairs of one length."
        )
    if "expert" in shared and "expert" not in swept:
        raise UsageError("Experts are patched one by one: add expert to `by`.")
    if type(window) is not int or window < 1 or (window > 1 and "layer" not in swept):
        raise UsageError(
            f"The window is {window!r}; expected a whole number of layers from 1 on, in a sweep over layers."
        )
    places = _places(model, runs, sites, shared, chosen)
    given = {axis for name, axes in _PLACES.items() if chosen.get(name) is not None for axis in axes}
    fixed = {axis: places[axis] for axis in shared if axis not in swept and (axis == "layer" or axis in given)}
    return Cells(model, tuple(sites), {axis: places[axis] for axis in swept}, fixed, window)


def _sites(site: Site | Sequence[Site]) -> list[Site]:
    sites: list[Site] = [site] if isinstance(site, str) else list(site)
    if not sites or len(set(sites)) < len(sites):
        raise UsageError(f"Sites are named once each, and at least one; {sites} came.")
    for each in sites:
        site_spec(each)
    return sites


def _places(
    model: "Transformer",
    runs: Runs,
    sites: Sequence[Site],
    shared: Sequence[str],
    chosen: Mapping[str, Index | Sequence[int] | None],
) -> dict[str, list[int]]:
    """Every axis's places, checked."""
    config = model.config
    there = available(model, sites)
    points = [name for site in sites for name in SITES[site].needed(there[0] if there else 0)]
    model.points().resolve(points)  # says why a site is not there
    columns, experts = runs.clean.shape[1], config.moe.n_experts if config.moe else 0
    sizes = {"pos": columns, "query_pos": columns, "key_pos": columns, "expert": experts}
    sizes |= {"layer": config.n_layers, "head": config.n_heads, "kv_head": config.n_kv_heads, "neuron": config.d_mlp}
    found: dict[str, list[int]] = {}
    for name, axes in _PLACES.items():
        asked = chosen.get(name)
        here = [axis for axis in axes if axis in shared]
        if asked is not None and not here:
            raise UsageError(f"{' + '.join(sites)} has no axis for `{name}`; it has {', '.join(shared)}.")
        for axis in here:
            found[axis] = indices(slice(None) if asked is None else asked, sizes[axis], f"the axis {axis}")
    if "layer" in found:
        found["layer"] = _layers(model, sites, found["layer"], there, chosen.get("layers") is not None)
    return found


def _layers(
    model: "Transformer", sites: Sequence[Site], wanted: list[int], there: Sequence[int], asked: bool
) -> list[int]:
    """The layers that were asked for; unless they were, those that have the sites."""
    lacking = [layer for layer in wanted if layer not in there]
    if asked and lacking:
        model.points().resolve([name for site in sites for name in SITES[site].needed(lacking[0])])
    return [layer for layer in wanted if layer in there]


def row_sums(cells: Cells, values: Values) -> Labels:
    """What the patched rows of a pattern add up to where single edges are patched: [*axes, pair], means over rows."""
    if cells.sites != ("pattern",) or "key_pos" not in cells.axes or values.renormalise:
        return {}
    shape = [len(places) for places in cells.axes.values()]
    everywhere = itertools.product(*cells.axes.values())
    sums = [_row_sum(cells, dict(zip(cells.axes, where, strict=True)), values) for where in everywhere]
    return {"row_sum": (torch.stack(sums).view(*shape, -1).cpu().numpy(), (*cells.axes, "pair"))}


def _row_sum(cells: Cells, where: Mapping[str, int], values: Values) -> torch.Tensor:
    layers = [where["layer"]] if "layer" in where else cells.fixed["layer"]
    added = []
    for layer in layers:
        name = SITES["pattern"].name(layer)
        moved = (values.source[name] - values.base[name])[..., where["key_pos"]]
        for axis, dim in (("query_pos", 2), ("head", 1)):
            places = [where[axis]] if axis in where else cells.fixed.get(axis, range(moved.shape[dim]))
            moved = moved.index_select(dim, torch.tensor(list(places), device=moved.device))
        added.append(moved.flatten(1).mean(1))
    return 1 + torch.stack(added).mean(0)
