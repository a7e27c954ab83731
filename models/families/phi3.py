"""Phi-3, 3.5 and 4 (`Phi3ForCausalLM`): Llama with joined projections, which may turn a part of each head.

Query, key and value rows are one tensor, gate and up another. LongRoPE (Ding et al. 2024) stretches the context.
"""

from interp.errors import LoadError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families.common import (
    HARMLESS,
    activation,
    agreeing,
    check_model_type,
    head_width,
    refuse_encoders,
    rotary_from,
)
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, ROWS
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "model.layers.{layer}.", "blocks.{layer}."
_QKV, _KV_AXES = _BLOCK + "self_attn.qkv_proj.weight", "(kv_head d_head) d_model -> kv_head d_model d_head"
_GATE_UP, _IN_AXES = _BLOCK + "mlp.gate_up_proj.weight", "d_mlp d_model -> d_model d_mlp"

JOINED_ROWS = (
    Row(_QKV, _OURS + "attn.W_Q", "(head d_head) d_model -> head d_model d_head"),
    Row(_QKV, _OURS + "attn.W_K", _KV_AXES, after=("head d_head",)),
    Row(_QKV, _OURS + "attn.W_V", _KV_AXES, after=("head d_head", "kv_head d_head")),
    Row(_GATE_UP, _OURS + "mlp.W_gate", _IN_AXES),
    Row(_GATE_UP, _OURS + "mlp.W_in", _IN_AXES, after=("d_mlp",)),
)
_JOINED = {row.ours for row in JOINED_ROWS}

# Dropout, and where to find code for older versions of `transformers`.
_HARMLESS = ("*_pdrop", "auto_map")


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Phi3ForCausalLM", "phi3")
    refuse_encoders(fields)
    _refuse_variants(fields)
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    d_head, n_ctx = head_width(fields, d_model, n_heads), fields.integer("max_position_embeddings", 4096)
    config = ModelConfig(
        n_layers=fields.integer("num_hidden_layers"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.integer("num_key_value_heads", n_heads),
        d_head=d_head,
        d_mlp=fields.integer("intermediate_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=n_ctx,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        activation=activation(fields),
        rotary=_rotary(fields, d_head, n_ctx),
        window=fields.nullable("sliding_window", None),
        tied_embeddings=fields.boolean("tie_word_embeddings", False),
    )
    fields.refuse_others(HARMLESS + _HARMLESS)
    return config


def _refuse_variants(fields: Fields) -> None:
    """Settings that files state for models which none of this class is."""
    for key in ("attention_bias", "mlp_bias", "lm_head_bias"):
        fields.must_be(key, False)
    for key in ("full_attn_mod", "interpolate_factor"):
        fields.must_be(key, 1)


def _rotary(fields: Fields, d_head: int, n_ctx: int) -> RotaryConfig:
    """Rotary settings. The context before it was stretched is stated beside their table, and 4,096 where it is not."""
    names = ("rope_theta", "partial_rotary_factor")
    outer = {name: fields.number(name) for name in names if name in fields}
    stated = agreeing(fields, "rope_parameters", "rope_scaling", outer)
    key, kind = "original_max_position_embeddings", stated.get("rope_type", "default")
    original = fields.integer(key, 4096)
    if kind not in ("default", "longrope", "su"):  # files of early 2024 say "yarn" for two different rules
        raise LoadError(f"{fields.source}: rope_type is {kind!r}; known for this family are default and longrope.")
    if kind != "default":
        Fields(stated, f"{fields.source} (rotary positions)").must_be(key, original)
        stated[key] = original
    return rotary_from(stated, fields, d_head, n_ctx, 10_000.0)


FAMILY = Family(
    layout="hf",
    architectures=("Phi3ForCausalLM",),
    rows=(*(row for row in ROWS if row.ours not in _JOINED), *JOINED_ROWS),
    config=read_config,
    copies=COPIES,
    ignored=IGNORED,
)
