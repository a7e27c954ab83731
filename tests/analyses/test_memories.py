"""FFN memories: a neuron that was written by hand, sums over every architecture, signs, and the real model."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from spoken import spoken_fact
from tiny import CONFIGS, random_tokens, tiny

from interp.analyses.ffn_values import memories_read
from interp.analyses.memories import Memories, ffn_memories
from interp.analyses.neurons import Neuron as Named
from interp.analyses.neurons import memory_of
from interp.analyses.sub_updates import points_read, sub_updates
from interp.analyses.value_tokens import value_tokens
from interp.errors import PointError, UsageError
from interp.models.circuits import Head, Neuron, OneFact
from interp.models.config import ModelConfig
from interp.results import Result

if TYPE_CHECKING:
    from pathlib import Path

    from interp.models.transformer import Transformer

FACT = OneFact(neuron=Neuron(1, 3), extractor=Head(2, 2), n_layers=3)
TEXT = "The Eiffel Tower is in"


class TestAFactWrittenByHand:
    def test_its_neuron_dominates_at_the_end_of_the_subject(self) -> None:
        model = spoken_fact(FACT)
        (end,) = FACT.subject_ends(model.to_tokens(TEXT)[0].tolist())
        found = ffn_memories(model, TEXT, layer=1, position=end, top_k=3, words=2)
        assert found["name"][0, 0] == "1.3"
        assert found["coefficient"][0].tolist() == [1, 0, 0]
        assert found["promoted_token"][0, 0, 0].strip() == FACT.answer
        assert found["explained"][0].tolist() == [1, 1, 1]

    def test_it_writes_nothing_elsewhere(self) -> None:
        model = spoken_fact(FACT)
        tokens = model.to_tokens(TEXT)
        for position in set(range(tokens.shape[1])) - set(FACT.subject_ends(tokens[0].tolist())):
            found = ffn_memories(model, tokens, layer=1, position=position, top_k=8, words=1)
            assert not found["dominance"].any()

    def test_its_value_alone_speaks_for_the_answer(self) -> None:
        found = value_tokens(spoken_fact(FACT), layer=1, neurons=[0, 3], top_k=1)
        assert found.at("top_token", neuron=3)[0].strip() == FACT.answer
        assert found["value_norm"].tolist() == pytest.approx([0, 2**0.5])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_sub_updates_add_up_to_the_output_of_the_ffn(config: ModelConfig) -> None:
    model, tokens = tiny(config, dtype=torch.float64), random_tokens(config, 2, 5)
    layers = range(config.n_layers)
    cache = model.run_with_cache(tokens, [*points_read(model, layers), "blocks.*.mlp.hook_out"])[1]
    for layer in layers:
        found = sub_updates(model, cache, layer, row=1, column=3)
        torch.testing.assert_close(found.sum + found.bias, cache["mlp.out", layer][1, 3])
        assert len(found.neuron) == memories_read(config, layer)
    result = ffn_memories(model, cache, row=1, position=3, top_k=4)
    assert result["completeness_error"].max() < 1e-12


def test_a_wrong_sum_shows_in_the_completeness_error() -> None:
    model, tokens = tiny(CONFIGS["biases"]), random_tokens(CONFIGS["biases"], 1, 5)
    cache = model.run_with_cache(tokens, points_read(model, [1]))[1]
    model.weights()["blocks.1.mlp.b_out"].zero_()
    assert ffn_memories(model, cache, layer=1)["completeness_error"][0] > 0.01


@pytest.mark.parametrize("name", ["grouped_query", "ungated", "sandwich_norm"])
def test_ranks_are_those_of_coefficient_times_value(name: str) -> None:
    config = CONFIGS[name]
    model, tokens = tiny(config), random_tokens(config, 1, 6)
    _, cache = model.run_with_cache(tokens)
    found = ffn_memories(model, tokens, layer=-1, position=2, top_k=5)
    post, values = cache["post", -1][0, 2], model.W_out[-1]
    dominance = post.abs() * values.norm(dim=-1)
    assert found["neuron"][0].tolist() == dominance.topk(5).indices.tolist()
    np.testing.assert_allclose(found["dominance"][0], dominance.topk(5).values, rtol=1e-5)
    chosen = found["neuron"][0].tolist()
    np.testing.assert_allclose(found["coefficient"][0], post[chosen], rtol=1e-5)
    np.testing.assert_allclose(found["pre"][0], cache["mlp.pre", -1][0, 2, chosen], rtol=1e-5)
    if config.gated:
        np.testing.assert_allclose(found["pre_linear"][0], cache["pre_linear", -1][0, 2, chosen], rtol=1e-5)
    else:
        assert np.isnan(found["pre_linear"]).all()


def test_the_gate_alone_would_rank_neurons_otherwise_and_know_no_signs() -> None:
    config = CONFIGS["grouped_query"]
    model, tokens = tiny(config), random_tokens(config, 1, 6)
    found = ffn_memories(model, tokens, layer=1, top_k=config.d_mlp)
    gate = torch.nn.functional.silu(torch.tensor(found["pre"][0])) * torch.tensor(found["value_norm"][0])
    assert gate.abs().argsort(descending=True).tolist() != list(range(config.d_mlp))
    assert (found["coefficient"] < 0).any()
    assert (found["coefficient"] > 0).any()


def test_promoted_tokens_are_those_whose_logits_the_sub_update_raises() -> None:
    config = CONFIGS["sandwich_norm"]
    model, tokens = tiny(config), random_tokens(config, 1, 6)
    found = ffn_memories(model, tokens, layer=0, top_k=6, words=3)
    assert (found["coefficient"] < 0).any()
    for rank, neuron in enumerate(found["neuron"][0].tolist()):
        post_norm, final = model.weights()["blocks.0.ln2_post.w"], model.weights()["ln_final.w"]
        added = float(found["coefficient"][0, rank]) * model.W_out[0, neuron] * post_norm
        scores = (added * final) @ model.W_U
        assert found["promoted_id"][0, rank].tolist() == scores.topk(3).indices.tolist()
        assert found["suppressed_id"][0, rank].tolist() == scores.topk(3, largest=False).indices.tolist()


def test_what_the_first_memories_explain_is_what_the_rest_lacks() -> None:
    config = CONFIGS["grouped_query"]
    model, tokens = tiny(config), random_tokens(config, 1, 6)
    found = ffn_memories(model, tokens, layer=1, top_k=config.d_mlp)
    amounts = torch.tensor(found["coefficient"][0])[:, None] * model.W_out[1][found["neuron"][0].tolist()]
    rest = amounts[7:].sum(0).square().sum() / amounts.sum(0).square().sum()
    assert found["explained"][0, 6] == pytest.approx(1 - float(rest), abs=1e-5)
    assert found["explained"][0, -1] == pytest.approx(1, abs=1e-6)


class TestExperts:
    CONFIG = CONFIGS["moe_shared_gated"]

    def test_neurons_carry_their_expert_and_its_mixing_weight(self) -> None:
        model, tokens = tiny(self.CONFIG, dtype=torch.float64), random_tokens(self.CONFIG, 1, 5)
        _, cache = model.run_with_cache(tokens)
        found = ffn_memories(model, tokens, layer=2, top_k=70)
        assert self.CONFIG.moe is not None
        assert found["updates"].tolist() == [2 * self.CONFIG.moe.d_expert + 26]
        chosen, mixing = cache["expert_indices", 2][0, -1].tolist(), cache["expert_weights", 2][0, -1]
        for slot, expert in enumerate(chosen):
            own = [name.startswith(f"2.{expert}.") for name in found["name"][0]]
            np.testing.assert_allclose(found["weight"][0][own], mixing[slot], rtol=1e-6)
            neurons = found["neuron"][0][own].tolist()
            post = cache["mlp.post", 2][0, -1, slot, neurons]
            np.testing.assert_allclose(found["coefficient"][0][own], post, rtol=1e-9)
        assert sum("shared" in name for name in found["name"][0]) == 26

    def test_names_of_neurons_are_those_that_neurons_are_read_by(self) -> None:
        model, tokens = tiny(self.CONFIG), random_tokens(self.CONFIG, 1, 5)
        found = ffn_memories(model, tokens, layer=2, top_k=70)
        for name, neuron in zip(found["name"][0].tolist(), found["neuron"][0].tolist(), strict=True):
            assert (str(Named.parse(name)), Named.parse(name).index) == (name, neuron)

    def test_the_shared_expert_has_values_of_its_own_behind_those_of_the_others(self) -> None:
        model = tiny(self.CONFIG)
        found = value_tokens(model, layer=1, neurons=memory_of(self.CONFIG, Named.parse("1.shared.25")), top_k=2)
        value = model.weights()["blocks.1.mlp.shared.W_out"][25]
        scores = (value * model.weights()["ln_final.w"]) @ model.W_U
        assert found.axes["neuron"] == ("shared.25",)
        assert "1.shared.25" in found.summary()[1]
        assert found["top_id"][0].tolist() == scores.topk(2).indices.tolist()
        np.testing.assert_allclose(found["value_norm"], float(value.norm()), rtol=1e-6)
        assert len(value_tokens(model, layer=1, top_k=1).axes["neuron"]) == 7 * 22 + 26

    def test_values_of_experts_count_expert_by_expert(self) -> None:
        model = tiny(self.CONFIG)
        width = self.CONFIG.moe.d_expert if self.CONFIG.moe else 0
        found = value_tokens(model, layer=0, neurons=[3 * width + 4], top_k=2)
        scores = (model.weights()["blocks.0.mlp.W_out"][3, 4] * model.weights()["ln_final.w"]) @ model.W_U
        assert found.axes["neuron"] == ("3.4",)
        assert found["top_id"][0].tolist() == scores.topk(2).indices.tolist()


def test_values_of_all_neurons_do_not_depend_on_the_block() -> None:
    model = tiny()
    whole, pieces = (value_tokens(model, layer=1, max_bytes=size) for size in (2**26, 1))
    assert np.array_equal(whole["top_id"], pieces["top_id"])
    assert len(whole.axes["neuron"]) == model.config.d_mlp


def test_the_bare_product_reads_values_without_the_gain() -> None:
    model = tiny()
    found = value_tokens(model, layer=1, neurons=7, top_k=3, final_norm=None)
    assert found["top_id"][0].tolist() == (model.W_out[1, 7] @ model.W_U).topk(3).indices.tolist()


def test_texts_of_a_padded_batch_are_read_by_themselves() -> None:
    config = CONFIGS["grouped_query"]
    model, tokens = tiny(config), random_tokens(config, 2, 6)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0, 4:] = False
    _, cache = model.run_with_cache(tokens, points_read(model, [0, 2]), mask=mask)
    alone = ffn_memories(model, tokens[:1, :4], layer=[0, 2])
    batched = ffn_memories(model, cache, layer=[0, 2], row=0, position=3)
    assert np.array_equal(alone["neuron"], batched["neuron"])
    with pytest.raises(UsageError, match="Position 5 of text 0 is padding"):
        ffn_memories(model, cache, layer=0, row=0)


def test_half_precision_is_read_in_float32() -> None:
    model, tokens = tiny(dtype=torch.bfloat16), random_tokens(CONFIGS["grouped_query"], 1, 6)
    assert ffn_memories(model, tokens, layer=1)["completeness_error"][0] < 0.02


def test_a_result_is_saved_shown_and_told(tmp_path: "Path") -> None:
    config = CONFIGS["grouped_query"]
    model, tokens = tiny(config), random_tokens(config, 1, 6)
    for found in (ffn_memories(model, tokens), ffn_memories(model, tokens, layer=1), value_tokens(model, layer=1)):
        assert Result.load(found.save(tmp_path / "it")).identical(found)
        assert len(found.figure().data[0].x) == len(found.figure().data[0].y)
        assert found.summary()[-1].strip() == found.caution


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layer": 3}, "3 lies outside"),
        ({"position": 6}, "6 lies outside"),
        ({"top_k": 45}, "expected 1 to 44"),
        ({"row": 1}, "1 lies outside"),
    ],
)
def test_what_does_not_exist_is_refused(wrong: dict[str, int], message: str) -> None:
    config = CONFIGS["grouped_query"]
    with pytest.raises(UsageError, match=message):
        ffn_memories(tiny(config), random_tokens(config, 1, 6), **wrong)


def test_a_cache_without_what_is_read_is_refused() -> None:
    config = CONFIGS["grouped_query"]
    model, tokens = tiny(config), random_tokens(config, 1, 6)
    cache = model.run_with_cache(tokens, points_read(model, [0]), positions=[2])[1]
    with pytest.raises(PointError, match="was not recorded"):
        ffn_memories(model, cache, layer=1, position=2)
    with pytest.raises(UsageError, match="Position 5 was not recorded"):
        ffn_memories(model, cache, layer=0)


def test_the_real_model_recalls_with_neurons_of_both_signs(smollm2: "Transformer") -> None:
    found: Memories = ffn_memories(smollm2, "The Eiffel Tower is located in the city of", top_k=5)
    assert found["completeness_error"].max() < 1e-5
    assert (found["coefficient"] < 0).any()
    assert (found["coefficient"] > 0).any()
    assert (np.diff(found["dominance"]) <= 0).all()
