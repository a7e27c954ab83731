"""Components taken away: every number by a forward pass of its own, controls that are what they claim to be."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny
from torch import Tensor

from interp import edits, metrics
from interp.analyses.ablation import Ablation, ablate
from interp.analyses.components import Component, components_of, control_sets
from interp.analyses.removal import removal
from interp.analyses.repeated import repeated_text
from interp.errors import BudgetError, UsageError
from interp.hooks import HookPoint
from interp.models.constructed import induction_circuit
from interp.models.transformer import Transformer
from interp.results import Result

MODEL = tiny()
TOKENS = random_tokens(BASE, 3, 6)
OTHERS = random_tokens(BASE, 5, 6, seed=8)
MEASURED = {"logit": metrics.logit(7), "difference": metrics.logit_difference(7, 31)}
MIXED = ["1.2", "1.4", "kv_head 0.1", "neuron 2.17", "neuron 2.40", "attn 2", "mlp 0"]
EXPERTS = tiny(CONFIGS["moe_top2"])


def parsed(names: str) -> list[Component]:
    return [Component.parse(name) for name in names.split(", ") if name]


def slowly(model: Transformer, tokens: Tensor, names: str, new: dict[str, Tensor], columns: slice) -> Tensor:
    """Logits of a forward pass in which hooks of its own put `new` in the place of components, cell by cell."""

    def hook(value: Tensor, point: HookPoint) -> Tensor:
        for each in parsed(names):
            if point.name in each.points:
                cells = (slice(None), columns) if each.index is None else (slice(None), columns, each.index)
                value[cells] = new[point.name].expand_as(value)[cells]
        return value

    places = {point for each in parsed(names) for point in each.points}
    return model.run_with_hooks(tokens, [(sorted(places), hook)])


def by_hand(method: str, over: str, reference: Tensor) -> dict[str, Tensor]:
    """What takes the place of every value of the tiny model, without help of the code under test."""
    _, cache = MODEL.run_with_cache(reference)
    if method == "zero":
        return {name: torch.zeros_like(value[:1, :1]) for name, value in cache.items()}
    return {name: value.mean(0 if over == "texts" else (0, 1), keepdim=True) for name, value in cache.items()}


class TestEveryNumberIsThatOfAForwardPass:
    @pytest.mark.parametrize(
        ("method", "over", "own", "positions"),
        [
            ("mean", "texts", False, None),
            ("mean", "texts", True, slice(2, 5)),
            ("mean", "tokens", False, slice(1, 3)),
            ("zero", "texts", True, None),
        ],
    )
    def test_for_sets_of_all_kinds_and_their_controls(
        self, method: str, over: str, own: bool, positions: slice | None
    ) -> None:
        found = ablate(
            MODEL, TOKENS, {"mixed": MIXED, "head": ["0.3"]}, metric=MEASURED, method=method, mean_over=over,
            reference=None if own else OTHERS, controls=3, positions=positions,
        )  # fmt: skip
        new = by_hand(method, over, TOKENS if own else OTHERS)
        columns = slice(None) if positions is None else positions
        base = MODEL(TOKENS)
        for name, metric in MEASURED.items():
            np.testing.assert_allclose(found[f"{name}_base"], metric(base), atol=2e-5)
            for row in range(2):
                sets = [found["components"][row], *found["control_components"][row]]
                expected = [metric(slowly(MODEL, TOKENS, each, new, columns)) for each in sets]
                np.testing.assert_allclose(found[name][row], expected[0], atol=1e-4)
                np.testing.assert_allclose(found[f"{name}_control"][row], torch.stack(expected[1:]), atol=1e-4)

    def test_resampling_takes_the_values_of_one_other_text_for_all_components(self) -> None:
        _, cache = MODEL.run_with_cache(TOKENS)
        found = ablate(MODEL, TOKENS, MIXED, metric=MEASURED, method="resample", controls=0, seed=5)["logit"][0]
        partners = [list(order) for order in itertools.permutations(range(3)) if all(map(int.__ne__, order, range(3)))]
        possible = [
            MEASURED["logit"](
                slowly(MODEL, TOKENS, ", ".join(MIXED), {n: v[order] for n, v in cache.items()}, slice(None))
            )
            for order in partners
        ]
        assert len(possible) == 2  # three texts, none its own partner
        assert min(float((each - torch.tensor(found)).abs().max()) for each in possible) < 1e-4

    def test_padding_is_left_out_of_means_and_changes_nothing(self) -> None:
        mask = torch.ones_like(TOKENS, dtype=torch.bool)
        mask[0, :2] = False
        other = TOKENS.clone()
        other[0, :2] = 5
        how = {"metric": MEASURED, "mean_over": "tokens", "controls": 0, "mask": mask, "positions": slice(2, None)}
        found, again = (ablate(MODEL, tokens, ["1.2"], **how) for tokens in (TOKENS, other))
        np.testing.assert_allclose(found["logit"], again["logit"], atol=1e-6)
        _, cache = MODEL.run_with_cache(TOKENS, "blocks.1.attn.hook_z", mask=mask)
        mean = cache["z", 1][mask].mean(0)[None, None]

        def put(value: Tensor, point: HookPoint) -> Tensor:
            value[:, 2:, 2] = mean[:, :, 2]
            return value

        logits = MODEL.run_with_hooks(TOKENS, [("blocks.1.attn.hook_z", put)], mask=mask)
        np.testing.assert_allclose(found["logit"][0], MEASURED["logit"](logits), atol=2e-5)

    def test_shortcuts_change_nothing(self) -> None:
        quick, plain = (
            ablate(MODEL, TOKENS, MIXED, metric=MEASURED, controls=2, shortcuts=shortcuts)
            for shortcuts in (True, False)
        )
        np.testing.assert_allclose(quick["logit_control"], plain["logit_control"], atol=2e-5)


def with_patterns_kept(model: Transformer, tokens: Tensor, names: str, mask: Tensor | None) -> Tensor:
    """Logits of a forward pass whose own hooks zero components and put back every pattern of the clean run."""
    _, clean = model.run_with_cache(tokens, mask=mask)

    def hook(value: Tensor, point: HookPoint) -> Tensor:
        for each in parsed(names):
            if point.name in each.points:
                value[(slice(None),) * 2 if each.index is None else (slice(None), slice(None), each.index)] = 0
        return value

    places = sorted({point for each in parsed(names) for point in each.points})
    kept = ("blocks.*.attn.hook_pattern", lambda _, point: clean[point.name].clone())
    return model.run_with_hooks(tokens, [(places, hook), kept], mask=mask)


class TestPatternsPreserved:
    @pytest.mark.parametrize(
        ("config", "names"),
        [
            ("grouped_query", "0.3, 1.2"),
            ("grouped_query", "kv_head 1.1, attn 0, mlp 1, neuron 0.17"),
            ("multi_query", "0.5"),
            ("alibi", "0.2, 0.3"),
            ("score_cap", "1.1"),
            ("sliding_window", "0.1, 1.4"),
            ("qk_norm_head", "0.1"),
            ("sandwich_norm", "0.1, 1.4"),
            ("parallel", "0.1, mlp 1"),
            ("moe_top2", "0.1, 1.4"),
        ],
    )
    def test_all_heads_look_where_they_looked_and_what_is_tested_writes_nothing(self, config: str, names: str) -> None:
        model = tiny(CONFIGS[config])
        tokens = random_tokens(model.config, 3, 7)
        found = ablate(model, tokens, names.split(", "), metric=MEASURED, method="pattern_preserving", controls=2)
        sets = [found["components"][0], *found["control_components"][0]]
        values = [found["logit"][0], *found["logit_control"][0]]
        for each, value in zip(sets, values, strict=True):
            expected = MEASURED["logit"](with_patterns_kept(model, tokens, each, None))
            np.testing.assert_allclose(value, expected, atol=1e-4)

    def test_padding_and_shortcuts_change_nothing(self) -> None:
        mask = torch.ones_like(TOKENS, dtype=torch.bool)
        mask[0, :2] = False
        expected = MEASURED["logit"](with_patterns_kept(MODEL, TOKENS, "0.3, 1.2", mask))
        for shortcuts in (True, False):
            found = ablate(
                MODEL, TOKENS, ["0.3", "1.2"], metric=MEASURED, method="pattern_preserving", controls=0, mask=mask,
                shortcuts=shortcuts,
            )  # fmt: skip
            np.testing.assert_allclose(found["logit"][0], expected, atol=1e-4)

    def test_a_run_without_a_removal_is_the_same_to_the_bit(self) -> None:
        taken = removal(MODEL, TOKENS, components_of(MODEL, ["0.3"]), method="pattern_preserving")
        assert torch.equal(MODEL.run_with_hooks(TOKENS, taken.held), MODEL(TOKENS))

    def test_edges_that_a_context_blocks_stay_blocked(self) -> None:
        with MODEL.hooks([("blocks.1.attn.hook_attn_scores", edits.knock_out(keys=2, queries=slice(3, None)))]):
            found = ablate(MODEL, TOKENS, ["0.3"], metric=MEASURED, method="pattern_preserving", controls=0)
            expected = MEASURED["logit"](with_patterns_kept(MODEL, TOKENS, "0.3", None))
        np.testing.assert_allclose(found["logit"][0], expected, atol=1e-4)

    def test_what_would_be_kept_over_the_budget_is_refused_with_what_to_do(self) -> None:
        with pytest.raises(BudgetError, match=r"takes 17,280 bytes .*fewer texts at a time"):
            ablate(MODEL, TOKENS, ["0.3"], metric=MEASURED, method="pattern_preserving", budget=10_000)


def test_a_reference_read_in_parts_gives_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = ablate(MODEL, TOKENS, MIXED, metric=MEASURED, reference=OTHERS, controls=0)
    monkeypatch.setattr("interp.analyses.reference_values.TOKENS_AT_ONCE", 13)
    in_parts = ablate(MODEL, TOKENS, MIXED, metric=MEASURED, reference=OTHERS, controls=0)
    np.testing.assert_allclose(in_parts["logit"], at_once["logit"], atol=1e-5)


def test_intervals_are_over_texts_and_a_single_one_has_none() -> None:
    found = ablate(MODEL, TOKENS, ["1.2"], metric=MEASURED, controls=0)
    each = found["logit"][0] - found["logit_base"]
    assert each.min() <= found["logit_low"][0] < found["logit_effect"][0] < found["logit_high"][0] <= each.max()
    assert f"{found['logit_low'][0]:+.3f}, {found['logit_high'][0]:+.3f}]" in found.summary()[2]
    alone = ablate(MODEL, TOKENS[:1], ["1.2"], metric=MEASURED, controls=0, method="zero")
    assert np.isnan(alone["logit_low"][0])


class TestExperts:
    @pytest.mark.parametrize("method", ["zero", "mean", "resample"])
    @pytest.mark.parametrize("positions", [None, [1, 4]])
    def test_an_expert_is_replaced_in_the_slots_where_it_is_chosen(
        self, method: str, positions: list[int] | None
    ) -> None:
        tokens = random_tokens(EXPERTS.config, 3, 6)
        points = ["blocks.1.mlp.hook_expert_indices", "blocks.1.mlp.hook_expert_out"]
        _, cache = EXPERTS.run_with_cache(tokens, points)
        slots, written = cache[points[0]], cache[points[1]]
        expert = int(slots.flatten().bincount().argmax())
        pool = written[slots == expert]

        def replace(out: Tensor, point: HookPoint) -> Tensor:
            for text, pos, slot in (slots == expert).nonzero().tolist():
                if positions is None or pos in positions:
                    out[text, pos, slot] = pool.mean(0) if method == "mean" else 0
            return out

        found = ablate(
            EXPERTS, tokens, [f"expert 1.{expert}"], metric=MEASURED, method=method, controls=2, positions=positions
        )
        if method != "resample":
            expected = MEASURED["logit"](EXPERTS.run_with_hooks(tokens, [(points[1], replace)]))
            np.testing.assert_allclose(found["logit"][0], expected, atol=1e-4)
            assert np.abs(expected.numpy() - found["logit_base"]).max() > 1e-3
            return
        taken = removal(EXPERTS, tokens, components_of(EXPERTS, [f"expert 1.{expert}"]), method="resample")
        with EXPERTS.hooks(taken.hooks(components_of(EXPERTS, [f"expert 1.{expert}"]))):
            _, edited = EXPERTS.run_with_cache(tokens, points[1])
        own = edited[points[1]]
        assert torch.equal(own[slots != expert], written[slots != expert])
        assert all((row == pool).all(1).any() for row in own[slots == expert])
        assert not torch.equal(own[slots == expert], pool)

    def test_one_that_is_never_chosen_costs_nothing(self) -> None:
        tokens = random_tokens(EXPERTS.config, 2, 3)
        _, cache = EXPERTS.run_with_cache(tokens, "blocks.0.mlp.hook_expert_indices")
        idle = set(range(7)) - set(cache["expert_indices", 0].flatten().tolist())
        found = ablate(EXPERTS, tokens, [f"expert 0.{min(idle)}"], metric=MEASURED, controls=0)
        np.testing.assert_allclose(found["logit_effect"], 0, atol=1e-6)


class TestControls:
    def test_they_are_different_sets_of_the_same_kinds_layers_and_sizes_without_the_tested(self) -> None:
        tested = [Component.parse(name) for name in ("1.2", "1.4", "neuron 2.17", "kv_head 0.1")]
        drawn = control_sets(tiny().config, tested, 9, seed=(0, 0))
        assert len({frozenset(each) for each in drawn}) == 9
        for each in drawn:
            assert not set(each) & set(tested)
            assert sorted((c.kind, c.layer) for c in each) == sorted((c.kind, c.layer) for c in tested)
            assert len(set(each)) == len(each)

    def test_where_fewer_exist_there_are_all_of_them_and_the_number_is_stated(self) -> None:
        found = ablate(MODEL, TOKENS, ["1.2", "1.4", "1.0"], metric=MEASURED, controls=20)
        assert (found["controls"][0], found["controls_are_all"][0]) == (1, True)
        assert list(found["control_components"][0]) == ["1.1, 1.3, 1.5"]
        assert np.isnan(found["logit_control_std"][0])
        assert "(all 1 that exist)" in found.summary()[2]

    def test_whole_sublayers_stand_against_those_of_other_layers(self) -> None:
        found = ablate(MODEL, TOKENS, ["mlp 1"], metric=MEASURED)
        assert list(found["control_components"][0]) == ["mlp 0", "mlp 2"]

    def test_where_none_exist_it_says_so(self) -> None:
        found = ablate(MODEL, TOKENS, {"both": ["kv_head 1.0", "kv_head 1.1"], "one": ["1.1"]}, metric=MEASURED)
        assert list(found["controls"]) == [0, 5]
        assert np.isnan(found["logit_control_mean"][0])
        assert np.isfinite(found["logit_control_mean"][1])
        assert "controls none (all 0 that exist)" in found.summary()[2]

    def test_that_none_were_asked_for_is_another_thing(self) -> None:
        found = ablate(MODEL, TOKENS, ["1.1"], metric=MEASURED, controls=0)
        assert not found["controls_are_all"][0]
        assert "controls none (0 random sets)" in found.summary()[2]
        assert ablate(MODEL, TOKENS, ["1.1"], metric=MEASURED, controls=5)["controls_are_all"][0]

    def test_the_seed_decides(self) -> None:
        tested = [Component("neuron", 0, 3)]
        drawn = [control_sets(tiny().config, tested, 5, seed=(seed, 0)) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1]
        assert drawn[0] != drawn[2]

    def test_mean_spread_and_excess_are_those_of_the_control_effects(self) -> None:
        found = ablate(MODEL, TOKENS, {"one": ["1.2"], "three": ["1.2", "0.1", "2.5"]}, metric=MEASURED, controls=4)
        effect = found["logit_control"].mean(-1) - found["logit_base"].mean()
        np.testing.assert_allclose(found["logit_control_effect"], effect)
        np.testing.assert_allclose(found["logit_control_std"], effect.std(1, ddof=1))
        np.testing.assert_allclose(
            found["logit_deviations"], (found["logit_effect"] - effect.mean(1)) / effect.std(1, ddof=1)
        )


@pytest.mark.parametrize("name", ["18.6", "kv_head 1.2", "neuron 12.345", "expert 3.5", "attn 4", "mlp 0"])
def test_a_component_is_what_its_name_says(name: str) -> None:
    assert str(Component.parse(name)) == name


@pytest.mark.parametrize(
    ("components", "settings", "message"),
    [
        (["6"], {}, "names no component"),
        (["mlp 1.2"], {}, "names no component"),
        (["unit 1.2"], {}, "names no component"),
        (["3.0"], {}, "layers go from 0 to 2"),
        (["1.6"], {}, "index from 0 to 5"),
        (["kv_head 1.2"], {}, "index from 0 to 1"),
        (["expert 1.2"], {}, "one dense FFN"),
        ([Component("head", 1)], {}, "index from 0 to 5"),
        ([], {}, "each once"),
        (["1.2", "1.2"], {}, "each once"),
        ("1.2", {}, "A list of components"),
        ({}, {}, "no set of components"),
        (["1.2"], {"method": "median"}, "method='median'"),
        (["1.2"], {"controls": -1}, "controls=-1"),
        (["1.2"], {"reference": OTHERS[:, :4]}, "lengths must be equal"),
        (["1.2"], {"tokens": TOKENS[:1]}, "no other to be replaced from"),
    ],
)
def test_what_cannot_be_taken_away_is_refused(components: object, settings: dict[str, object], message: str) -> None:
    tokens = settings.pop("tokens", TOKENS) if "tokens" in settings else TOKENS
    with pytest.raises(UsageError, match=message):
        ablate(MODEL, tokens, components, metric=MEASURED, **settings)


def test_neurons_of_experts_are_refused_with_what_to_name_instead() -> None:
    with pytest.raises(UsageError, match="'expert 1.0'"):
        ablate(EXPERTS, TOKENS, ["neuron 1.2"], metric=MEASURED)


def test_the_circuit_made_by_hand_needs_its_head_and_no_other() -> None:
    """Zeroed, it leaves 54 tokens alike; with it, the logit of what followed is 16, and all others are 0."""
    text = torch.tensor([[3, 5, 8, 2, 3, 5, 8], [7, 1, 4, 9, 7, 1, 4]])
    metric = {"loss": metrics.loss(torch.tensor([[2], [9]]))}
    found = ablate(induction_circuit(), text, ["1.2"], metric=metric, method="zero")
    assert found["loss_effect"][0] == pytest.approx(np.log(54) - np.log1p(53 * np.exp(-16)), abs=1e-5)
    np.testing.assert_allclose(found["loss_control_effect"], 0, atol=1e-6)


def test_hooks_of_a_context_act_on_the_texts_and_on_the_reference() -> None:
    hook = ("blocks.0.attn.hook_z", edits.scale(1.5, heads=1))
    with MODEL.hooks([hook]):
        found = ablate(MODEL, TOKENS, ["1.2"], metric=MEASURED, reference=OTHERS, controls=0)
        new = by_hand("mean", "texts", OTHERS)
        expected = MEASURED["logit"](slowly(MODEL, TOKENS, "1.2", new, slice(None)))
    np.testing.assert_allclose(found["logit"][0], expected, atol=1e-4)


def test_induction_heads_of_the_real_model_matter_more_than_others(smollm2: Transformer) -> None:
    text = repeated_text(smollm2, seq_len=20, repeats=2, n_seqs=4, seed=1, prefix="doc").tokens
    loss = metrics.loss(text[:, 22:])
    heads = {"induction": ["18.6", "17.3", "17.4"]}
    found = ablate(smollm2, text[:, :-1], heads, metric=loss, controls=8, read=slice(21, None))
    assert found["loss_effect"][0] > 0.3
    assert found["loss_effect"][0] > found["loss_control_effect"].max()
    assert found["loss_deviations"][0] > 3


def test_the_table_the_figure_and_the_saved_copy_hold(tmp_path: Path) -> None:
    found = ablate(MODEL, TOKENS, {"heads": ["1.2", "1.4"], "FFN": ["mlp 1"]}, metric=MEASURED, controls=3)
    frame = found.to_frame()
    assert list(frame["removed"]) == ["heads", "FFN"]
    assert {"logit_effect", "difference_control_mean", "components"} <= set(frame.columns)
    assert [len(bars.x) for bars in found.figure("difference").data] == [2, 2]
    assert any(f"{found['logit_effect'][0]:+.3f}" in line for line in found.summary())
    assert "mean over texts" in found.summary()[0]
    found.save(tmp_path / "ablation")
    loaded = Result.load(tmp_path / "ablation")
    assert isinstance(loaded, Ablation)
    assert loaded.identical(found)
