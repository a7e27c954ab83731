"""Rows that GGUF files of different architectures share: one table of tensor names serves the whole format.

Architectures differ in which of them they have, and in the order of the rows of queries and keys: where nothing else is
said, they lie as Hugging Face publishes them.
"""

from interp.models.families.family import Row

BLOCK, OURS = "blk.{layer}.", "blocks.{layer}."
_QUERY, _KEY = "(head d_head) d_model -> head d_model d_head", "(kv_head d_head) d_model -> kv_head d_model d_head"
_IN, _OUT = "d_mlp d_model -> d_model d_mlp", "d_model d_mlp -> d_mlp d_model"

ENDS = (
    Row("token_embd.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row("output_norm.weight", "ln_final.w", "d_model -> d_model"),
    Row("output.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)
NORMS = (
    Row(BLOCK + "attn_norm.weight", OURS + "ln1.w", "d_model -> d_model"),
    Row(BLOCK + "ffn_norm.weight", OURS + "ln2.w", "d_model -> d_model"),
)
ATTENTION = (
    Row(BLOCK + "attn_q.weight", OURS + "attn.W_Q", _QUERY),
    Row(BLOCK + "attn_k.weight", OURS + "attn.W_K", _KEY),
    Row(BLOCK + "attn_v.weight", OURS + "attn.W_V", _KEY),
    Row(BLOCK + "attn_output.weight", OURS + "attn.W_O", "d_model (head d_head) -> head d_head d_model"),
    Row(BLOCK + "attn_q.bias", OURS + "attn.b_Q", "(head d_head) -> head d_head", "qkv_bias"),
    Row(BLOCK + "attn_k.bias", OURS + "attn.b_K", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(BLOCK + "attn_v.bias", OURS + "attn.b_V", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(BLOCK + "attn_output.bias", OURS + "attn.b_O", "d_model -> d_model", "o_bias"),
)
QK_NORMS = (
    Row(BLOCK + "attn_q_norm.weight", OURS + "attn.q_norm.w", "d_head -> d_head"),
    Row(BLOCK + "attn_k_norm.weight", OURS + "attn.k_norm.w", "d_head -> d_head"),
)
DENSE = (
    Row(BLOCK + "ffn_gate.weight", OURS + "mlp.W_gate", _IN, "dense"),
    Row(BLOCK + "ffn_up.weight", OURS + "mlp.W_in", _IN, "dense"),
    Row(BLOCK + "ffn_down.weight", OURS + "mlp.W_out", _OUT, "dense"),
    Row(BLOCK + "ffn_gate.bias", OURS + "mlp.b_gate", "d_mlp -> d_mlp", "dense & mlp_bias"),
    Row(BLOCK + "ffn_up.bias", OURS + "mlp.b_in", "d_mlp -> d_mlp", "dense & mlp_bias"),
    Row(BLOCK + "ffn_down.bias", OURS + "mlp.b_out", "d_model -> d_model", "dense & mlp_bias"),
)

_ROUTER = Row(BLOCK + "ffn_gate_inp.weight", OURS + "mlp.W_router", "expert d_model -> d_model expert", "moe")
_EACH_IN, _EACH_OUT = _IN.replace("d_mlp", "d_expert"), _OUT.replace("d_mlp", "d_expert")

EXPERTS = (
    _ROUTER,
    Row(
        BLOCK + "ffn_gate_exps.weight", OURS + "mlp.W_gate", "expert d_expert d_model -> expert d_model d_expert", "moe"
    ),
    Row(BLOCK + "ffn_up_exps.weight", OURS + "mlp.W_in", "expert d_expert d_model -> expert d_model d_expert", "moe"),
    Row(
        BLOCK + "ffn_down_exps.weight", OURS + "mlp.W_out", "expert d_model d_expert -> expert d_expert d_model", "moe"
    ),
)
"""One tensor for the same matrix of all experts."""

SEPARATE_EXPERTS = (
    _ROUTER,
    Row(BLOCK + "ffn_gate.{expert}.weight", OURS + "mlp.W_gate", _EACH_IN, "moe"),
    Row(BLOCK + "ffn_up.{expert}.weight", OURS + "mlp.W_in", _EACH_IN, "moe"),
    Row(BLOCK + "ffn_down.{expert}.weight", OURS + "mlp.W_out", _EACH_OUT, "moe"),
)
"""One tensor for each expert, as files had it until April 2024."""

SHARED_EXPERT = (
    Row(BLOCK + "ffn_gate_shexp.weight", OURS + "mlp.shared.W_gate", _IN.replace("d_mlp", "d_shared")),
    Row(BLOCK + "ffn_up_shexp.weight", OURS + "mlp.shared.W_in", _IN.replace("d_mlp", "d_shared")),
    Row(BLOCK + "ffn_down_shexp.weight", OURS + "mlp.shared.W_out", _OUT.replace("d_mlp", "d_shared")),
    Row(BLOCK + "ffn_gate_inp_shexp.weight", OURS + "mlp.W_shared_gate", "d_model -> d_model 1"),
)
"""The expert that every token goes through, and its gate, a vector."""
