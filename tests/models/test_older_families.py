"""Published configurations and files of the older families: what their first years wrote, and what is refused."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from families.older import CASES
from safetensors.torch import load_file, save_file

import interp
from interp.errors import LoadError, UsageError
from interp.models.config import LayerConfig, ModelConfig, RotaryConfig
from interp.models.families import bloom, gpt2, gpt_neo, gpt_neox, gptj, opt
from interp.models.families.family import Family
from interp.models.sources.checkpoint import Checkpoint

GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "embd_pdrop": 0.1,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_type": "cls_index",
    "summary_use_proj": True, "vocab_size": 50257, "task_specific_params": {"text-generation": {"max_length": 50}},
}  # fmt: skip
PYTHIA = {
    "architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu", "hidden_size": 512, "intermediate_size": 2048,
    "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8,
    "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False,
    "torch_dtype": "float16", "use_parallel_residual": True, "vocab_size": 50304,
}  # fmt: skip
GPTJ = {
    "activation_function": "gelu_new", "attn_pdrop": 0.0, "gradient_checkpointing": False, "model_type": "gptj",
    "n_embd": 4096, "n_head": 16, "n_inner": None, "n_layer": 28, "n_positions": 2048, "rotary": True,
    "rotary_dim": 64, "scale_attn_weights": True, "summary_first_dropout": 0.1, "tie_word_embeddings": False,
    "tokenizer_class": "GPT2Tokenizer", "vocab_size": 50400,
}  # fmt: skip
TINY_STORIES = {
    "activation_function": "gelu_new", "attention_dropout": 0, "attention_layers": ["global", "local"] * 4,
    "attention_types": [[["global", "local"], 4]], "embed_dropout": 0, "hidden_size": 64, "intermediate_size": None,
    "max_position_embeddings": 2048, "model_type": "gpt_neo", "num_heads": 16, "num_layers": 8, "resid_dropout": 0,
    "vocab_size": 50257, "window_size": 256,
}  # fmt: skip
OPT = {
    "_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu", "ffn_dim": 3072,
    "do_layer_norm_before": True, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0,
    "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12,
    "prefix": "</s>", "vocab_size": 50272, "word_embed_proj_dim": 768,
}  # fmt: skip
BLOOM = {
    "apply_residual_connection_post_layernorm": False, "attention_softmax_in_fp32": True, "bias_dropout_fusion": True,
    "hidden_dropout": 0.0, "layer_norm_epsilon": 1e-05, "masked_softmax_fusion": True, "model_type": "bloom",
    "n_embed": 1024, "n_inner": None, "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100,
    "pretraining_tp": 1, "skip_bias_add": True, "skip_bias_add_qkv": False, "slow_but_exact": False,
    "vocab_size": 250880,
}  # fmt: skip

PUBLISHED: dict[str, tuple[Family, dict[str, Any]]] = {
    "gpt2": (gpt2.FAMILY, GPT2),
    "pythia": (gpt_neox.FAMILY, PYTHIA),
    "gptj": (gptj.FAMILY, GPTJ),
    "tiny_stories": (gpt_neo.FAMILY, TINY_STORIES),
    "opt": (opt.FAMILY, OPT),
    "bloom": (bloom.FAMILY, BLOOM),
}


def config(name: str, **changed: Any) -> ModelConfig:
    """What a published configuration becomes, with some fields changed."""
    family, fields = PUBLISHED[name]
    stated = Checkpoint("here", "hf", "", fields | changed, {}, lambda name, rows=None: torch.zeros(0),
                        lambda: None, lambda: "")  # fmt: skip
    return family.config(stated)


def test_the_published_configurations_are_read() -> None:
    assert (config("gpt2").d_mlp, config("gpt2").n_ctx, config("gpt2").tied_embeddings) == (3072, 1024, True)
    assert config("pythia").rotary == RotaryConfig(rotated=16)
    assert config("pythia").parallel
    assert config("gptj").rotary == RotaryConfig(rotated=64, pairs="adjacent")
    assert (config("gptj").d_mlp, config("gptj").unembed_bias) == (16_384, True)
    assert config("tiny_stories").layers == (LayerConfig(), LayerConfig(window=256)) * 4
    assert (config("opt").norms, config("opt").position_offset, config("opt").axis_sizes["position"]) == (
        "pre",
        2,
        2050,
    )
    assert (config("bloom").d_model, config("bloom").d_mlp, config("bloom").n_ctx) == (1024, 4096, 2048)


def test_scores_may_be_scaled_by_depth_as_well() -> None:
    scaled = config("gpt2", scale_attn_by_inverse_layer_idx=True).layers
    assert [layer.score_scale for layer in scaled[:3]] == pytest.approx([1 / 8, 1 / 16, 1 / 24])
    assert {layer.score_scale for layer in config("gpt2", scale_attn_weights=False).layers} == {1.0}


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), True])
def test_a_layers_scale_must_be_a_positive_number(scale: float) -> None:
    with pytest.raises(LoadError, match="score_scale is .*, it must be positive and finite"):
        LayerConfig(score_scale=scale)


def test_opt_with_norms_after_the_additions_has_none_at_the_end() -> None:
    after = config("opt", do_layer_norm_before=False)
    assert (after.norms, after.final_norm) == ("post", False)
    assert (config("opt").norms, config("opt").final_norm) == ("pre", True)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True; only False"),
        ("gpt2", {"hidden_size": 96}, "contradicts itself: hidden_size = 96, n_embd = 768 are names of one size"),
        ("gpt2", {"n_head": 7}, "width of 768 cannot be shared evenly by 7 heads"),
        ("gpt2", {"reordered": True}, "not known here.*reordered = True"),
        ("gpt2", {"activation_function": "mish"}, "activation_function is 'mish'"),
        ("pythia", {"rope_theta": 500.0}, "rope_theta is 500.0; only 10000.0"),
        ("pythia", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; only 0.25"),
        ("pythia", {"rotary_pct": 0.05}, "so 3 numbers of a head of 64 cannot be turned"),
        ("pythia", {"rope_scaling": {"type": "spiral"}}, "rope_type is 'spiral'"),
        ("gptj", {"scale_attn_weights": False}, "scale_attn_weights is False; only True"),
        ("gptj", {"rotary_dim": 512}, "so 512 numbers of a head of 256 cannot be turned"),
        ("tiny_stories", {"num_layers": 6}, "attention_types comes to 8 layers .*; 6 that are global or local"),
        ("tiny_stories", {"attention_types": [[["global"], 8]]}, "attention_types and attention_layers differ"),
        ("tiny_stories", {"attention_types": [["global", "local"]]}, "attention_types is .*pairs"),
        ("tiny_stories", {"attention_types": "local"}, "attention_types is 'local'; it must be a list"),
        ("opt", {"word_embed_proj_dim": 512}, "have the width 512 and are projected to 768"),
        ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine is False"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "post_layernorm is True; only False"),
        ("bloom", {"n_inner": 4000}, "n_inner is 4000; only 4096"),
        ("bloom", {"slow_but_exact": True}, "slow_but_exact is True; only False"),
        ("bloom", {"model_type": "opt"}, "contradicts itself.*BloomForCausalLM"),
    ],
)
def test_what_is_not_understood_is_refused_by_field(name: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        config(name, **changed)


def test_unknown_kinds_of_layers_are_refused() -> None:
    with pytest.raises(LoadError, match="of the kinds global, sparse; 8 that are global or local"):
        config("tiny_stories", attention_types=[[["global", "sparse"], 4]], attention_layers=None)


def test_fields_of_both_generations_may_stand_side_by_side() -> None:
    repeated = {"rope_theta": 10_000.0, "partial_rotary_factor": 0.25, "rope_scaling": None}
    assert config("pythia", **repeated) == config("pythia")
    assert config("gpt2", num_hidden_layers=12) == config("gpt2")


# ------------------------------------------------------------------------------------------------------ files

Tensors = dict[str, torch.Tensor]


def without(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def as_first_published_gpt2(tensors: Tensors) -> Tensors:
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 40, 40).tril() for layer in range(3)}
    masks |= {f"h.{layer}.attn.masked_bias": torch.tensor(-1e4) for layer in range(3)}
    return without("transformer.", tensors) | masks


def as_first_published_pythia(tensors: Tensors) -> Tensors:
    stem = "gpt_neox.layers.{}.attention.{}"
    buffers = {stem.format(layer, "bias"): torch.ones(1, 1, 64, 64).tril() for layer in range(3)}
    buffers |= {stem.format(layer, "masked_bias"): torch.tensor(-1e9) for layer in range(3)}
    buffers |= {stem.format(layer, "rotary_emb.inv_freq"): torch.ones(3) for layer in range(3)}
    renamed = {name.replace("lm_head", "embed_out"): tensor for name, tensor in tensors.items()}
    return renamed | buffers


EARLIER: dict[str, Callable[[Tensors], Tensors]] = {
    "gpt2": as_first_published_gpt2,
    "gpt_neox": as_first_published_pythia,
    "gpt_neox_tied_linear": lambda tensors: tensors | {"embed_out.weight": tensors["gpt_neox.embed_in.weight"].clone()},
    "opt": lambda tensors: without("model.", tensors),
    "bloom": lambda tensors: (
        without("transformer.", tensors) | {"lm_head.weight": tensors["transformer.word_embeddings.weight"].clone()}
    ),
}


@pytest.mark.parametrize("name", EARLIER)
def test_files_of_earlier_years_become_the_same_model(name: str, tmp_path: Path) -> None:
    """Without a prefix, with masks or frequencies among the weights, the unembedding under another name or repeated."""
    hf = CASES[name].build()
    hf.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in EARLIER[name](load_file(path)).items()}, path)
    ours = interp.load(tmp_path, device="cpu")
    expected = interp.from_transformers(hf, device="cpu").weights()
    assert all(torch.equal(weight, expected[key]) for key, weight in ours.weights().items())


def test_a_norm_that_serves_both_sublayers_is_both_norms() -> None:
    weights = interp.from_transformers(CASES["gptj"].build(), device="cpu").weights()
    for kind in "wb":
        assert torch.equal(weights[f"blocks.1.ln1.{kind}"], weights[f"blocks.1.ln2.{kind}"])


def test_texts_longer_than_the_position_embedding_are_refused() -> None:
    model = interp.from_transformers(CASES["gpt2"].build(), device="cpu")
    with pytest.raises(UsageError, match="41 tokens came, the context holds 40"):
        model(torch.zeros(1, 41, dtype=torch.long))


def test_a_missing_projection_is_named_as_the_file_would_name_it(tmp_path: Path) -> None:
    hf = CASES["gpt2"].build()
    hf.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["transformer.h.1.mlp.c_fc.weight"]
    save_file(tensors, path)
    with pytest.raises(LoadError, match=r"1 missing \(transformer\.h\.1\.mlp\.c_fc\.weight\)"):
        interp.load(tmp_path, device="cpu")
