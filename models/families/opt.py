"""OPT as Hugging Face publishes it (`OPTForCausalLM`): Zhang et al. 2022.

Position embeddings begin at row 2. Norms stand before the sublayers, or, where `do_layer_norm_before` is false, after
each addition and then with none before the unembedding. Embeddings of another width than the residual stream (OPT-350M)
are refused.
"""

from interp.errors import LoadError
from interp.models.config import ModelConfig
from interp.models.families.common import HARMLESS, activation, check_model_type, even_share, refuse_encoders
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.older import OLDER_HARMLESS, norm_rows, output_rows, separate_rows, ungated_rows
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "decoder.layers.{layer}.", "blocks.{layer}."

ROWS = (
    Row("decoder.embed_tokens.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row("decoder.embed_positions.weight", "pos_embed.W_pos", "position d_model -> position d_model"),
    *norm_rows(_BLOCK + "self_attn_layer_norm", _OURS + "ln1"),
    *separate_rows(_BLOCK + "self_attn."),
    *output_rows(_BLOCK + "self_attn.out_proj"),
    *norm_rows(_BLOCK + "final_layer_norm", _OURS + "ln2"),
    *ungated_rows(_BLOCK + "fc1", _BLOCK + "fc2", "mlp_bias"),
    *norm_rows("decoder.final_layer_norm", "ln_final", "final_norm"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "OPTForCausalLM", "opt")
    refuse_encoders(fields)
    fields.must_be("layer_norm_elementwise_affine", True)
    n_heads, d_model = fields.integer("num_attention_heads", 12), fields.integer("hidden_size", 768)
    _check_width(fields, d_model)
    before, biases = fields.boolean("do_layer_norm_before", True), fields.boolean("enable_bias", True)
    without_final = fields.boolean("_remove_final_layer_norm", False)
    config = ModelConfig(
        n_layers=fields.integer("num_hidden_layers", 12),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=even_share(d_model, n_heads, fields.source),
        d_mlp=fields.integer("ffn_dim", 3072),
        d_vocab=fields.integer("vocab_size", 50_272),
        n_ctx=fields.integer("max_position_embeddings", 2048),
        norm="layer",
        norms="pre" if before else "post",
        final_norm=before and not without_final,
        activation=activation(fields, "activation_function", "relu"),
        gated=False,
        rotary=None,
        learned_positions=True,
        position_offset=2,
        qkv_bias=biases,
        o_bias=biases,
        mlp_bias=biases,
        tied_embeddings=fields.boolean("tie_word_embeddings", True),
    )
    fields.refuse_others(HARMLESS + OLDER_HARMLESS)
    return config


def _check_width(fields: Fields, d_model: int) -> None:
    width = fields.integer("word_embed_proj_dim", d_model)
    if width != d_model:
        raise LoadError(
            f"{fields.source}: its embeddings have the width {width} and are projected to {d_model} "
            "(word_embed_proj_dim, hidden_size); only models whose embeddings are as wide as the residual stream can "
            "be loaded. Of OPT that is every size but 350M."
        )


FAMILY = Family(
    layout="hf",
    architectures=("OPTForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "decoder.embed_tokens.weight"),),
    prefixes=("model.",),
)
