"""Attribution patching: exact where the model is linear, a derivative everywhere, and honest about the difference."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny
from torch import Tensor

from interp import metrics
from interp.analyses import patching
from interp.analyses.attribution_patching import AttributionMap, attribution_patching
from interp.analyses.patching_cells import cells_of
from interp.analyses.patching_runs import runs_of
from interp.analyses.sites import Values
from interp.errors import UsageError
from interp.hooks import HookPoint
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit
from interp.models.transformer import Transformer
from interp.pairs import Pairs
from interp.prompt_pairs import PromptPair
from interp.results import Result

if TYPE_CHECKING:
    from interp.analyses.patching_runs import Direction
    from interp.analyses.sites import Site

CLEAN, CORRUPTED = random_tokens(BASE, 3, 6), random_tokens(BASE, 3, 6, seed=4)
METRIC = metrics.logit_difference(7, 31)
NO_PLACES = dict.fromkeys(("layers", "positions", "keys", "heads", "neurons", "experts"))
MODEL = tiny()
DOUBLE = tiny(dtype=torch.float64)
LINEAR = tiny(replace(BASE, parallel=True, final_norm=False))
"""Nothing curved follows what its last layer writes: it goes straight into the logits."""
LINEAR_EXPERTS = tiny(replace(CONFIGS["moe_top2"], parallel=True, final_norm=False))

LINEAR_SITES: list[tuple["Site", tuple[str, ...]]] = [
    ("resid_post", ("layer", "pos")),
    ("attn_out", ("layer", "pos")),
    ("mlp_out", ("pos", "layer")),
    ("z", ("layer", "head")),
    ("z", ("head", "layer", "pos")),
    ("result", ("layer", "head")),
    ("v", ("layer", "kv_head", "pos")),
    ("pattern", ("layer", "head")),
    ("pattern", ("head", "query_pos", "key_pos")),
    ("neuron", ("layer", "neuron")),
]


@pytest.mark.parametrize(("site", "by"), LINEAR_SITES)
@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_in_the_last_layer_of_a_model_without_final_norm_it_is_exact_patching(
    site: "Site", by: tuple[str, ...], direction: "Direction"
) -> None:
    how = {"site": site, "by": by, "metric": METRIC, "direction": direction, "layers": [2]}
    found = attribution_patching(LINEAR, CLEAN, CORRUPTED, **how)
    exact = patching.sweep(LINEAR, CLEAN, CORRUPTED, **how)
    base = exact["logit_difference_corrupted" if direction == "denoise" else "logit_difference_clean"]
    np.testing.assert_allclose(found["estimate"], exact["logit_difference"] - base, atol=5e-5)
    np.testing.assert_allclose(found["recovered"], exact["logit_difference_recovered"], atol=1e-4)
    np.testing.assert_allclose(found["exact_effect"], found["estimated_effect"], atol=5e-5)
    assert np.abs(found["estimate"]).max() > 0.1
    assert found["sign_agreement"][0] == 1


@pytest.mark.parametrize("by", [("layer", "expert"), ("expert", "pos")])
def test_for_experts_too_where_both_runs_chose_them(by: tuple[str, ...]) -> None:
    how = {"site": "expert", "by": by, "metric": METRIC, "layers": [2]}
    found = attribution_patching(LINEAR_EXPERTS, CLEAN, CORRUPTED, **how)
    exact = patching.sweep(LINEAR_EXPERTS, CLEAN, CORRUPTED, **how)
    effect = exact["logit_difference"] - exact["logit_difference_corrupted"]
    np.testing.assert_allclose(found["estimate"], effect, atol=5e-5)
    assert (np.abs(effect) > 1e-3).any()


def derivative(site: "Site", by: tuple[str, ...], direction: "Direction", step: float = 1e-6) -> np.ndarray:
    """(M − M_base) / step where every cell in turn goes `step` of the way from base to source: [*axes, pair]."""
    runs = runs_of(DOUBLE, CLEAN, CORRUPTED, prefix="none", direction=direction)
    cells = cells_of(DOUBLE, runs, site, by, 1, NO_PLACES)
    _, base = DOUBLE.run_with_cache(runs.base, cells.points)
    _, source = DOUBLE.run_with_cache(runs.other, cells.points)
    near = {
        name: torch.where(base[name] == -torch.inf, base[name], base[name] + step * (source[name] - base[name]))
        for name in cells.points
    }
    before = METRIC(DOUBLE(runs.base)[:, -1:])
    values = Values(near)
    shape = [len(places) for places in cells.axes.values()]
    found = np.empty((*shape, len(CLEAN)))
    for index in np.ndindex(*shape):
        places = {axis: cells.axes[axis][place] for axis, place in zip(cells.axes, index, strict=True)}
        logits = DOUBLE.run_with_hooks(runs.base, cells.edits(places, values))
        found[index] = ((METRIC(logits[:, -1:]) - before) / step).numpy()
    return found


@pytest.mark.parametrize(
    ("site", "by"),
    [
        ("embed", ("pos",)),
        ("resid_pre", ("layer", "pos")),
        ("resid_mid", ("layer",)),
        ("q", ("layer", "head")),
        ("k", ("layer", "kv_head", "pos")),
        ("scores", ("layer", "head")),
        ("pattern", ("layer", "head", "query_pos")),
        ("z", ("pos", "layer", "head")),
        ("mlp_out", ("layer", "pos")),
    ],
)
@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_it_is_the_derivative_of_patching_at_the_run_that_is_patched(
    site: "Site", by: tuple[str, ...], direction: "Direction"
) -> None:
    found = attribution_patching(
        DOUBLE, CLEAN, CORRUPTED, site=site, by=by, metric=METRIC, direction=direction, check=None
    )
    expected = derivative(site, by, direction)
    np.testing.assert_allclose(found["estimate"], expected, rtol=1e-3, atol=1e-5)


def test_a_gradient_of_the_wrong_run_would_be_noticed() -> None:
    by = ("layer", "head")
    noise = attribution_patching(DOUBLE, CLEAN, CORRUPTED, site="z", by=by, metric=METRIC, direction="noise")
    off = np.abs(-noise["estimate"] - derivative("z", by, "denoise"))  # the same change, the other run's gradient
    assert off.max() > 0.1


def test_pairs_do_not_know_of_each_other() -> None:
    clean, corrupted = random_tokens(BASE, 8, 6, seed=2), random_tokens(BASE, 8, 6, seed=3)
    how = {"site": "z", "by": ("layer", "head", "pos"), "metric": METRIC, "check": None}
    together = attribution_patching(DOUBLE, clean, corrupted, **how)
    for pair in range(8):
        alone = attribution_patching(DOUBLE, clean[[pair]], corrupted[[pair]], **how)
        np.testing.assert_allclose(together["estimate"][..., pair], alone["estimate"][..., 0], atol=1e-11)


def test_a_padded_pair_gets_what_it_gets_alone() -> None:
    mask = torch.ones_like(CLEAN, dtype=torch.bool)
    mask[1, :2] = False
    prompts = (PromptPair("a", "b", "c", "d"),) * 3
    pairs = Pairs(CLEAN, CORRUPTED, (7, 8, 9), (31, 32, 33), mask, prompts, "none")
    found = attribution_patching(MODEL, pairs, site="z", check=(3, 5))
    metric = metrics.logit_difference(8, 32)
    alone = attribution_patching(MODEL, CLEAN[1:2, 2:], CORRUPTED[1:2, 2:], site="z", metric=metric, check=None)
    np.testing.assert_allclose(found["estimate"][..., 1], alone["estimate"][..., 0], atol=1e-5)


def test_several_sites_and_layers_in_one_cell_add_up() -> None:
    how = {"metric": METRIC, "check": None}
    both = attribution_patching(MODEL, CLEAN, CORRUPTED, site=["attn_out", "mlp_out"], by=("pos",), **how)
    each = [attribution_patching(MODEL, CLEAN, CORRUPTED, site=site, **how) for site in ("attn_out", "mlp_out")]
    np.testing.assert_allclose(both["estimate"], sum(one["estimate"].sum(0) for one in each), atol=1e-5)


def test_two_forward_passes_and_one_backward_pass_are_enough() -> None:
    seen: list[str] = []

    def count(value: Tensor, point: HookPoint) -> None:
        seen.append(point.name)

    with MODEL.hooks([("hook_embed", count)]):
        attribution_patching(MODEL, CLEAN, CORRUPTED, site="neuron", metric=METRIC, check=None)
    assert len(seen) == 2


@pytest.fixture(scope="module")
def found() -> AttributionMap:
    return attribution_patching(
        MODEL, CLEAN, CORRUPTED, site="z", by=("layer", "head", "pos"), metric=METRIC, check=(6, 20), seed=3
    )


class TestTheCheck:
    def test_its_cells_are_the_largest_and_a_sample_of_the_others(self, found: AttributionMap) -> None:
        places = list(zip(*(found[f"checked_{axis}"] for axis in ("layer", "head", "pos")), strict=True))
        assert len(set(places)) == 26
        assert list(found["sample"]) == ["top"] * 6 + ["random"] * 20
        largest = found.ranked(6)
        assert places[:6] == list(zip(largest["layer"], largest["head"], largest["pos"], strict=True))
        again, other = (
            attribution_patching(
                MODEL, CLEAN, CORRUPTED, site="z", by=("layer", "head", "pos"), metric=METRIC, check=(6, 20), seed=seed
            )
            for seed in (3, 4)
        )
        assert again.identical(found)
        assert not np.array_equal(other["checked_pos"], found["checked_pos"])

    def test_they_are_patched_exactly(self, found: AttributionMap) -> None:
        exact = patching.sweep(MODEL, CLEAN, CORRUPTED, site="z", by=("layer", "head", "pos"), metric=METRIC)
        effect = exact["logit_difference"] - exact["logit_difference_corrupted"]
        index = tuple(found[f"checked_{axis}"] for axis in ("layer", "head", "pos"))
        np.testing.assert_allclose(found["exact"], effect[index], atol=2e-5)
        np.testing.assert_allclose(found["estimated_effect"], found["mean_estimate"][index])

    def test_agreement_is_told_sample_by_sample(self, found: AttributionMap) -> None:
        for place, sample in enumerate(("top", "random")):
            own = found["sample"] == sample
            estimated, exact = found["estimated_effect"][own], found["exact_effect"][own]
            ranks = [np.argsort(np.argsort(each)) for each in (estimated, exact)]
            assert found["pearson"][place] == pytest.approx(np.corrcoef(estimated, exact)[0, 1])
            if len(set(exact)) == len(exact):
                assert found["spearman"][place] == pytest.approx(np.corrcoef(*ranks)[0, 1])
            told = np.abs(exact) > 1e-4
            assert found["sign_agreement"][place] == pytest.approx((estimated * exact > 0)[told].mean(), abs=1e-9)
            assert found["largest_miss"][place] == pytest.approx(np.abs(estimated - exact).max())
        assert 0.2 < found["pearson"][0] < 1 - 1e-6  # an estimate, on a model that curves

    def test_the_worst_misses_come_first(self, found: AttributionMap) -> None:
        misses = found.misses(26)
        assert list(misses["miss"].abs()) == sorted(misses["miss"].abs(), reverse=True)
        assert misses["miss"].abs()[0] == pytest.approx(found["largest_miss"].max())

    def test_where_fewer_cells_exist_all_are_patched(self) -> None:
        found = attribution_patching(MODEL, CLEAN, CORRUPTED, site="attn_out", by=("layer",), metric=METRIC)
        assert list(found["cells_checked"]) == [3, 0]
        assert np.isnan(found["pearson"][1])

    def test_the_table_the_figure_and_the_saved_copy_hold(self, found: AttributionMap, tmp_path: Path) -> None:
        assert len(found.to_frame()) == 3 * 6 * 6
        assert len(found.to_frame(("cell",))) == 26
        figure = found.figure()
        assert figure.data[0].type == "heatmap"
        assert [len(dots.x) for dots in figure.data[1:]] == [6, 20, 2]
        np.testing.assert_array_equal(figure.data[1].x, found["exact_effect"][:6])
        assert f"6 top cells patched exactly: Pearson {found['pearson'][0]:.3f}" in "\n".join(found.summary())
        assert "missed most" in "\n".join(found.summary())
        found.save(tmp_path / "map")
        loaded = Result.load(tmp_path / "map")
        assert isinstance(loaded, AttributionMap)
        assert loaded.identical(found)

    def test_a_map_without_one_says_so(self) -> None:
        found = attribution_patching(MODEL, CLEAN, CORRUPTED, site="z", metric=METRIC, check=None)
        assert "  not checked against exact patching" in found.summary()
        assert [trace.type for trace in found.figure().data] == ["heatmap"]


@pytest.mark.parametrize(("direction", "sign"), [("denoise", 1), ("noise", -1)])
def test_the_head_that_was_planted_comes_first_with_the_right_sign(direction: "Direction", sign: int) -> None:
    circuit = InductionCircuit()
    clean, corrupted = torch.tensor([[3, 5, 8, 2, 3]]), torch.tensor([[3, 6, 8, 2, 3]])
    metric = metrics.logit_difference(5, 6)
    found = attribution_patching(
        induction_circuit(circuit), clean, corrupted, site="z", metric=metric, direction=direction, check=(2, 2)
    )
    first = found.ranked(1).iloc[0]
    assert (first["layer"], first["head"]) == circuit.induction
    assert np.sign(first["mean_estimate"]) == sign == np.sign(found["exact_effect"][0])


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (MODEL, {"site": "v_by_head"}, "patch it exactly"),
        (MODEL, {"site": "zz"}, "There is no site 'zz'"),
        (MODEL, {"metric": {"a": METRIC, "b": metrics.logit(3)}}, "one metric; a, b came"),
        (MODEL, {"metric": lambda logits: logits[:, -1].argmax(-1).float()}, "differentiable"),
        (MODEL, {"check": (0, 0)}, r"The check is \(0, 0\)"),
        (MODEL, {"check": 5}, "The check is 5"),
        (MODEL, {"direction": "both"}, "The direction is 'both'"),
        (tiny(CONFIGS["moe_top2"]), {"site": "neuron"}, "patch the site expert"),
    ],
)
def test_what_has_no_gradient_is_refused(model: Transformer, settings: dict[str, object], message: str) -> None:
    how: dict[str, object] = {"site": "z", "metric": METRIC, **settings}
    with pytest.raises(UsageError, match=message):
        attribution_patching(model, CLEAN, CORRUPTED, **how)


def test_on_the_real_model_it_ranks_heads_as_patching_does(smollm2: Transformer) -> None:
    texts = [f"When Mary and John went to the store, {name} gave a drink to" for name in ("John", "Mary")]
    metric = metrics.logit_difference(*(smollm2.to_single_token(name) for name in (" Mary", " John")))
    found = attribution_patching(smollm2, *texts, site="z", metric=metric, check=(20, 60))
    assert found["spearman"][0] > 0.7
    assert found["sign_agreement"][0] > 0.9
    assert found["pearson"][1] > 0.5
