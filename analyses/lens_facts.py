"""The logit lens over many facts: at which depth can the object be read, on the mean over those that the model knows?

At every boundary ℓ of the residual stream, for the first token of the object,

    rank_ℓ and p_ℓ of  softmax( W_U · norm_f(h_ℓ) )      top_ℓ: the share of facts in which its rank is 1

at the last token of the prompt, or at the last token of the subject, where a fact may be known long before it is asked
for. Facts that the model does not know are left out and named. Means come with 95 % bootstrap intervals over facts,
shares with those of Wilson (1927).

Papers: nostalgebraist 2020, "interpreting GPT: the logit lens"; Geva et al. 2023 (arXiv 2304.14767), on what is read at
the subject and at the last token.

What it does NOT tell: where the object comes from, or that a layer in which it cannot be read does not hold it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.intervals import mean_interval, share_interval
from interp.analyses.known_facts import known_facts
from interp.analyses.last_logits import texts_within
from interp.analyses.left_out import first_token_lines
from interp.analyses.lens_readings import readings
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.batching import pad
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Arrays, Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

At = Literal["last", "subject"]


class FactLens(Result, kind="lens.facts"):
    """The lens on the objects of known facts; layer −1 is the embedding, ℓ ≥ 0 the stream after block ℓ.

    By [layer]: `mean_probability` with `low` and `high`; `top_share` with `top_low` and `top_high`; `median_rank`. By
    [layer, fact]: `rank` (1 is the top), `probability`, `log_probability`, `entropy` and `kl_to_final` (from the
    model's output at that position), in nats. `relation` [fact] and `answer_tokens`, how many the object has, of which
    the first is read; `reason` [excluded], why a fact is not among them, by its id.
    """

    grid = ("layer",)
    title = "Logit lens over facts"
    caution = (
        "A layer in which the object cannot be read may still hold it, in a basis that the unembedding cannot read."
    )

    @property
    def layer_names(self) -> list[str]:
        """Names of the boundaries: embed, 0, 1, … up to the last layer."""
        return ["embed", *(str(layer) for layer in self.axes["layer"][1:])]

    @property
    def excluded(self) -> Mapping[str, str]:
        """Id of each fact that is not among them → why."""
        return dict(zip(map(str, self.axes["excluded"]), map(str, self["reason"]), strict=True))

    def figure(self) -> "Figure":
        """The object's mean probability, and the share of facts in which it is on top, by layer."""
        from interp.plots import curves

        return curves(
            self.layer_names,
            {"mean probability": self["mean_probability"], "share on top": self["top_share"]},
            title=f"{self.title}: the object at the {self.settings['at']} token, {len(self['relation'])} facts",
            x_title="layer",
            y_title="probability, share",
            bounds=(0.0, 1.0),
        )

    def summary(self) -> list[str]:
        """From which layer on the object is on top in half of the facts, and what the end looks like."""
        count, share, probability = len(self["relation"]), self["top_share"], self["mean_probability"][-1]
        half = np.flatnonzero(share >= 0.5)
        where = (
            f"in at least half of them from {self.layer_names[half[0]]} on" if half.size else "never in half of them"
        )
        low, high = float(self["low"][-1]), float(self["high"][-1])
        interval = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
        return [
            f"{self.title}: the object at the {self.settings['at']} token of {count} known facts",
            f"  on top {where}; median rank after the embedding {self['median_rank'][0]:,.0f}",
            f"  in the end on top in {share[-1]:.0%}, mean probability {probability:.3f}{interval}",
            f"  {len(self.excluded)} of {self.settings['facts']} facts are left out",
            *first_token_lines(self),
            f"  {self.caution}",
        ]


@torch.no_grad()
def lens_facts(
    model: "Transformer",
    facts: Iterable[Fact],
    *,
    at: At = "last",
    prefix: PrefixPolicy = "doc",
    seed: int = 0,
    max_bytes: int = 256 * 2**20,
    progress: Callable[[int, int], None] | None = None,
) -> FactLens:
    """Rank and probability of each known fact's object at every boundary, at the last token of prompt or subject.

    Runs and logits take about `max_bytes` each; `seed` is that of the bootstrap. Raises `UsageError` where the model
    knows none of the facts, and as `filter_facts` does.
    """
    if at not in get_args(At):
        raise UsageError(f"at is {at!r}: expected one of {', '.join(get_args(At))}.")
    given = tuple(facts)
    known = known_facts(model, given, prefix=prefix, max_bytes=max_bytes)
    rows = [model.tokenizer.prompt_ids(fact.prompt, prefix) for fact in known.facts]
    read = [len(row) - 1 for row in rows] if at == "last" else known.of("subject_last")
    found = _read(model, rows, read, known.answers, max_bytes, progress)
    return FactLens(
        arrays={
            **_values(found, seed),
            **known.labels,
            "relation": ([fact.relation for fact in known.facts], ("fact",)),
            "reason": (np.array(list(known.left_out.values()), dtype=object), ("excluded",)),
        },
        axes={
            "layer": range(-1, model.config.n_layers),
            "fact": [fact.id for fact in known.facts],
            "excluded": list(known.left_out),
        },
        settings={"at": at, "prefix": prefix, "seed": seed, "facts": len(given)},
        provenance=provenance(model.provenance, tokens=pad(rows, 0, "left")[0], prefix=prefix, seed=seed),
    )


def _read(
    model: "Transformer",
    rows: Sequence[list[int]],
    read: Sequence[int],
    answers: Sequence[int],
    max_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, np.ndarray]:
    """The readings [boundary, fact, …] of each prompt at its position, a batch at a time."""
    size = texts_within(model, max(map(len, rows)), max_bytes // 4)  # what is recorded is as large as what is at work
    parts = []
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        vectors = _stream(model, rows[some], read[some])
        parts.append(readings(model, vectors, vectors[-1], torch.tensor(answers[some])[:, None], 1, max_bytes))
        if progress is not None:
            progress(min(start + size, len(rows)), len(rows))
    return {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]}


def _stream(
    model: "Transformer", rows: Sequence[list[int]], read: Sequence[int]
) -> list[Float[Tensor, "fact d_model"]]:
    """The residual stream of each prompt at every boundary, each at a position of its own."""
    tokens, mask = pad(rows, 0, "left")
    places = [tokens.shape[1] - len(row) + place for row, place in zip(rows, read, strict=True)]
    kept = sorted(set(places))
    names = ["blocks.0.hook_resid_pre", "blocks.*.hook_resid_post"]
    _, cache = model.run_with_cache(tokens, names, positions=kept, mask=mask, stop_at_layer=model.config.n_layers)
    columns = [kept.index(place) for place in places]
    return [value[range(len(rows)), columns] for value in cache.values()]


def _values(found: Mapping[str, np.ndarray], seed: int) -> Arrays:
    """What is kept of each fact, and means over them."""
    rank, log_probability = (found[name][..., 1] for name in ("followed_rank", "followed_log_probability"))
    probability = np.exp(log_probability)
    low, high = mean_interval(probability.astype(np.float64), seed=seed)
    top = (rank == 1).sum(1)
    top_low, top_high = share_interval(top, np.full(len(top), rank.shape[1]))
    means = {
        "mean_probability": probability.mean(1, dtype=np.float64),
        "low": low,
        "high": high,
        "top_share": top / rank.shape[1],
        "top_low": top_low,
        "top_high": top_high,
        "median_rank": np.median(rank, axis=1),
    }
    each = {
        "rank": rank,
        "probability": probability,
        "log_probability": log_probability,
        "entropy": found["entropy"],
        "kl_to_final": found["kl_to_final"],
    }
    return {
        **{name: (values, ("layer",)) for name, values in means.items()},
        **{name: (values, ("layer", "fact")) for name, values in each.items()},
    }
