"""GPT-J as Hugging Face publishes it (`GPTJForCausalLM`): Wang & Komatsuzaki 2021.

Attention and FFN read the same residual stream through one norm, which here is both ln1 and ln2. Rotary positions turn
the first `rotary_dim` numbers of a head, as adjacent pairs; the unembedding has a bias.
"""

from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families.common import HARMLESS, activation, check_model_type, even_share, refuse_encoders
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.older import OLDER_HARMLESS, integer, norm_rows, output_rows, separate_rows, ungated_rows
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "transformer.h.{layer}.", "blocks.{layer}."

ROWS = (
    Row("transformer.wte.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    *norm_rows(_BLOCK + "ln_1", _OURS + "ln1"),
    *separate_rows(_BLOCK + "attn."),
    *output_rows(_BLOCK + "attn.out_proj"),
    *norm_rows(_BLOCK + "ln_1", _OURS + "ln2"),
    *ungated_rows(_BLOCK + "mlp.fc_in", _BLOCK + "mlp.fc_out"),
    *norm_rows("transformer.ln_f", "ln_final"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
    Row("lm_head.bias", "unembed.b_U", "d_vocab -> d_vocab"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "GPTJForCausalLM", "gptj")
    refuse_encoders(fields)
    for key in ("rotary", "scale_attn_weights"):
        fields.must_be(key, True)
    n_heads = integer(fields, "num_attention_heads", "n_head", default=16)
    d_model = integer(fields, "hidden_size", "n_embd", default=4096)
    config = ModelConfig(
        n_layers=integer(fields, "num_hidden_layers", "n_layer", default=28),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=even_share(d_model, n_heads, fields.source),
        d_mlp=fields.integer("n_inner", 4 * d_model),
        d_vocab=fields.integer("vocab_size", 50_400),
        n_ctx=integer(fields, "max_position_embeddings", "n_positions", default=2048),
        norm="layer",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        parallel=True,
        activation=activation(fields, "activation_function", "gelu_new"),
        gated=False,
        rotary=RotaryConfig(rotated=fields.integer("rotary_dim", 64), pairs="adjacent"),
        mlp_bias=True,
        unembed_bias=True,
        tied_embeddings=fields.boolean("tie_word_embeddings", False),
    )
    fields.refuse_others(HARMLESS + OLDER_HARMLESS)
    return config


FAMILY = Family(
    layout="hf",
    architectures=("GPTJForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "transformer.wte.weight"),),
    ignored=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
)
