"""Vectors of the residual stream in words: which tokens they speak for, and which against.

A vector v that some part adds to the residual stream (a row of an FFN's W_out, a head's output, a direction) has a
score for every token,

    gain    W_U · (γ ∘ v)         γ the gain of the final norm; the mean of v is taken off first if that norm does so
    full    W_U · norm_f(v) + b   as if v were the whole stream: with its own statistics, biases and soft-cap
    None    W_U · v               the bare product

and is named by the tokens of the highest and of the lowest scores. Gains differ from dimension to dimension, so that
the bare product ranks tokens otherwise than v moves their logits. The final norm also divides, by a number that depends
on the whole stream and not on v alone: `gain` gives orders and ratios of what v adds to the logits, not their size
(that is direct logit attribution).

Paper: Geva et al. 2022, "Transformer feed-forward layers build predictions by promoting concepts in the vocabulary
space" (arXiv 2203.14680), where value vectors are read by the bare product.

What it does NOT tell: that a vector is ever written, with which sign, or that later layers leave it alone. A vector
whose coefficient is negative promotes its lowest tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.folded import unembedded, wide
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FinalNorm = Literal["gain", "full"]


@dataclass(frozen=True)
class Projection:
    """The tokens of the highest and the lowest scores of each vector, best first, and of those that were tracked.

    `tracked_rank` is 1 for the highest score.
    """

    top_id: Int[Tensor, "vector rank"]
    top_score: Float[Tensor, "vector rank"]
    bottom_id: Int[Tensor, "vector rank"]
    bottom_score: Float[Tensor, "vector rank"]
    tracked_score: Float[Tensor, "vector tracked"]
    tracked_rank: Int[Tensor, "vector tracked"]


@torch.no_grad()
def project(
    model: "Transformer",
    vectors: Float[Tensor, "vector d_model"],
    *,
    top_k: int = 10,
    tracked: Sequence[int] = (),
    final_norm: FinalNorm | None = "gain",
    max_bytes: int = 64 * 2**20,
) -> Projection:
    """The strongest tokens of each vector by its scores over the vocabulary.

    `tracked` are ids of tokens whose score and rank are wanted. Scores exist for a block of vectors at a time, of about
    `max_bytes`, never for all. Raises `UsageError` for a `top_k` or ids that the vocabulary does not have.
    """
    size = model.config.d_vocab
    if final_norm is not None and final_norm not in get_args(FinalNorm):
        raise UsageError(f"final_norm is {final_norm!r}: expected None or one of {', '.join(get_args(FinalNorm))}.")
    if not 1 <= top_k <= size:
        raise UsageError(f"top_k is {top_k}; expected 1 to {size}, the size of the vocabulary.")
    outside = [token for token in tracked if not 0 <= token < size]
    if outside:
        raise UsageError(f"{outside[0]} is no token id: expected 0 to {size - 1}.")
    at_once = max(1, max_bytes // (3 * 4 * size))  # the scores, their pieces, and what sorting takes
    ids = torch.tensor(tracked, dtype=torch.long, device=vectors.device)
    blocks = [_strongest(_scores(model, some, final_norm), ids, top_k) for some in torch.split(vectors, at_once)]
    return Projection(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


def _scores(
    model: "Transformer", vectors: Float[Tensor, "vector d_model"], final_norm: FinalNorm | None
) -> Float[Tensor, "vector d_vocab"]:
    if final_norm == "full":
        return wide(model.unembed_residual(vectors.to(model.dtype)))
    return unembedded(model, vectors, gained=final_norm == "gain")


def _strongest(
    scores: Float[Tensor, "vector d_vocab"], tracked: Int[Tensor, "tracked"], top_k: int
) -> tuple[Tensor, ...]:
    """What `Projection` holds, in its order."""
    top, bottom = scores.topk(top_k, -1), scores.topk(top_k, -1, largest=False)
    followed = scores[:, tracked]
    ranks = [1 + (scores > score[:, None]).sum(-1) for score in followed.unbind(-1)]
    rank = torch.stack(ranks, -1) if ranks else tracked.new_empty(followed.shape)
    return top.indices, top.values, bottom.indices, bottom.values, followed, rank
