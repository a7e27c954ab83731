"""Gemma 1, 2 and 3, and the text model inside the Gemma 3 that sees images."""

from families.case import Case

GEMMA, GEMMA2, GEMMA3 = (f"{name}ForCausalLM" for name in ("Gemma", "Gemma2", "Gemma3"))

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 67,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
    "bos_token_id": 0,
}
UNTIED = {"tie_word_embeddings": False}
BIASED = {"attention_bias": True}
WINDOW = {"sliding_window": 5, "query_pre_attn_scalar": 13}
FULL_FIRST = {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}


def rope(kind: str, **settings: object) -> dict[str, object]:
    """Rotary settings; a small base, so that short texts see the slow pairs turn."""
    return {"rope_type": kind, "rope_theta": 50.0, **settings}


def by_kind(full: dict[str, object], local: dict[str, object]) -> dict[str, object]:
    """Gemma 3's rotary settings, a table for each kind of layer."""
    return {"rope_parameters": {"full_attention": full, "sliding_attention": local}}


TEXT = SIZES | WINDOW | FULL_FIRST
VISION = {
    "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip


def cases(model: str, prefix: str, more: dict[str, dict[str, object]]) -> dict[str, Case]:
    """Cases of one class, whose gains are stored as their distance from one."""
    return {f"{prefix}{name}": Case(model, SIZES | fields, offset_norms=True) for name, fields in more.items()}


CASES: dict[str, Case] = (
    cases(GEMMA, "gemma", {"": {}, "_untied_biases": UNTIED | BIASED, "_old_name_of_gelu": {"hidden_act": "gelu"}})
    | cases(
        GEMMA2,
        "gemma2",
        {
            "": WINDOW,
            "_caps_that_matter": WINDOW | CAPS | FULL_FIRST | BIASED | {"rope_parameters": rope("linear", factor=3.0)},
            "_without_caps": WINDOW | UNTIED | dict.fromkeys(CAPS),
        },
    )
    | cases(
        GEMMA3,
        "gemma3",
        {
            "": WINDOW | {"num_hidden_layers": 7},
            "_two_rotations": WINDOW
            | FULL_FIRST
            | by_kind(rope("linear", factor=8.0), rope("default", rope_theta=9.0)),
            "_capped_untied": WINDOW | FULL_FIRST | UNTIED | BIASED | {"final_logit_softcapping": 3.0},
        },
    )
    | {
        "gemma3_with_images": Case(
            "Gemma3ForConditionalGeneration",
            {"text_config": TEXT, "vision_config": VISION, "mm_tokens_per_image": 4, "eos_token_id": 0},
            offset_norms=True,
        )
    }
)
