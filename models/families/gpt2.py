"""GPT-2 as Hugging Face publishes it (`GPT2LMHeadModel`): Radford et al. 2019, DistilGPT-2, DialoGPT, Stanford's runs.

Matrices are stored input axis first, and queries, keys and values side by side in one. Files of the first years have no
prefix before the names, and carry the causal mask of every layer.
"""

from interp.models.config import LayerConfig, ModelConfig
from interp.models.families.common import HARMLESS, activation, check_model_type, even_share, refuse_encoders
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.older import OLDER_HARMLESS, integer, norm_rows
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "h.{layer}.", "blocks.{layer}."
_FUSED, _FUSED_BIAS = "d_model (three head d_head) -> head d_model d_head", "(three head d_head) -> head d_head"

ROWS = (
    Row("wte.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row("wpe.weight", "pos_embed.W_pos", "position d_model -> position d_model"),
    *norm_rows(_BLOCK + "ln_1", _OURS + "ln1"),
    *(
        Row(_BLOCK + "attn.c_attn.weight", f"{_OURS}attn.W_{letter}", _FUSED, at=("three", index))
        for index, letter in enumerate("QKV")
    ),
    *(
        Row(_BLOCK + "attn.c_attn.bias", f"{_OURS}attn.b_{letter}", _FUSED_BIAS, at=("three", index))
        for index, letter in enumerate("QKV")
    ),
    Row(_BLOCK + "attn.c_proj.weight", _OURS + "attn.W_O", "(head d_head) d_model -> head d_head d_model"),
    Row(_BLOCK + "attn.c_proj.bias", _OURS + "attn.b_O", "d_model -> d_model"),
    *norm_rows(_BLOCK + "ln_2", _OURS + "ln2"),
    Row(_BLOCK + "mlp.c_fc.weight", _OURS + "mlp.W_in", "d_model d_mlp -> d_model d_mlp"),
    Row(_BLOCK + "mlp.c_fc.bias", _OURS + "mlp.b_in", "d_mlp -> d_mlp"),
    Row(_BLOCK + "mlp.c_proj.weight", _OURS + "mlp.W_out", "d_mlp d_model -> d_mlp d_model"),
    Row(_BLOCK + "mlp.c_proj.bias", _OURS + "mlp.b_out", "d_model -> d_model"),
    *norm_rows("ln_f", "ln_final"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)

# `n_ctx` repeats n_positions; upcast attention only decides in which dtype half precision forms the scores.
_HARMLESS = (*OLDER_HARMLESS, "n_ctx", "reorder_and_upcast_attn")


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "GPT2LMHeadModel", "gpt2")
    refuse_encoders(fields)
    n_heads = integer(fields, "num_attention_heads", "n_head", default=12)
    d_model = integer(fields, "hidden_size", "n_embd", default=768)
    n_layers = integer(fields, "num_hidden_layers", "n_layer", default=12)
    d_head = even_share(d_model, n_heads, fields.source)
    config = ModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        d_mlp=fields.integer("n_inner", 4 * d_model),
        d_vocab=fields.integer("vocab_size", 50_257),
        n_ctx=integer(fields, "max_position_embeddings", "n_positions", default=1024),
        norm="layer",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=activation(fields, "activation_function", "gelu_new"),
        gated=False,
        rotary=None,
        layers=_layers(fields, n_layers, d_head),
        learned_positions=True,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        tied_embeddings=fields.boolean("tie_word_embeddings", True),
    )
    fields.refuse_others(HARMLESS + _HARMLESS)
    return config


def _layers(fields: Fields, n_layers: int, d_head: int) -> tuple[LayerConfig, ...]:
    """How each layer scales its scores, where that is not 1 / √d_head in all: layer l may divide by l + 1 as well."""
    scaled = fields.boolean("scale_attn_weights", True)
    by_depth = fields.boolean("scale_attn_by_inverse_layer_idx", False)
    if scaled and not by_depth:
        return ()
    base = d_head**-0.5 if scaled else 1.0
    return tuple(LayerConfig(score_scale=base / (layer + 1 if by_depth else 1)) for layer in range(n_layers))


FAMILY = Family(
    layout="hf",
    architectures=("GPT2LMHeadModel",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "wte.weight"),),
    ignored=("h.*.attn.bias", "h.*.attn.masked_bias"),
    prefixes=("transformer.",),
)
