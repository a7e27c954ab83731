"""The cells of a patching sweep: which axes it runs over, which places each has, and the edits of every cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.analyses.patching_runs import Runs
from interp.analyses.sites import SITES, Site, Values, layer_window, patch, require, site_spec, stands_in
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
    there: Sequence[int]
    """Layers in which every site is there."""

    @property
    def points(self) -> list[str]:
        """Full names of all points whose values are read."""
        layers = dict.fromkeys(layer for cell in self._layers for layer in self._around(cell))
        names = (name for site in self.sites for layer in layers for name in SITES[site].needed(layer))
        return list(dict.fromkeys(names))

    @property
    def edges_of(self) -> list[int]:
        """The layers of which single edges of the pattern are patched, one layer a cell and nothing else with it."""
        edges = self.sites == ("pattern",) and ("key_pos" in self.axes or "key_pos" in self.fixed)
        alone = self.window == 1 and ("layer" in self.axes or len(self._layers) == 1)
        return list(self._layers) if edges and alone else []

    def edits(self, places: Mapping[str, int], values: Values) -> Hooks:
        """What one cell changes."""
        where = {**self.fixed, **places}
        layers = self._around(places["layer"]) if "layer" in places else self._layers
        return [
            hook
            for site in self.sites
            for layer in (layers if SITES[site].layered else [0])
            for hook in patch(self.model, site, layer, SITES[site].part_of(where), values)
        ]

    @property
    def _layers(self) -> Sequence[int]:
        return self.axes.get("layer", self.fixed.get("layer", [0]))

    def _around(self, layer: int) -> list[int]:
        """The layers of a window where the sites are: some models lack them in some layers."""
        return [each for each in layer_window(layer, self.window, self.model.config.n_layers) if each in self.there]


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
    swept = [axis for axis in SITES[sites[0]].usual if axis in shared] if by is None else list(by)
    if not swept or not set(swept) <= set(shared) or len(set(swept)) < len(swept):
        raise UsageError(f"A sweep of {' + '.join(sites)} runs over some of {shared}, each once, not over {swept}.")
    if runs.mask is not None and {"pos", "query_pos", "key_pos"} & set(swept):
        raise UsageError(
            "The pairs have different lengths, so that a position is not one place in all of them. Sweep over other "
            "axes, or take pairs of one length (`pairs.of_one_length()`)."
        )
    if type(window) is not int or window < 1 or (window > 1 and "layer" not in swept):
        raise UsageError(
            f"The window is {window!r}; expected a whole number of layers from 1 on, in a sweep over layers."
        )
    there = [layer for layer in range(model.config.n_layers) if all(stands_in(model, each, layer) for each in sites)]
    places = _places(model, runs, sites, there, chosen)
    given = {axis for name, axes in _PLACES.items() if chosen.get(name) is not None for axis in axes}
    swept_places = {axis: _once_each(axis, places[axis]) for axis in swept}
    fixed = {axis: where for axis, where in places.items() if axis not in swept and axis in {"layer", *given}}
    _check_real(runs, fixed)
    return Cells(model, tuple(sites), swept_places, fixed, window, there)


def check_renormalised(cells: Cells) -> None:
    """Raises `UsageError` where there are no rows of a pattern that a patch could keep from summing to 1."""
    if "pattern" not in cells.sites or not ("key_pos" in cells.axes or "key_pos" in cells.fixed):
        raise UsageError(
            "Rows are renormalised where single edges of a pattern are patched: choose the site pattern, and sweep "
            "over key_pos or name `keys`."
        )


def _check_real(runs: Runs, fixed: Mapping[str, Sequence[int]]) -> None:
    """Raises `UsageError` for columns that are padding in some pair, where nothing would be patched."""
    columns = {place for axis in ("pos", "query_pos", "key_pos") for place in fixed.get(axis, [])}
    padded = [] if runs.mask is None else [place for place in sorted(columns) if not runs.mask[:, place].all()]
    if padded:
        raise UsageError(
            f"Position {padded[0]} is padding in some pair: shorter pairs are padded on the left. Count from the end, "
            "or take pairs of one length."
        )


def _sites(site: Site | Sequence[Site]) -> list[Site]:
    sites: list[Site] = [site] if isinstance(site, str) else list(site)
    if not sites or len(set(sites)) < len(sites):
        raise UsageError(f"Sites are named once each, and at least one; {sites} came.")
    for each in sites:
        site_spec(each)
    return sites


def _once_each(axis: str, places: list[int]) -> list[int]:
    if len(set(places)) < len(places):
        raise UsageError(f"A sweep visits each place of the axis {axis} once, not {places}.")
    return places


def _places(
    model: "Transformer",
    runs: Runs,
    sites: Sequence[Site],
    there: Sequence[int],
    chosen: Mapping[str, Index | Sequence[int] | None],
) -> dict[str, list[int]]:
    """The places on every axis that any of the sites has, checked."""
    config = model.config
    _require(model, sites, there[0] if there else 0)  # says why a site is not there
    columns, experts = runs.clean.shape[1], config.moe.n_experts if config.moe else 0
    sizes = {"pos": columns, "query_pos": columns, "key_pos": columns, "expert": experts}
    sizes |= {"layer": config.n_layers, "head": config.n_heads, "kv_head": config.n_kv_heads, "neuron": config.d_mlp}
    axes = list(dict.fromkeys(axis for site in sites for axis in SITES[site].axes))
    found: dict[str, list[int]] = {}
    for name, named in _PLACES.items():
        asked = chosen.get(name)
        here = [axis for axis in named if axis in axes]
        if asked is not None and not here:
            raise UsageError(f"{' + '.join(sites)} has no axis for `{name}`; it has {', '.join(axes)}.")
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
        _require(model, sites, lacking[0])
    return [layer for layer in wanted if layer in there]


def _require(model: "Transformer", sites: Sequence[Site], layer: int) -> None:
    for site in sites:
        require(model, site, layer)


def row_sums(cells: Cells, source: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> Labels:
    """What the rows of a pattern add up to where single edges are patched: [*axes, pair], means over patched rows."""
    if not cells.edges_of:
        return {}
    names = [SITES["pattern"].name(layer) for layer in cells.edges_of]
    moved = torch.stack([source[name] - base[name] for name in names])
    axes = ["layer", "pair", "head", "query_pos", "key_pos"]
    for axis in ("head", "query_pos", "key_pos"):
        if axis in cells.axes or axis in cells.fixed:
            places = torch.tensor([*cells.axes.get(axis, cells.fixed.get(axis, []))], device=moved.device)
            moved = moved.index_select(axes.index(axis), places)
    for axis in [axis for axis in axes if axis not in (*cells.axes, "pair")]:
        moved = moved.sum(axes.index(axis)) if axis == "key_pos" else moved.mean(axes.index(axis))
        axes.remove(axis)
    order = [axes.index(axis) for axis in (*cells.axes, "pair")]
    return {"row_sum": ((1 + moved).permute(order).float().cpu().numpy(), (*cells.axes, "pair"))}
