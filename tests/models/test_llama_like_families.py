"""Configurations of Llama, Mistral, Qwen and SmolLM3: what files state, what they leave out, and what is refused."""

import json
from typing import Any

import pytest

from interp.errors import LoadError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families import llama, mistral, qwen, smollm3
from interp.models.families.family import Family
from interp.models.sources.checkpoint import Checkpoint

FAMILIES = {
    "LlamaForCausalLM": llama.FAMILY,
    "MistralForCausalLM": mistral.FAMILY,
    "Qwen2ForCausalLM": qwen.QWEN2,
    "Qwen3ForCausalLM": qwen.QWEN3,
    "SmolLM3ForCausalLM": smollm3.FAMILY,
}
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 44,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "vocab_size": 67,
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 9}
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
"""The classes' own markers lie outside a small vocabulary, which `transformers` would warn of."""


def read(family: Family, fields: dict[str, Any]) -> ModelConfig:
    """What a family makes of a configuration."""
    checkpoint = Checkpoint(
        source="here",
        layout="hf",
        architecture=family.architectures[0],
        fields=fields,
        shapes={},
        read=lambda name, rows=None: pytest.fail("no weights are read"),
        tokenizer=lambda: None,
        sha256=lambda: "",
    )
    return family.config(checkpoint)


def windows(family: Family, **fields: Any) -> list[int | None]:
    """The window of each layer."""
    config = read(family, SIZES | fields)
    return [config.layer(layer).window for layer in range(config.n_layers)]


def turning(**fields: Any) -> list[bool]:
    """Which layers of SmolLM3 turn queries and keys."""
    config = read(smollm3.FAMILY, SIZES | fields)
    return [config.layer(layer).rotary is not None for layer in range(config.n_layers)]


def published_config(architecture: str, **fields: Any) -> Any:
    """The configuration object of `transformers`."""
    import transformers

    return getattr(transformers, architecture).config_class(**fields, **NO_TOKENS)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_field_that_transformers_writes_is_known(architecture: str) -> None:
    stated = published_config(architecture)
    for fields in (stated.to_dict(), json.loads(stated.to_json_string())):
        config = read(FAMILIES[architecture], fields)
        assert (config.n_heads, config.n_kv_heads) == (stated.num_attention_heads, stated.num_key_value_heads)
        assert (config.n_ctx, config.d_mlp) == (stated.max_position_embeddings, stated.intermediate_size)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_file_of_sizes_alone_gets_the_defaults_of_the_class(architecture: str) -> None:
    family = FAMILIES[architecture]
    assert read(family, SIZES) == read(family, published_config(architecture, **SIZES).to_dict())


@pytest.mark.parametrize("architecture", FAMILIES)
def test_no_number_of_kv_heads_is_one_for_each_query_head(architecture: str) -> None:
    assert read(FAMILIES[architecture], SIZES | {"num_key_value_heads": None}).n_kv_heads == 64


def test_no_window_is_another_answer_than_silence() -> None:
    assert windows(mistral.FAMILY) == [4096] * 4
    assert windows(mistral.FAMILY, sliding_window=None) == [None] * 4
    assert windows(qwen.QWEN2, use_sliding_window=True, sliding_window=None, max_window_layers=0) == [None] * 4


@pytest.mark.parametrize("family", [qwen.QWEN2, qwen.QWEN3])
def test_windows_of_qwen_begin_at_a_layer_unless_layers_are_listed(family: Family) -> None:
    assert windows(family, sliding_window=9, max_window_layers=1) == [None] * 4, "they are not switched on"
    assert windows(family, **WINDOWS) == [None] * 4, "28 layers come first"
    assert windows(family, **WINDOWS, max_window_layers=3) == [None, None, None, 9]
    listed = ["sliding_attention", "full_attention"] * 2
    assert windows(family, **WINDOWS, layer_types=listed, max_window_layers=3) == [9, None] * 2


def test_some_layers_of_smollm3_do_not_turn() -> None:
    assert turning() == [True, True, True, False]
    assert turning(no_rope_layer_interval=2) == [True, False] * 2
    assert turning(no_rope_layers=[0, 1, 1, 0, 1, 1]) == [False, True, True, False], "the list may be longer"


def test_windows_of_smollm3_are_where_nothing_turns_unless_layers_are_listed() -> None:
    assert windows(smollm3.FAMILY, sliding_window=9) == [None] * 4
    assert windows(smollm3.FAMILY, **WINDOWS) == [None, None, None, 9]
    listed = ["sliding_attention", "full_attention"] * 2
    assert windows(smollm3.FAMILY, **WINDOWS, layer_types=listed) == [9, None] * 2


@pytest.mark.parametrize(
    ("scaling", "n_ctx"),
    [
        ({"rope_type": "dynamic", "factor": 4.0}, 400),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}, 400),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 20}, 100),
        ({"rope_type": "linear", "factor": 4.0}, 100),
    ],
)
def test_a_text_may_be_as_long_as_positions_were_stretched_for(scaling: dict[str, Any], n_ctx: int) -> None:
    config = read(qwen.QWEN2, SIZES | {"max_position_embeddings": 100, "rope_scaling": scaling})
    assert config.n_ctx == n_ctx


def test_llama3_scaling_without_an_original_context_takes_the_stated_one() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = read(llama.FAMILY, SIZES | {"max_position_embeddings": 100, "rope_scaling": scaling})
    assert config.rotary == RotaryConfig(scaling="llama3", factor=8.0, original_context=100)


def test_a_weight_of_zero_leaves_yarns_scale_alone() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.0}
    rotary = read(llama.FAMILY, SIZES | {"rope_scaling": scaling}).rotary
    assert rotary is not None
    assert (rotary.mscale, rotary.mscale_all_dim) == (1.0, None)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (mistral.FAMILY, {"layer_types": ["full_attention"] * 4}, "layer_types = "),
        (mistral.FAMILY, {"sliding_window": 0}, "window is 0, it must be a positive"),
        (mistral.FAMILY, {"attention_bias": True}, "attention_bias = True"),
        (qwen.QWEN2, {"use_mrope": True}, "use_mrope is True; only False"),
        (qwen.QWEN2, {"layer_types": ["sliding_attention"] * 4}, "contradicts itself: layer_types names layers with"),
        (qwen.QWEN2, WINDOWS | {"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries"),
        (qwen.QWEN3, WINDOWS | {"layer_types": ["linear_attention"] * 4}, "'linear_attention' among them"),
        (qwen.QWEN3, {"model_type": "qwen2"}, "contradicts itself: its architecture is Qwen3ForCausalLM"),
        (qwen.QWEN3, {"mlp_bias": True}, "mlp_bias = True"),
        (smollm3.FAMILY, {"no_rope_layers": [1, 0, 1]}, "no_rope_layers has 3 entries; 0 or 1 for each of 4"),
        (smollm3.FAMILY, {"no_rope_layers": [1, 0, 1, 2]}, "no_rope_layers has 4 entries; 0 or 1 for each of 4"),
        (smollm3.FAMILY, {"no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
        (smollm3.FAMILY, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; only 1.0"),
        (
            llama.FAMILY,
            {"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 512}},
            "original_max_position_embeddings is 512; only 2048",
        ),
    ],
)
def test_what_the_reference_would_compute_otherwise_is_refused(
    family: Family, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(LoadError, match=message):
        read(family, SIZES | fields)
