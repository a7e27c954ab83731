"""The families of 2019 to 2022: GPT-2, GPT-NeoX (Pythia), GPT-J, GPT-Neo, OPT, BLOOM."""

from families.case import Case

_GPT = {"n_embd": 30, "n_layer": 3, "n_head": 3, "vocab_size": 67, "n_positions": 40}
_GPT2 = _GPT | {"bos_token_id": 0, "eos_token_id": 0}
_GPTJ = _GPT2 | {"rotary_dim": 6, "n_inner": 44}
_NEOX = {
    "hidden_size": 72, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 3, "vocab_size": 67,
    "max_position_embeddings": 64,
}  # fmt: skip
_NEO = {
    "hidden_size": 30, "intermediate_size": 44, "num_layers": 3, "num_heads": 3, "vocab_size": 67, "window_size": 5,
    "max_position_embeddings": 40, "attention_types": [[["global", "local", "local"], 1]], "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip
_OPT = {
    "hidden_size": 30, "ffn_dim": 44, "num_hidden_layers": 3, "num_attention_heads": 3, "vocab_size": 67,
    "max_position_embeddings": 40,
}  # fmt: skip
_BLOOM = {"hidden_size": 30, "n_layer": 3, "n_head": 3, "vocab_size": 67}


def _rope(kind: str, **settings: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, "partial_rotary_factor": 0.5, **settings}}


CASES: dict[str, Case] = {
    "gpt2": Case("GPT2LMHeadModel", _GPT2, lengths=(1, 7, 40)),
    "gpt2_untied_relu": Case(
        "GPT2LMHeadModel", _GPT2 | {"n_inner": 44, "activation_function": "relu", "tie_word_embeddings": False}
    ),
    "gpt2_scaled_by_depth": Case(
        "GPT2LMHeadModel", _GPT2 | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}
    ),
    "gpt2_unscaled": Case("GPT2LMHeadModel", _GPT2 | {"scale_attn_weights": False}),
    "gpt_neox": Case("GPTNeoXForCausalLM", _NEOX),
    "gpt_neox_sequential": Case(
        "GPTNeoXForCausalLM",
        _NEOX | {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new"},
    ),
    "gpt_neox_tied_linear": Case(
        "GPTNeoXForCausalLM", _NEOX | {"tie_word_embeddings": True} | _rope("linear", factor=3.0)
    ),
    "gptj": Case("GPTJForCausalLM", _GPTJ),
    "gptj_tied_whole_head": Case("GPTJForCausalLM", _GPTJ | {"rotary_dim": 10, "tie_word_embeddings": True}),
    "gpt_neo": Case("GPTNeoForCausalLM", _NEO, lengths=(1, 7, 40)),
    "gpt_neo_untied_global": Case(
        "GPTNeoForCausalLM",
        _NEO | {"attention_types": [[["global"], 3]], "tie_word_embeddings": False, "intermediate_size": None},
    ),
    "opt": Case("OPTForCausalLM", _OPT, lengths=(1, 7, 40)),
    "opt_norms_after": Case("OPTForCausalLM", _OPT | {"do_layer_norm_before": False}),
    "opt_without_biases": Case(
        "OPTForCausalLM", _OPT | {"enable_bias": False, "tie_word_embeddings": False, "activation_function": "gelu"}
    ),
    "opt_without_final_norm": Case("OPTForCausalLM", _OPT | {"_remove_final_layer_norm": True}),
    "bloom": Case("BloomForCausalLM", _BLOOM, lengths=(1, 7, 60)),
    "bloom_power_of_two_untied": Case("BloomForCausalLM", _BLOOM | {"n_head": 2, "tie_word_embeddings": False}),
}
