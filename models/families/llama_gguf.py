"""Llama as GGUF files hold it (`general.architecture = llama`).

Rotary positions turn pairs of elements of a head. Hugging Face keeps the first elements of all pairs, then the second
ones (half, pair); GGUF stores each pair side by side (pair, half). The rows of the query and key projections are
therefore read in that order and put back.
"""

import math
from collections.abc import Mapping

import torch

from interp.errors import LoadError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families.common import even_share
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "blk.{layer}.", "blocks.{layer}."

ROWS = (
    Row("token_embd.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row(_BLOCK + "attn_norm.weight", _OURS + "ln1.w", "d_model -> d_model"),
    Row(_BLOCK + "attn_q.weight", _OURS + "attn.W_Q", "(head pair half) d_model -> head d_model (half pair)"),
    Row(_BLOCK + "attn_k.weight", _OURS + "attn.W_K", "(kv_head pair half) d_model -> kv_head d_model (half pair)"),
    Row(_BLOCK + "attn_v.weight", _OURS + "attn.W_V", "(kv_head d_head) d_model -> kv_head d_model d_head"),
    Row(_BLOCK + "attn_output.weight", _OURS + "attn.W_O", "d_model (head d_head) -> head d_head d_model"),
    Row(_BLOCK + "attn_q.bias", _OURS + "attn.b_Q", "(head pair half) -> head (half pair)", "qkv_bias"),
    Row(_BLOCK + "attn_k.bias", _OURS + "attn.b_K", "(kv_head pair half) -> kv_head (half pair)", "qkv_bias"),
    Row(_BLOCK + "attn_v.bias", _OURS + "attn.b_V", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(_BLOCK + "attn_output.bias", _OURS + "attn.b_O", "d_model -> d_model", "o_bias"),
    Row(_BLOCK + "ffn_norm.weight", _OURS + "ln2.w", "d_model -> d_model"),
    Row(_BLOCK + "ffn_gate.weight", _OURS + "mlp.W_gate", "d_mlp d_model -> d_model d_mlp"),
    Row(_BLOCK + "ffn_up.weight", _OURS + "mlp.W_in", "d_mlp d_model -> d_model d_mlp"),
    Row(_BLOCK + "ffn_down.weight", _OURS + "mlp.W_out", "d_model d_mlp -> d_mlp d_model"),
    Row(_BLOCK + "ffn_gate.bias", _OURS + "mlp.b_gate", "d_mlp -> d_mlp", "mlp_bias"),
    Row(_BLOCK + "ffn_up.bias", _OURS + "mlp.b_in", "d_mlp -> d_mlp", "mlp_bias"),
    Row(_BLOCK + "ffn_down.bias", _OURS + "mlp.b_out", "d_model -> d_model", "mlp_bias"),
    Row("output_norm.weight", "ln_final.w", "d_model -> d_model"),
    Row("output.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)

_FREQUENCIES = "rope_freqs.weight"

HARMLESS = ("general.*", "tokenizer.*", "quantize.*", "split.no", "split.tensors.count", "llama.tensor_data_layout")


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata; biases and untied unembeddings show in which tensors there are."""
    fields = Fields(checkpoint.fields, f"The metadata of {checkpoint.source}")
    for key in ("llama.expert_count", "llama.expert_used_count"):
        fields.must_be(key, 0)
    fields.must_be("split.count", 1)
    n_layers, d_model = fields.integer("llama.block_count"), fields.integer("llama.embedding_length")
    n_heads = fields.same_in_all_layers("llama.attention.head_count", n_layers)
    stated = "llama.attention.key_length" in fields
    d_head = fields.integer("llama.attention.key_length") if stated else even_share(d_model, n_heads, fields.source)
    fields.must_be("llama.attention.value_length", d_head)
    fields.must_be("llama.rope.dimension_count", d_head)
    shapes = checkpoint.shapes
    config = ModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.same_in_all_layers("llama.attention.head_count_kv", n_layers, n_heads),
        d_head=d_head,
        d_mlp=fields.same_in_all_layers("llama.feed_forward_length", n_layers),
        d_vocab=_d_vocab(fields, shapes),
        n_ctx=fields.integer("llama.context_length"),
        norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon"),
        rotary=_rotary(fields, d_head, checkpoint),
        qkv_bias="blk.0.attn_q.bias" in shapes,
        o_bias="blk.0.attn_output.bias" in shapes,
        mlp_bias="blk.0.ffn_up.bias" in shapes,
        tied_embeddings="output.weight" not in shapes,
    )
    fields.refuse_others(HARMLESS)
    return config


def _d_vocab(fields: Fields, shapes: Mapping[str, tuple[int, ...]]) -> int:
    rows = shapes.get("token_embd.weight", (0,))[0]
    return fields.integer("llama.vocab_size", rows)


def _rotary(fields: Fields, d_head: int, checkpoint: Checkpoint) -> RotaryConfig:
    theta = fields.number("llama.rope.freq_base", 10_000.0)
    factor = fields.number("llama.rope.scaling.factor", fields.number("llama.rope.scale_linear", 1.0))
    kind = fields.word("llama.rope.scaling.type", "linear" if factor != 1.0 else "none")
    if kind not in ("none", "linear"):
        raise LoadError(f"{fields.source}: llama.rope.scaling.type is {kind!r}; known are none and linear.")
    linear = kind == "linear" and factor != 1.0
    if _FREQUENCIES not in checkpoint.shapes:
        return RotaryConfig(theta=theta, scaling="linear", factor=factor) if linear else RotaryConfig(theta=theta)
    if linear:
        raise LoadError(f"{fields.source} stretches rotary positions twice: linearly and by {_FREQUENCIES}.")
    return _llama3_rotary(theta, d_head, checkpoint)


def _llama3_rotary(theta: float, d_head: int, checkpoint: Checkpoint) -> RotaryConfig:
    """The llama3 rule behind a stored list of frequency divisors, checked value by value against that list."""
    stored = checkpoint.read(_FREQUENCIES).double().flatten()
    factor = float(stored.max())
    if factor == 1.0 and float(stored.min()) == 1.0:
        return RotaryConfig(theta=theta)
    if factor > 1.0 and len(stored) == d_head // 2:
        rotary = RotaryConfig(  # the bounds and the context are those of every published Llama 3
            theta, scaling="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
        )
        if torch.allclose(stored, _divisors(rotary, len(stored)), rtol=1e-5, atol=0.0):
            return rotary
    raise LoadError(
        f"{checkpoint.source} stretches rotary frequencies ({_FREQUENCIES}) in a way that is not Llama 3's rule. "
        "Load the model's Hugging Face folder instead."
    )


def _divisors(rotary: RotaryConfig, n_pairs: int) -> torch.Tensor:
    """By how much the llama3 rule divides the frequency of each pair."""
    frequencies = rotary.theta ** (-torch.arange(n_pairs, dtype=torch.float64) / n_pairs)
    turns = rotary.original_context * frequencies / (2 * math.pi)
    smooth = (turns - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor)
    smooth = smooth.clamp(0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / rotary.factor + smooth)


FAMILY = Family(layout="gguf", architectures=("llama",), rows=ROWS, config=read_config, ignored=(_FREQUENCIES,))
