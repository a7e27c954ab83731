"""Mixtures of experts (Mixtral, the two of Qwen, OLMoE), and their dense neighbours OLMo 2 and Phi-3."""

from typing import Any

from families.case import Case

MIXTRAL, QWEN2, QWEN3, OLMOE, OLMO2, PHI3 = (
    f"{name}ForCausalLM" for name in ("Mixtral", "Qwen2Moe", "Qwen3Moe", "Olmoe", "Olmo2", "Phi3")
)

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 67,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
    "experts_implementation": "eager",  # the grouped kernel takes no such odd sizes in bfloat16
}
WIDE = {"head_dim": 10}
SEVEN = {"num_experts": 7, "num_experts_per_tok": 4}
NARROW = SEVEN | {"moe_intermediate_size": 20}
SHARED = NARROW | {"shared_expert_intermediate_size": 28}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5}
TIED = {"tie_word_embeddings": True}


def rope(kind: str, **settings: object) -> dict[str, object]:
    """Rotary settings; a small base, so that short texts see the slow pairs turn."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 50.0, **settings}}


def longrope(pairs: int, original: int = 12, **settings: object) -> dict[str, object]:
    """Phi-3's way to state it: the original context lies beside the table."""
    short, long = [1 + 0.1 * i for i in range(pairs)], [1.0 + i for i in range(pairs)]
    table = rope("longrope", short_factor=short, long_factor=long, **settings)
    return table | {"original_max_position_embeddings": original}


def moe(model: str, fields: dict[str, Any]) -> Case:
    """Over more models in bfloat16, because rounding chooses other experts at near ties and few tokens are left."""
    return Case(model, SIZES | fields, seeds=10)


CASES: dict[str, Case] = {
    "mixtral": moe(MIXTRAL, WIDE | {"num_local_experts": 7}),
    "mixtral_all_chosen": Case(MIXTRAL, SIZES | {"num_local_experts": 5, "num_experts_per_tok": 5}),
    "mixtral_window": moe(
        MIXTRAL, TIED | {"num_local_experts": 4, "num_experts_per_tok": 1, "sliding_window": 5, "hidden_act": "gelu"}
    ),
    "qwen2_moe": moe(QWEN2, SHARED),
    "qwen2_moe_all_chosen": Case(QWEN2, SIZES | SHARED | {"num_experts_per_tok": 7}),
    "qwen2_moe_renormalised": moe(
        QWEN2, WIDE | SHARED | TIED | {"norm_topk_prob": True, "qkv_bias": False, "decoder_sparse_step": 2}
    ),
    "qwen2_moe_windows": moe(QWEN2, SHARED | WINDOWS | {"max_window_layers": 2, "mlp_only_layers": [1]}),
    "qwen2_moe_alternating": moe(
        QWEN2, SHARED | WINDOWS | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    ),
    "qwen3_moe": moe(QWEN3, WIDE | NARROW),
    "qwen3_moe_renormalised": moe(
        QWEN3,
        NARROW
        | TIED
        | rope("yarn", factor=4.0, original_max_position_embeddings=16)
        | {"norm_topk_prob": True, "attention_bias": True, "mlp_only_layers": [0]},
    ),
    "qwen3_moe_window": moe(QWEN3, WIDE | NARROW | WINDOWS | {"decoder_sparse_step": 3}),
    "olmoe": moe(OLMOE, SEVEN),
    "olmoe_all_chosen": Case(OLMOE, SIZES | SEVEN | {"num_experts_per_tok": 7}),
    "olmoe_renormalised": moe(
        OLMOE, SEVEN | TIED | {"norm_topk_prob": True, "attention_bias": True, "num_key_value_heads": 6}
    ),
    "olmo2": Case(OLMO2, SIZES | WIDE),
    "olmo2_biases": Case(OLMO2, SIZES | TIED | {"attention_bias": True} | rope("linear", factor=3.0)),
    "phi3": Case(PHI3, SIZES | WIDE | {"sliding_window": 5}),
    "phi3_partial": Case(PHI3, SIZES | TIED | rope("default", partial_rotary_factor=0.5) | {"num_attention_heads": 4}),
    "phi3_longrope": Case(PHI3, SIZES | longrope(4), (1, 12, 13, 23), per_call=True),
    "phi3_longrope_not_stretched": Case(PHI3, SIZES | longrope(4, factor=1.0), (1, 12, 13, 23), per_call=True),
    "phi3_longrope_partial": Case(
        PHI3, SIZES | longrope(2, partial_rotary_factor=0.5, attention_factor=1.3), (1, 12, 13, 23), per_call=True
    ),
}
