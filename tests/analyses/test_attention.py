"""Maps of every head and of one, and what taking a head away does on one text; on tiny models."""

import numpy as np
import pytest
import torch
from tiny import LLAMA_CONFIGS, MECHANISMS, random_tokens, tiny

from interp.analyses.attention import attention_maps, shrunk
from interp.analyses.attention_read import said_twice
from interp.analyses.head_attention import HeadAttention, head_attention
from interp.analyses.local_ablation import LocalAblation, ablate_here
from interp.errors import UsageError
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit
from interp.models.transformer import Transformer

ALL = {**LLAMA_CONFIGS, **MECHANISMS}
NAMES = ["grouped_query", "sliding_window", "alibi", "score_cap", "learned_positions", "qk_norm_head", "moe_top2"]


def one(config: str = "grouped_query", pos: int = 11) -> tuple[Transformer, torch.Tensor]:
    model = tiny(ALL[config], dtype=torch.float64)
    return model, random_tokens(model.config, 1, pos)


@pytest.mark.parametrize("config", NAMES)
def test_a_heads_map_is_what_the_hook_points_say(config: str) -> None:
    model, tokens = one(config)
    _, cache = model.run_with_cache(tokens, ["blocks.*.attn.hook_*"])
    found = head_attention(model, tokens, "1.4")
    pattern, scores = cache["pattern", 1][0, 4], cache["blocks.1.attn.hook_attn_scores"][0, 4]
    np.testing.assert_allclose(found["pattern"], pattern, atol=1e-6)
    np.testing.assert_allclose(np.nan_to_num(found["scores"], nan=-np.inf), scores, atol=1e-5)
    group = 4 // model.config.queries_per_kv
    written = cache["blocks.1.attn.hook_v"][0, :, group] @ model.W_O[1][4]
    np.testing.assert_allclose(found["moved"], pattern * written.norm(dim=-1), atol=1e-5)
    np.testing.assert_allclose(found["value_norm"], written.norm(dim=-1), rtol=1e-4)


@pytest.mark.parametrize("config", NAMES)
def test_the_small_pictures_of_a_short_text_are_the_maps_themselves(config: str) -> None:
    model, tokens = one(config)
    maps = attention_maps(model, tokens)
    for what in ("pattern", "moved", "scores"):
        whole = head_attention(model, tokens, (2, 3)).values(what)
        np.testing.assert_allclose(maps.picture(what)[2, 3], np.nan_to_num(whole), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(maps.picture(what, sink=False)[2, 3][:, 0], 0)


def test_the_numbers_of_a_head_are_those_of_its_map() -> None:
    model, tokens = one()
    maps, head = attention_maps(model, tokens), head_attention(model, tokens, "1.2")
    pattern = head["pattern"]
    back = np.arange(11)[:, None] - np.arange(11)
    assert maps["sink"][1, 2] == pytest.approx(pattern[1:, 0].mean(), abs=1e-6)
    assert maps["distance"][1, 2] == pytest.approx((pattern * np.clip(back, 0, None)).sum(1).mean(), abs=1e-6)
    query, key = np.unravel_index(pattern[:, 1:].argmax(), (11, 10))
    assert (maps["strongest_query"][1, 2], maps["strongest_key"][1, 2]) == (query, key + 1)
    assert maps["strongest"][1, 2] == pytest.approx(pattern[query, key + 1])
    row = head.strongest(1, sink=False).iloc[0]
    assert (row["query"], row["key"]) == (query, key + 1)


def test_a_block_of_a_small_picture_shows_its_value_farthest_from_zero() -> None:
    values = torch.zeros(1, 7, 7)
    values[0, 4, 2], values[0, 5, 3], values[0, 6, 6] = 0.5, -0.75, 0.25
    assert shrunk(values, 3)[0].tolist() == [[0.0, 0.0, 0.0], [0.5, -0.75, 0.0], [0.0, 0.0, 0.25]]


def test_long_texts_have_pictures_of_bounded_size() -> None:
    model, tokens = one(pos=100)
    maps = attention_maps(model, tokens)
    assert maps["small_pattern"].shape == (1, 2, 3, 6, 20, 20)
    assert maps.settings["block"] == 5
    whole = head_attention(model, tokens, "0.5")["pattern"]
    np.testing.assert_allclose(maps.picture()[0, 5][3, 2], whole[15:20, 10:15].max(), atol=1e-6)


def test_two_texts_stand_side_by_side_with_their_difference() -> None:
    model, tokens = one()
    other = random_tokens(model.config, 1, 11, seed=5)
    both, alone = head_attention(model, tokens, "2.1", other), head_attention(model, other, "2.1")
    np.testing.assert_allclose(both["other_pattern"], alone["pattern"], atol=1e-6)
    np.testing.assert_allclose(both["difference_moved"], both["moved"] - both["other_moved"], atol=1e-6)
    maps = attention_maps(model, tokens, other)
    shown = np.nan_to_num(both.values("pattern", of="difference"))
    np.testing.assert_allclose(maps.picture(of="difference")[2, 1], shown, atol=1e-6)
    assert maps["changed"][2, 1] == pytest.approx(np.abs(both["difference_pattern"]).sum(1).mean() / 2, abs=1e-6)
    assert "changed most" in "\n".join(maps.summary())


def test_the_same_text_twice_changes_nothing() -> None:
    model, tokens = one()
    assert attention_maps(model, tokens, tokens)["changed"].max() < 1e-6


def test_what_cannot_be_read_is_refused_in_words() -> None:
    model, tokens = one()
    with pytest.raises(UsageError, match="11 and 9 tokens"):
        attention_maps(model, tokens, tokens[:, :9])
    with pytest.raises(UsageError, match="look at itself"):
        attention_maps(model, tokens[:, :1])
    with pytest.raises(UsageError, match="layers go from 0 to 2"):
        head_attention(model, tokens, "9.0")
    with pytest.raises(UsageError, match="One text is read at a time"):
        head_attention(model, tokens.expand(2, -1), "1.0")


def test_results_come_back_from_the_disk(tmp_path: object) -> None:
    model, tokens = one()
    for found in (attention_maps(model, tokens), head_attention(model, tokens, "1.1")):
        found.save(f"{tmp_path}/{found.kind}")
        assert type(found).load(f"{tmp_path}/{found.kind}").identical(found)
        assert found.figure().data
    assert isinstance(found, HeadAttention)


# ---------------------------------------------------------------------------------------------------- taken away here


def test_the_effect_here_is_that_of_two_runs() -> None:
    model, tokens = one(pos=9)
    found = ablate_here(model, tokens, ["1.2"], method="zero", controls=2, answer=7)

    def losses(logits: torch.Tensor) -> torch.Tensor:
        return -logits[0, :-1].log_softmax(-1).gather(-1, tokens[0, 1:, None]).mean()

    def zero(value: torch.Tensor, point: object) -> torch.Tensor:
        value[:, :, 2] = 0
        return value

    with torch.no_grad():
        base, without = model(tokens), model.run_with_hooks(tokens, [("blocks.1.attn.hook_z", zero)])
    p, q = base[0, -1].log_softmax(-1), without[0, -1].log_softmax(-1)
    assert found["loss_effect"][0] == pytest.approx(float(losses(without) - losses(base)), abs=1e-5)
    assert found["log_probability_effect"][0] == pytest.approx(float(q[7] - p[7]), abs=1e-5)
    assert found["kl_effect"][0] == pytest.approx(float((p.exp() * (p - q)).sum()), abs=1e-5)
    assert isinstance(found, LocalAblation)
    assert found["controls"].tolist() == [2]


def test_an_induction_head_costs_where_the_text_comes_again_and_others_do_not() -> None:
    circuit = InductionCircuit()
    model = induction_circuit(circuit)
    tokens, since = said_twice(model, 8, 0, "none")
    assert since == 9
    layer, head = circuit.induction
    found = ablate_here(model, tokens, [(layer, head)], since=since, method="zero", prefix="none")
    assert found["loss_effect"][0] > 1
    assert abs(found["loss_control_mean"][0]) < 0.1
    assert found.settings["heads"] == (f"{layer}.{head}",)


def test_what_cannot_be_taken_away_is_refused_in_words() -> None:
    model, tokens = one()
    with pytest.raises(UsageError, match="not by 'resample'"):
        ablate_here(model, tokens, ["0.0"], method="resample")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="from 1 to 10"):
        ablate_here(model, tokens, ["0.0"], since=11)
