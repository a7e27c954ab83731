"""Published models, in every supported layout, become the same model: same weights, same logits."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from published import QUANTISABLE, write_folder, write_gguf
from tiny import BASE, LLAMA_CONFIGS, random_tokens, tiny

from interp.errors import LoadError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families import llama, llama_gguf
from interp.models.families.registry import family_of
from interp.models.loading import from_transformers, load
from interp.models.sources.checkpoint import Checkpoint
from interp.models.transformer import Transformer

Kind = gguf.GGMLQuantizationType
LLAMA3 = replace(
    QUANTISABLE,
    d_head=32,
    rotary=RotaryConfig(theta=500_000.0, scaling="llama3", factor=32.0, high_freq_factor=4.0, original_context=8192),
)


def assert_same_weights(ours: Transformer, expected: Transformer) -> None:
    theirs = expected.weights()
    for name, weight in ours.weights().items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=0, msg=name)


def assert_same_logits(ours: Transformer, hf: torch.nn.Module) -> None:
    tokens = random_tokens(ours.config, 2, 40)
    expected = hf(tokens, use_cache=False).logits
    torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", LLAMA_CONFIGS)
def test_a_saved_folder_becomes_the_model_it_was(name: str, tmp_path: Path) -> None:
    hf = write_folder(tmp_path, LLAMA_CONFIGS[name])
    model = load(tmp_path, device="cpu")
    assert model.config == LLAMA_CONFIGS[name]
    assert_same_weights(model, tiny(LLAMA_CONFIGS[name]))
    assert_same_logits(model, hf)


@pytest.mark.parametrize("name", ["grouped_query", "biases"])
def test_shards_make_the_same_model_as_one_file(name: str, tmp_path: Path) -> None:
    hf = write_folder(tmp_path, LLAMA_CONFIGS[name], shard_bytes=20_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    model = load(tmp_path, device="cpu")
    assert_same_weights(model, tiny(LLAMA_CONFIGS[name]))
    assert_same_logits(model, hf)


@pytest.mark.parametrize("name", LLAMA_CONFIGS)
def test_a_model_in_memory_becomes_ours(name: str, tmp_path: Path) -> None:
    hf = write_folder(tmp_path, LLAMA_CONFIGS[name])
    model = from_transformers(hf, device="cpu")
    assert model.config == LLAMA_CONFIGS[name]
    assert_same_weights(model, tiny(LLAMA_CONFIGS[name]))


def test_a_model_in_memory_is_copied_not_shared(tmp_path: Path) -> None:
    hf = write_folder(tmp_path, BASE)
    model = from_transformers(hf, device="cpu")
    hf.model.embed_tokens.weight.zero_()
    assert_same_weights(model, tiny(BASE))


@pytest.mark.parametrize(
    "name", [name for name, c in LLAMA_CONFIGS.items() if c.activation == "silu" and c.rotary.scaling != "llama3"]
)
def test_a_gguf_file_becomes_the_model_it_was(name: str, tmp_path: Path) -> None:
    """Query and key rows come back from the order of pairs in which the file keeps them, biases too."""
    hf = write_gguf(tmp_path / "tiny.gguf", LLAMA_CONFIGS[name])
    model = load(tmp_path / "tiny.gguf", device="cpu")
    assert replace(model.config, norm_eps=1e-5) == LLAMA_CONFIGS[name]
    assert model.config.norm_eps == pytest.approx(1e-5, rel=1e-6), "the file keeps it as float32"
    assert_same_weights(model, tiny(LLAMA_CONFIGS[name]))
    assert_same_logits(model, hf)


@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1], ids=lambda k: k.name
)
def test_quantised_gguf_files_hold_the_decoded_weights(kind: Kind, tmp_path: Path) -> None:
    hf = write_gguf(tmp_path / "tiny.gguf", QUANTISABLE, kind)
    model = load(tmp_path / "tiny.gguf", device="cpu")
    assert_same_weights(model, from_transformers(hf, device="cpu"))
    assert_same_logits(model, hf)


def test_the_llama3_rule_is_recognised_from_the_stored_frequency_divisors(tmp_path: Path) -> None:
    hf = write_gguf(tmp_path / "tiny.gguf", LLAMA3, rope_factors=published_divisors(LLAMA3))
    model = load(tmp_path / "tiny.gguf", device="cpu")
    assert model.config.rotary == LLAMA3.rotary
    assert_same_logits(model, hf)


def test_divisors_of_ones_stretch_nothing(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", QUANTISABLE, rope_factors=np.ones(8))
    assert load(tmp_path / "tiny.gguf", device="cpu").config.rotary == QUANTISABLE.rotary


@pytest.mark.parametrize("wrong", [0.0, np.nan, 7.0])
def test_other_frequency_divisors_are_refused(wrong: float, tmp_path: Path) -> None:
    divisors = published_divisors(LLAMA3)
    divisors[-3] = wrong
    write_gguf(tmp_path / "tiny.gguf", LLAMA3, rope_factors=divisors)
    with pytest.raises(LoadError, match=r"rope_freqs\.weight.*not Llama 3's rule"):
        load(tmp_path / "tiny.gguf", device="cpu")


def published_divisors(config: ModelConfig) -> np.ndarray:
    """What converters write for Llama 3: by wavelength, one by one."""
    r = config.rotary
    divisors = []
    for i in range(0, config.d_head, 2):
        wavelength = 2 * math.pi * r.theta ** (i / config.d_head)
        if wavelength < r.original_context / r.high_freq_factor:
            divisors.append(1.0)
        elif wavelength > r.original_context / r.low_freq_factor:
            divisors.append(r.factor)
        else:
            smooth = (r.original_context / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor)
            divisors.append(1 / ((1 - smooth) / r.factor + smooth))
    return np.array(divisors)


# ------------------------------------------------------------------------------------------- configurations

HF_FIELDS: dict[str, Any] = {
    "hidden_size": 30,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "vocab_size": 67,
}
GGUF_FIELDS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "llama.context_length": 64,
    "llama.embedding_length": 30,
    "llama.feed_forward_length": 44,
    "llama.attention.head_count": 3,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 67,
}


def stated(layout: str, fields: dict[str, Any]) -> Checkpoint:
    """An opened model of which nothing but the configuration is looked at."""
    return Checkpoint(
        source="here",
        layout=layout,
        architecture="",
        fields=fields,
        shapes={},
        read=lambda name, rows=None: torch.zeros(0),
        tokenizer=lambda: None,
        sha256=lambda: "",
    )


def hf_config(**fields: Any) -> ModelConfig:
    return llama.read_config(stated("hf", HF_FIELDS | fields))


def gguf_config(fields: dict[str, Any]) -> ModelConfig:
    return llama_gguf.read_config(stated("gguf", GGUF_FIELDS | fields))


def test_older_files_get_the_defaults_of_their_time() -> None:
    expected = ModelConfig(
        n_layers=3, d_model=30, n_heads=3, n_kv_heads=3, d_head=10, d_mlp=44, d_vocab=67, n_ctx=2048, norm_eps=1e-6,
        tied_embeddings=False,
    )  # fmt: skip
    assert hf_config() == expected


@pytest.mark.parametrize(
    ("fields", "rotary"),
    [
        ({"rope_theta": 500.0}, RotaryConfig(500.0)),
        ({"rope_theta": 500, "rope_scaling": None}, RotaryConfig(500.0)),
        (
            {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            RotaryConfig(500.0, scaling="linear", factor=2.0),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, RotaryConfig(500.0)),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 3, "rope_theta": 9.0}},
            RotaryConfig(9.0, scaling="linear", factor=3.0),
        ),
        (
            {
                "rope_theta": 5e5,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 512,
                },
            },
            RotaryConfig(5e5, scaling="llama3", factor=8.0, original_context=512),
        ),
    ],
)
def test_rotary_settings_read_alike_in_their_older_and_newer_form(fields: dict[str, Any], rotary: RotaryConfig) -> None:
    assert hf_config(**fields).rotary == rotary


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sliding_window": 512}, "sliding_window = 512"),
        (
            {"query_pre_attn_scalar": 3, "final_logit_softcapping": 30.0},
            "final_logit_softcapping.*query_pre_attn_scalar",
        ),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_interleaved": True}, "rope_interleaved is True; only False"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'; known are silu"),
        ({"hidden_size": 31}, "width of 31 cannot be shared evenly by 3 heads"),
        ({"hidden_size": "30"}, "hidden_size is '30'; it must be a whole number"),
        ({"hidden_size": None}, "does not state hidden_size"),
        ({"num_hidden_layers": 0}, "n_layers is 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_key_value_heads": 2}, "3 query heads cannot share 2 KV heads"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; it must be a finite number"),
        ({"rms_norm_eps": -1.0}, "norm_eps is -1.0"),
        ({"rms_norm_eps": 10**400}, r"rms_norm_eps is 1000.*\.\.\.; it must be a finite number"),
        (
            {"model_type": "mistral"},
            "contradicts itself: its architecture is LlamaForCausalLM.*model_type is 'mistral'",
        ),
        ({"model_type": 3}, "model_type is 3; it must be a string"),
        ({"attention_bias": 1}, "attention_bias is 1; it must be true or false"),
        (
            {"rope_scaling": {"type": "mrope", "factor": 2.0}},
            "rope_type is 'mrope'; known are default, linear, dynamic",
        ),
        ({"rope_scaling": {"type": "linear"}}, "does not state factor"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 32}}, "beta_fast = 32"),
        ({"rope_scaling": {"type": "linear", "rope_type": "llama3"}}, "contradicts itself: rope_type is both"),
        ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}, "contradicts itself: rope_theta is both"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; it must be an object"),
    ],
)
def test_configurations_that_are_not_understood_are_refused_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        hf_config(**fields)


def test_every_field_of_a_transformers_configuration_is_known() -> None:
    from transformers import LlamaConfig

    hf = LlamaConfig(hidden_size=30, intermediate_size=44, num_hidden_layers=3, num_attention_heads=3, vocab_size=67)
    config = llama.read_config(stated("hf", hf.to_dict()))
    assert (config.d_head, config.n_kv_heads, config.tied_embeddings) == (10, 3, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"llama.expert_count": 8}, "does not state expert_used_count"),
        ({"llama.rope.dimension_count": 4}, "dimension_count is 4; only 10"),
        ({"llama.attention.value_length": 12}, "value_length is 12; only 10"),
        ({"llama.attention.sliding_window": 64}, "sliding_window is 64; only 0"),
        ({"llama.rope.scaling.type": "ntk"}, "scaling.type is 'ntk'; known are none, linear, yarn, longrope"),
        ({"llama.feed_forward_length": [44, 44, 48]}, "the same one for each of 3 layers"),
        ({"llama.block_count": "3"}, "block_count is '3'; it must be a whole number"),
        ({"split.count": 2}, "split.count is 2; only 1"),
        ({"llama.attention.layer_norm_rms_epsilon": float("inf")}, "it must be a finite number"),
    ],
)
def test_metadata_that_is_not_understood_is_refused_by_key(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        gguf_config(fields)


def test_sizes_stated_for_each_layer_may_all_be_equal() -> None:
    assert gguf_config({"llama.feed_forward_length": [44, 44, 44]}).d_mlp == 44


def test_both_stretchings_at_once_are_refused(tmp_path: Path) -> None:
    config = replace(QUANTISABLE, rotary=RotaryConfig(scaling="linear", factor=2.0))
    write_gguf(tmp_path / "tiny.gguf", config, rope_factors=np.full(8, 4.0))
    with pytest.raises(LoadError, match="twice"):
        load(tmp_path / "tiny.gguf", device="cpu")


def test_an_unknown_architecture_is_refused_with_those_that_are_known() -> None:
    checkpoint = replace(stated("hf", {}), architecture="LlamaForCausalLm")
    with pytest.raises(LoadError, match=r"'LlamaForCausalLm', which is not supported. Did you mean 'LlamaForCausalLM'"):
        family_of(checkpoint)
    with pytest.raises(LoadError, match=r"'rwkv6', which is not supported. Supported: llama"):
        family_of(replace(checkpoint, layout="gguf", architecture="rwkv6"))
