"""What a model says to the wordings of facts under many edits, and without one: probability and rank of the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
METRICS = ("probability", "rank", "said")
NOT_MEASURED = np.nan


@dataclass(frozen=True)
class Job:
    """Runs, each with edits of its own, of some of the texts, by their places."""

    runs: Sequence[Hooks]
    places: Sequence[int]

    @property
    def rows(self) -> int:
        """Texts that are computed."""
        return len(self.runs) * len(self.places)


@dataclass(frozen=True)
class Said:
    """`values` by metric [job, run, text], NaN where a job leaves a text out, and `base` [text] without an edit.

    `probability` of the answer, its `rank` (1 is the top) and the token that is `said`.
    """

    values: dict[str, np.ndarray]
    base: dict[str, np.ndarray]


def measured(
    model: "Transformer",
    texts: Sequence[FactText],
    jobs: Sequence[Job],
    budget: int,
    progress: Progress | None,
    cancelled: Callable[[], bool] | None,
) -> Said:
    """Do all jobs, which have equally many runs, some texts at a time; `progress` counts texts, those of all runs."""
    values = {name: np.full((len(jobs), len(jobs[0].runs), len(texts)), NOT_MEASURED) for name in METRICS}
    base = {name: np.full(len(texts), NOT_MEASURED) for name in METRICS}
    done, total = 0, sum(job.rows for job in jobs)
    for number, job in enumerate(jobs):
        for first in range(0, len(job.places), TEXTS_AT_ONCE):
            places = list(job.places[first : first + TEXTS_AT_ONCE])
            swept = _replay(model, [texts[place] for place in places], job.runs, budget).run(cancelled=cancelled)
            for name in METRICS:
                values[name][number][:, places] = swept[name].values
                base[name][places] = swept.base[name].values
            done += len(job.runs) * len(places)
            if progress is not None:
                progress(done, total)
    return Said(values, base)


def _replay(model: "Transformer", texts: Sequence[FactText], runs: Sequence[Hooks], budget: int) -> Replay:
    """All runs of these texts, padded on the left, read at their last tokens."""
    tokens, mask = as_batch(model.tokenizer, texts)
    answers = [text.answer for text in texts]
    rank = metrics.rank(answers)
    measures: dict[str, Metric] = {
        "probability": metrics.probability(answers),
        "rank": lambda logits: rank(logits) + 1,
        "said": lambda logits: logits[:, -1].argmax(-1).double(),
    }
    sweep = Sweep({"run": range(len(runs))}, lambda run: runs[run])
    real = None if bool(mask.all()) else mask
    return Replay(model, tokens, sweep, measures, mask=real, texts={"text": len(texts)}, budget=budget)


def by_change(model: "Transformer", said: Said, changes: int) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
    """The values of each change, of its controls, and without an edit; of a change's runs the first is its own."""
    jobs, runs, texts = said.values["rank"].shape
    cells: tuple[str, ...] = ("change", "edited", "draw", "text")
    shape = (jobs, changes, runs // changes, texts)
    probability, rank, token = (
        said.values[name].reshape(shape).swapaxes(0, 1) for name in ("probability", "rank", "said")
    )
    own = (*cells[:2], cells[3])
    return {
        "probability": (probability[:, :, 0], own),
        "rank": (_whole(rank[:, :, 0]), own),
        "said": (_words(model, token[:, :, 0]), own),
        "control_probability": (probability[:, :, 1:], cells),
        "control_rank": (_whole(rank[:, :, 1:]), cells),
        "base_probability": (said.base["probability"], ("text",)),
        "base_rank": (_whole(said.base["rank"]), ("text",)),
        "base_said": (_words(model, said.base["said"]), ("text",)),
    }


def _whole(values: np.ndarray) -> np.ndarray:
    """Whole numbers, 0 where nothing was measured."""
    return np.nan_to_num(values).astype(np.int64)


def _words(model: "Transformer", tokens: np.ndarray) -> np.ndarray:
    """Tokens as text, empty where nothing was measured."""
    words = np.full(tokens.shape, "", dtype=object)
    there = ~np.isnan(tokens)
    words[there] = model.tokenizer.str_tokens(tokens[there].astype(np.int64).tolist())
    return words
