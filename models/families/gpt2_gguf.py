"""GPT-2 as GGUF files hold it (`general.architecture = gpt2`).

Matrices are stored output axis first, unlike Hugging Face's; queries, keys and values lie one above the other. Some
files repeat the embedding as an unembedding, perhaps in another storage type, and so with other values.
"""

from interp.models.config import ModelConfig
from interp.models.families import gguf_metadata
from interp.models.families.family import Family, Row
from interp.models.families.gguf_rows import BLOCK, ENDS, OURS
from interp.models.families.older import norm_rows, output_rows, ungated_rows
from interp.models.sources.checkpoint import Checkpoint

_FUSED, _FUSED_BIAS = "(three head d_head) d_model -> head d_model d_head", "(three head d_head) -> head d_head"

ROWS = (
    *(row for row in ENDS if row.ours != "ln_final.w"),
    Row("position_embd.weight", "pos_embed.W_pos", "position d_model -> position d_model"),
    *norm_rows("output_norm", "ln_final"),
    *norm_rows(BLOCK + "attn_norm", OURS + "ln1"),
    *(
        Row(BLOCK + "attn_qkv.weight", f"{OURS}attn.W_{letter}", _FUSED, at=("three", index))
        for index, letter in enumerate("QKV")
    ),
    *(
        Row(BLOCK + "attn_qkv.bias", f"{OURS}attn.b_{letter}", _FUSED_BIAS, at=("three", index))
        for index, letter in enumerate("QKV")
    ),
    *output_rows(BLOCK + "attn_output"),
    *norm_rows(BLOCK + "ffn_norm", OURS + "ln2"),
    *ungated_rows(BLOCK + "ffn_up", BLOCK + "ffn_down"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata."""
    fields = gguf_metadata.metadata(checkpoint, "gpt2")
    d_model, n_heads = fields.integer("embedding_length"), fields.integer("attention.head_count")
    fields.must_be("attention.head_count_kv", n_heads)
    config = ModelConfig(
        n_layers=fields.integer("block_count"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=gguf_metadata.head_width(fields, d_model, n_heads),
        d_mlp=fields.integer("feed_forward_length"),
        d_vocab=gguf_metadata.vocabulary(fields, checkpoint.shapes),
        n_ctx=fields.integer("context_length"),
        norm="layer",
        norm_eps=fields.number("attention.layer_norm_epsilon"),
        activation="gelu_tanh",
        gated=False,
        rotary=None,
        learned_positions=True,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        tied_embeddings="output.weight" not in checkpoint.shapes,
    )
    fields.refuse_others(gguf_metadata.HARMLESS)
    return config


FAMILY = Family(layout="gguf", architectures=("gpt2",), rows=ROWS, config=read_config)
