"""Llama and those that are built like it: Mistral, Qwen 2 and 3, SmolLM3."""

from families.case import Case

LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3 = (
    f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")
)

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 67,
    "max_position_embeddings": 64,
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}


def rope(kind: str, **settings: object) -> dict[str, object]:
    """Rotary settings; a small base, so that short texts see the slow pairs turn."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 50.0, **settings}}


YARN = {"factor": 4.0, "original_max_position_embeddings": 16}

CASES: dict[str, Case] = {
    "llama": Case(LLAMA, SIZES),
    "llama_tied": Case(LLAMA, SIZES | {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    "llama_biases": Case(LLAMA, SIZES | {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_new"}),
    "llama_linear": Case(LLAMA, SIZES | rope("linear", factor=3.0)),
    "llama_dynamic": Case(
        LLAMA, SIZES | {"max_position_embeddings": 12} | rope("dynamic", factor=4.0), (1, 12, 13, 23), per_call=True
    ),
    "llama_llama3": Case(
        LLAMA,
        SIZES
        | rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    ),
    "llama_yarn": Case(LLAMA, SIZES | {"max_position_embeddings": 16} | rope("yarn", **YARN), (1, 7, 23)),
    "llama_yarn_turns": Case(
        LLAMA,
        SIZES
        | rope("yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=2.0, beta_slow=0.5)
        | {"max_position_embeddings": 256},
    ),
    "llama_yarn_smooth": Case(
        LLAMA,
        SIZES
        | rope(
            "yarn", factor=4.0, original_max_position_embeddings=2000, truncate=False, mscale=0.7, mscale_all_dim=1.3
        )
        | {"max_position_embeddings": 8000},
    ),
    "llama_yarn_stated": Case(LLAMA, SIZES | rope("yarn", **YARN, attention_factor=0.8)),
    "llama_longrope": Case(
        LLAMA,
        SIZES
        | rope(
            "longrope",
            original_max_position_embeddings=12,
            short_factor=[1.0, 1.1, 1.2, 1.4, 1.7],
            long_factor=[1.0, 1.5, 2.5, 4.0, 7.0],
        ),
        (1, 12, 13, 23),
        per_call=True,
    ),
    "mistral": Case(MISTRAL, SIZES | {"sliding_window": 5}),
    "mistral_no_window": Case(MISTRAL, SIZES | {"sliding_window": None, "tie_word_embeddings": True}),
    "qwen2": Case(QWEN2, SIZES),
    "qwen2_windows": Case(QWEN2, SIZES | WINDOWS | {"max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen2_alternating": Case(QWEN2, SIZES | WINDOWS | ALTERNATING | rope("yarn", **YARN)),
    "qwen3": Case(QWEN3, SIZES),
    "qwen3_biases": Case(QWEN3, SIZES | {"attention_bias": True, "tie_word_embeddings": True}),
    "qwen3_windows": Case(QWEN3, SIZES | WINDOWS | {"max_window_layers": 2}),
    "smollm3": Case(SMOLLM3, SIZES | {"no_rope_layer_interval": 2}),
    "smollm3_windows": Case(SMOLLM3, SIZES | WINDOWS | {"no_rope_layers": [1, 0, 1, 0], "tie_word_embeddings": False}),
    "smollm3_alternating": Case(
        SMOLLM3, SIZES | WINDOWS | ALTERNATING | {"attention_bias": True, "mlp_bias": True, "no_rope_layers": [0, 1, 1]}
    ),
}
