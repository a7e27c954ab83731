"""Which facts does the model know? Where it says something else, there is no recall to explain.

For each fact, with the distribution p over the token behind its prompt and a the first token of " " + object,

    known: argmax p = a          probability p(a)          rank of a, 1 being the top

and per relation the share of known facts with its 95 % interval (Wilson 1927), and means. A fact whose subject shares a
token with other words, whose answer begins inside one, or whose prompt is longer than the context, is skipped, with the
reason; the others go on. An answer of several tokens is measured at its first; `answer_tokens` says how many there are.

Paper: Meng et al. 2022, "Locating and editing factual associations in GPT" (ROME, arXiv 2202.05262), where causal
tracing is averaged over known facts only.

What it does NOT tell: that an unknown fact is not in the model: another wording may bring it out. Nor that a known one
is recalled: the sentence alone can suggest it, as "playing the" suggests the guitar; compare a relation's facts with
each other. A share depends on which facts were written down, and says nothing about facts at large.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp import metrics
from interp.analyses.intervals import share_interval
from interp.analyses.last_logits import last_logits, texts_within
from interp.analyses.left_out import first_token_lines, none_left
from interp.errors import UsageError
from interp.facts import Fact, answer_ids, exact_span
from interp.models.batching import pad
from interp.models.prompt_formats import PrefixPolicy
from interp.prompts import PromptTokenizer, Span
from interp.results import Arrays, Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

MOST = 5  # skipped facts that a summary names


class KnownFacts(Result, kind="facts.known"):
    """What the model says to each fact; axes `fact` and `skipped` have the facts' ids, `relation` its names.

    By [fact]: `known`; `probability`, `rank` (1 is the top) of the answer's first token, `answer_token`, `answer_id`;
    `said` and `said_probability`, the most likely token; `answer_tokens`, how many the answer has; `subject_start`,
    `subject_last` (positions of the prompt, its prefix counted), `subject_tokens` and `subject_pieces`, | between them;
    and the fact's `relation_name`, `subject`, `object`, `prompt`. `skip_reason` [skipped].

    By [relation], of the facts that were measured: `count`, `known_count`, `known_share` with `share_low` and
    `share_high`, and means: `mean_probability`, `mean_subject_tokens`, `mean_answer_tokens`.
    """

    grid = ("fact",)
    title = "Facts that the model knows"
    caution = "A fact that this wording does not bring out may still be known; a known one may be suggested by it."

    def known(self, facts: Iterable[Fact]) -> tuple[Fact, ...]:
        """Those of the facts that the model knows, found by their ids."""
        ids = {name for name, known in zip(self.axes["fact"], self["known"], strict=True) if known}
        return tuple(fact for fact in facts if fact.id in ids)

    @property
    def skipped(self) -> Mapping[str, str]:
        """Id of each fact that was not measured → why."""
        return dict(zip(map(str, self.axes["skipped"]), map(str, self["skip_reason"]), strict=True))

    @property
    def left_out(self) -> Mapping[str, str]:
        """Id of each fact that is not known → why it was skipped, or what the model says instead."""
        columns = zip(self.axes["fact"], self["known"], self["said"], strict=True)
        return {
            **self.skipped,
            **{str(name): f"the model says {str(said)!r}" for name, known, said in columns if not known},
        }

    def figure(self) -> "Figure":
        """The share of known facts of each relation, with its interval, and the mean probability of the answer."""
        from interp.plots import ranked_bars

        share = self["known_share"]
        counts = zip(self.axes["relation"], self["known_count"], self["count"], strict=True)
        return ranked_bars(
            [f"{name} ({known} of {count})" for name, known, count in counts],
            {"known share, 95 % interval": share, "mean probability of the answer": self["mean_probability"]},
            errors={"known share, 95 % interval": np.stack([share - self["share_low"], self["share_high"] - share])},
            title=self._headline(),
            metric="share, probability",
            label="relation",
        )

    def summary(self) -> list[str]:
        """How many facts are known, relation by relation, and what was skipped."""
        lines = [self._headline(), *map(self._line, range(len(self.axes["relation"])))]
        lines += [f"  skipped {name}: {reason}" for name, reason in list(self.skipped.items())[:MOST]]
        if len(self.skipped) > MOST:
            lines.append(f"  … and {len(self.skipped) - MOST} more were skipped")
        return [*lines, *first_token_lines(self), f"  {self.caution}"]

    def _headline(self) -> str:
        count, known = len(self["known"]), int(self["known"].sum())
        low, high = share_interval(np.array(known), np.array(count))
        return f"{self.title}: {known} of {count} ({known / count:.0%}, 95 % interval {low:.0%} to {high:.0%})"

    def _line(self, place: int) -> str:
        name, known, count = (of[place] for of in (self.axes["relation"], self["known_count"], self["count"]))
        if count == 0:
            return f"  {name}: none could be measured"
        share, low, high = (float(self[of][place]) for of in ("known_share", "share_low", "share_high"))
        mean = float(self["mean_probability"][place])
        return f"  {name}: {known} of {count} ({share:.0%}, {low:.0%} to {high:.0%}), mean probability {mean:.2f}"


@dataclass(frozen=True)
class _Prompt:
    """A fact as tokens."""

    fact: Fact
    ids: list[int]
    span: Span
    answer: list[int]


@dataclass(frozen=True)
class _Said:
    """What the model says behind one prompt: `token` the most likely, `rank` and `probability` those of the answer."""

    token: int
    token_probability: float
    probability: float
    rank: int


@torch.no_grad()
def filter_facts(
    model: "Transformer",
    facts: Iterable[Fact],
    *,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Callable[[int, int], None] | None = None,
) -> KnownFacts:
    """What the model says to each fact, and whether that is the fact.

    Prompts are read in batches, padded on the left, whose largest values take about `max_bytes` (but never less than
    one prompt); logits are computed at the last token only. Raises `UsageError` for no facts, two of one id, the prefix
    "chat", in which no sentence is completed, and where all facts are skipped.
    """
    given = tuple(facts)
    _check(given, prefix)
    prompts, skipped = _prompts(model, given, prefix)
    longest = max(len(prompt.ids) for prompt in prompts)
    size = texts_within(model, longest, max_bytes)
    said: list[_Said] = []
    for start in range(0, len(prompts), size):
        said += _said(model, prompts[start : start + size])
        if progress is not None:
            progress(len(said), len(prompts))
    tokens, _ = pad([prompt.ids for prompt in prompts], model.tokenizer.pad_id, "left")
    relations = list(dict.fromkeys(fact.relation for fact in given))
    return KnownFacts(
        arrays={
            **_texts(model.tokenizer, prompts, said),
            **_numbers(prompts, said),
            **_by_relation(relations, prompts, said),
            "skip_reason": (np.array(list(skipped.values()), dtype=object), ("skipped",)),
        },
        axes={"fact": [prompt.fact.id for prompt in prompts], "skipped": skipped, "relation": relations},
        settings={"prefix": prefix, "facts": len(given)},
        provenance=provenance(model.provenance, tokens=tokens, prefix=prefix),
    )


def _check(facts: Sequence[Fact], prefix: PrefixPolicy) -> None:
    if not facts:
        raise UsageError("There are no facts to ask the model about; give at least one.")
    seen: set[str] = set()
    for fact in facts:
        if fact.id in seen:
            raise UsageError(f"Two facts have the id {fact.id!r}; give each fact once, or ids of their own.")
        seen.add(fact.id)
    if prefix == "chat":
        raise UsageError(
            "The prefix is 'chat', behind which the model answers in sentences of its own; facts are sentences to "
            "complete. Use 'doc' or 'none'."
        )


def _prompts(model: "Transformer", facts: Sequence[Fact], prefix: PrefixPolicy) -> tuple[list[_Prompt], dict[str, str]]:
    """The facts as tokens; and of those that cannot be measured the id and the reason. `UsageError` if that is all."""
    prompts, skipped = [], {}
    for fact in facts:
        try:
            ids = model.to_tokens(fact.prompt, prefix=prefix)[0].tolist()
            span = exact_span(model.tokenizer, fact.template, fact.subject, prefix=prefix)
            answer = answer_ids(model.tokenizer, fact.prompt, fact.answer)
            prompts.append(_Prompt(fact, ids, span, answer))
        except UsageError as error:
            skipped[fact.id] = str(error)
    if not prompts:
        raise none_left(f"None of the {len(facts)} facts can be measured", skipped)
    return prompts, skipped


def _said(model: "Transformer", prompts: Sequence[_Prompt]) -> list[_Said]:
    """One batch of prompts."""
    tokens, mask = pad([prompt.ids for prompt in prompts], model.tokenizer.pad_id, "left")
    logits = last_logits(model, tokens, None if mask.all() else mask)
    answers, top = [prompt.answer[0] for prompt in prompts], logits[:, 0].argmax(-1).tolist()
    columns = (
        top,
        metrics.probability(top)(logits).tolist(),
        metrics.probability(answers)(logits).tolist(),
        (metrics.rank(answers)(logits) + 1).long().tolist(),
    )
    return [_Said(*row) for row in zip(*columns, strict=True)]


def _texts(tokenizer: PromptTokenizer, prompts: Sequence[_Prompt], said: Sequence[_Said]) -> Arrays:
    columns = {
        "relation_name": [prompt.fact.relation for prompt in prompts],
        "subject": [prompt.fact.subject for prompt in prompts],
        "object": [prompt.fact.object for prompt in prompts],
        "prompt": [prompt.fact.prompt for prompt in prompts],
        "subject_pieces": ["|".join(prompt.span.pieces) for prompt in prompts],
        "answer_token": tokenizer.str_tokens([prompt.answer[0] for prompt in prompts]),
        "said": tokenizer.str_tokens([each.token for each in said]),
    }
    return {name: (texts, ("fact",)) for name, texts in columns.items()}


def _numbers(prompts: Sequence[_Prompt], said: Sequence[_Said]) -> Arrays:
    columns = {
        "known": _known(prompts, said),
        "probability": [each.probability for each in said],
        "rank": [each.rank for each in said],
        "said_probability": [each.token_probability for each in said],
        "answer_id": [prompt.answer[0] for prompt in prompts],
        "answer_tokens": [len(prompt.answer) for prompt in prompts],
        "subject_start": [prompt.span.start for prompt in prompts],
        "subject_last": [prompt.span.last for prompt in prompts],
        "subject_tokens": [len(prompt.span.pieces) for prompt in prompts],
    }
    return {name: (numbers, ("fact",)) for name, numbers in columns.items()}


def _known(prompts: Sequence[_Prompt], said: Sequence[_Said]) -> list[bool]:
    return [each.token == prompt.answer[0] for prompt, each in zip(prompts, said, strict=True)]


def _by_relation(relations: Sequence[str], prompts: Sequence[_Prompt], said: Sequence[_Said]) -> Arrays:
    """Counts, shares and means; NaN for a relation of which no fact was measured."""
    names = np.array([prompt.fact.relation for prompt in prompts], dtype=object)
    members = np.array([names == relation for relation in relations], dtype=np.float64)
    count, known = members.sum(1), members @ np.array(_known(prompts, said), dtype=np.float64)
    low, high = share_interval(known, count)
    means = {
        "known_share": _known(prompts, said),
        "mean_probability": [each.probability for each in said],
        "mean_subject_tokens": [len(prompt.span.pieces) for prompt in prompts],
        "mean_answer_tokens": [len(prompt.answer) for prompt in prompts],
    }
    with np.errstate(invalid="ignore"):
        averaged = {name: members @ np.array(values, dtype=np.float64) / count for name, values in means.items()}
    found = {"count": count.astype(np.int64), "known_count": known.astype(np.int64), **averaged}
    return {name: (values, ("relation",)) for name, values in {**found, "share_low": low, "share_high": high}.items()}
