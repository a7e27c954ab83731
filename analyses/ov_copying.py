"""Would a head say the token that it looks at? Two answers from weights and single tokens, without a text.

The OV eigenvalue score (Elhage et al. 2021, A Mathematical Framework for Transformer Circuits) of a head is Σλ / Σ|λ|
over the eigenvalues λ of E W_V W_O W_U, which takes tokens to the logits that looking at them brings; the gains of
norms are in copies of the matrices (`interp.analyses.folded`), their divisors and all biases are left out. It is 1
where all directions of token space come back as they are, −1 where all come back reversed. Complex eigenvalues come in
pairs, so that their sum is real. The [V, V] matrix is never formed: by cyclicity its eigenvalues that are not zero are
those of the [d_head, d_head] matrix W_O (W_U E) W_V, whose middle part all heads share.

Embeddings have a large mean, and what a head does with that one direction can decide its score. But to add the same to
all logits changes no probability, so that only W_U less its mean over the vocabulary says anything: with it, the score
is `centred`, and the mean of the embeddings falls out too.

The copy score of Wang et al. 2022 (Interpretability in the Wild, arXiv 2211.00593) takes tokens one by one, with the
divisors and the biases: the share of them that stands among the top k of

    unembed(ln_final(a)),  a = W_O W_V ln1(x)

with x the residual stream behind block 0 where the token is the whole text behind the prefix. A negative head has them
among the top k of unembed(ln_final(−a)). Where sublayers have a norm on what they return, a has gone through it.

What they do NOT tell: whether the head ever looks at a token that should be said.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import pair_words
from interp.analyses.folded import Embedding, embeddings, folded_heads, wide, written_through
from interp.analyses.repeated import ordinary_tokens
from interp.analyses.vocabulary import token_id, tokenizer_of
from interp.errors import UsageError
from interp.factored import FactoredMatrix
from interp.models.linear import linear
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FEWEST_NAMES, DRAWN = 10, 50
BLOCK = 2048  # tokens of the vocabulary at a time: few rows have less than k better ones in the first, and need another


@torch.no_grad()
def ov_eigenvalue_scores(
    model: "Transformer", *, embedding: Embedding, prefix: PrefixPolicy, step: Callable[[], None] = lambda: None
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Σλ / Σ|λ| of every head, as it is and centred; NaN where nothing is said, and in layer 0 behind block 0.

    `step` is called after each layer.
    """
    shared = torch.stack(_unembedded_embedding(model, embedding, prefix))
    scores = np.full((2, model.config.n_layers, model.config.n_heads), np.nan)
    for layer in range(model.config.n_layers):
        if embedding == "tokens" or layer > 0:
            heads = folded_heads(model, layer)
            read = heads.W_V.repeat_interleave(model.config.queries_per_kv, 0).to(shared.dtype)
            said = written_through(model.ln_final, heads.W_O).to(shared.dtype)
            eigenvalues = FactoredMatrix(read, said @ shared[:, None]).eigenvalues().cpu().numpy()
            total, size = eigenvalues.real.sum(-1), np.abs(eigenvalues).sum(-1)
            scores[:, layer] = np.divide(total, size, out=np.full_like(size, np.nan), where=size > 0)
        step()
    return dict(zip(("ov_eigenvalue", "ov_eigenvalue_centred"), scores, strict=True))


def _unembedded_embedding(
    model: "Transformer", embedding: Embedding, prefix: PrefixPolicy
) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model d_model"]]:
    """W_U · E, which all heads share, summed over the vocabulary block by block; and the same with W_U centred."""
    dtype = torch.float32 if model.device.type == "mps" else torch.float64
    width, start = model.config.d_model, 0
    product = torch.zeros(width, width, dtype=dtype, device=model.device)
    unembedding_sum, embedding_sum = torch.zeros(2, width, dtype=dtype, device=model.device)
    for states in embeddings(model, embedding=embedding, prefix=prefix):
        columns = model.W_U[:, start : start + len(states)].to(dtype)
        product += columns @ states.to(dtype)
        unembedding_sum += columns.sum(-1)
        embedding_sum += states.to(dtype).sum(0)
        start += len(states)
    return product, product - torch.outer(unembedding_sum, embedding_sum) / model.config.d_vocab


def tokens_to_copy(model: "Transformer", named: Sequence[str | int] | None, seed: int) -> list[int]:
    """The ids of the tokens named; by default, of names that are one token; of random ones where there are few names.

    Raises `UsageError` for a text of several tokens, an id outside, a token named twice, or none.
    """
    ids = _default_tokens(model, seed) if named is None else [token_id(model, each) for each in named]
    if not ids or len(set(ids)) != len(ids):
        raise UsageError(f"Expected at least one token to copy, and each once; came {named!r}.")
    return ids


def _default_tokens(model: "Transformer", seed: int) -> list[int]:
    tokenizer, pool = tokenizer_of(model), ordinary_tokens(model)
    if tokenizer is not None:
        pieces = [tokenizer.encode(f" {name}") for name in (*pair_words.WOMEN, *pair_words.MEN)]
        names = dict.fromkeys(piece[0] for piece in pieces if len(piece) == 1 and piece[0] in pool)
        if len(names) >= FEWEST_NAMES:  # an unknown word may be a token too, the same for all
            return list(names)
    drawn = np.random.default_rng(seed).choice(pool, size=min(DRAWN, len(pool)), replace=False)
    return [int(index) for index in drawn]


@torch.no_grad()
def in_top(
    model: "Transformer",
    ids: Sequence[int],
    *,
    top_k: int,
    prefix: PrefixPolicy,
    max_bytes: int,
    step: Callable[[], None] = lambda: None,
) -> Bool[np.ndarray, "sign layer head token"]:
    """Whether each token is among the top k of what a head says of it: as it is, and with the sign reversed.

    What shares its logit counts as before it, so that a head that says nothing copies nothing. Layer 0 does not read
    what is behind block 0; it is False there. `step` is called after each layer.
    """
    config, chosen = model.config, torch.tensor(ids)
    states = torch.cat([*embeddings(model, chosen, embedding="block_0", prefix=prefix)])
    found = np.zeros((2, config.n_layers, config.n_heads, len(ids)), dtype=bool)
    for layer in range(config.n_layers):
        if layer > 0:
            added = _added_alone(model, layer, states)
            among = _among_top(model, added.flatten(0, 1), chosen.repeat(config.n_heads), top_k, max_bytes)
            found[:, layer] = among.view(2, config.n_heads, -1).cpu().numpy()
        step()
    return found


def _added_alone(
    model: "Transformer", layer: int, states: Float[Tensor, "token d_model"]
) -> Float[Tensor, "head token d_model"]:
    """What each head of a layer adds to the stream where it looks at one position only."""
    block = model.layers[layer]
    read = states if block.ln1 is None else block.ln1.normalize(states)
    values = read @ block.attn.W_V
    if (bias := block.attn.weights().get("b_V")) is not None:
        values = values + bias[:, None]
    said = values.repeat_interleave(model.config.queries_per_kv, 0) @ block.attn.W_O
    return said if block.ln1_post is None else block.ln1_post.normalize(said)


def _among_top(
    model: "Transformer", added: Float[Tensor, "row d_model"], ids: Int[Tensor, "row"], top_k: int, max_bytes: int
) -> Bool[Tensor, "sign row"]:
    """Whether each row's token is among the top k in the logits of what is added, and of its reverse.

    But for biases a norm turns with the sign of what it reads, so that one product with the unembedding serves both.
    """
    nothing = torch.zeros_like(added[:1])
    if model.ln_final is not None:
        nothing = model.ln_final.normalize(nothing)
        added = model.ln_final.normalize(added) - nothing
    constant = wide(linear(nothing, model.W_U.mT, model.unembed_bias)[0])
    size = max(1, max_bytes // (4 * 4 * BLOCK))
    parts = zip(torch.split(added, size), torch.split(ids.to(added.device), size), strict=True)
    return torch.cat([_ahead(model.W_U.mT, constant, wide(rows), tokens, top_k) < top_k for rows, tokens in parts], -1)


def _ahead(
    words: Float[Tensor, "d_vocab d_model"],
    constant: Float[Tensor, "d_vocab"],
    rows: Float[Tensor, "row d_model"],
    ids: Int[Tensor, "row"],
    enough: int,
) -> Int[Tensor, "sign row"]:
    """How many other tokens are as high as each row's own; a row that has `enough` of them is not followed further."""
    own = torch.linalg.vecdot(rows, wide(words[ids]))
    found = torch.zeros(2, len(rows), dtype=torch.long, device=rows.device)
    for start in range(0, len(words), BLOCK):
        left = (found < enough).any(0).nonzero()[:, 0]
        if len(left) == 0:
            break
        block = slice(start, start + BLOCK)
        logits, others = linear(rows[left], wide(words[block])), torch.arange(len(words), device=ids.device)[block]
        itself = others == ids[left, None]
        for place, sign in enumerate((1, -1)):
            lead = torch.add(constant[block], logits, alpha=sign) >= (constant[ids] + sign * own)[left, None]
            found[place, left] += (lead & ~itself).count_nonzero(-1)
    return found
