"""Where an attention pattern looks on a repeated text: what is read off a pattern, whatever model it came from.

On `x = prefix ⊕ s ⊕ s …`, |s| = S, with rep(q) the repeat that row q stands in,

    prefix matching   mean over rows of repeats 2..R of  Σ_{j=1}^{rep(q)−1} A[q, q − jS + 1]
    duplicate token   mean over the same rows of  Σ_j A[q, q − jS]
    previous token    mean A[q, q−1]         current token   mean A[q, q]         sink   mean A[q, 0]

the last three over all rows after the first token behind the prefix. A pattern that looks only where a score counts
scores 1, and 0 in all others: as far as the positions differ. At S = 2 the key behind the last occurrence IS the
previous token, and without a prefix position 0 is both the sink and a token.

Papers: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Olsson et al. 2022, In-context Learning
and Induction Heads (arXiv 2209.11895).

What it does NOT tell: anything of what is done with what was looked at.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.analyses.repeated import check_layout
from interp.errors import UsageError
from interp.hooks import HookPoint, recorders_active

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

SCORES = ("prefix_matching", "previous_token", "duplicate_token", "current_token", "sink")
MEASURED = (*SCORES, "sink_free")


def _stripe(
    pattern: Float[Tensor, "batch head query_pos key_pos"], back: int, first_key: int
) -> Float[Tensor, "batch head"]:
    """Sum of A[q, q − back] over the rows whose key lies at `first_key` or later."""
    return pattern.diagonal(-back, -2, -1)[..., first_key:].sum(-1, dtype=torch.float32)


def pattern_scores(
    pattern: Float[Tensor, "batch head query_pos key_pos"], *, seq_len: int, repeats: int, prefix_len: int
) -> dict[str, Float[Tensor, "batch head"]]:
    """The five scores of every head on every text, and `sink_free`, the mean attention not on position 0.

    `sink_free` is taken over the rows of `prefix_matching`, so that their quotient is the sink-free score. Reads
    diagonals of the pattern and never writes to it.
    """
    check_layout(seq_len, repeats, prefix_len)
    length = prefix_len + seq_len * repeats
    if tuple(pattern.shape[-2:]) != (length, length):
        raise UsageError(
            f"A pattern of {pattern.shape[-2]} queries and {pattern.shape[-1]} keys came: {prefix_len} + {repeats} × "
            f"{seq_len} = {length} of each were expected."
        )
    repeated_rows = (repeats - 1) * seq_len
    later_rows = length - prefix_len - 1
    earlier = range(1, repeats)
    matching = torch.stack([_stripe(pattern, j * seq_len - 1, prefix_len + 1) for j in earlier]).sum(0)
    duplicate = torch.stack([_stripe(pattern, j * seq_len, prefix_len) for j in earlier]).sum(0)
    first = pattern[..., 0]
    return {
        "prefix_matching": matching / repeated_rows,
        "previous_token": _stripe(pattern, 1, prefix_len) / later_rows,
        "duplicate_token": duplicate / repeated_rows,
        "current_token": _stripe(pattern, 0, prefix_len + 1) / later_rows,
        "sink": first[..., prefix_len + 1 :].sum(-1, dtype=torch.float32) / later_rows,
        "sink_free": 1 - first[..., prefix_len + seq_len :].sum(-1, dtype=torch.float32) / repeated_rows,
    }


def uniform_scores(*, seq_len: int, repeats: int, prefix_len: int) -> dict[str, float]:
    """What a head that looks at all earlier positions alike would score, for each of `SCORES`."""
    check_layout(seq_len, repeats, prefix_len)
    rows = np.arange(prefix_len + seq_len * repeats)
    even = 1 / (rows + 1)
    repeated = rows[prefix_len + seq_len :]
    earlier = float(np.mean(((repeated - prefix_len) // seq_len) / (repeated + 1)))
    later = float(np.mean(even[prefix_len + 1 :]))
    return dict(zip(SCORES, (earlier, later, earlier, later, later), strict=True))


def check_attention(model: "Transformer") -> None:
    """Raises `UsageError` where a layer has no attention heads, and so no pattern."""
    there = model.points()
    without = [layer for layer in range(model.config.n_layers) if f"blocks.{layer}.attn.hook_pattern" not in there]
    if without:
        which = "No layer" if len(without) == model.config.n_layers else f"Not every layer, such as {without[0]},"
        raise UsageError(
            f"{which} of this model has attention heads: where it looks cannot be read. Take a model whose layers "
            "all attend."
        )


class _LastPattern(Exception):
    """Raised at the last layer's pattern, to end a forward pass of which nothing else is needed."""


def reduced_patterns(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    reduce: Callable[[Float[Tensor, "batch head query_pos key_pos"]], Float[Tensor, "..."]],
    mask: Bool[Tensor, "batch pos"] | None = None,
    layers: Sequence[int] | None = None,
) -> list[Float[Tensor, "..."]]:
    """What `reduce` makes of the pattern of each layer, or of these, which is let go before the next is made.

    The forward pass ends at the last of them. Raises `UsageError` where a layer of the model has none.
    """
    check_attention(model)
    names = [
        f"blocks.{layer}.attn.hook_pattern" for layer in (range(model.config.n_layers) if layers is None else layers)
    ]
    found: list[Tensor] = []

    def keep(pattern: Tensor, point: HookPoint) -> Tensor:
        found.append(reduce(pattern))
        if len(found) == len(names):
            raise _LastPattern
        return pattern

    with recorders_active(keep, names), suppress(_LastPattern):
        model(tokens, mask)
    return found
