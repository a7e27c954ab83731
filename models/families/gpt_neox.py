"""GPT-NeoX as Hugging Face publishes it (`GPTNeoXForCausalLM`): Pythia (Biderman et al. 2023), GPT-NeoX-20B, Dolly.

Attention and FFN read the same residual stream, each through a norm of its own, unless `use_parallel_residual` is
false. Files name the unembedding `embed_out`, models in memory `lm_head`.
"""

from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families.common import (
    HARMLESS,
    activation,
    agreeing,
    check_model_type,
    even_share,
    refuse_encoders,
    rotary_from,
)
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.older import OLDER_HARMLESS, fused_rows, norm_rows, output_rows, ungated_rows
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "gpt_neox.layers.{layer}.", "blocks.{layer}."
_UNEMBED = ("unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied")

ROWS = (
    Row("gpt_neox.embed_in.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    *norm_rows(_BLOCK + "input_layernorm", _OURS + "ln1"),
    *fused_rows(_BLOCK + "attention.query_key_value"),
    *output_rows(_BLOCK + "attention.dense"),
    *norm_rows(_BLOCK + "post_attention_layernorm", _OURS + "ln2"),
    *ungated_rows(_BLOCK + "mlp.dense_h_to_4h", _BLOCK + "mlp.dense_4h_to_h"),
    *norm_rows("gpt_neox.final_layer_norm", "ln_final"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "GPTNeoXForCausalLM", "gpt_neox")
    refuse_encoders(fields)
    n_heads, d_model = fields.integer("num_attention_heads", 64), fields.integer("hidden_size", 6144)
    d_head, n_ctx = even_share(d_model, n_heads, fields.source), fields.integer("max_position_embeddings", 2048)
    attention_bias = fields.boolean("attention_bias", True)
    config = ModelConfig(
        n_layers=fields.integer("num_hidden_layers", 44),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        d_mlp=fields.integer("intermediate_size", 24_576),
        d_vocab=fields.integer("vocab_size", 50_432),
        n_ctx=n_ctx,
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        parallel=fields.boolean("use_parallel_residual", True),
        activation=activation(fields, "hidden_act", "gelu"),
        gated=False,
        rotary=_rotary(fields, d_head, n_ctx),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=True,
        tied_embeddings=fields.boolean("tie_word_embeddings", False),
    )
    fields.refuse_others((*HARMLESS, *OLDER_HARMLESS, "type_vocab_size"))
    return config


def _rotary(fields: Fields, d_head: int, n_ctx: int) -> RotaryConfig:
    """Rotary settings, which these configurations first stated under names of their own."""
    older = {"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}
    outer = {ours: fields.number(name) for name, ours in older.items() if name in fields}
    newer = {name: fields.number(name) for name in older.values() if name in fields}
    tables = agreeing(fields, "rope_parameters", "rope_scaling", outer)
    for name, value in newer.items():
        if tables.setdefault(name, value) != value:
            fields.must_be(name, tables[name])
    return rotary_from(tables, fields, d_head, n_ctx, theta=10_000.0, fraction=0.25)


FAMILY = Family(
    layout="hf",
    architectures=("GPTNeoXForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(
        ("lm_head.weight", "gpt_neox.embed_in.weight"),
        ("embed_out.weight", "gpt_neox.embed_in.weight"),
    ),
    ignored=(
        "gpt_neox.layers.*.attention.bias",
        "gpt_neox.layers.*.attention.masked_bias",
        "gpt_neox.layers.*.attention.rotary_emb.inv_freq",
        "gpt_neox.rotary_emb.inv_freq",
    ),
    variants=((Row("embed_out.weight", *_UNEMBED),), (Row("lm_head.weight", *_UNEMBED),)),
)
