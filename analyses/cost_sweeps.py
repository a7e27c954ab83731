"""The costs of analyses that sweep: patching and tracing, cell by cell as `Replay` would find them."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args

from interp.analyses.cost_asked import Asked, Item
from interp.analyses.cost_parts import Alike, Costing, Work
from interp.analyses.cost_texts import BUDGET, facts
from interp.analyses.recall import HELD
from interp.analyses.sites import SITES, Site, layer_window, site_spec
from interp.analyses.trace_settings import RESTORED, Kind, Sublayer, window_of
from interp.models.walk import layer_of_join

LOCAL = ("embed", "resid_pre", "q", "k", "v")
"""What depends, in the first layer, on one token alone."""
TOUCHED = {
    "k_by_head": ("hook_rot_q", "hook_attn_scores"),
    "v_by_head": ("hook_pattern", "hook_z"),
}
"""Sites whose edits are functions that say of no position that they leave it alone, and what else they listen to."""
TOKENS = ("pos", "query_pos", "key_pos")


def patching(costing: Costing, asked: Asked) -> Work:
    """Both runs of every pair, the base run of the sweep, and the sweep."""

    def one(item: Item) -> Work:
        runs = costing.forward(item.length, kept=_points(costing, asked)) * 2
        return runs + base_run(costing, item.length) + patching_sweep(costing, asked, item)

    return asked.each(one)


def patching_sweep(costing: Costing, asked: Asked, item: Item) -> Work:
    """All cells of one pair."""
    return _swept(costing, asked, item, patching_cells(costing, asked, item))


def patching_cells(costing: Costing, asked: Asked, item: Item) -> list[Alike]:
    """Where the cells of one pair part from its base run."""
    sites = _sites(asked)
    spec = SITES[sites[0]]
    swept = asked.words("by", [axis for axis in spec.usual if all(axis in SITES[each].axes for each in sites)])
    sizes = _axis_sizes(costing, item.length)
    others = math.prod(len(asked.places(_NAMED[axis], sizes[axis])) for axis in swept if axis not in (*TOKENS, "layer"))
    layers = asked.places("layers", sizes["layer"]) if "layer" in spec.axes else [0]
    window, cells = asked.number("window", 1, least=1), []
    for layer in layers if "layer" in swept else [min(layers)]:
        around = layer_window(layer, window, sizes["layer"])
        join = layer_of_join(spec.name(around[0]), costing.points)
        starts = _starts(asked, item, sites, swept, around[0])
        whole = bool(set(TOUCHED) & set(sites)) and sizes["layer"] - 1 in around
        cells += [Alike(others * count, join, start, whole) for start, count in starts.items()]
    return cells


def _swept(costing: Costing, asked: Asked, item: Item, cells: Sequence[Alike]) -> Work:
    touched = [f"blocks.0.attn.{point}" for site in _sites(asked) for point in TOUCHED.get(site, ())]
    return costing.sweep(
        item.length,
        cells,
        points=[*_points(costing, asked), *touched],
        budget=asked.number("budget", BUDGET),
        shortcuts=asked.flag("shortcuts", True),
    )


def tracing(costing: Costing, asked: Asked) -> Work:
    """For every prompt the clean run and the corrupted one in all samples, and the sweep."""

    def one(item: Item) -> Work:
        rows = trace_rows(asked)
        severed = [f"blocks.*.{RESTORED[each]}" for each in asked.words("severed", (), get_args(Sublayer))]
        runs = costing.forward(item.length, rows, read=1, kept=_restored(asked))
        if severed:
            runs += costing.forward(item.length, rows, read=0, kept=list(dict.fromkeys(severed)))
        return runs + base_run(costing, item.length, rows) + tracing_sweep(costing, asked, item)

    return asked.each(one)


def fact_tracing(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, and the trace of each."""
    return facts(costing, asked).of_cells(0) + tracing(costing, asked)


def attribution_patching(costing: Costing, asked: Asked) -> Work:
    """Both runs of every pair, the gradient of one, and some cells patched exactly."""
    check = asked.settings.get("check", (10, 30))
    checked = sum(check) if isinstance(check, Sequence) else 0

    def one(item: Item) -> Work:
        points = _points(costing, asked)
        runs = costing.forward(item.length, kept=points) + costing.gradient(item.length, kept=points)
        cells = costing.some(patching_cells(costing, asked, item), checked)
        if not cells:
            return runs.of_cells(1)
        return runs + base_run(costing, item.length) + _swept(costing, asked, item, cells)

    return asked.each(one)


def tracing_sweep(costing: Costing, asked: Asked, item: Item) -> Work:
    """The cells of one prompt: from the subject on, since nothing before it differs."""
    count = costing.config.n_layers
    severed = asked.words("severed", (), get_args(Sublayer))
    kinds = [*asked.words("kinds", get_args(Kind), get_args(Kind)), *(f"severed_{each}" for each in severed)]
    window, cells = asked.number("window", 10, least=1), []
    for kind in kinds:
        for layer in range(count):
            first = window_of(kind, layer, window, count)[0]
            join = layer_of_join(f"blocks.{first}.{RESTORED[kind]}", costing.points)
            cells += [Alike(1, join, start) for start in range(first_place(asked, item), item.length)]
    names = [name for name in costing.points.resolve(_restored(asked)) if name.startswith("blocks.0.")]
    return costing.sweep(
        item.length,
        cells,
        trace_rows(asked),
        points=names,
        budget=asked.number("budget", BUDGET),
        shortcuts=asked.flag("shortcuts", True),
    )


def first_place(asked: Asked, item: Item) -> int:
    """Where cells begin: at the first position that differs, unless nothing is to be left out."""
    return item.first if asked.flag("shortcuts", True) else 0


def trace_rows(asked: Asked) -> int:
    """Runs that are averaged: noise is drawn several times, another subject stands there once."""
    replaced = asked.settings.get("replacement") is not None or asked.settings.get("corruption") == "replace"
    return 1 if replaced else asked.number("samples", 10, least=1)


def base_run(costing: Costing, length: int, rows: int = 1) -> Work:
    """The run that a sweep starts from, recorded between layers."""
    return costing.forward(length, rows, read=1, kept=HELD)


_NAMED = {"pos": "positions", "query_pos": "positions", "key_pos": "keys", "layer": "layers"}
_NAMED |= {"head": "heads", "kv_head": "heads", "neuron": "neurons", "expert": "experts"}


def _sites(asked: Asked) -> list[Site]:
    named = asked.words("site", ("resid_pre",))
    for each in named:
        site_spec(each)
    return list(named)  # type: ignore[arg-type]  # checked


def _points(costing: Costing, asked: Asked) -> list[str]:
    """Full names of the points that are patched; those that some layers lack are left out there."""
    layers = range(costing.config.n_layers)
    names = (name for site in _sites(asked) for layer in layers for name in SITES[site].needed(layer))
    return [name for name in dict.fromkeys(names) if name in costing.points]


def _restored(asked: Asked) -> list[str]:
    kinds = asked.words("kinds", get_args(Kind), get_args(Kind))
    return list(dict.fromkeys(f"blocks.*.{RESTORED[kind]}" for kind in kinds))


def _axis_sizes(costing: Costing, length: int) -> dict[str, int]:
    config = costing.config
    experts = config.moe.n_experts if config.moe else 0
    sizes = {"pos": length, "query_pos": length, "key_pos": length, "expert": experts, "neuron": config.d_mlp}
    return sizes | {"layer": config.n_layers, "head": config.n_heads, "kv_head": config.n_kv_heads}


def _starts(asked: Asked, item: Item, sites: Sequence[Site], swept: Sequence[str], layer: int) -> Mapping[int, int]:
    """First column → how many combinations of the swept token axes are computed from there on."""
    local = layer == 0 and set(sites) <= set(LOCAL)
    whole = bool(set(TOUCHED) & set(sites)) or not asked.flag("shortcuts", True)
    here = range(0 if whole else item.first, item.length)
    moved = [place for place in here if whole or not local or place in item.changed]
    chosen = set(asked.places("positions", item.length))
    if "key_pos" in swept:
        return _edges(item, asked.places("keys", item.length), chosen, "query_pos" in swept)
    if not {"pos", "query_pos"} & set(swept):
        acting = [place for place in moved if place in chosen] or [item.length - 1]
        return {0 if whole else acting[0]: 1}
    places = [place for place in moved if place in chosen]
    return {0: len(places)} if whole else dict.fromkeys(places, 1)


def _edges(item: Item, keys: Sequence[int], queries: set[int], by_query: bool) -> Mapping[int, int]:
    """Single edges of attention: a key is read by queries from its own position on."""
    found: dict[int, int] = {}
    for key in keys:
        reading = [place for place in range(max(key, item.first), item.length) if place in queries]
        for start in reading if by_query else reading[:1]:
            found[start] = found.get(start, 0) + 1
    return found
