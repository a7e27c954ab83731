"""Which heads look at what followed the same token earlier, and how sure that is.

On a random sequence that is repeated, `x = prefix ⊕ s ⊕ s …` with |s| = S, nothing can be predicted in the first
repeat and everything afterwards. An induction head at a token of a later repeat looks one place AFTER the earlier
occurrences of that token:

    PM(h) = mean over texts and rows q of repeats 2..R of  Σ_{j=1}^{rep(q)−1} A_h[q, q − jS + 1]

Only rows of repeats 2..R count and the denominator is the number of rows, so an ideal head scores exactly 1 and a head
that looks at the first position exactly 0 (thresholds of tools that average whole diagonals, or divide by all
attention, do not carry over). Beside it stand the scores for the previous, the duplicate, the current and the first
token (`sink`) of `pattern_scores`, the sink-free share ΣPM / Σ(1 − A[q,0]) over all texts, a ratio of sums, and what
uniform attention would score. Texts are the sample: standard errors and 95 % bootstrap intervals are over them.

Papers: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Olsson et al. 2022, In-context Learning
and Induction Heads (arXiv 2209.11895).

What it does NOT tell: that a head copies what it looks at, or that the model's second-repeat predictions depend on it.
That takes an ablation. Scores on random tokens need not carry over to natural text.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.analyses.induction_scores import InductionScores, score_arrays
from interp.analyses.pattern_scores import (
    MEASURED,
    SCORES,
    check_attention,
    pattern_scores,
    reduced_patterns,
    uniform_scores,
)
from interp.analyses.repeated import (
    LeftOut,
    Progress,
    RepeatedText,
    Sequences,
    check_fits,
    repeated_sequences,
    repeated_text,
)
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import provenance

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

__all__ = [
    "SCORES", "InductionScores", "pattern_scores", "score_heads", "score_sequences", "score_text", "scores_by_text",
    "uniform_scores",
]  # fmt: skip

ROWS_IN_CACHE = 1024  # on a CPU, half of 16 × 101 tokens at a time takes 13 % less than all: activations stay in cache


def score_heads(
    model: "Transformer",
    *,
    seq_len: int = 50,
    repeats: int = 2,
    n_seqs: int = 16,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
    **left_out: Unpack[LeftOut],
) -> InductionScores:
    """The five scores of every head on repeated random texts; `left_out` are tokens that these never hold (`LeftOut`).

    Patterns are reduced layer by layer as they appear, `max_bytes` of them at a time (but never less than one text),
    and nothing is computed after the last one. Texts are drawn from (seed, index), so batches change nothing.
    Raises `UsageError` for a layout that is not a repetition or does not fit the context, for a vocabulary with too
    few tokens to draw from, and for a model in which a layer has no attention.
    """
    check_attention(model)
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix, **left_out)
    return score_text(model, text, seed=seed, max_bytes=max_bytes, progress=progress)


def score_sequences(
    model: "Transformer",
    sequences: Sequences,
    *,
    repeats: int = 2,
    mask: Bool[Tensor, "batch pos"] | None = None,
    prefix: PrefixPolicy = "doc",
    seed: int = 0,
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> InductionScores:
    """The same scores on sequences of your own, one or several, of any lengths, each said `repeats` times.

        score_sequences(model, [" red green blue", " one two three four five"], repeats=3)

    `mask` is True at the real tokens of a padded tensor, on whichever side. A text counts as much as any other, however
    long; `seed` is that of the intervals. Raises `UsageError` for sequences of fewer than 2 tokens, or beyond the
    context when repeated.
    """
    texts = repeated_sequences(model, sequences, repeats=repeats, prefix=prefix, mask=mask)
    return score_text(model, texts, seed=seed, max_bytes=max_bytes, progress=progress)


def score_text(
    model: "Transformer",
    text: RepeatedText | Sequence[RepeatedText],
    *,
    seed: int = 0,
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> InductionScores:
    """The same scores on repeated texts that are laid out already, of one layout or of several."""
    texts = [text] if isinstance(text, RepeatedText) else list(text)
    for each in texts:
        check_fits(model, **each.layout)
    arrays = score_arrays(scores_by_text(model, texts, max_bytes, progress), seed)
    tokens = _side_by_side([each.tokens.cpu().numpy() for each in texts])
    arrays["uniform"] = NamedArray(_uniform(texts), ("score",))
    arrays["tokens"] = NamedArray(tokens, ("text", "position"))
    chosen = {"text": "given", **texts[0].settings, "seed": seed}
    return InductionScores(
        arrays=arrays,
        axes={"score": SCORES},
        settings={**_layout(texts), "n_seqs": len(tokens), **chosen},
        provenance=provenance(model.provenance, tokens=tokens, **chosen),
    )


def _layout(texts: Sequence[RepeatedText]) -> dict[str, object]:
    """The layout of all texts; where they differ, a number for each of them."""
    layouts = [each.layout for each in texts for _ in each.tokens]
    found = {name: [layout[name] for layout in layouts] for name in layouts[0]}
    return {name: values[0] if len(set(values)) == 1 else values for name, values in found.items()}


def _uniform(texts: Sequence[RepeatedText]) -> np.ndarray:
    """What even attention would score [score], in the mean over texts."""
    each = [list(uniform_scores(**text.layout).values()) for text in texts]
    return np.average(each, axis=0, weights=[len(text.tokens) for text in texts])


def _side_by_side(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Ids of texts of different lengths as one table [text, position], −1 behind the shorter ones."""
    longest = max(block.shape[1] for block in blocks)
    padded = [np.pad(block, ((0, 0), (0, longest - block.shape[1])), constant_values=-1) for block in blocks]
    return np.concatenate(padded)


def _texts_at_once(model: "Transformer", text: RepeatedText, max_bytes: int) -> int:
    """How many texts one forward pass takes: as many as the patterns of one layer have room for, split evenly.

    One layer's are held at a time, unlike what `direct_copying` keeps of all layers.
    """
    n_seqs, length = text.tokens.shape
    most = max(1, max_bytes // (model.config.n_heads * length**2 * model.embed.element_size()))
    if model.device.type == "cpu":
        most = max(1, min(most, ROWS_IN_CACHE // length))
    return -(-n_seqs // -(-n_seqs // most))


@torch.no_grad()
def scores_by_text(
    model: "Transformer",
    texts: Sequence[RepeatedText],
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> dict[str, np.ndarray]:
    """Every score of every head on every text, [layer, head, text], a batch of texts at a time; and `sink_free`."""
    found: list[Float[Tensor, "layer score batch head"]] = []
    done, total = 0, sum(len(text.tokens) for text in texts)
    for text in texts:
        for tokens in torch.split(text.tokens, _texts_at_once(model, text, max_bytes)):
            found.append(_batch_scores(model, tokens, text.layout))
            done += len(tokens)
            if progress is not None:
                progress(done, total)
    by_text = torch.cat(found, 2).cpu().numpy()
    return {name: by_text[:, index].transpose(0, 2, 1) for index, name in enumerate(MEASURED)}


def _batch_scores(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], layout: dict[str, int]
) -> Float[Tensor, "layer score batch head"]:
    """One forward pass, each layer's pattern reduced to scores."""

    def reduce(pattern: Tensor) -> Tensor:
        scores = pattern_scores(pattern, **layout)
        return torch.stack([scores[name] for name in MEASURED])

    return torch.stack(reduced_patterns(model, tokens, reduce))
