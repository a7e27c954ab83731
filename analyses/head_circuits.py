r"""What one head looks for and what it does with what it finds, read off its weights.

A head is two matrices, each a product through d_head numbers (Elhage et al. 2021):

    QK    score(q, k) = x_q · QK · x_k         how much a query likes a key
    OV    result      = Σ pattern · x_k · OV   what a key that is looked at adds to the residual stream

with x the residual stream as the head reads it (`ln1.hook_normalized`), QK = scale · W_Q W_Kᵀ and OV = W_V W_O. Query
head h uses the keys and values of KV head h // (query heads per KV head).

Under rotary positions QK is not one matrix but one for every distance between query and key: both are turned, and what
remains is the turn by their distance,

    QK(offset) = scale · W_Q R(offset) W_Kᵀ,        offset = position of the query − position of the key

which gives the model's own scores at that distance, exactly. The rotation is the model's own, whatever it turns.

From token to token there are the full circuits, E · QK · Eᵀ and E · OV · W_U, with the gains of ln1 and of the final
norm taken into copies (`interp.analyses.folded`). They are d_vocab × d_vocab, and never formed: `FactoredMatrix`.

What it does NOT tell: what a head does in a text. Whether it looks at a key depends on all other keys. And the full
circuits read tokens as if nothing but their embedding stood in the residual stream, which is true in layer 0, and less
and less so behind it. `full_qk` and `full_ov` leave out by how much each token is divided; `head_circuit` divides by
what ln1 makes of the token alone.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from interp.analyses.components import Component, components_of
from interp.analyses.folded import Embedding, embedded, folded_heads, plain_heads, unembedded, wide
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.factored import Entries, FactoredMatrix
from interp.models.attention import Attention
from interp.models.positions import alibi_slopes, rotation
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer


class HeadCircuit(Result, kind="head_circuit"):
    """What one head looks for and what it says: the most extreme entries of its full circuits, and their spectra.

    By [pair], the highest first: `query`, `key` and `score` of the full QK circuit, `read`, `said` and `logit` of the
    full OV circuit; `…_id` are the tokens' ids. `qk_singular` and `ov_singular` [direction] are those of the circuits
    between residual streams, `ov_eigenvalue_real` and `…_imaginary` [eigenvalue] those of the full OV circuit, the
    largest first. All are of folded copies; in the full circuits ln1 divides each token as if it stood alone in the
    residual stream. What biases add is left out, and what norms of queries and keys divide by. Logits are those before
    the final norm divides them, less their mean over the vocabulary.
    """

    grid = ("pair",)
    title = "Circuit of a head"
    caution = "Read off the weights: whether the head ever looks there, and whether it matters, only a text can tell."

    def figure(self) -> "Figure":
        """Singular values of both circuits, and the eigenvalues of OV in the complex plane."""
        from interp.plots_circuits import spectra

        return spectra(
            {"QK": self["qk_singular"], "OV": self["ov_singular"]},
            (self["ov_eigenvalue_real"], self["ov_eigenvalue_imaginary"]),
            title=self._asked(),
        )

    def summary(self) -> list[str]:
        """What it looks for most, and what it says most, a line a pair."""
        rows = list(self.to_frame().itertuples())
        return [
            self._asked(),
            "  most wanted, query → key, by the full QK circuit:",
            *(f"    {row.query!r} → {row.key!r}  {row.score:+.2f}" for row in rows),
            "  most said, key → logit, by the full OV circuit:",
            *(f"    {row.read!r} → {row.said!r}  {row.logit:+.2f}" for row in rows),
            f"  {self.caution}",
        ]

    def _asked(self) -> str:
        told = self.settings
        return f"{self.title}: {told['layer']}.{told['head']} at offset {told['offset']}"


@torch.no_grad()
def head_circuit(
    model: "Transformer",
    layer: int,
    head: int,
    *,
    offset: int = 0,
    length: int | None = None,
    embedding: Embedding = "tokens",
    prefix: PrefixPolicy = "doc",
    top_k: int = 10,
) -> HeadCircuit:
    """The spectra of a head's circuits, and the pairs of tokens that stand out in them.

    Settings and errors are those of `full_qk` and `full_ov`, of which nothing is ever formed but parts of some million
    entries; `top_k`: how many pairs of each.
    """
    _check_reach(_checked(model, layer, head), layer, offset, length)
    weights, attn = folded_heads(model, layer).of(head), model.layers[layer].attn
    read = torch.cat([weights.W_Q, weights.W_K, weights.W_V], -1)
    norm = model.layers[layer].ln1
    tokens = embedded(model, read, embedding=embedding, prefix=prefix, divided_by=norm)
    q, k, v = torch.split(tokens, model.config.d_head, -1)
    qk = _scores(attn, q, k, offset, length)
    ov = FactoredMatrix(v, unembedded(model, weights.W_O, centred=True))
    between = (_scores(attn, weights.W_Q, weights.W_K, offset, length), FactoredMatrix(weights.W_V, weights.W_O))
    asked = {"layer": layer, "head": head, "offset": offset, "length": length, "embedding": embedding, "top_k": top_k}
    return HeadCircuit(
        arrays={
            **_pairs(model, qk.top_entries(top_k), ("query", "key", "score")),
            **_pairs(model, ov.top_entries(top_k), ("read", "said", "logit")),
            **_spectra(*between, ov),
        },
        settings={**asked, "prefix": prefix},
        provenance=provenance(model.provenance, prefix=prefix),
    )


def _spectra(qk: FactoredMatrix, ov: FactoredMatrix, full: FactoredMatrix) -> dict[str, NamedArray]:
    """Singular values between residual streams; eigenvalues from token to token, the largest first."""
    values = full.eigenvalues()
    values = values[values.abs().argsort(descending=True)]
    return {
        "qk_singular": NamedArray(qk.svd().S.cpu().numpy(), ("direction",)),
        "ov_singular": NamedArray(ov.svd().S.cpu().numpy(), ("direction",)),
        "ov_eigenvalue_real": NamedArray(values.real.cpu().numpy(), ("eigenvalue",)),
        "ov_eigenvalue_imaginary": NamedArray(values.imag.cpu().numpy(), ("eigenvalue",)),
    }


def _pairs(model: "Transformer", entries: Entries, names: tuple[str, str, str]) -> dict[str, NamedArray]:
    """Entries between tokens as arrays: the texts of both, their ids, the value."""
    row, column, value = names
    arrays = {value: NamedArray(entries.values.cpu().numpy(), ("pair",))}
    for name, ids in ((row, entries.rows.tolist()), (column, entries.columns.tolist())):
        arrays[name] = NamedArray(token_texts(model, ids), ("pair",))
        arrays[f"{name}_id"] = NamedArray(ids, ("pair",))
    return arrays


def ov_circuit(model: "Transformer", layer: int, head: int) -> FactoredMatrix:
    """W_V · W_O, [d_model, d_model]: what the head adds to the stream for each number of a key that it looks at.

    Of `ln1.hook_normalized`, or of the residual stream itself where there is no norm before attention. What the value
    bias adds is the same whatever is looked at, and not in it. Raises `UsageError` for a head that does not exist.
    """
    weights = plain_heads(_checked(model, layer, head), layer).of(head)
    return FactoredMatrix(weights.W_V, weights.W_O)


def qk_circuit(
    model: "Transformer",
    layer: int,
    head: int,
    *,
    offset: int = 0,
    length: int | None = None,
    constant: bool = False,
) -> FactoredMatrix:
    """The scores of a query `offset` positions behind a key, [d_model (query), d_model (key)], the scale included.

    Of `ln1.hook_normalized`, or of the residual stream itself where there is no norm before attention; before a
    soft-cap. `length`: how many positions the text has, for rotations that depend on it; up to the query by default.
    `constant`: a last row and column more, for a last number 1 of queries and keys, with what biases add, and ALiBi:
    −slope · offset, which differs from what the model adds by the same number for all keys of a query.

    Raises `UsageError` for a head that does not exist, an offset that its queries cannot reach, and where norms of
    queries and keys make scores something else than products.
    """
    _check_reach(_checked(model, layer, head), layer, offset, length)
    attn, weights = model.layers[layer].attn, plain_heads(model, layer).of(head)
    if attn.q_norm is not None:
        raise UsageError(
            "This model divides each query and key by its own size, so that no matrix gives its scores. `full_qk` has "
            "what is left without these divisions."
        )
    q, k = weights.W_Q, weights.W_K
    if constant and attn.qkv_bias is not None:
        b_q, b_k, _ = attn.layout.biases(wide(attn.qkv_bias))
        q, k = torch.cat([q, b_q[[head]]]), torch.cat([k, b_k[[head // model.config.queries_per_kv]]])
    elif constant:
        q, k = F.pad(q, (0, 0, 0, 1)), F.pad(k, (0, 0, 0, 1))
    scores = _scores(attn, q, k, offset, length)
    return _penalised(scores, model, head, offset) if constant and model.config.alibi else scores


def full_ov(
    model: "Transformer",
    layer: int,
    head: int,
    *,
    embedding: Embedding = "tokens",
    prefix: PrefixPolicy = "doc",
    centred: bool = False,
) -> FactoredMatrix:
    """From the token that is looked at to the logits that this adds, [d_vocab, d_vocab], on folded copies.

    `embedding`: what stands for a token that is looked at; `prefix`: what stands before it, for `block_0`. `centred`:
    logits less their mean over the vocabulary, which no probability sees, and which is most of what some heads add;
    capped logits are meant before the cap. Raises `UsageError` for a head that does not exist, and for a model that
    cannot be folded.
    """
    weights = folded_heads(_checked(model, layer, head), layer).of(head)
    read = embedded(model, weights.W_V, embedding=embedding, prefix=prefix)
    return FactoredMatrix(read, unembedded(model, weights.W_O, centred=centred))


def full_qk(
    model: "Transformer",
    layer: int,
    head: int,
    *,
    offset: int = 0,
    length: int | None = None,
    embedding: Embedding = "tokens",
    prefix: PrefixPolicy = "doc",
) -> FactoredMatrix:
    """Scores of every token as a query with every token as a key, [d_vocab (query), d_vocab (key)], on folded copies.

    Up to one positive factor for each query and each key, by which norms would divide it, and without biases. Settings
    and errors as in `qk_circuit` and `full_ov`; norms of queries and keys are one more such division.
    """
    _check_reach(_checked(model, layer, head), layer, offset, length)
    weights = folded_heads(model, layer).of(head)
    both = embedded(model, torch.cat([weights.W_Q, weights.W_K], -1), embedding=embedding, prefix=prefix)
    q, k = torch.split(both, model.config.d_head, -1)
    return _scores(model.layers[layer].attn, q, k, offset, length)


def _scores(
    attn: Attention,
    q: Float[Tensor, "rows d_head"],
    k: Float[Tensor, "rows d_head"],
    offset: int,
    length: int | None,
) -> FactoredMatrix:
    """Every query with every key, so many positions before it."""
    if attn.rotary is not None:
        positions = torch.tensor([[offset, 0]], device=q.device)
        turn = rotation(attn.rotary, attn.d_head, positions, length=length)
        q, k = turn(torch.stack([q, k])[None])[0]
    return FactoredMatrix(attn.scale * q, k.mT)


def _penalised(scores: FactoredMatrix, model: "Transformer", head: int, offset: int) -> FactoredMatrix:
    """With ALiBi's penalty where the constants of query and key meet: one more number to pass through."""
    penalty = -offset * alibi_slopes(model.config.n_heads, device=scores.left.device)[head]
    left, right = F.pad(scores.left, (0, 1)), F.pad(scores.right, (0, 0, 0, 1))
    left[-1, -1], right[-1, -1] = penalty, 1
    return FactoredMatrix(left, right)


def _checked(model: "Transformer", layer: int, head: int) -> "Transformer":
    """The model, if it has this head; else a `UsageError`."""
    components_of(model, [Component("head", layer, head)])
    return model


def _check_reach(model: "Transformer", layer: int, offset: int, length: int | None) -> None:
    """A query reads keys before it, in a text that holds both, and no further back than the layer's window."""
    reach = min(model.config.layer(layer).window or model.config.n_ctx, model.config.n_ctx)
    if not 0 <= offset < reach:
        raise UsageError(
            f"offset is {offset}: a query of layer {layer} reads the keys 0 to {reach - 1} positions before its own."
        )
    if length is not None and not offset < length <= model.config.n_ctx:
        raise UsageError(
            f"length is {length}: a text in which a query stands {offset} positions behind a key has {offset + 1} to "
            f"{model.config.n_ctx}."
        )
