"""BLOOM as Hugging Face publishes it (`BloomForCausalLM`): BigScience 2022.

Positions are distances that lower the scores (ALiBi); a norm stands behind the embedding. How long a text may be is not
in every file, since nothing in the weights limits it: unstated, it is the 2,048 tokens of the training.
"""

from interp.models.config import ModelConfig
from interp.models.families.common import HARMLESS, check_model_type, even_share, refuse_encoders
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.older import OLDER_HARMLESS, fused_rows, integer, norm_rows, output_rows, ungated_rows
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "h.{layer}.", "blocks.{layer}."

ROWS = (
    Row("word_embeddings.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    *norm_rows("word_embeddings_layernorm", "ln_embed"),
    *norm_rows(_BLOCK + "input_layernorm", _OURS + "ln1"),
    *fused_rows(_BLOCK + "self_attention.query_key_value"),
    *output_rows(_BLOCK + "self_attention.dense"),
    *norm_rows(_BLOCK + "post_attention_layernorm", _OURS + "ln2"),
    *ungated_rows(_BLOCK + "mlp.dense_h_to_4h", _BLOCK + "mlp.dense_4h_to_h"),
    *norm_rows("ln_f", "ln_final"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)

# Switches of the code that trained these models, which no later implementation reads.
_HARMLESS = (
    *OLDER_HARMLESS,
    *("attention_softmax_in_fp32", "masked_softmax_fusion", "bias_dropout_fusion", "offset_alibi"),
    *("skip_bias_add", "skip_bias_add_qkv"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "BloomForCausalLM", "bloom")
    refuse_encoders(fields)
    for key in ("apply_residual_connection_post_layernorm", "slow_but_exact"):
        fields.must_be(key, False)
    n_heads = integer(fields, "num_attention_heads", "n_head", default=8)
    d_model = integer(fields, "n_embed", "hidden_size", default=64)
    fields.must_be("n_inner", 4 * d_model)
    config = ModelConfig(
        n_layers=integer(fields, "num_hidden_layers", "n_layer", default=2),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=even_share(d_model, n_heads, fields.source),
        d_mlp=4 * d_model,
        d_vocab=fields.integer("vocab_size", 250_880),
        n_ctx=fields.integer("seq_length", 2048),
        norm="layer",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation="gelu_tanh",
        gated=False,
        rotary=None,
        alibi=True,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        embed_norm=True,
        tied_embeddings=fields.boolean("tie_word_embeddings", True),
    )
    fields.refuse_others(HARMLESS + _HARMLESS)
    return config


FAMILY = Family(
    layout="hf",
    architectures=("BloomForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "word_embeddings.weight"),),
    prefixes=("transformer.",),
)
