"""Llama and those that are built like it: Mistral, Qwen 2 and 3, SmolLM3."""

from families.case import Case

_SIZES = {
    "hidden_size": 48,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 67,
    "max_position_embeddings": 64,
}


def _rope(kind: str, **settings: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **settings}}


CASES: dict[str, Case] = {
    "llama": Case("LlamaForCausalLM", _SIZES),
    "llama_tied": Case("LlamaForCausalLM", _SIZES | {"tie_word_embeddings": True}),
    "llama_biases": Case("LlamaForCausalLM", _SIZES | {"attention_bias": True, "mlp_bias": True}),
    "llama_linear": Case("LlamaForCausalLM", _SIZES | _rope("linear", factor=3.0)),
}
