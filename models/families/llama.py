"""Llama as Hugging Face publishes it (`LlamaForCausalLM`): SmolLM2, Llama 2 and 3, TinyLlama and their relatives.

Other families differ from it in little, and share its names: see `mistral`, `qwen` and `smollm3`.
"""

from dataclasses import replace

from interp.models.config import ModelConfig
from interp.models.families.common import (
    HARMLESS,
    activation,
    check_model_type,
    head_width,
    reach,
    refuse_encoders,
    rotary,
)
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "model.layers.{layer}.", "blocks.{layer}."

ROWS = (
    Row("model.embed_tokens.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row(_BLOCK + "input_layernorm.weight", _OURS + "ln1.w", "d_model -> d_model"),
    Row(_BLOCK + "self_attn.q_proj.weight", _OURS + "attn.W_Q", "(head d_head) d_model -> head d_model d_head"),
    Row(_BLOCK + "self_attn.k_proj.weight", _OURS + "attn.W_K", "(kv_head d_head) d_model -> kv_head d_model d_head"),
    Row(_BLOCK + "self_attn.v_proj.weight", _OURS + "attn.W_V", "(kv_head d_head) d_model -> kv_head d_model d_head"),
    Row(_BLOCK + "self_attn.o_proj.weight", _OURS + "attn.W_O", "d_model (head d_head) -> head d_head d_model"),
    Row(_BLOCK + "self_attn.q_proj.bias", _OURS + "attn.b_Q", "(head d_head) -> head d_head", "qkv_bias"),
    Row(_BLOCK + "self_attn.k_proj.bias", _OURS + "attn.b_K", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(_BLOCK + "self_attn.v_proj.bias", _OURS + "attn.b_V", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(_BLOCK + "self_attn.o_proj.bias", _OURS + "attn.b_O", "d_model -> d_model", "o_bias"),
    Row(_BLOCK + "post_attention_layernorm.weight", _OURS + "ln2.w", "d_model -> d_model"),
    Row(_BLOCK + "mlp.gate_proj.weight", _OURS + "mlp.W_gate", "d_mlp d_model -> d_model d_mlp"),
    Row(_BLOCK + "mlp.up_proj.weight", _OURS + "mlp.W_in", "d_mlp d_model -> d_model d_mlp"),
    Row(_BLOCK + "mlp.down_proj.weight", _OURS + "mlp.W_out", "d_model d_mlp -> d_mlp d_model"),
    Row(_BLOCK + "mlp.gate_proj.bias", _OURS + "mlp.b_gate", "d_mlp -> d_mlp", "mlp_bias"),
    Row(_BLOCK + "mlp.up_proj.bias", _OURS + "mlp.b_in", "d_mlp -> d_mlp", "mlp_bias"),
    Row(_BLOCK + "mlp.down_proj.bias", _OURS + "mlp.b_out", "d_model -> d_model", "mlp_bias"),
    Row("model.norm.weight", "ln_final.w", "d_model -> d_model"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)
COPIES = (("lm_head.weight", "model.embed_tokens.weight"),)
IGNORED = ("model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")


def shape(
    fields: Fields,
    *,
    n_ctx: int = 32_768,
    kv_heads: int | None = None,
    d_head: int | None = None,
    theta: float = 10_000.0,
    tied: bool = False,
) -> ModelConfig:
    """What all of them state in the same words; the arguments are the family's own defaults.

    Without `kv_heads` every query head has its own, without `d_head` the heads share the model's width.
    """
    refuse_encoders(fields)
    _refuse_partial_rotation(fields)
    n_heads, d_model = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    width = head_width(fields, d_model, n_heads) if d_head is None else fields.integer("head_dim", d_head)
    context, groups = fields.integer("max_position_embeddings", n_ctx), fields.nullable("num_key_value_heads", kv_heads)
    turns = rotary(fields, width, context, theta=theta)
    return ModelConfig(
        n_layers=fields.integer("num_hidden_layers"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads if groups is None else groups,
        d_head=width,
        d_mlp=fields.integer("intermediate_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=reach(turns, context),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=activation(fields),
        rotary=turns,
        tied_embeddings=fields.boolean("tie_word_embeddings", tied),
    )


def _refuse_partial_rotation(fields: Fields) -> None:
    """The reference turns whole heads whatever the field says, so it must say that."""
    for table in ("rope_parameters", "rope_scaling"):
        Fields(fields.table(table), fields.source).must_be("partial_rotary_factor", 1.0)
    fields.must_be("partial_rotary_factor", 1.0)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "LlamaForCausalLM", "llama")
    fields.must_be("rope_interleaved", False)
    bias = fields.boolean("attention_bias", False)
    config = shape(fields, n_ctx=2048)
    config = replace(config, qkv_bias=bias, o_bias=bias, mlp_bias=fields.boolean("mlp_bias", False))
    fields.refuse_others((*HARMLESS, "max_sequence_length"))
    return config


FAMILY = Family(
    layout="hf",
    architectures=("LlamaForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=COPIES,
    ignored=IGNORED,
)
