"""What the published configurations of many families have in common: rotary settings, activations, harmless fields."""

from collections.abc import Mapping
from dataclasses import replace

from interp.errors import LoadError
from interp.models.config import Activation, RotaryConfig
from interp.models.families.fields import Fields

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}

# Fields that leave the forward pass alone: names, token ids, training, generation and bookkeeping.
HARMLESS = (
    *(
        "_name_or_path",
        "_model_name_or_path",
        "architectures",
        "transformers_version",
        "transformers.js_config",
        "is_llama_config",
    ),
    *(
        "dtype",
        "torch_dtype",
        "use_cache",
        "initializer_range",
        "attention_dropout",
        "pretraining_tp",
        "tokenizer_class",
    ),
    *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"),
    *("output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate"),
    *("_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_commit_hash"),
    *("chunk_size_feed_forward", "id2label", "label2id", "problem_type", "finetuning_task", "task_specific_params"),
    *("torchscript", "use_bfloat16", "tf_legacy_loss", "is_decoder", "tie_encoder_decoder", "prefix"),
    *("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty"),
    *("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "remove_invalid_values"),
    *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"),
    *("suppress_tokens", "begin_suppress_tokens"),
)


def check_model_type(fields: Fields, architecture: str, *expected: str) -> None:
    """The second name of the architecture, which `transformers` goes by: the two must agree."""
    stated = fields.word("model_type", expected[0])
    if stated not in expected:
        raise LoadError(
            f"{fields.source} contradicts itself: its architecture is {architecture}, whose model_type is "
            f"{expected[0]!r}, but model_type is {stated!r}. Correct whichever is wrong in a copy of the configuration."
        )


def refuse_encoders(fields: Fields) -> None:
    """Settings of encoder-decoder models, which some configurations repeat with the value that means no."""
    for key in ("is_encoder_decoder", "add_cross_attention"):
        fields.must_be(key, False)
    fields.must_be("pruned_heads", {})


def even_share(d_model: int, n_heads: int, source: str) -> int:
    """The head width where none is stated: the model's width divided among the heads."""
    if n_heads < 1 or d_model % n_heads:
        raise LoadError(f"{source}: a width of {d_model} cannot be shared evenly by {n_heads} heads.")
    return d_model // n_heads


def head_width(fields: Fields, d_model: int, n_heads: int) -> int:
    """The stated width of a head, or an even share of the model's."""
    return fields.integer("head_dim") if "head_dim" in fields else even_share(d_model, n_heads, fields.source)


def activation(fields: Fields, key: str = "hidden_act", default: str = "silu") -> Activation:
    """The activation function by its published name."""
    stated = fields.word(key, default)
    if stated not in ACTIVATIONS:
        raise LoadError(f"{fields.source}: {key} is {stated!r}; known are {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[stated]


def rotary(fields: Fields, d_head: int, n_ctx: int, *, theta: float = 10_000.0, fraction: float = 1.0) -> RotaryConfig:
    """Rotary settings: `rope_parameters` since transformers 5, `rope_theta` and `rope_scaling` before.

    `theta` and `fraction` (of the head that is turned) are the family's defaults.
    """
    names = ("rope_theta", "partial_rotary_factor")
    outer = {name: fields.number(name) for name in names if name in fields}
    return rotary_from(
        agreeing(fields, "rope_parameters", "rope_scaling", outer), fields, d_head, n_ctx, theta, fraction
    )


def agreeing(fields: Fields, new: str, old: str, outer: Mapping[str, object]) -> dict[str, object]:
    """One table out of those that may state the same settings; where they differ the file contradicts itself."""
    stated: dict[str, object] = {}
    for source in (fields.table(new), fields.table(old), outer):
        for key, value in source.items():
            name = "rope_type" if key == "type" else key
            if stated.setdefault(name, value) != value:
                raise LoadError(f"{fields.source} contradicts itself: {name} is both {stated[name]!r} and {value!r}.")
    return stated


def rotary_from(
    stated: Mapping[str, object], fields: Fields, d_head: int, n_ctx: int, theta: float, fraction: float = 1.0
) -> RotaryConfig:
    """Rotary settings out of one table."""
    inner = Fields(stated, f"{fields.source} (rotary positions)")
    kind = inner.word("rope_type", "default")
    rotated = int(d_head * inner.number("partial_rotary_factor", fraction))
    base = RotaryConfig(theta=inner.number("rope_theta", theta), rotated=None if rotated == d_head else rotated)
    match kind:
        case "default":
            settings: dict[str, object] = {}
        case "linear":
            settings = {"factor": inner.number("factor")}
        case "dynamic":
            inner.must_be("original_max_position_embeddings", n_ctx)  # the reference does not look at it
            settings = {"factor": inner.number("factor"), "original_context": n_ctx}
        case "llama3":
            settings = {
                "factor": inner.number("factor"),
                "low_freq_factor": inner.number("low_freq_factor"),
                "high_freq_factor": inner.number("high_freq_factor"),
                "original_context": inner.integer("original_max_position_embeddings", n_ctx),
            }
        case "yarn":
            settings = _yarn(inner, n_ctx)
        case "longrope" | "su":
            kind = "longrope"
            settings = _longrope(inner, fields, n_ctx)
        case _:
            known = "default, linear, dynamic, llama3, yarn and longrope"
            raise LoadError(f"{inner.source}: rope_type is {kind!r}; known are {known}.")
    inner.refuse_others(())
    return replace(base, scaling=kind, **settings)  # type: ignore[arg-type]  # checked when constructed


def _yarn(inner: Fields, n_ctx: int) -> dict[str, object]:
    original = inner.integer("original_max_position_embeddings", n_ctx)
    found: dict[str, object] = {
        "factor": inner.number("factor", _stretch(n_ctx, original, inner.source)),
        "original_context": original,
        "beta_fast": inner.number("beta_fast", 32.0),
        "beta_slow": inner.number("beta_slow", 1.0),
        "truncate": inner.boolean("truncate", True),
    }
    weights = {name: inner.number(name, 0.0) or None for name in ("mscale", "mscale_all_dim")}  # 0 says: not weighted
    return found | weights | _attention_factor(inner)


def _longrope(inner: Fields, fields: Fields, n_ctx: int) -> dict[str, object]:
    """Phi-3 states the original context beside the rotary table, not in it."""
    key = "original_max_position_embeddings"
    outer = fields.integer(key) if key in fields else n_ctx
    original = inner.integer(key, outer)
    found: dict[str, object] = {
        "factor": inner.number("factor", _stretch(n_ctx, original, inner.source)),
        "original_context": original,
        "short_factor": tuple(inner.numbers("short_factor")),
        "long_factor": tuple(inner.numbers("long_factor")),
    }
    return found | _attention_factor(inner)


def _stretch(n_ctx: int, original: int, source: str) -> float:
    """How many times the original context the stated one is: the factor where none is stated."""
    if original < 1:
        raise LoadError(f"{source}: original_max_position_embeddings is {original}; it must be positive.")
    return n_ctx / original


def _attention_factor(inner: Fields) -> dict[str, object]:
    return {"attention_factor": inner.number("attention_factor")} if "attention_factor" in inner else {}


def reach(rotary: RotaryConfig, n_ctx: int) -> int:
    """How many positions a text may have, where the stated context may be the one before it was stretched."""
    if rotary.scaling not in ("dynamic", "yarn"):
        return n_ctx
    return max(n_ctx, int(rotary.factor * rotary.original_context))


def layer_kinds(fields: Fields, n_layers: int, known: Mapping[str, str], default: str) -> list[str]:
    """`layer_types`, one a layer, each in our word for it."""
    stated = fields.words("layer_types", [default] * n_layers)
    wrong = next((kind for kind in stated if kind not in known), None)
    if len(stated) != n_layers or wrong is not None:
        raise LoadError(
            f"{fields.source}: layer_types has {len(stated)} entries"
            f"{'' if wrong is None else f', {wrong!r} among them'}; one of {', '.join(known)} for each of {n_layers} "
            "layers was expected."
        )
    return [known[kind] for kind in stated]
