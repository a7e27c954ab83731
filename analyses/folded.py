"""What heads read and write, with the gains of the norms around them taken into copies of their weights.

A head reads the residual stream through a norm, (x − mean) / scale ∘ gain + bias, of which all but the division and the
bias is a matrix, and that can be multiplied into the head's own (only a LayerNorm takes off the mean):

    reads     W_Q, W_K and W_V behind ln1, with the gains of norms of queries and keys; W_U behind the final norm
    writes    W_O before ln1_post, where there is one

So heads of different layers can be compared, and tokens can be followed through them. The weights of the model are only
looked at: what is returned is new.

What it does NOT hold: divisions, which differ from token to token, and biases, which add the same to every token's
query, key and value.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.models.norm import HeadNorm, PlainNorm
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Embedding = Literal["tokens", "block_0"]
"""What stands for a token: its embedding; or what block 0 makes of it, alone behind the prefix."""

TEXTS_AT_ONCE = 1024
"""How many tokens of the vocabulary are embedded, or unembedded, at a time."""


@dataclass(frozen=True)
class HeadWeights:
    """The matrices of all query heads of a layer, and of the KV heads that they read; or those of one query head."""

    W_Q: Float[Tensor, "*head d_model d_head"]
    W_K: Float[Tensor, "*kv_head d_model d_head"]
    W_V: Float[Tensor, "*kv_head d_model d_head"]
    W_O: Float[Tensor, "*head d_head d_model"]

    def of(self, head: int) -> "HeadWeights":
        """Those of one query head."""
        kv_head = head // (len(self.W_Q) // len(self.W_K))
        return HeadWeights(self.W_Q[head], self.W_K[kv_head], self.W_V[kv_head], self.W_O[head])


def plain_heads(model: "Transformer", layer: int) -> HeadWeights:
    """The heads of a layer as they are, in float32 or wider."""
    attn = model.layers[layer].attn
    return HeadWeights(wide(attn.W_Q), wide(attn.W_K), wide(attn.W_V), wide(attn.W_O))


def folded_heads(model: "Transformer", layer: int) -> HeadWeights:
    """The heads of a layer as they read and write the residual stream, but for divisions and biases.

    Raises `UsageError` for a model whose norms stand in the residual stream itself: what a head writes there passes
    all of them on its way, and no gain belongs to one head.
    """
    if model.config.norms == "post":
        raise UsageError(
            "The norms of this model stand in the residual stream itself, so that no gain belongs to what a head reads "
            "or writes. Look at its weights as they are instead."
        )
    block, heads = model.layers[layer], plain_heads(model, layer)
    return HeadWeights(
        read_through(block.ln1, _gained(block.attn.q_norm, heads.W_Q)),
        read_through(block.ln1, _gained(block.attn.k_norm, heads.W_K)),
        read_through(block.ln1, heads.W_V),
        _seen(model, written_through(block.ln1_post, heads.W_O)),
    )


def read_through(
    norm: PlainNorm | None, weight: Float[Tensor, "*batch d_model columns"]
) -> Float[Tensor, "*batch d_model columns"]:
    """A matrix that reads what the norm returns, as one that reads what the norm is given."""
    if norm is None:
        return wide(weight)
    gained = wide(weight) * _gain(norm)[:, None]
    return gained if norm.b is None else gained - gained.mean(-2, keepdim=True)


def written_through(norm: PlainNorm | None, rows: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
    """Rows that the norm is given, as what it returns."""
    return wide(rows) if norm is None else norm.centre(rows) * _gain(norm)


def wide(weight: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Halves as float32."""
    return weight.data if weight.dtype == torch.float64 else weight.data.float()


def _seen(model: "Transformer", rows: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
    """What is written, without its mean where all that read it take that off."""
    config = model.config
    centred = config.norm == "layer" and config.norms in ("pre", "sandwich") and config.final_norm
    return rows - rows.mean(-1, keepdim=True) if centred else rows


def _gain(norm: PlainNorm | HeadNorm) -> Float[Tensor, "width"]:
    return wide(norm.w) + float(norm.offset)


def _gained(
    norm: HeadNorm | None, weight: Float[Tensor, "heads d_model d_head"]
) -> Float[Tensor, "heads d_model d_head"]:
    """Queries or keys times the gain of their norm, where they have one."""
    return weight if norm is None else weight * _gain(norm).view(-1, 1, weight.shape[-1])


# ------------------------------------------------------------------------------------------------------ the vocabulary


def embedded(
    model: "Transformer",
    weight: Float[Tensor, "d_model columns"],
    *,
    embedding: Embedding = "tokens",
    prefix: PrefixPolicy = "doc",
    divided_by: PlainNorm | None = None,
) -> Float[Tensor, "d_vocab columns"]:
    """What a matrix that reads the residual stream makes of every token, in float32 or wider.

    `divided_by`: a norm that divides each token as if nothing but it stood in the residual stream.
    """
    rows = (wide(rows) for rows in embeddings(model, embedding=embedding, prefix=prefix))
    if divided_by is None:
        return torch.cat([each @ weight for each in rows])
    return torch.cat([each @ weight / divided_by.divisor(divided_by.centre(each)) for each in rows])


@torch.no_grad()
def embeddings(
    model: "Transformer",
    ids: Int[Tensor, "token"] | None = None,
    *,
    embedding: Embedding = "tokens",
    prefix: PrefixPolicy = "doc",
) -> Iterator[Float[Tensor, "some d_model"]]:
    """What stands for each token in the residual stream, block by block of the vocabulary or of `ids`, in order.

    `tokens`: its embedding, scaled and normalised if the model does that, without a position. `block_0`: the residual
    stream behind block 0 at the last position of a text of the prefix and this token, so that FFN 0 has read it.
    """
    if embedding not in get_args(Embedding):
        raise UsageError(f"embedding is {embedding!r}: expected one of {', '.join(get_args(Embedding))}.")
    deep = embedding == "block_0"
    before = model.tokenizer.prefix_ids(prefix) if deep and prefix != "none" else []
    name = "blocks.0.hook_resid_post" if deep else "hook_embed"
    for some in torch.split(torch.arange(model.config.d_vocab) if ids is None else ids, TEXTS_AT_ONCE):
        texts = torch.cat([torch.tensor(before, dtype=torch.long).expand(len(some), -1), some[:, None]], 1)
        _, cache = model.run_with_cache(texts, [name], positions=[-1], stop_at_layer=int(deep))
        yield cache[name][:, 0]


def unembedded(
    model: "Transformer", rows: Float[Tensor, "rows d_model"], *, centred: bool = False, gained: bool = True
) -> Float[Tensor, "rows d_vocab"]:
    """What rows that are added to the residual stream add to the logits, but for the final norm's division and bias.

    `centred`: less their mean over the vocabulary, which no probability sees where logits are not capped. Without
    `gained`, the bare product with W_U, as if there were no final norm. Soft-caps come later, and are not in it.
    """
    read = written_through(model.ln_final if gained else None, rows) * model.config.logit_scale
    logits = torch.cat([read @ wide(columns) for columns in torch.split(model.W_U, TEXTS_AT_ONCE, -1)], -1)
    return logits - logits.mean(-1, keepdim=True) if centred else logits
