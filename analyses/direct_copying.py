"""Does a head say the right token on a text that is said twice, and tokens of the text rather than others?

Both answers are direct effects: what a head adds to the residual stream at row q, through the final norm with the
divisor that the whole stream has there, to the logits, before any soft-cap:

    DLA_h(v, q) = z_h(q) · W_O · W_U[:, v] / divisor(q)        (W_O with the gains of the norms behind it)

Behavioural copying is the mean over the rows of the second repeat of DLA_h(next, q) − mean over v of DLA_h(v, q), with
`next` the token that followed the row's token the first time: by how much, in logits, the head raises what an induction
head should say above the average token. It takes two dot products a row.

The raised share (after Olsson et al. 2022, In-context Learning and Induction Heads, arXiv 2209.11895) is taken over the
rows of the first repeat, where no token has been seen before. With what a head raises above its mean,
r(v, q) = max(0, DLA_h(v, q) − mean), it is

    2 · Σ_q Σ_{v among the tokens read up to q} r(v, q) / Σ_q Σ_v r(v, q) − 1

a ratio of sums over the rows of one text: 1 where a head raises nothing but tokens that have been read, −1 where it
raises none of them. Chance lies close to −1: a text holds few of all tokens. The sum over all v needs the logits of
every head; they are made a block of the vocabulary at a time. As deviations from a mean sum to 0, it is half of Σ|·|.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.folded import folded_heads, written_through
from interp.analyses.repeated import RepeatedText

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

OnTexts = Literal["behavioural", "raised_share"]
BLOCK_IN_CACHE = 16 * 2**20  # bytes: on a CPU, larger blocks of the vocabulary take half as long again


@dataclass(frozen=True)
class _Unembedding:
    """The unembedding where it lies, one row a token, and the mean of its rows, in float32 or wider."""

    rows: Float[Tensor, "d_vocab d_model"]
    mean: Float[Tensor, "d_model"]

    def above_mean(self, which: slice | Int[Tensor, "*tokens"]) -> Float[Tensor, "*tokens d_model"]:
        """Some rows less the mean: directions whose products are logits less the mean logit."""
        return self.rows[which].to(self.mean.dtype) - self.mean


@dataclass(frozen=True)
class _Said:
    """What one layer's heads say on a batch of texts: DLA_h(v) is (z · `through`) · W_U[:, v] / `divisor`.

    Rows are those behind the prefix, and `tokens` what stands there.
    """

    z: Float[Tensor, "batch row head d_head"]
    through: Float[Tensor, "head d_head d_model"]
    divisor: Float[Tensor, "batch row"]
    tokens: Int[Tensor, "batch row"]

    def rows(self, which: slice) -> "_Said":
        """Some of the rows."""
        return replace(self, z=self.z[:, which], divisor=self.divisor[:, which], tokens=self.tokens[:, which])


@torch.no_grad()
def direct_scores(
    model: "Transformer",
    text: RepeatedText,
    wanted: Sequence[OnTexts],
    *,
    max_bytes: int,
    step: Callable[[int], None] = lambda texts: None,
) -> dict[OnTexts, Float[np.ndarray, "layer head text"]]:
    """The wanted scores of every head on every text of two repeats; a raised share is NaN where nothing is raised.

    `step` is called after each layer with the number of texts that have got that far.
    """
    dtype = torch.promote_types(model.dtype, torch.float32)
    unembedding = _Unembedding(model.W_U.mT, model.W_U.mT.mean(0, dtype=dtype))
    batches: list[Float[Tensor, "score layer batch head"]] = []
    for tokens in torch.split(text.tokens.to(model.device), _texts_at_once(model, text, max_bytes)):
        layers = []
        for said in _layers(model, tokens, text.prefix_len, dtype):
            layers.append(torch.stack([_score(name, said, text.seq_len, unembedding, max_bytes) for name in wanted]))
            step(len(tokens))
        batches.append(torch.stack(layers, 1))
    return dict(zip(wanted, torch.cat(batches, 2).mT.cpu().double().numpy(), strict=True))


def _texts_at_once(model: "Transformer", text: RepeatedText, max_bytes: int) -> int:
    """As many texts as z of all layers has room for in half of the memory: it is kept, where patterns are not."""
    config = model.config
    kept = config.n_layers * config.n_heads * config.d_head * text.tokens.shape[1] * model.embed.element_size()
    return max(1, max_bytes // (2 * kept))


def _layers(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], prefix_len: int, dtype: torch.dtype
) -> Iterator[_Said]:
    """What the heads of every layer say, from one forward pass that makes no logits."""
    last, rows = model.config.n_layers - 1, range(prefix_len, tokens.shape[1])
    names = ["blocks.*.attn.hook_z", f"blocks.{last}.hook_resid_post"]
    post = [name for name in model.points() if name.endswith("ln1_post.hook_scale")]
    _, cache = model.run_with_cache(tokens, [*names, *post], positions=rows, stop_at_layer=last + 1)
    final = torch.ones(tokens.shape[0], len(rows), dtype=dtype, device=tokens.device)
    if (norm := model.ln_final) is not None:
        final = norm.divisor(norm.centre(cache[names[-1]]))[..., 0].to(dtype)
    for layer in range(last + 1):
        scale = final * cache[post[layer]][..., 0].to(dtype) if post else final
        through = written_through(model.ln_final, folded_heads(model, layer).W_O) * model.config.logit_scale
        yield _Said(cache["attn.z", layer].to(dtype), through, scale, tokens[:, prefix_len:])


def _score(
    name: OnTexts, said: _Said, seq_len: int, unembedding: _Unembedding, max_bytes: int
) -> Float[Tensor, "batch head"]:
    first, second = said.rows(slice(seq_len)), said.rows(slice(seq_len, None))
    if name == "behavioural":
        return _behavioural(second, first.tokens.roll(-1, 1), unembedding)
    return _raised_share(first, unembedding, max_bytes)


def _behavioural(
    said: _Said, following: Int[Tensor, "batch row"], unembedding: _Unembedding
) -> Float[Tensor, "batch head"]:
    """Mean over rows of the logit of what should follow, less the mean logit."""
    asked = torch.einsum("brm,hdm->brhd", unembedding.above_mean(following), said.through)
    return ((said.z * asked).sum(-1) / said.divisor[..., None]).mean(1)


def _raised_share(said: _Said, unembedding: _Unembedding, max_bytes: int) -> Float[Tensor, "batch head"]:
    """The share of what is raised that goes to tokens read up to each row, from −1 to 1."""
    asked = torch.einsum("bsm,hdm->bshd", unembedding.above_mean(said.tokens), said.through)
    above = torch.einsum("brhd,bshd->bhrs", said.z, asked).clamp(min=0)
    read = above.tril().sum(-1)  # token s is read up to row r if s ≤ r
    everything = _raised(said, unembedding, max_bytes)
    read, everything = ((part / said.divisor[:, None]).sum(-1) for part in (read, everything))
    return (2 * read / everything - 1).clamp(max=1)  # two ways of summing may differ in the last digit


def _raised(said: _Said, unembedding: _Unembedding, max_bytes: int) -> Float[Tensor, "batch head row"]:
    """Σ over the vocabulary of what is raised above the mean, times the divisor."""
    heads, d_head, _ = said.through.shape
    z = said.z.flatten(0, 1).transpose(0, 1)
    total = z.new_zeros(z.shape[:2])
    most = min(max_bytes, BLOCK_IN_CACHE) if z.device.type == "cpu" else max_bytes
    size = max(1, most // (2 * z.element_size() * heads * (z.shape[1] + d_head)))
    for start in range(0, len(unembedding.rows), size):
        directions = unembedding.above_mean(slice(start, start + size))
        words = (said.through.flatten(0, 1) @ directions.mT).view(heads, d_head, -1)
        total += torch.bmm(z, words).abs_().sum(-1) / 2
    return total.view(heads, *said.tokens.shape).transpose(0, 1)
