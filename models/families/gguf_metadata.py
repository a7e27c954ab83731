"""What the metadata of GGUF files state in the same words, whatever the architecture.

Keys begin with the architecture's name, which is dropped here. What the format does not state shows in which tensors
there are: biases, and an unembedding of its own.
"""

from collections.abc import Mapping

from interp.models.config import ModelConfig, MoEConfig
from interp.models.families.common import even_share, reach
from interp.models.families.fields import Fields
from interp.models.families.gguf_rotary import rotary
from interp.models.sources.checkpoint import Checkpoint

HARMLESS = (
    *("general.*", "tokenizer.*", "quantize.*", "split.no", "split.tensors.count"),
    *("tensor_data_layout", "rope.scaling.finetuned"),
)
"""Names, the tokenizer, how the file was made; and whether a stretched model was trained as such."""

_SOFTMAX = 1  # a value of expert_gating_func


def metadata(checkpoint: Checkpoint, architecture: str) -> Fields:
    """All of it, keys without the architecture in front. One part of a model that was split up is refused."""
    stated = {key.removeprefix(f"{architecture}."): value for key, value in checkpoint.fields.items()}
    fields = Fields(stated, f"The metadata of {checkpoint.source}")
    fields.must_be("split.count", 1)
    return fields


def shape(fields: Fields, checkpoint: Checkpoint, *, partial: bool = False) -> ModelConfig:
    """A model that is built like Llama, with dense FFNs. With `partial`, it may turn a part of each head only."""
    n_layers, d_model = fields.integer("block_count"), fields.integer("embedding_length")
    n_heads = fields.same_in_all_layers("attention.head_count", n_layers)
    d_head, n_ctx = head_width(fields, d_model, n_heads), fields.integer("context_length")
    if not partial:
        fields.must_be("rope.dimension_count", d_head)
    turns = rotary(fields, checkpoint, fields.integer("rope.dimension_count", d_head), d_head, n_ctx)
    shapes = checkpoint.shapes
    return ModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.same_in_all_layers("attention.head_count_kv", n_layers, n_heads),
        d_head=d_head,
        d_mlp=fields.same_in_all_layers("feed_forward_length", n_layers),
        d_vocab=vocabulary(fields, shapes),
        n_ctx=reach(turns, n_ctx),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rotary=turns,
        qkv_bias="blk.0.attn_q.bias" in shapes,
        o_bias="blk.0.attn_output.bias" in shapes,
        mlp_bias="blk.0.ffn_up.bias" in shapes,
        tied_embeddings="output.weight" not in shapes,
    )


def head_width(fields: Fields, d_model: int, n_heads: int) -> int:
    """The stated width of a head, or an even share of the model's; values have the same."""
    stated = "attention.key_length" in fields
    d_head = fields.integer("attention.key_length") if stated else even_share(d_model, n_heads, fields.source)
    fields.must_be("attention.value_length", d_head)
    return d_head


def vocabulary(fields: Fields, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The stated number of tokens, or that of the rows of the embedding."""
    return fields.integer("vocab_size", shapes.get("token_embd.weight", (0,))[0])


def experts(fields: Fields, d_expert: int | None, d_mlp: int, *, renormalise: bool) -> MoEConfig:
    """The mixture of experts in every layer.

    `d_expert` and `renormalise` are the architecture's defaults; without the first, the experts that are chosen
    together are as wide as the FFN would be.
    """
    top_k = fields.integer("expert_used_count")
    fields.must_be("expert_gating_func", _SOFTMAX)
    return MoEConfig(
        n_experts=fields.integer("expert_count"),
        top_k=top_k,
        d_expert=fields.integer("expert_feed_forward_length", d_expert or d_mlp // max(top_k, 1)),
        renormalise=fields.boolean("expert_weights_norm", renormalise),
        scaling=fields.number("expert_weights_scale", 1.0) or 1.0,  # 0 says: not scaled
    )
