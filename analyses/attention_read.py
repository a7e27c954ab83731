"""The attention of one text, or of two of equal length, layer by layer as it appears; nothing of it is kept.

Beside the pattern and the scores before the softmax stands what is moved: a key that is looked at hard may bring
little, where its value is small. For head h, with v the values and W_O the head's own output matrix,

    moved[q, k] = pattern[q, k] · ‖v_k W_O‖

Paper: Kobayashi et al. 2020, Attention is not only a weight (arXiv 2004.10102). Biases of W_O belong to no head and are
left out; so is a norm that stands behind the sublayer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.pattern_scores import reduced_patterns
from interp.analyses.repeated import repeated_text
from interp.errors import UsageError
from interp.hooks import HookPoint, recorders_active
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Source = Tensor | str
"""A text, before which the prefix is set, or its tokens [1, pos]."""
OF = ("prompt", "other", "difference")
"""What the maps of two texts are of; the difference is the prompt less the other."""
WHAT = ("pattern", "moved", "scores")


@dataclass(frozen=True)
class Looked:
    """What the heads of one layer do: `scores` are −inf where a query may not look."""

    layer: int
    pattern: Float[Tensor, "text head query_pos key_pos"]
    scores: Float[Tensor, "text head query_pos key_pos"]
    value_norm: Float[Tensor, "text head key_pos"]

    def maps(self, what: str) -> Float[Tensor, "text head query_pos key_pos"]:
        """One of `WHAT`, 0 where a query may not look."""
        if what == "scores":
            return self.scores.masked_fill(self.scores.isinf(), 0).float()
        pattern = self.pattern.float()
        return pattern * self.value_norm[:, :, None] if what == "moved" else pattern


def both(model: "Transformer", source: Source, other: Source | None, prefix: PrefixPolicy) -> Int[Tensor, "text pos"]:
    """The tokens of the text, and of the other below. Raises `UsageError` where their numbers differ."""
    rows = [_tokens(model, each, prefix) for each in (source, other) if each is not None]
    lengths = [row.shape[1] for row in rows]
    if len(set(lengths)) > 1:
        raise UsageError(
            f"The two texts have {lengths[0]} and {lengths[1]} tokens: cell by cell they can be compared only where "
            "they have equally many. Change one of them, or leave the other out."
        )
    return torch.cat(rows)


def _tokens(model: "Transformer", source: Source, prefix: PrefixPolicy) -> Int[Tensor, "1 pos"]:
    tokens = model.to_tokens(source, prefix=prefix) if isinstance(source, str) else source
    if tokens.ndim != 2 or tokens.shape[0] != 1 or not tokens.shape[1]:
        raise UsageError(f"One text is read at a time; tokens [1, pos] were expected, not {list(tokens.shape)}.")
    return tokens.cpu()


def said_twice(model: "Transformer", length: int, seed: int, prefix: PrefixPolicy) -> tuple[Int[Tensor, "1 pos"], int]:
    """Random tokens, said twice, and the position of the first one that can be foretold: the second of the repeat."""
    text = repeated_text(model, seq_len=length, repeats=2, n_seqs=1, seed=seed, prefix=prefix)
    return text.tokens, text.predicting(1).start + 1


def each_layer(
    model: "Transformer",
    tokens: Int[Tensor, "text pos"],
    reduce: Callable[[Looked], Float[Tensor, "..."]],
    layers: Sequence[int] | None = None,
) -> list[Float[Tensor, "..."]]:
    """What `reduce` makes of each of these layers, in order; those behind the last of them are not run."""
    chosen = list(range(model.config.n_layers)) if layers is None else sorted(layers)
    left, held = iter(chosen), dict[str, Tensor]()

    def hold(value: Tensor, point: HookPoint) -> Tensor:
        held[point.name.rpartition("hook_")[2]] = value
        return value

    def looked(pattern: Tensor) -> Tensor:
        layer = next(left)
        return reduce(Looked(layer, pattern, held["attn_scores"], _norms(model, layer, held["v"])))

    names = [f"blocks.{layer}.attn.hook_{what}" for layer in chosen for what in ("v", "attn_scores")]
    with recorders_active(hold, names):
        return reduced_patterns(model, tokens, looked, layers=chosen)


def _norms(
    model: "Transformer", layer: int, values: Float[Tensor, "text key_pos kv_head d_head"]
) -> Float[Tensor, "text head key_pos"]:
    """‖v W_O‖ of every head, by way of the product of W_O with itself: nothing as wide as the stream is formed."""
    out = model.layers[layer].attn.W_O.float()
    gram = out @ out.mT
    each = values.float().repeat_interleave(len(out) // values.shape[2], 2)
    return torch.einsum("bkhd,hde,bkhe->bhk", each, gram, each).clamp(min=0).sqrt()
