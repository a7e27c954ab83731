"""Direct logit attribution: the terms add up, finer ones to coarser ones, and the divisor stays what it was."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import pair_builders
from interp.analyses.attribution import Attribution, direct_logit_attribution
from interp.analyses.neurons import DENSE, SHARED
from interp.analyses.pair_filter import logit_differences
from interp.errors import PointError, UsageError
from interp.models.circuits import Head, OneFact
from interp.models.constructed import one_fact_memory
from interp.pairs import align
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

SUMS = {name: config for name, config in CONFIGS.items() if config.norms != "post"}
MIXTURES = [name for name, config in SUMS.items() if config.moe is not None]
PARTS = {
    **{"sublayer": ("attn",), "head": ("head",), "source": ("source",)},
    **{"neuron": ("neuron",), "expert": ("expert", "shared")},
}
"""What a sublayer is taken apart into."""
ANSWERS, FOILS = [5, 11], [60, 2]


def attributed(model: "Transformer", by: str, **how: object) -> Attribution:
    return direct_logit_attribution(model, random_tokens(model.config, 2, 9), ANSWERS, FOILS, by=by, **how)


def uncapped(model: "Transformer", tokens: torch.Tensor) -> torch.Tensor:
    """The logits at the last position, before a soft-cap: those of `ANSWERS` less those of `FOILS`."""
    _, cache = model.run_with_cache(tokens, "unembed.hook_out", positions=[-1])
    logits = cache["unembed.hook_out"][:, 0]
    return logits[range(2), ANSWERS] - logits[range(2), FOILS]


def by_layer(result: Attribution, kinds: tuple[str, ...], layer: int) -> np.ndarray:
    """The sum of a layer's terms of some kinds, for each prompt."""
    chosen = np.isin(result["part_kind"], kinds) & (result["part_layer"] == layer)
    return result["contribution"][:, chosen].sum(1)


# ------------------------------------------------------------------------------------------------------ sums


@pytest.mark.parametrize("name", SUMS)
def test_terms_of_every_kind_add_up_to_the_logits_and_finer_ones_to_coarser_ones(name: str) -> None:
    model = tiny(SUMS[name])
    expected = uncapped(model, random_tokens(model.config, 2, 9)).numpy()
    kinds = ("sublayer", "head", "source", "neuron", *(("expert",) if model.config.moe else ()))
    found = {by: attributed(model, by) for by in kinds}
    for result in found.values():
        np.testing.assert_allclose(result["logit"], expected, atol=1e-4)
        np.testing.assert_allclose(result["contribution"].sum(1), expected, atol=1e-4)
        assert result.worst_error < 1e-4
    for layer in range(model.config.n_layers):
        attn, mlp = (by_layer(found["sublayer"], (kind,), layer) for kind in ("attn", "mlp"))
        for by, result in found.items():
            dense = by == "expert" and not model.config.layer(layer).moe
            finer = by_layer(result, ("mlp",) if dense else PARTS[by], layer) + by_layer(result, ("bias",), layer)
            np.testing.assert_allclose(finer, mlp if by in ("neuron", "expert") else attn, atol=1e-4)


def test_the_answer_alone_is_its_logit() -> None:
    model, tokens = tiny(SUMS["logit_scale_and_bias"]), random_tokens(BASE, 2, 9)
    result = direct_logit_attribution(model, tokens, 5)
    np.testing.assert_allclose(result["contribution"].sum(1), model(tokens)[:, -1, 5], atol=1e-4)
    assert result.axes["part"][-1] == "b_U"
    assert "foil" not in result


def test_with_a_soft_cap_the_terms_add_up_before_it_and_the_result_says_so() -> None:
    model, tokens = tiny(SUMS["score_cap"]), random_tokens(BASE, 2, 9)
    likeliest = model(tokens)[:, -1].max(-1)
    result, cap = direct_logit_attribution(model, tokens, likeliest.indices.tolist()), model.config.logit_cap
    np.testing.assert_allclose(cap * np.tanh(result["logit"] / cap), likeliest.values, atol=1e-4)
    assert (result["logit"] > likeliest.values.numpy() + 0.1).all()
    assert "before the soft-cap" in result.summary()[0]


# ---------------------------------------------------------------------------------------- what each term is


@pytest.mark.parametrize("name", ["grouped_query", "biases", "sandwich_norm", "parallel"])
def test_a_head_is_its_result_through_the_norms_with_their_divisors_as_they_were(name: str) -> None:
    model, tokens = tiny(SUMS[name]), random_tokens(BASE, 2, 9)
    scales = [point for point in model.points() if point.endswith(("_post.hook_scale", "ln_final.hook_scale"))]
    _, cache = model.run_with_cache(tokens, ["blocks.*.attn.hook_result", *scales], positions=[-1])
    weights, direction = model.weights(), (model.W_U[:, ANSWERS] - model.W_U[:, FOILS]).mT
    for layer in range(BASE.n_layers):
        part = cache["result", layer][:, 0]
        if name == "sandwich_norm":
            scale = cache[f"blocks.{layer}.ln1_post.hook_scale"][:, 0, None]
            part = part / scale * weights[f"blocks.{layer}.ln1_post.w"]
        if model.config.norm == "layer":
            part = part - part.mean(-1, keepdim=True)
        through = part / cache["ln_final.hook_scale"][:, 0, None] * weights["ln_final.w"]
        expected = torch.einsum("bhm,bm->bh", through, direction)
        result = attributed(model, "head")
        chosen = (result["part_kind"] == "head") & (result["part_layer"] == layer)
        np.testing.assert_allclose(result["contribution"][:, chosen], expected.numpy(), atol=1e-5)


def test_a_divisor_of_each_parts_own_would_not_add_up() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens, ["hook_embed", "blocks.*.hook_attn_out", "blocks.*.hook_mlp_out"])
    read = model.unembed_residual(cache.residual_parts().values[:, :, -1])
    wrong = read[:, range(2), ANSWERS] - read[:, range(2), FOILS]
    right = attributed(model, "sublayer")["contribution"].T
    assert np.abs(wrong.numpy() - right).max() > 0.5
    assert (wrong.sum(0) - uncapped(model, tokens)).abs().max() > 0.5


def test_a_source_is_its_pattern_times_its_value() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    names = ["blocks.*.attn.hook_pattern", "blocks.*.attn.hook_v", "ln_final.hook_scale"]
    _, cache = model.run_with_cache(tokens, names)
    read = (model.W_U[:, ANSWERS] - model.W_U[:, FOILS]).mT * model.weights()["ln_final.w"]
    read = read / cache["ln_final.hook_scale"][:, -1]
    result = attributed(model, "head_source")
    for layer, head, key in ((0, 0, 3), (1, 4, 8), (2, 5, 0)):
        value = cache["v", layer][:, key, head // BASE.queries_per_kv] @ model.W_O[layer, head]
        expected = cache["pattern", layer][:, head, -1, key] * (value * read).sum(-1)
        place = result.axes["part"].index(f"L{layer}.H{head}←{key}")
        np.testing.assert_allclose(result["contribution"][:, place], expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", MIXTURES)
def test_an_expert_that_was_not_chosen_has_no_term(name: str) -> None:
    model, tokens = tiny(SUMS[name]), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens, "blocks.1.mlp.hook_expert_indices", positions=[-1])
    result = attributed(model, "expert")
    terms = result["contribution"][:, (result["part_kind"] == "expert") & (result["part_layer"] == 1)]
    for row, chosen in enumerate(cache["blocks.1.mlp.hook_expert_indices"][:, 0].tolist()):
        assert set(np.flatnonzero(terms[row]).tolist()) == set(chosen)


@pytest.mark.parametrize("name", MIXTURES)
def test_neurons_of_experts_add_up_to_their_experts_and_the_unchosen_are_no_parts(name: str) -> None:
    model, layer = tiny(SUMS[name]), 1
    tokens = random_tokens(BASE, 2, 9)
    chosen = "blocks.1.mlp.hook_expert_indices"
    _, cache = model.run_with_cache(tokens, chosen, positions=[-1])
    neurons, experts = attributed(model, "neuron"), attributed(model, "expert")
    mine = (neurons["part_kind"] == "neuron") & (neurons["part_layer"] == layer)
    assert set(neurons["part_expert"][mine]) - {SHARED} == set(cache[chosen].flatten().tolist())
    for expert in set(neurons["part_expert"][mine].tolist()):
        of_expert = mine & (neurons["part_expert"] == expert)
        kind, index = ("shared", -1) if expert == SHARED else ("expert", expert)
        whole = (experts["part_kind"] == kind) & (experts["part_layer"] == layer) & (experts["part_index"] == index)
        sums = neurons["contribution"][:, of_expert].sum(1)
        np.testing.assert_allclose(sums, experts["contribution"][:, whole][:, 0], atol=1e-5)
    assert set(neurons["part_expert"][~mine & (neurons["part_kind"] != "neuron")]) == {DENSE}


def test_a_neuron_of_an_expert_is_its_coefficient_and_value_times_the_weight_of_the_expert() -> None:
    model, tokens = tiny(SUMS["moe_shared_gated"]), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens, ["blocks.2.*", "blocks.2.mlp.shared.hook_post", "ln_final.hook_scale"])
    weights = model.weights()
    read = (model.W_U[:, ANSWERS] - model.W_U[:, FOILS]).mT * weights["ln_final.w"]
    read = read / cache["ln_final.hook_scale"][:, -1]
    result = attributed(model, "neuron")
    expert = int(cache["expert_indices", 2][0, -1, 1])
    gate = (cache["blocks.2.ln2.hook_normalized"][0, -1] @ weights["blocks.2.mlp.W_shared_gate"]).sigmoid()
    for name, weight, coefficient, value in (
        (f"2.{expert}.5", cache["expert_weights", 2][0, -1, 1], cache["mlp.post", 2][0, -1, 1, 5],
         weights["blocks.2.mlp.W_out"][expert, 5]),
        ("2.shared.25", gate, cache["blocks.2.mlp.shared.hook_post"][0, -1, 25],
         weights["blocks.2.mlp.shared.W_out"][25]),
    ):  # fmt: skip
        place = result.axes["part"].index(f"neuron {name}")
        expected = float(weight * coefficient * (value * read[0]).sum())
        assert result["contribution"][0, place] == pytest.approx(expected, abs=1e-5)


def test_prompts_that_choose_other_experts_are_explained_together_however_many_run_at_once() -> None:
    model, tokens = tiny(SUMS["moe_shared_gated"]), random_tokens(BASE, 6, 9)
    together, one_by_one = (
        direct_logit_attribution(model, tokens, 5, 60, by="neuron", max_bytes=size) for size in (2**28, 1)
    )
    assert together.axes["part"] == one_by_one.axes["part"]
    np.testing.assert_allclose(together["contribution"], one_by_one["contribution"], atol=1e-5)
    alone = direct_logit_attribution(model, tokens[:1], 5, 60, by="neuron")
    assert set(alone.axes["part"]) < set(together.axes["part"])
    assert alone.worst_error < 1e-4
    with pytest.raises(UsageError, match="not numbered by layer alone"):
        alone.layer_map()


def test_a_shared_expert_with_a_bias_has_a_term_for_it() -> None:
    config = replace(SUMS["moe_shared_gated"], mlp_bias=True)
    result = attributed(tiny(config), "neuron")
    assert result.worst_error < 1e-4
    assert "L1.shared.b_out" in result.axes["part"]


# ---------------------------------------------------------------------------------------------- ways to ask


def test_a_cache_gives_what_its_tokens_give() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens)
    for by in ("sublayer", "head", "source", "neuron"):
        of_cache = direct_logit_attribution(model, cache, ANSWERS, FOILS, by=by)
        np.testing.assert_allclose(of_cache["contribution"], attributed(model, by)["contribution"], atol=1e-5)


def test_a_cache_of_an_edited_run_is_explained_with_the_divisor_of_that_run() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    with model.hooks([("ln_final.hook_scale", lambda value, point: 2 * value)]):
        _, cache = model.run_with_cache(tokens)
    result = direct_logit_attribution(model, cache, ANSWERS, FOILS)
    np.testing.assert_allclose(result["logit"], uncapped(model, tokens) / 2, atol=1e-5)
    assert result.worst_error < 1e-4


def test_earlier_positions_are_explained_too() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    result = attributed(model, "head", position=3)
    np.testing.assert_allclose(result["logit"], uncapped(model, tokens[:, :4]), atol=1e-5)
    assert result.settings["position"] == 3


def test_padded_prompts_and_batches_of_any_size_change_nothing() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :4] = False
    for by in ("sublayer", "neuron"):
        batch = direct_logit_attribution(model, tokens, ANSWERS, FOILS, by=by, mask=mask)
        one_by_one = direct_logit_attribution(model, tokens, ANSWERS, FOILS, by=by, mask=mask, max_bytes=1)
        alone = direct_logit_attribution(model, tokens[:1, 4:], ANSWERS[:1], FOILS[:1], by=by)
        np.testing.assert_allclose(batch["contribution"], one_by_one["contribution"], atol=1e-5)
        np.testing.assert_allclose(batch["contribution"][:1], alone["contribution"], atol=1e-5)


def test_a_model_is_explained_where_it_is(device: str) -> None:
    model, tokens = tiny(SUMS["biases"], device=device), random_tokens(BASE, 2, 9)
    for by in ("head", "source", "neuron"):
        assert direct_logit_attribution(model, tokens.to(device), ANSWERS, FOILS, by=by).worst_error < 1e-4


def test_nothing_of_the_model_or_the_cache_is_changed() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens)
    before = {
        **{name: w.clone() for name, w in model.weights().items()},
        **{name: v.clone() for name, v in cache.items()},
    }
    for by in ("head", "source", "neuron"):
        direct_logit_attribution(model, cache, ANSWERS, FOILS, by=by)
    after = {**model.weights(), **cache}
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_terms_are_averaged_over_prompts_with_intervals() -> None:
    model = tiny()
    tokens = random_tokens(BASE, 12, 9)
    result = direct_logit_attribution(model, tokens, 5, 60)
    np.testing.assert_allclose(result["mean"], result["contribution"].mean(0), atol=1e-6)
    assert (result["low"] < result["mean"]).all()
    assert (result["mean"] < result["high"]).all()
    assert np.isnan(direct_logit_attribution(model, tokens[:1], 5, 60)["low"]).all()


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("post_norm", {}, "no sum of what was written"),
        ("grouped_query", {"by": "expert"}, "no mixture of experts"),
        ("grouped_query", {"position": 9}, "9 lies outside"),
        ("grouped_query", {"mask": torch.tensor([[True] * 9, [True] * 8 + [False]])}, "prompt 1 is padding"),
        ("grouped_query", {"by": "source", "mask": torch.tensor([[True] * 9, [False] + [True] * 8])}, "correspond"),
    ],
)
def test_what_is_no_sum_or_no_position_is_refused(name: str, how: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attributed(tiny(CONFIGS[name]), **{"by": "sublayer", **how})


@pytest.mark.parametrize(
    ("answer", "foil", "message"),
    [
        (67, None, "67 is no token id"),
        ([5], None, "1 answers came with 2 prompts"),
        ([5, 6], [7, 6], "Answer and foil of prompt 1 are both '6'"),
    ],
)
def test_what_cannot_be_asked_is_refused(answer: object, foil: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        direct_logit_attribution(tiny(), random_tokens(BASE, 2, 9), answer, foil)


def test_a_mask_that_would_be_ignored_is_refused() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens)
    with pytest.raises(UsageError, match="brings its own mask"):
        direct_logit_attribution(model, cache, 5, mask=torch.ones(2, 9, dtype=torch.bool))


def test_a_cache_that_lacks_something_is_refused_by_name() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 9)
    _, cache = model.run_with_cache(tokens, ["hook_embed", "blocks.*.hook_resid_post"])
    with pytest.raises(PointError, match=r"blocks\.0\.hook_attn_out"):
        direct_logit_attribution(model, cache, 5)
    _, some = model.run_with_cache(tokens, positions=[4])
    with pytest.raises(UsageError, match=r"Position 8 was not recorded"):
        direct_logit_attribution(model, some, 5)
    with pytest.raises(UsageError, match="needs all"):
        direct_logit_attribution(model, some, 5, by="source", position=4)


# ------------------------------------------------------------------------------------- what is known before


class TestOneFact:
    circuit = OneFact(suppressor=Head(1, 3))
    prompt = "The Eiffel Tower is in"

    def of(self, by: str, **how: object) -> Attribution:
        return direct_logit_attribution(one_fact_memory(self.circuit), self.prompt, "Paris", "Seattle", by=by, **how)

    def test_by_head_it_is_the_extractor_less_the_suppressor_less_the_prior(self) -> None:
        table = self.of("head").to_frame().set_index("part")["mean"]
        expected = {"L1.H2": 16.0, "L1.H3": -4.0, "embed": -8.0}
        assert {name: value for name, value in table.items() if value} == expected

    def test_by_source_the_extractor_reads_the_end_of_the_subject(self) -> None:
        result = self.of("head_source").to_frame().set_index("part")["mean"]
        assert result["L1.H2←3"] == 16.0
        assert (result[[name for name in result.index if name.startswith("L1.H2←") and name != "L1.H2←3"]] == 0).all()

    def test_the_neuron_writes_for_the_answer_where_the_fact_is_kept_only_if_a_head_says_it(self) -> None:
        """A part that acts by way of a later head alone has no direct term, at either position."""
        for position in (-1, 3):
            result = self.of("neuron", position=position)
            assert (result["mean"][result["part_kind"] == "neuron"] == 0).all()

    def test_a_neuron_that_writes_what_the_unembedding_reads_is_found(self) -> None:
        model, spaces = one_fact_memory(self.circuit), self.circuit.spaces
        layer, neuron = self.circuit.neuron
        said = spaces["next"].start + self.circuit.token("Paris")
        model.weights()[f"blocks.{layer}.mlp.W_out"][neuron, said] = 3
        result = direct_logit_attribution(model, self.prompt, "Paris", "Seattle", by="neuron", position=3)
        terms = {name: value for name, value in zip(result.axes["part"], result["mean"], strict=True) if value}
        assert terms == {f"neuron {layer}.{neuron}": 3.0}


def test_the_figures_the_table_and_the_saved_copy_hold(tmp_path: Path) -> None:
    result = attributed(tiny(), "head")
    bars = result.figure().data[0]
    assert bars.x[-1] == pytest.approx(result["logit"].mean(), abs=1e-4)
    assert result.explained == "logit(its answer) − logit(its foil)"
    assert bars.y[-2] == f"{len(result['mean']) - 12} others"
    table = result.layer_map()
    assert table.shape == (3, 6)
    assert table[1, 4] == result["mean"][result.axes["part"].index("L1.H4")]
    assert result.map_figure().data[0].z.shape == (3, 6)
    with pytest.raises(UsageError, match="no map by 'sublayer'"):
        attributed(tiny(), "sublayer").map_figure()
    result.save(tmp_path / "run")
    assert Result.load(tmp_path / "run").identical(result)
    assert Attribution.load(tmp_path / "run").summary() == result.summary()


def test_on_a_real_model_late_heads_write_paris_and_everything_adds_up(smollm2: "Transformer") -> None:
    prompt = "The Eiffel Tower is located in the city of"
    result = direct_logit_attribution(smollm2, prompt, " Paris", " London", by="head")
    assert result.worst_error < 1e-4
    late = result["part_layer"] >= 15
    heads = result["part_kind"] == "head"
    assert result["mean"][late & heads].sum() > 3 * abs(result["mean"][~late & heads].sum())


def test_pairs_of_prompts_are_explained_against_their_foils(smollm2: "Transformer") -> None:
    pairs = align(smollm2.tokenizer, pair_builders.ioi(smollm2.tokenizer, n=8))
    found = direct_logit_attribution(smollm2, pairs.clean, pairs.answers, pairs.foils, by="head", mask=pairs.mask)
    np.testing.assert_allclose(found["logit"], logit_differences(smollm2, pairs), atol=1e-4)
    assert found.worst_error < 1e-4
    assert found["foil"].tolist() == [pair.foil for pair in pairs.prompts]
