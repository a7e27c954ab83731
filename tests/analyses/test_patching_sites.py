"""Every site's sweep is what a loop of forward passes gives, on models of every mechanism."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from replays import one_logit
from tiny import CONFIGS, random_tokens, tiny
from torch import Tensor

from interp.analyses.patching import Patching, plan_sweep, sweep
from interp.analyses.sites import SITES, layer_window
from interp.cache import ActivationCache
from interp.errors import UsageError
from interp.hooks import HookPoint, Hooks
from interp.models.transformer import Transformer

STREAM, HEADS, GROUPS = ("pos",), ("pos", "head"), ("pos", "kv_head")
SQUARE = ("head", "query_pos", "key_pos")
POINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "embed": ("hook_embed", STREAM),
    "resid_pre": ("blocks.{}.hook_resid_pre", STREAM),
    "resid_mid": ("blocks.{}.hook_resid_mid", STREAM),
    "resid_post": ("blocks.{}.hook_resid_post", STREAM),
    "attn_out": ("blocks.{}.hook_attn_out", STREAM),
    "mlp_out": ("blocks.{}.hook_mlp_out", STREAM),
    "q": ("blocks.{}.attn.hook_q", HEADS),
    "k": ("blocks.{}.attn.hook_k", GROUPS),
    "v": ("blocks.{}.attn.hook_v", GROUPS),
    "scores": ("blocks.{}.attn.hook_attn_scores", SQUARE),
    "pattern": ("blocks.{}.attn.hook_pattern", SQUARE),
    "z": ("blocks.{}.attn.hook_z", HEADS),
    "result": ("blocks.{}.attn.hook_result", HEADS),
    "neuron": ("blocks.{}.mlp.hook_post", ("pos", "neuron")),
    "router": ("blocks.{}.mlp.hook_router", STREAM),
}
BY_HEAD = {"k_by_head": ("blocks.{}.attn.hook_rot_k", GROUPS), "v_by_head": ("blocks.{}.attn.hook_v", GROUPS)}
"""For each site that is a value of the model: its point and the axes behind the pair's, as the slow way writes them."""
OUT, CHOSEN = "blocks.{}.mlp.hook_expert_out", "blocks.{}.mlp.hook_expert_indices"
PROBES = {f"logit of {token}": one_logit(token) for token in (3, 20, 66)}
PAIRS, LENGTH = 2, 6


@functools.cache
def model_of(name: str) -> Transformer:
    return tiny(CONFIGS[name])


@functools.cache
def run_of(name: str, which: str) -> tuple[Tensor, ActivationCache]:
    """The tokens of the clean or the corrupted run, which differ from position 1 on, and all values."""
    model = model_of(name)
    tokens = random_tokens(model.config, PAIRS, LENGTH, seed=1 if which == "clean" else 5)
    tokens[:, 0] = 3
    names = [*model.points().resolve(None), "blocks.*.attn.hook_result"]
    if any("expert_out" in point for point in model.points()):
        names.append(OUT.format("*"))
    return tokens, model.run_with_cache(tokens, names)[1]


def written(site: str, layer: int, places: Mapping[str, int], source: ActivationCache) -> Hooks:
    """One cell of a site, by a function that writes to the value, without `interp.edits`."""
    if site == "expert":
        return expert_written(layer, places, source)
    name, axes = (POINTS | BY_HEAD)[site]
    where = (slice(None), *(places.get(axis, slice(None)) for axis in axes))

    def write(value: Tensor, point: HookPoint) -> None:
        value[where] = source[point.name][where]

    return [(name.format(layer), write)]


def expert_written(layer: int, places: Mapping[str, int], source: ActivationCache) -> Hooks:
    """Slot by slot: where an expert is chosen, its output of the source run, if it was chosen there."""
    chosen: dict[str, Tensor] = {}

    def look(indices: Tensor, point: HookPoint) -> None:
        chosen["here"] = indices

    def write(value: Tensor, point: HookPoint) -> None:
        here, there = chosen["here"], source[CHOSEN.format(layer)]
        columns = [places["pos"]] if "pos" in places else range(value.shape[1])
        for pair, pos in itertools.product(range(len(value)), columns):
            for slot, other in itertools.product(range(value.shape[2]), repeat=2):
                if here[pair, pos, slot] == there[pair, pos, other] == places["expert"]:
                    value[pair, pos, slot] = source[point.name][pair, pos, other]

    return [(CHOSEN.format(layer), look), (OUT.format(layer), write)]


def slowly(model: Transformer, tokens: Tensor, cells: Sequence[Hooks]) -> list[Tensor]:
    """Logits of every cell at the last position, [pair, 1, d_vocab], by a forward pass each."""
    return [model.run_with_hooks(tokens, hooks)[:, -1:] for hooks in cells]


def agree(found: Patching, logits: Sequence[Tensor], of: str) -> None:
    """Every metric lies within 1e-5 of the largest logit of the slow way's."""
    largest = max(float(each.abs().max()) for each in logits)
    for name, metric in PROBES.items():
        slow = torch.stack([metric(each) for each in logits]).numpy()
        off = np.abs(found[name].reshape(slow.shape) - slow).max()
        assert off <= 1e-5 * largest, f"{of}, {name}: off by {off} of {largest}"


def cells_of(found: Patching) -> list[dict[str, int]]:
    places = itertools.product(*(found.axes[axis] for axis in found.over))
    return [dict(zip(found.over, each, strict=True)) for each in places]


def some_places(model: Transformer, site: str, each: int = 2) -> dict[str, list[int]]:
    """A few places on every axis of a site, by the name of the option."""
    layers = [layer for layer in range(model.config.n_layers) if exists(model, site, layer)]
    axes = SITES[site].axes
    config = model.config
    return {
        **({"layers": sorted({layers[0], layers[-1]})[-each:]} if "layer" in axes else {}),
        **({"positions": [LENGTH - 1, 1][:each]} if {"pos", "query_pos"} & set(axes) else {}),
        **({"heads": [config.n_heads - 1]} if "head" in axes else {}),
        **({"heads": [config.n_kv_heads - 1]} if "kv_head" in axes else {}),
        **({"keys": [1]} if "key_pos" in axes else {}),
        **({"neurons": [17, 0, 30, 43]} if "neuron" in axes else {}),
        **({"experts": [4, 1][:each]} if "expert" in axes else {}),
    }


def exists(model: Transformer, site: str, layer: int) -> bool:
    if site == "expert":
        return OUT.format(layer) in model.points()
    point, _ = POINTS[site]
    name = point.format(layer)
    return name in model.points() and (site != "neuron" or "d_mlp" in model.points()[name].axes)


def sites_of(name: str) -> list[str]:
    """The sites that a model has, those of single query heads left out."""
    model = model_of(name)
    layers = range(model.config.n_layers)
    return [site for site in (*POINTS, "expert") if any(exists(model, site, layer) for layer in layers)]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_site_is_what_a_loop_of_forward_passes_gives(name: str) -> None:
    """Cell by cell over all axes of every site that a model has, clean values into the corrupted run."""
    model, (clean, source), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    moved = []
    for site in sites_of(name):
        asked = {"site": site, "metric": PROBES, "by": SITES[site].axes, **some_places(model, site, 1)}
        found = sweep(model, clean, corrupted, **asked)
        cells = cells_of(found)
        logits = slowly(model, corrupted, [written(site, cell.get("layer", 0), cell, source) for cell in cells])
        agree(found, logits, f"{name}, {site}")
        moved.append(site if np.abs(found["logit of 3"] - found["logit of 3_corrupted"]).max() > 1e-3 else "")
    assert set(sites_of(name)) - set(moved) <= {"scores", "pattern", "expert"}, "nothing is tested where nothing moves"


@pytest.mark.parametrize("site", [*POINTS, "expert"])
def test_without_shortcuts_every_site_is_the_same(site: str) -> None:
    name = "moe_mixed_layers"
    model, (clean, source), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    asked = {"site": site, "metric": PROBES, "by": SITES[site].axes, **some_places(model, site)}
    found = sweep(model, clean, corrupted, shortcuts=False, **asked)
    cells = [written(site, cell.get("layer", 0), cell, source) for cell in cells_of(found)]
    agree(found, slowly(model, corrupted, cells), site)


@pytest.mark.parametrize("site", [*POINTS, "expert"])
def test_an_axis_that_is_left_out_is_patched_whole(site: str) -> None:
    """By the site's usual axes, corrupted values into the clean run."""
    name = "moe_mixed_layers"
    model, (clean, _), (corrupted, source) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    few = {key: value for key, value in some_places(model, site).items() if key not in ("positions", "keys")}
    found = sweep(model, clean, corrupted, site=site, metric=PROBES, direction="noise", **few)
    assert found.over == SITES[site].usual
    cells = [written(site, cell.get("layer", 0), cell, source) for cell in cells_of(found)]
    agree(found, slowly(model, clean, cells), site)


@pytest.mark.parametrize("site", [*POINTS, *BY_HEAD, "expert"])
def test_in_other_precisions_every_site_is_patched_alike(site: str) -> None:
    """In float64 as in float32; in bf16, of three digits, within a few of them."""
    values = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model = tiny(CONFIGS["moe_mixed_layers"], dtype=dtype)
        clean, corrupted = (run_of("moe_mixed_layers", which)[0] for which in ("clean", "corrupted"))
        where = {"heads": [1]} if site in BY_HEAD else some_places(model, site)
        found = sweep(model, clean, corrupted, site=site, metric=PROBES, **where)
        values.append(found["logit of 3"])
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-4)
    np.testing.assert_allclose(values[2], values[1], rtol=0, atol=0.3)


# ------------------------------------------------------------------------------------------- single query heads


def by_query_head(model: Transformer) -> Transformer:
    """The same model with a KV head for every query head, so that each can be written alone."""
    config = model.config
    expanded = Transformer(replace(config, n_kv_heads=config.n_heads), device="cpu")
    times = config.n_heads // config.n_kv_heads
    given = model.weights()
    for name, weight in expanded.weights().items():
        old = given[name]
        if name.endswith((".W_K", ".W_V", ".b_K", ".b_V")):
            old = old.repeat_interleave(times, 0)
        elif old.shape != weight.shape:  # the norm of all keys side by side
            old = old.view(config.n_kv_heads, -1).repeat_interleave(times, 0).flatten()
        weight.copy_(old)
    return expanded


@pytest.mark.parametrize("site", BY_HEAD)
@pytest.mark.parametrize(
    "name",
    [
        *("grouped_query", "multi_query", "biases", "alibi", "sliding_window", "mixed_windows", "qk_norm_head"),
        *("qk_norm_width", "score_cap", "custom_scale", "partial_rotary", "learned_positions", "moe_top2"),
    ],
)
def test_a_single_query_head_is_that_of_a_model_with_keys_and_values_of_its_own(name: str, site: str) -> None:
    """A copy of the model whose KV heads are repeated computes the same, and there one of them can be written."""
    model, (clean, _), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    expanded, last = by_query_head(model), model.config.n_heads - 1
    _, source = expanded.run_with_cache(clean)
    torch.testing.assert_close(expanded(clean), model(clean), rtol=0, atol=1e-4)
    places = {"layers": [0, -1], "heads": [0, last], "positions": [1, 4]}
    for shortcuts in (True, False) if name == "mixed_windows" else (True,):
        found = sweep(
            model, clean, corrupted, site=site, metric=PROBES, by=SITES[site].axes, shortcuts=shortcuts, **places
        )
        cells = [
            written(site, cell["layer"], {"kv_head": cell["head"], "pos": cell["pos"]}, source)
            for cell in cells_of(found)
        ]
        agree(found, slowly(expanded, corrupted, cells), f"{name}, {site}")


@pytest.mark.parametrize("site", ["k", "v"])
def test_a_kv_head_moves_exactly_the_query_heads_that_read_it(site: str) -> None:
    """Query heads 3 to 5 of 6 read KV head 1 of 2."""
    name = "grouped_query"
    model, (clean, _), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    planned = plan_sweep(model, clean, corrupted, site=site, metric=PROBES)
    assert planned.run().axes["kv_head"] == (0, 1)
    _, base = model.run_with_cache(corrupted)
    with model.hooks(list(planned.replay.sweep.edits(layer=1, kv_head=1))):
        _, patched = model.run_with_cache(corrupted)
    moved = (patched["z", 1] != base["z", 1]).any(-1).any(1).any(0)
    assert moved.tolist() == [False] * 3 + [True] * 3


# ---------------------------------------------------------------------------------------------------- single edges


def edge_written(
    layer: int, heads: Sequence[int], query: int, key: int, source: ActivationCache, renormalise: bool
) -> Hooks:
    def write(value: Tensor, point: HookPoint) -> None:
        for head in heads:
            value[:, head, query, key] = source[point.name][:, head, query, key]
            if renormalise:
                value[:, head, query] /= value[:, head, query].sum(-1, keepdim=True)

    return [(f"blocks.{layer}.attn.hook_pattern", write)]


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("heads", [None, [4], [1, 5]])
def test_edges_of_a_pattern_are_patched_one_by_one(heads: list[int] | None, renormalise: bool) -> None:
    """All queries and keys of one layer; a row keeps its other entries, or is divided by what it adds up to."""
    name = "grouped_query"
    model, (clean, source), (corrupted, base) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    found = sweep(
        model, clean, corrupted, site="pattern", metric=PROBES, by=("query_pos", "key_pos"),
        layers=1, heads=heads, renormalise=renormalise,
    )  # fmt: skip
    chosen = range(6) if heads is None else heads
    cells = [
        edge_written(1, chosen, cell["query_pos"], cell["key_pos"], source, renormalise) for cell in cells_of(found)
    ]
    agree(found, slowly(model, corrupted, cells), f"{heads}, {renormalise}")
    assert ("row_sum" in found) is not renormalise
    if not renormalise:
        old, new = (run["pattern", 1][:, list(chosen)].mean(1) for run in (base, source))
        torch.testing.assert_close(torch.tensor(found["row_sum"]), (1 + new - old).permute(1, 2, 0))


def test_all_keys_of_a_row_are_the_whole_row() -> None:
    """Patching every edge of a query is patching its row, whose sum is 1 again."""
    name = "grouped_query"
    model, (clean, _), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    asked = {"site": "pattern", "metric": PROBES, "by": ("layer", "head", "query_pos")}
    by_edge = sweep(model, clean, corrupted, keys=slice(None), **asked)
    whole = sweep(model, clean, corrupted, **asked)
    np.testing.assert_allclose(by_edge["row_sum"], 1, atol=1e-6)
    for probe in PROBES:
        np.testing.assert_allclose(by_edge[probe], whole[probe], atol=1e-5)


def test_a_row_sum_counts_all_edges_that_are_patched_together() -> None:
    name = "grouped_query"
    model, (clean, source), (corrupted, base) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    found = sweep(model, clean, corrupted, site="pattern", metric=PROBES, by=("layer", "head"), keys=[1, 3])
    moved = source.stack("pattern") - base.stack("pattern")
    expected = 1 + moved[..., [1, 3]].sum(-1).mean(-1)
    torch.testing.assert_close(torch.tensor(found["row_sum"]), expected.permute(0, 2, 1))


def test_a_row_that_would_be_left_with_nothing_cannot_be_renormalised() -> None:
    """The first query reads itself alone."""
    name = "grouped_query"
    model, (clean, _), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    asked = {"site": "pattern", "metric": PROBES, "source": "zero", "renormalise": True, "layers": 1}
    with pytest.raises(UsageError, match="nothing is left of a row"):
        plan_sweep(model, clean, corrupted, by=("query_pos", "key_pos"), **asked)
    found = sweep(model, clean, corrupted, by=("query_pos", "key_pos"), positions=slice(1, None), **asked)
    assert np.isfinite(found["logit of 3"]).all()


# --------------------------------------------------------------------------------------- windows, sets, whole layers


@pytest.mark.parametrize(
    ("layer", "window", "expected"),
    [
        (0, 1, [0]), (7, 1, [7]),
        (0, 2, [0]), (1, 2, [0, 1]), (7, 2, [6, 7]),
        (0, 9, [0, 1, 2, 3, 4]), (4, 9, [0, 1, 2, 3, 4, 5, 6, 7]), (7, 9, [3, 4, 5, 6, 7]),
        (0, 10, [0, 1, 2, 3, 4]), (7, 10, [2, 3, 4, 5, 6, 7]),
    ],
)  # fmt: skip
def test_a_window_reaches_one_layer_further_down_than_up_where_it_is_even(
    layer: int, window: int, expected: list[int]
) -> None:
    assert list(layer_window(layer, window, 8)) == expected


@pytest.mark.parametrize("window", [1, 2, 3, 9])
@pytest.mark.parametrize("site", ["mlp_out", "z", "k_by_head", "expert"])
def test_the_layers_of_a_window_are_patched_together(site: str, window: int) -> None:
    name = "moe_top2" if site == "expert" else "grouped_query"
    model, (clean, source), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    found = sweep(model, clean, corrupted, site=site, metric=PROBES, window=window)
    if site == "k_by_head":
        expanded = by_query_head(model)
        _, source = expanded.run_with_cache(clean)
        model = expanded
    cells = []
    for cell in cells_of(found):
        places = {"kv_head" if site in BY_HEAD else axis: place for axis, place in cell.items()}
        around = layer_window(cell["layer"], window, 3)
        cells.append([hook for layer in around for hook in written(site, layer, places, source)])
    agree(found, slowly(model, corrupted, cells), f"{site}, {window}")


@pytest.mark.parametrize(
    ("name", "sites", "by"),
    [
        ("grouped_query", ("attn_out", "mlp_out"), ("layer", "pos")),
        ("grouped_query", ("k", "v"), ("layer", "kv_head")),
        ("grouped_query", ("q", "k"), ("layer",)),
        ("grouped_query", ("embed", "attn_out"), ("pos",)),
        ("grouped_query", ("attn_out", "embed"), ("pos",)),
        ("moe_top2", ("resid_mid", "expert"), ("layer", "pos")),
        ("moe_mixed_layers", ("attn_out", "router"), ("layer", "pos")),
    ],
)
def test_several_sites_are_patched_together(name: str, sites: tuple[str, ...], by: tuple[str, ...]) -> None:
    """By the axes that they share; `embed` has no layers, so that the other site is patched in all of them."""
    model, (clean, source), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    found = sweep(model, clean, corrupted, site=sites, metric=PROBES, **({"experts": 2} if "expert" in sites else {}))
    assert found.over == by
    cells = []
    for cell in cells_of(found):
        layers = [cell["layer"]] if "layer" in by else range(3)
        cells.append(
            [
                hook
                for site in sites
                for layer in (layers if site != "embed" else [0])
                for hook in written(site, layer, {**cell, "expert": 2}, source)
            ]
        )
    agree(found, slowly(model, corrupted, cells), f"{sites} by {by}")


def test_neurons_are_patched_as_a_list() -> None:
    name = "grouped_query"
    model, (clean, source), (corrupted, _) = model_of(name), run_of(name, "clean"), run_of(name, "corrupted")
    chosen = [3, 40, 7]
    found = sweep(model, clean, corrupted, site="neuron", metric=PROBES, by=("layer",), neurons=chosen)

    def write(value: Tensor, point: HookPoint) -> None:
        value[..., chosen] = source[point.name][..., chosen]

    cells = [[(f"blocks.{layer}.mlp.hook_post", write)] for layer in range(3)]
    agree(found, slowly(model, corrupted, cells), "neurons")
