"""Llama as Hugging Face publishes it (`LlamaForCausalLM`): SmolLM2, Llama 2 and 3, TinyLlama and their relatives."""

from interp.models.config import ModelConfig
from interp.models.families.common import HARMLESS, activation, check_model_type, head_width, refuse_encoders, rotary
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


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "LlamaForCausalLM", "llama")
    refuse_encoders(fields)
    fields.must_be("rope_interleaved", False)
    n_heads, d_model = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    d_head, n_ctx = head_width(fields, d_model, n_heads), fields.integer("max_position_embeddings", 2048)
    attention_bias = fields.boolean("attention_bias", False)
    config = ModelConfig(
        n_layers=fields.integer("num_hidden_layers"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.integer("num_key_value_heads", n_heads),
        d_head=d_head,
        d_mlp=fields.integer("intermediate_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=n_ctx,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=activation(fields),
        rotary=rotary(fields, d_head, n_ctx),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=fields.boolean("mlp_bias", False),
        tied_embeddings=fields.boolean("tie_word_embeddings", False),
    )
    fields.refuse_others(HARMLESS)
    return config


FAMILY = Family(
    layout="hf",
    architectures=("LlamaForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "model.embed_tokens.weight"),),
    ignored=("model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
)
