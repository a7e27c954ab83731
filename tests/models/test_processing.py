"""Processed weights give the same probabilities, and say what was done to them."""

from dataclasses import replace

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.analyses.lens import logit_lens
from interp.errors import UsageError
from interp.models.config import ModelConfig
from interp.models.processing import STEPS, process
from interp.models.transformer import Transformer

GPT2_LIKE = replace(
    BASE, norm="layer", gated=False, activation="gelu_tanh", rotary=None, learned_positions=True, n_ctx=40,
    n_kv_heads=6, qkv_bias=True, o_bias=True, mlp_bias=True,
)  # fmt: skip
ALL = CONFIGS | {
    "gpt2_like": GPT2_LIKE,
    "layer_norm_parallel_untied": replace(GPT2_LIKE, parallel=True, tied_embeddings=False, unembed_bias=True),
    "layer_norm_embed_norm": replace(GPT2_LIKE, embed_norm=True, n_kv_heads=2),
}
every_config = pytest.mark.parametrize("config", ALL.values(), ids=list(ALL))


def log_probabilities(model: Transformer, length: int = 9) -> torch.Tensor:
    return model(random_tokens(model.config, 2, length)).log_softmax(-1)


def assert_same_probabilities(processed: Transformer, model: Transformer) -> None:
    torch.testing.assert_close(log_probabilities(processed), log_probabilities(model), rtol=0, atol=1e-4)


@every_config
def test_probabilities_stay(config: ModelConfig) -> None:
    model = tiny(config)
    processed, report = process(model)
    assert_same_probabilities(processed, model)
    assert set(report.done) | set(report.left) == set(STEPS)
    assert set(report.done).isdisjoint(report.left)


@every_config
@pytest.mark.parametrize("step", STEPS)
def test_each_step_alone_keeps_them_or_is_refused_with_a_reason(config: ModelConfig, step: str) -> None:
    model, others = tiny(config), dict.fromkeys(STEPS, False)
    _, report = process(model, **{**others, step: None})
    if step in report.done:
        processed, _ = process(model, **{**others, step: True})
        assert_same_probabilities(processed, model)
    else:
        with pytest.raises(UsageError, match=f"{step} would not leave"):
            process(model, **{**others, step: True})


@every_config
def test_twice_is_once(config: ModelConfig) -> None:
    once, _ = process(tiny(config))
    twice, _ = process(once)
    assert twice.config == once.config
    for (name, weight), expected in zip(twice.weights().items(), once.weights().values(), strict=True):
        assert torch.equal(weight, expected), name


@every_config
def test_the_model_itself_stays_as_it_is(config: ModelConfig) -> None:
    model = tiny(config)
    process(model)
    assert "processing" not in model.provenance
    for (name, weight), expected in zip(model.weights().items(), tiny(config).weights().values(), strict=True):
        assert torch.equal(weight, expected), name


def test_a_model_like_gpt2_loses_every_gain_bias_and_mean() -> None:
    processed, report = process(tiny(GPT2_LIKE))
    weights = processed.weights()
    assert set(report.done) == set(STEPS)
    for name, weight in weights.items():
        if name.endswith(".w"):
            assert (weight == 1).all(), name
        if (".ln" in f".{name}" and name.endswith(".b")) or name.endswith("b_V"):
            assert (weight == 0).all(), name
        if name.endswith(("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out", "W_U")):
            assert weight.mean(-1).abs().max() < 1e-6, name


def test_the_residual_stream_of_a_centred_model_has_no_mean() -> None:
    processed, _ = process(tiny(GPT2_LIKE))
    _, cache = processed.run_with_cache(random_tokens(GPT2_LIKE, 1, 7), "blocks.*.hook_resid_post")
    assert all(value.mean(-1).abs().max() < 1e-5 for value in cache.values())


def test_folding_unties_the_unembedding_and_leaves_the_embedding() -> None:
    model = tiny(BASE)
    processed, _ = process(model)
    assert not processed.config.tied_embeddings
    assert torch.equal(processed.W_E, model.W_E)


@pytest.mark.parametrize(
    ("step", "change", "reason"),
    [
        ("center_writing", {}, "root mean square"),
        ("center_writing", {"norm": "layer", "norms": "sandwich"}, "see the residual stream as it is"),
        ("fold_norms", {"norms": "post"}, "stand in the residual stream"),
        ("center_unembedding", {"logit_cap": 3.0}, "capped"),
        ("fold_value_biases", {}, "no value biases"),
    ],
)
def test_what_would_change_probabilities_is_refused(step: str, change: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        process(tiny(replace(BASE, **change)), **{step: True})


def test_experts_cannot_take_over_the_bias_of_a_norm() -> None:
    with pytest.raises(UsageError, match="experts of layer 0 has a bias"):
        process(tiny(replace(CONFIGS["moe_top2"], norm="layer")), fold_norms=True)


def test_half_precision_is_refused() -> None:
    with pytest.raises(UsageError, match="load the model as float32"):
        process(tiny(BASE, dtype=torch.bfloat16))


def test_the_default_model_keeps_its_probabilities_and_results_name_the_processing(smollm2: Transformer) -> None:
    processed, report = process(smollm2)
    tokens = smollm2.to_tokens("The Eiffel Tower is in the city of")
    expected = smollm2(tokens).log_softmax(-1)
    torch.testing.assert_close(processed(tokens).log_softmax(-1), expected, rtol=0, atol=1e-4)
    assert "center_writing" in report.left
    stated = logit_lens(processed, "The Eiffel Tower is in the city of").provenance["processing"]
    assert set(stated["done"]) == {"fold_norms", "center_unembedding"}
