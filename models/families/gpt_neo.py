"""GPT-Neo as Hugging Face publishes it (`GPTNeoForCausalLM`): Black et al. 2021, TinyStories (Eldan & Li 2023).

Scores are not divided by √d_head. Layers differ in how far they read: `global` ones everything, `local` ones the last
`window_size` positions.
"""

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig
from interp.models.families.common import HARMLESS, activation, check_model_type, even_share, refuse_encoders
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.older import OLDER_HARMLESS, integer, norm_rows, output_rows, separate_rows, ungated_rows
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "transformer.h.{layer}.", "blocks.{layer}."

ROWS = (
    Row("transformer.wte.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row("transformer.wpe.weight", "pos_embed.W_pos", "position d_model -> position d_model"),
    *norm_rows(_BLOCK + "ln_1", _OURS + "ln1"),
    *separate_rows(_BLOCK + "attn.attention."),
    *output_rows(_BLOCK + "attn.attention.out_proj"),
    *norm_rows(_BLOCK + "ln_2", _OURS + "ln2"),
    *ungated_rows(_BLOCK + "mlp.c_fc", _BLOCK + "mlp.c_proj"),
    *norm_rows("transformer.ln_f", "ln_final"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "GPTNeoForCausalLM", "gpt_neo")
    refuse_encoders(fields)
    n_layers = integer(fields, "num_hidden_layers", "num_layers", default=24)
    n_heads = integer(fields, "num_attention_heads", "num_heads", default=16)
    d_model = fields.integer("hidden_size", 2048)
    config = ModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=even_share(d_model, n_heads, fields.source),
        d_mlp=fields.integer("intermediate_size", 4 * d_model),
        d_vocab=fields.integer("vocab_size", 50_257),
        n_ctx=fields.integer("max_position_embeddings", 2048),
        norm="layer",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=activation(fields, "activation_function", "gelu_new"),
        gated=False,
        rotary=None,
        layers=_layers(fields, n_layers),
        learned_positions=True,
        score_scale=1.0,
        o_bias=True,
        mlp_bias=True,
        tied_embeddings=fields.boolean("tie_word_embeddings", True),
    )
    fields.refuse_others(HARMLESS + OLDER_HARMLESS)
    return config


def _layers(fields: Fields, n_layers: int) -> tuple[LayerConfig, ...]:
    """How far each layer reads."""
    windows = {"global": None, "local": fields.integer("window_size", 256)}
    kinds = _kinds(fields, n_layers)
    if len(kinds) != n_layers or not set(kinds) <= set(windows):
        raise LoadError(
            f"{fields.source}: attention_types comes to {len(kinds)} layers of the kinds "
            f"{', '.join(sorted(set(kinds)))}; {n_layers} that are global or local were expected."
        )
    return tuple(LayerConfig(window=windows[kind]) for kind in kinds)


def _kinds(fields: Fields, n_layers: int) -> list[str]:
    """The kind of each layer: `attention_types`, pairs of a pattern and its repetitions, written out.

    `attention_layers` may state the same, written out already. Where there are more repetitions than layers, one too
    many is enough to see it.
    """
    stated = fields.listed("attention_types", [[["global", "local"], 12]])
    try:
        kinds = [str(kind) for pattern, times in stated for _ in range(min(times, n_layers + 1)) for kind in pattern]
    except (TypeError, ValueError) as error:
        raise LoadError(f"{fields.source}: attention_types is {stated!r}; it must be pairs [kinds, times].") from error
    written_out = fields.words("attention_layers", kinds)
    if "attention_types" in fields and written_out != kinds:
        raise LoadError(f"{fields.source} contradicts itself: attention_types and attention_layers differ.")
    return written_out


FAMILY = Family(
    layout="hf",
    architectures=("GPTNeoForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "transformer.wte.weight"),),
    ignored=("transformer.h.*.attn.attention.bias", "transformer.h.*.attn.attention.masked_bias"),
)
