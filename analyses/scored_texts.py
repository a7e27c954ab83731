"""One forward pass for all scores of a batch of texts: each layer's pattern is reduced when it appears.

Texts of different lengths are padded on the right and masked. Neither the padding nor a text's neighbours change what
is found.
"""

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from interp.analyses.induction import ROWS_IN_CACHE
from interp.analyses.pattern_scores import reduced_patterns
from interp.analyses.repeated import Progress
from interp.analyses.text_scores import SUMS, ScoredText, uniform_pattern, weighted_sums

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

AT_ONCE = 4
"""A pattern, its entropies, and weights that take about as much once more: arrays of that size at a time."""
LARGEST = 4 * 2**30
"""Bytes that a single text may take, whose patterns and weights are always held whole."""
WEIGHTS = 3 * len(SUMS)
"""Arrays of the size of one head's pattern that the weights of one text are while they are made."""


def longest_text(n_heads: int) -> int:
    """How many tokens the longest text may have, its prefix among them."""
    return isqrt(LARGEST // (4 * (AT_ONCE * n_heads + WEIGHTS)))


@torch.no_grad()
def scored_texts(
    model: "Transformer", texts: Sequence[ScoredText], *, max_bytes: int, progress: Progress | None = None
) -> tuple[Float[np.ndarray, "layer head text value"], Float[np.ndarray, "text value"]]:
    """Every value of every head on every text, and what uniform attention would score there.

    At most `max_bytes` of patterns and what belongs to them are held at once, but never less than for one text.
    """
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for batch in _batches(model, texts, max_bytes):
        values, even = _scored(model, [texts[index] for index in batch])
        found |= {index: (values[:, place], even[place]) for place, index in enumerate(batch)}
        if progress is not None:
            progress(len(found), len(texts))
    in_order = [found[index] for index in range(len(texts))]
    values = torch.stack([values for values, _ in in_order], 1)
    return values.permute(0, 3, 1, 2).cpu().numpy(), torch.stack([even for _, even in in_order]).numpy()


def _batches(model: "Transformer", texts: Sequence[ScoredText], max_bytes: int) -> Iterator[list[int]]:
    """Which texts pass through the model together: the longest first, so that neighbours are of like length."""
    left = sorted(range(len(texts)), key=lambda index: -len(texts[index].tokens))
    while left:
        length = len(texts[left[0]].tokens)
        room = max_bytes // (AT_ONCE * model.config.n_heads * length**2 * 4)
        count = max(1, min(room, ROWS_IN_CACHE // length) if model.device.type == "cpu" else room)
        yield left[:count]
        left = left[count:]


def _scored(
    model: "Transformer", texts: Sequence[ScoredText]
) -> tuple[Float[Tensor, "layer batch value head"], Float[Tensor, "batch value"]]:
    """One forward pass over texts that are padded to the longest of them."""
    lengths = torch.tensor([len(text.tokens) for text in texts])
    longest = int(lengths.max())
    gaps = (longest - lengths).tolist()
    tokens = torch.stack([pad(text.tokens, (0, gap)) for text, gap in zip(texts, gaps, strict=True)])
    weights = torch.stack([pad(text.weights(), (0, gap, 0, gap)) for text, gap in zip(texts, gaps, strict=True)])
    rows = torch.stack([pad(text.rows(), (0, gap)) for text, gap in zip(texts, gaps, strict=True)])
    even = weighted_sums(uniform_pattern(longest).expand(len(texts), 1, -1, -1), weights, rows)[..., 0]
    weights, rows = weights.to(model.device), rows.to(model.device)
    mask = torch.arange(longest) < lengths[:, None] if any(gaps) else None
    return torch.stack(
        reduced_patterns(model, tokens, lambda pattern: weighted_sums(pattern, weights, rows), mask)
    ), even
