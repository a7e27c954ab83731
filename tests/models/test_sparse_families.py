"""Published configurations and files of the mixtures of experts, OLMo 2 and Phi-3: how they read, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families.sparse import CASES, SIZES, longrope
from safetensors.torch import load_file

import interp
from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig, MoEConfig, RotaryConfig
from interp.models.families import mixtral, olmo, phi3, qwen_moe
from interp.models.families.family import Family
from interp.models.sources.checkpoint import Checkpoint

FAMILIES: dict[str, Family] = {
    "Mixtral": mixtral.FAMILY,
    "Qwen2Moe": qwen_moe.QWEN2_MOE,
    "Qwen3Moe": qwen_moe.QWEN3_MOE,
    "Olmoe": olmo.OLMOE,
    "Olmo2": olmo.OLMO2,
    "Phi3": phi3.FAMILY,
}
LEAST = {
    name: SIZES[name]
    for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
}

MIXTRAL_8X7B = {
    "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": False,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
    "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip
QWEN_MOE_A2_7B = {
    "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192,
    "max_window_layers": 21, "model_type": "qwen2_moe", "moe_intermediate_size": 1408, "norm_topk_prob": False,
    "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
    "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "tie_word_embeddings": False,
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN3_30B_A3B = {
    "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True, "num_attention_heads": 32,
    "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None,
    "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
PHI3_MINI_128K = {
    "attention_bias": False, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0,
    "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "phi3",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "rope_scaling": {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
    "sliding_window": 262144, "tie_word_embeddings": False, "vocab_size": 32064,
}  # fmt: skip

PUBLISHED: dict[str, dict[str, Any]] = {
    "Mixtral": MIXTRAL_8X7B,
    "Qwen2Moe": QWEN_MOE_A2_7B,
    "Qwen3Moe": QWEN3_30B_A3B,
    "Olmoe": LEAST,
    "Olmo2": LEAST,
    "Phi3": PHI3_MINI_128K,
}


def config(name: str, fields: dict[str, Any] | None = None, **changed: Any) -> ModelConfig:
    """What a configuration becomes, by default a published one, with some fields changed."""
    stated = (PUBLISHED[name] if fields is None else fields) | changed
    nothing = torch.zeros(0)
    held = Checkpoint("here", "hf", "", stated, {}, lambda name, rows=None: nothing, lambda: None, lambda: "")
    return FAMILIES[name].config(held)


def test_the_published_configurations_are_read() -> None:
    large, shared, many, long = (config(name) for name in ("Mixtral", "Qwen2Moe", "Qwen3Moe", "Phi3"))
    assert large.moe == MoEConfig(n_experts=8, top_k=2, d_expert=14336)
    assert (large.rotary, large.window, large.layers) == (RotaryConfig(theta=1e6), None, ())
    assert shared.moe == MoEConfig(60, 4, 1408, renormalise=False, d_shared=5632, shared_gate=True)
    assert (shared.qkv_bias, shared.o_bias, shared.windows) == (True, False, {None})
    assert many.moe == MoEConfig(n_experts=128, top_k=8, d_expert=768)
    assert (many.qk_norm, many.d_head, many.qkv_bias) == ("head", 128, False)
    assert long.rotary is not None
    assert (long.rotary.scaling, long.rotary.original_context, long.rotary.factor) == ("longrope", 4096, 32.0)
    assert (long.n_ctx, long.window) == (131_072, 262_144)


@pytest.mark.parametrize("name", FAMILIES)
def test_fields_that_older_files_omit_have_the_reference_s_defaults(name: str) -> None:
    theirs = getattr(transformers, f"{name}Config")(**LEAST | {"pad_token_id": None, "eos_token_id": None})
    kv_heads = {"num_key_value_heads": theirs.num_key_value_heads}  # of these, some defaults fit their own sizes alone
    if SIZES["num_attention_heads"] % theirs.num_key_value_heads:
        kv_heads = {"num_key_value_heads": 2}
    theirs.num_key_value_heads = kv_heads["num_key_value_heads"]
    assert config(name, LEAST | kv_heads) == config(name, theirs.to_dict() | kv_heads)


def test_layers_without_experts_are_where_the_configuration_says() -> None:
    mixed = config("Qwen3Moe", num_hidden_layers=6, decoder_sparse_step=2, mlp_only_layers=[3])
    assert [layer.moe for layer in mixed.layers] == [False, True, False, False, False, True]
    assert all(layer.rotary == mixed.rotary for layer in mixed.layers)
    assert config("Qwen3Moe", decoder_sparse_step=1, mlp_only_layers=[99]).layers == ()


def test_windows_of_qwen_2_are_in_every_second_of_the_first_layers() -> None:
    windowed = config("Qwen2Moe", num_hidden_layers=6, use_sliding_window=True, sliding_window=9, max_window_layers=4)
    assert [layer.window for layer in windowed.layers] == [9, None, 9, None, None, None]
    assert all(layer.moe for layer in windowed.layers)
    assert config("Qwen3Moe", use_sliding_window=True, sliding_window=9).windows == {9}


def test_phi_3_turns_a_part_of_each_head_where_it_says_so() -> None:
    partial = config("Phi3", rope_scaling=None, partial_rotary_factor=0.75, sliding_window=None)
    assert partial.rotary == RotaryConfig(theta=10_000.0, rotated=72)
    silent = {name: value for name, value in PHI3_MINI_128K.items() if name != "original_max_position_embeddings"}
    assert config("Phi3", silent) == config("Phi3")


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("Mixtral", {"num_experts": 9}, "contradicts itself: num_experts = 9, num_local_experts = 8"),
        ("Mixtral", {"num_experts_per_tok": 9}, "9 experts cannot be chosen from 8"),
        ("Mixtral", {"shared_experts": 1}, "not known here.*shared_experts = 1"),
        ("Mixtral", {"model_type": "mistral"}, "contradicts itself.*MixtralForCausalLM"),
        ("Mixtral", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; only 1.0"),
        ("Qwen2Moe", {"layer_types": ["sliding_attention"] * 24}, "use_sliding_window is false"),
        ("Qwen2Moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0 and"),
        ("Qwen3Moe", {"mlp_only_layers": ["0"]}, r"mlp_only_layers is \['0'\]"),
        ("Qwen3Moe", {"num_local_experts": 64}, "num_local_experts = 64, num_experts = 128 are names of one size"),
        ("Olmoe", {"clip_qkv": 8.0}, "clip_qkv is 8.0.*must be null"),
        ("Olmo2", {"clip_qkv": 8.0}, "not known here.*clip_qkv = 8.0"),
        ("Phi3", {"rope_scaling": {"type": "yarn"}}, "rope_type is 'yarn'; known for this family are"),
        ("Phi3", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
        ("Phi3", {"attention_bias": True}, "attention_bias is True; only False"),
        ("Phi3", {"interpolate_factor": 2}, "interpolate_factor is 2; only 1"),
    ],
)
def test_what_is_not_understood_is_refused_by_field(name: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        config(name, **changed)


def test_two_original_contexts_that_differ_are_refused() -> None:
    stated = longrope(4, original=12, original_max_position_embeddings=13)
    with pytest.raises(LoadError, match="original_max_position_embeddings is 13; only 12"):
        config("Phi3", LEAST | stated)


# ------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe_windows", "qwen3_moe", "olmoe"])
def test_files_with_all_experts_in_one_tensor_become_the_same_model(name: str, tmp_path: Path) -> None:
    hf = CASES[name].build()
    hf.save_pretrained(tmp_path, save_original_format=False)
    assert any(key.endswith("experts.gate_up_proj") for key in load_file(tmp_path / "model.safetensors"))
    ours, expected = interp.load(tmp_path, device="cpu").weights(), interp.from_transformers(hf, device="cpu").weights()
    assert all(torch.equal(weight, expected[key]) for key, weight in ours.items())


def test_a_missing_expert_is_named_as_the_file_would_name_it(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    CASES["mixtral"].build().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.2.block_sparse_moe.experts.6.w3.weight"]
    save_file(tensors, path)
    with pytest.raises(LoadError, match=r"1 missing \(model\.layers\.2\.block_sparse_moe\.experts\.6\.w3\.weight\)"):
        interp.load(tmp_path, device="cpu")


def test_layers_of_a_mixture_have_the_points_that_are_theirs() -> None:
    ours = interp.from_transformers(CASES["qwen2_moe_windows"].build(), device="cpu")
    assert ours.config.layers[1] == replace(LayerConfig(), rotary=ours.config.rotary)
    assert "blocks.1.mlp.hook_router" not in ours.points()
    assert "blocks.2.mlp.shared.hook_out" in ours.points()
