"""What heads read from tokens and say to the logits without any layer between: matrices with the norms inside.

A head of layer ℓ that attends to one position reads it through the norm before attention and is read by the unembedding
through the norms behind it. With C the centring of a LayerNorm (I − 11ᵀ/d; the identity for an RMSNorm), γ a gain, and
d the divisors of the norms, which depend on the text,

    logits = (1 / d) · x · C diag(γ_ln1) W_V · W_O [C diag(γ_ln1_post)] C diag(γ_final) · W_U
                           └─── reader ───┘   └──────────────── writer ────────────────┘

`reader` and `writer` are copies; embedding and unembedding, which may be one tensor, are read where they lie. In a
post-norm model every later layer normalises what a head has added, so that there is no such path; it is refused.

Paper: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits. What the product does NOT hold: biases,
which say the same whatever is read, and a final soft-cap, before which it ends.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.models.norm import PlainNorm
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Embedding = Literal["tokens", "block_0"]
"""What stands for a token: its embedding, or the residual stream behind block 0 where it is the whole text."""


def check_direct(model: "Transformer") -> None:
    """Raises `UsageError` where what a head adds is normalised again by every later layer."""
    if model.config.norms == "post":
        raise UsageError(
            "This model normalises the residual stream itself after every addition, so no head has a direct path to "
            "the logits that its weights alone describe. Use activation patching instead."
        )


def reader(
    model: "Transformer", layer: int, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "head d_model d_head"]:
    """W_V of the KV head that each query head reads, with the norm before it: a copy, in the given dtype."""
    values = model.W_V[layer].to(_there(model, dtype)).repeat_interleave(model.config.queries_per_kv, 0)
    norm = model.layers[layer].ln1
    return values if norm is None else norm.centre(values.mT * _gain(norm, values)).mT


def writer(
    model: "Transformer", layer: int, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "head d_head d_model"]:
    """W_O of each head, with the norms between it and the unembedding: a copy, in the given dtype."""
    written = model.W_O[layer].to(_there(model, dtype))
    for norm in (model.layers[layer].ln1_post, model.ln_final):
        written = written if norm is None else norm.centre(written) * _gain(norm, written)
    return written


def _gain(norm: PlainNorm, like: Tensor) -> Float[Tensor, "d_model"]:
    return norm.w.to(like.dtype) + float(norm.offset)


def _there(model: "Transformer", dtype: torch.dtype) -> torch.dtype:
    """float32 on a device that has no float64."""
    return torch.float32 if model.device.type == "mps" else dtype


def prefix_of(model: "Transformer", prefix: PrefixPolicy) -> list[int]:
    """The ids that stand before a text; a model without a tokenizer can only have none."""
    return [] if prefix == "none" else model.tokenizer.prefix_ids(prefix)


def token_states(
    model: "Transformer", ids: Int[Tensor, "token"], *, embedding: Embedding, prefix: PrefixPolicy, max_bytes: int
) -> Iterator[tuple[Int[Tensor, "some"], Float[Tensor, "some d_model"]]]:
    """Tokens, a block at a time, and what stands for each of them in the residual stream.

    `tokens`: the embedding as it enters the stream, without a position. `block_0`: the stream behind block 0 at the
    last position of the text `prefix ⊕ token`, where attention can only read the prefix and the token itself.
    """
    before = prefix_of(model, prefix) if embedding == "block_0" else []
    config = model.config
    widest = max(2 * config.d_model, config.ffn_width(0), config.n_heads * (config.d_head + len(before) + 1))
    size = max(1, max_bytes // (8 * 4 * widest * (len(before) + 1)))  # about eight tensors of the widest kind live
    for some in torch.split(ids, size):
        yield some, _embedded(model, some) if embedding == "tokens" else _behind_block_0(model, some, before)


def _embedded(model: "Transformer", ids: Int[Tensor, "token"]) -> Float[Tensor, "token d_model"]:
    rows = model.W_E[ids.to(model.device)] * model.config.embed_scale
    return rows if model.ln_embed is None else model.ln_embed.normalize(rows)


def _behind_block_0(
    model: "Transformer", ids: Int[Tensor, "token"], before: list[int]
) -> Float[Tensor, "token d_model"]:
    point = "blocks.0.hook_resid_post"
    texts = torch.cat([torch.tensor(before, dtype=torch.long).expand(len(ids), -1), ids.cpu()[:, None]], -1)
    _, cache = model.run_with_cache(texts, [point], positions=[-1], stop_at_layer=1)
    return cache[point][:, 0]
