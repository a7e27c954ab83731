"""What a model says to the wordings of facts under many edits, and without one: probability and rank of the answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp import metrics
from interp.analyses.fact_texts import FactText, as_batch
from interp.hooks import Hooks
from interp.models.replay import Metric, Progress, Replay, Sweep

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

TEXTS_AT_ONCE = 64
"""Texts of one sweep: more would only take more memory."""


def measured(
    model: "Transformer",
    texts: Sequence[FactText],
    runs: Sequence[Hooks],
    budget: int,
    progress: Progress | None,
    cancelled: Callable[[], bool] | None,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By metric its values [run, text] and those without an edit [text], some texts at a time."""
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    total = len(runs) * len(texts)
    sweep = Sweep({"run": range(len(runs))}, lambda run: runs[run])
    for first in range(0, len(texts), TEXTS_AT_ONCE):
        some = texts[first : first + TEXTS_AT_ONCE]
        tokens, mask = as_batch(model.tokenizer, some)
        answers = [text.answer for text in some]
        measures: dict[str, Metric] = {
            "probability": metrics.probability(answers),
            "rank": metrics.rank(answers),
            "said": lambda logits: logits[:, -1].argmax(-1).double(),
        }
        real = None if bool(mask.all()) else mask
        replay = Replay(model, tokens, sweep, measures, mask=real, texts={"text": len(some)}, budget=budget)
        swept = replay.run(progress=_from(progress, first * len(runs), total), cancelled=cancelled)
        for name in measures:
            parts.setdefault(name, []).append((swept[name].values, swept.base[name].values))
    return {
        name: (np.concatenate([own for own, _ in each], -1), np.concatenate([base for _, base in each]))
        for name, each in parts.items()
    }


def _from(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Progress of a part, told as that of the whole."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def by_run(
    model: "Transformer", measured: Mapping[str, tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...]
) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
    """The values of the edits, of their controls, and without an edit."""
    own, cells = ("change", "edited", "text"), ("change", "edited", "draw", "text")
    probability, rank, said = (measured[name][0].reshape(shape) for name in ("probability", "rank", "said"))
    base, base_rank, base_said = (measured[name][1] for name in ("probability", "rank", "said"))

    def words(ids: np.ndarray) -> np.ndarray:
        return np.array(model.tokenizer.str_tokens(ids.astype(np.int64).ravel().tolist()), object).reshape(ids.shape)

    return {
        "probability": (probability[:, :, 0], own),
        "rank": (rank[:, :, 0].astype(np.int64) + 1, own),
        "said": (words(said[:, :, 0]), own),
        "control_probability": (probability[:, :, 1:], cells),
        "control_rank": (rank[:, :, 1:].astype(np.int64) + 1, cells),
        "base_probability": (base, ("text",)),
        "base_rank": (base_rank.astype(np.int64) + 1, ("text",)),
        "base_said": (words(base_said), ("text",)),
    }
