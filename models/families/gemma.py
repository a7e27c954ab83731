"""Gemma 1, 2 and 3 (`GemmaForCausalLM`, `Gemma2ForCausalLM`, `Gemma3ForCausalLM`): Gemma Team 2024, 2024, 2025.

All three scale the embedding by √d_model and store a norm's gain as its distance from one. Gemma 2 and 3 have norms on
both sides of each sublayer, scale scores by a number of their own, and alternate layers that read through a window with
layers that read everything; Gemma 2 bounds scores and logits, Gemma 3 normalises each head's queries and keys, and
turns them by another base in the layers with a window. Of `Gemma3ForConditionalGeneration` the text model is read and
the part that sees images left out.
"""

from collections.abc import Sequence
from dataclasses import replace

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig, RotaryConfig
from interp.models.families.common import (
    HARMLESS,
    activation,
    agreeing,
    check_model_type,
    layer_kinds,
    reach,
    refuse_encoders,
    rotary,
    rotary_from,
)
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, ROWS
from interp.models.families.qwen import QK_NORM_ROWS
from interp.models.sources.checkpoint import Checkpoint

_FULL, _SLIDING = "full_attention", "sliding_attention"
_BLOCK, _OURS = "model.layers.{layer}.", "blocks.{layer}."
_TANH = "gelu_pytorch_tanh"

SANDWICH_ROWS = (
    *(row for row in ROWS if row.ours != f"{_OURS}ln2.w"),
    Row(_BLOCK + "post_attention_layernorm.weight", _OURS + "ln1_post.w", "d_model -> d_model"),
    Row(_BLOCK + "pre_feedforward_layernorm.weight", _OURS + "ln2.w", "d_model -> d_model"),
    Row(_BLOCK + "post_feedforward_layernorm.weight", _OURS + "ln2_post.w", "d_model -> d_model"),
)
GEMMA3_ROWS = (*SANDWICH_ROWS, *QK_NORM_ROWS)

# How a file was to be run: the kind of KV cache.
_HARMLESS = (*HARMLESS, "cache_implementation")


def read_gemma(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Gemma 1 in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "GemmaForCausalLM", "gemma")
    stated = fields.word("hidden_act", _TANH)
    name = _TANH if stated == "gelu" else stated  # the first files said gelu and meant this
    fields.must_be("hidden_activation", name)
    width, context = fields.integer("head_dim", 256), fields.integer("max_position_embeddings", 8192)
    turns = _whole(rotary(fields, width, context), fields)
    config = _shape(fields, turns, context, kv_heads=16)
    fields.refuse_others(_HARMLESS)
    return replace(config, activation=activation(Fields({"hidden_act": name}, fields.source)))


def read_gemma2(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Gemma 2 in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Gemma2ForCausalLM", "gemma2")
    width, context = fields.integer("head_dim", 256), fields.integer("max_position_embeddings", 8192)
    turns = _whole(rotary(fields, width, context), fields)
    config = _sandwich(fields, _shape(fields, turns, context, kv_heads=4))
    config = replace(
        config,
        score_cap=fields.nullable_number("attn_logit_softcapping", 50.0),
        logit_cap=fields.nullable_number("final_logit_softcapping", 30.0),
        layers=_layers(fields, config.n_layers, turns, turns, every=2),
    )
    fields.refuse_others(_HARMLESS)
    return config


def read_gemma3(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Gemma 3 in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Gemma3ForCausalLM", "gemma3_text")
    return _gemma3(fields)


def read_gemma3_with_images(checkpoint: Checkpoint) -> ModelConfig:
    """The text model's configuration, which stands in a table of its own; what is about images is left unread."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Gemma3ForConditionalGeneration", "gemma3")
    refuse_encoders(fields)
    text = dict(fields.table("text_config"))
    if "tie_word_embeddings" in fields:  # stated outside, it holds for the whole
        text["tie_word_embeddings"] = fields.boolean("tie_word_embeddings")
    fields.refuse_others((*_HARMLESS, "vision_config", "mm_tokens_per_image", "*_token_index", "*_token_id"))
    inner = Fields(text, f"The text configuration of {checkpoint.source}")
    check_model_type(inner, "Gemma3ForCausalLM", "gemma3_text")
    return _gemma3(inner)


def _gemma3(fields: Fields) -> ModelConfig:
    if "attn_logit_softcapping" in fields:  # the reference does not look at it
        raise LoadError(f"{fields.source}: attn_logit_softcapping is stated; Gemma 3 has none, so it must be null.")
    width, context = fields.integer("head_dim", 256), fields.integer("max_position_embeddings", 131_072)
    full, local = _two_rotaries(fields, width, context)
    every = fields.integer("sliding_window_pattern", 6)
    config = _sandwich(fields, _shape(fields, full, context, kv_heads=4, n_heads=8, d_vocab=262_208))
    config = replace(
        config,
        qk_norm="head",
        logit_cap=fields.nullable_number("final_logit_softcapping", None),
        layers=_layers(fields, config.n_layers, full, local, every=every),
    )
    fields.refuse_others((*_HARMLESS, "_sliding_window_pattern"))
    return config


def _shape(
    fields: Fields,
    turns: RotaryConfig,
    context: int,
    *,
    kv_heads: int,
    n_heads: int | None = None,
    d_vocab: int | None = None,
) -> ModelConfig:
    """What all of them state in the same words. Without a default the count must be stated."""
    refuse_encoders(fields)
    fields.must_be("use_bidirectional_attention", False)
    bias, d_model = fields.boolean("attention_bias", False), fields.integer("hidden_size")
    return ModelConfig(
        n_layers=fields.integer("num_hidden_layers"),
        d_model=d_model,
        n_heads=fields.integer("num_attention_heads", n_heads),
        n_kv_heads=fields.integer("num_key_value_heads", kv_heads),
        d_head=fields.integer("head_dim", 256),
        d_mlp=fields.integer("intermediate_size"),
        d_vocab=fields.integer("vocab_size", d_vocab),
        n_ctx=reach(turns, context),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        norm_offset=True,
        activation="gelu_tanh",
        rotary=turns,
        qkv_bias=bias,
        o_bias=bias,
        embed_scale=d_model**0.5,
        tied_embeddings=fields.boolean("tie_word_embeddings", True),
    )


def _sandwich(fields: Fields, config: ModelConfig) -> ModelConfig:
    """What Gemma 2 and 3 add: norms on what a sublayer returns, and a scale of scores that is stated."""
    act = activation(fields, "hidden_activation", _TANH)
    fields.must_be("hidden_act", fields.word("hidden_activation", _TANH))  # the reference does not look at it
    scalar = fields.number("query_pre_attn_scalar", 256)
    if scalar <= 0:
        raise LoadError(f"{fields.source}: query_pre_attn_scalar is {scalar}; it must be a positive number.")
    return replace(config, norms="sandwich", activation=act, score_scale=scalar**-0.5)


def _layers(
    fields: Fields, n_layers: int, full: RotaryConfig, local: RotaryConfig, *, every: int
) -> tuple[LayerConfig, ...]:
    """Which layers read through a window: those that `layer_types` names, else all but every so many."""
    if every < 1:
        raise LoadError(f"{fields.source}: sliding_window_pattern is {every}; it must be a positive number.")
    window = fields.nullable("sliding_window", 4096)
    kinds: Sequence[str] = alternating(n_layers, every)
    if "layer_types" in fields:
        kinds = layer_kinds(fields, n_layers, {_FULL: _FULL, _SLIDING: _SLIDING}, _FULL)
    if window is None and _SLIDING in kinds:
        raise LoadError(f"{fields.source} contradicts itself: layers have a sliding window, but there is none.")
    if "sliding_window_size" in fields and window is not None:
        fields.must_be("sliding_window_size", window)
    return tuple(LayerConfig(local, window) if kind == _SLIDING else LayerConfig(full) for kind in kinds)


def alternating(n_layers: int, every: int) -> list[str]:
    """One layer in so many reads everything, the last of each group."""
    return [_FULL if (layer + 1) % every == 0 else _SLIDING for layer in range(n_layers)]


def _two_rotaries(fields: Fields, d_head: int, n_ctx: int) -> tuple[RotaryConfig, RotaryConfig]:
    """Rotations of layers that read everything and of those with a window.

    They stand in one table by kind of layer since transformers 5; before, in `rope_theta` with `rope_scaling`, and in
    `rope_local_base_freq`.
    """
    kinds = Fields(fields.table("rope_parameters"), f"{fields.source} (rope_parameters)")
    tables = {kind: kinds.table(kind) for kind in (_FULL, _SLIDING)}
    kinds.refuse_others(())
    both = Fields({**tables, "rope_scaling": fields.table("rope_scaling")}, fields.source)
    bases = [
        {"rope_theta": fields.number(name)} if name in fields else {} for name in ("rope_theta", "rope_local_base_freq")
    ]
    full = agreeing(both, _FULL, "rope_scaling", bases[0])
    local = agreeing(both, _SLIDING, "", bases[1])
    return (
        _whole(rotary_from(full, fields, d_head, n_ctx, 1_000_000.0), fields),
        _whole(rotary_from(local, fields, d_head, n_ctx, 10_000.0), fields),
    )


def _whole(turns: RotaryConfig, fields: Fields) -> RotaryConfig:
    """The reference turns whole heads whatever the field says, so it must say that."""
    if turns.rotated is not None:
        raise LoadError(f"{fields.source}: partial_rotary_factor is stated; Gemma turns whole heads, so it must be 1.")
    return turns


GEMMA = Family(
    layout="hf",
    architectures=("GemmaForCausalLM",),
    rows=ROWS,
    config=read_gemma,
    copies=COPIES,
    ignored=IGNORED,
)
GEMMA2 = GEMMA._replace(architectures=("Gemma2ForCausalLM",), rows=SANDWICH_ROWS, config=read_gemma2)
GEMMA3 = GEMMA._replace(architectures=("Gemma3ForCausalLM",), rows=GEMMA3_ROWS, config=read_gemma3)

_INSIDE = tuple(
    row._replace(published=row.published.replace("model.", "model.language_model.", 1)) for row in GEMMA3_ROWS
)
GEMMA3_WITH_IMAGES = Family(
    layout="hf",
    architectures=("Gemma3ForConditionalGeneration",),
    rows=(),
    config=read_gemma3_with_images,
    copies=(
        ("lm_head.weight", "model.language_model.embed_tokens.weight"),
        ("language_model.lm_head.weight", "language_model.model.embed_tokens.weight"),
    ),
    ignored=("vision_tower.*", "multi_modal_projector.*", "model.vision_tower.*", "model.multi_modal_projector.*"),
    variants=(
        tuple(row._replace(published=f"language_model.{row.published}") for row in GEMMA3_ROWS),
        _INSIDE,
    ),
)
