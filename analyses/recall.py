"""Prompts that stop before what is recalled, and what interventions on them do to the answer, as many facts have it.

    recalls = Recalls.of_facts(model, bundled_facts())     # those that the model knows; why others are left out
    recalls = Recalls.of_prompt(model, "The Louvre is in the city of", "The Louvre")

Prompts are run in batches, padded on the left, so that the last token of each stands in the last column; positions are
those of a prompt alone, and a batch says where they lie in its grid.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.fact_filter import filter_facts
from interp.analyses.last_logits import last_logits
from interp.analyses.vocabulary import token_id, token_texts
from interp.errors import UsageError
from interp.facts import Fact, answer_ids, exact_span
from interp.models.batching import pad
from interp.models.prompt_formats import PrefixPolicy
from interp.prompts import Span, find_subject
from interp.results import Arrays

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

AT_ONCE = 32
"""Facts in a batch: more would not make products faster, and would hold more of the base run."""
HELD = ("hook_embed", "blocks.*.hook_resid_post", "blocks.*.attn.hook_rot_k", "blocks.*.attn.hook_v")


@dataclass(frozen=True)
class Recall:
    """One prompt as tokens, where its subject stands, and the token that is to follow."""

    name: str
    relation: str
    ids: tuple[int, ...]
    prefix_len: int
    subject: tuple[int, ...]
    answer: int

    @property
    def last(self) -> int:
        """The position of the last token, at which the answer is given."""
        return len(self.ids) - 1

    @property
    def others(self) -> tuple[int, ...]:
        """All positions but those of the prefix, of the subject, and of the last token."""
        return tuple(place for place in range(self.prefix_len, self.last) if place not in self.subject)


@dataclass(frozen=True)
class Batch:
    """Some of the recalls in one grid of tokens, padded on the left."""

    recalls: Sequence[Recall]
    places: Sequence[int]
    """Which of all recalls they are."""
    tokens: Int[Tensor, "text pos"]
    mask: Bool[Tensor, "text pos"] | None

    @classmethod
    def of(cls, recalls: Sequence[Recall], places: Sequence[int], pad_id: int) -> "Batch":
        """The grid of the recalls at these places."""
        chosen = [recalls[place] for place in places]
        tokens, mask = pad([each.ids for each in chosen], pad_id, "left")
        return cls(chosen, places, tokens, None if mask.all() else mask)

    def marked(self, positions: Iterable[Sequence[int]]) -> Bool[Tensor, "text pos"]:
        """True at the given positions of each prompt."""
        marks = torch.zeros(self.tokens.shape, dtype=torch.bool)
        for row, (recall, chosen) in enumerate(zip(self.recalls, positions, strict=True)):
            skipped = self.tokens.shape[1] - len(recall.ids)
            marks[row, [skipped + place for place in chosen]] = True
        return marks


@dataclass(frozen=True)
class Recalls:
    """What is measured, in order; and the id of each fact that is not → why."""

    asked: tuple[Recall, ...]
    excluded: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: "Transformer",
        facts: str | Iterable[Fact],
        *,
        subject: str | None = None,
        answer: str | int | None = None,
        occurrence: int | None = None,
        prefix: PrefixPolicy = "doc",
    ) -> "Recalls":
        """Facts, or one prompt, which needs its subject named. Raises `UsageError` where the two are mixed."""
        if isinstance(facts, str):
            if subject is None:
                raise UsageError("One prompt came without its subject; name it: subject='The Louvre'.")
            return cls.of_prompt(model, facts, subject, answer=answer, occurrence=occurrence, prefix=prefix)
        if subject is not None or answer is not None or occurrence is not None:
            raise UsageError("Facts bring their subjects and answers along; leave out subject, answer and occurrence.")
        return cls.of_facts(model, facts, prefix=prefix)

    @classmethod
    def of_facts(cls, model: "Transformer", facts: Iterable[Fact], *, prefix: PrefixPolicy = "doc") -> "Recalls":
        """The facts that the model knows. Raises `UsageError` where there is none, and as `filter_facts` does."""
        given = tuple(facts)
        filtered = filter_facts(model, given, prefix=prefix)
        excluded = filtered.left_out
        known = filtered.known(given)
        if not known:
            name, reason = next(iter(excluded.items()))
            raise UsageError(f"The model knows none of the {len(given)} facts; the first, {name!r}: {reason}")
        return cls(tuple(recall_of(model, fact, prefix) for fact in known), excluded, {"facts": len(given)})

    @classmethod
    @torch.no_grad()
    def of_prompt(
        cls,
        model: "Transformer",
        prompt: str,
        subject: str,
        *,
        answer: str | int | None = None,
        occurrence: int | None = None,
        prefix: PrefixPolicy = "doc",
    ) -> "Recalls":
        """One prompt, and the model's own answer to it unless another is asked for (one token, as text or id).

        Raises `UsageError` for a subject that is absent, named several times or cut inside a token.
        """
        span = find_subject(model.tokenizer, prompt, subject, prefix=prefix, occurrence=occurrence).must_be_exact()
        prediction = int(last_logits(model, model.to_tokens(prompt, prefix=prefix), None)[0, 0].argmax())
        chosen = prediction if answer is None else token_id(model, answer)
        said, own = token_texts(model, [chosen, prediction])
        settings = {"prompt": prompt, "subject": subject, "answer": said, "prediction": own, "facts": 1}
        return cls((_placed(model, prompt, prompt, "prompt", span, chosen, prefix),), {}, settings)

    def batches(self, model: "Transformer", budget: int) -> Iterator[Batch]:
        """All of them, those of equal length together, a batch's base run within a quarter of the budget."""
        order = sorted(range(len(self.asked)), key=lambda place: len(self.asked[place].ids))
        each = model.cache_bytes(1, len(self.asked[order[-1]].ids), list(HELD))
        size = max(1, min(AT_ONCE, budget // 4 // each))
        for start in range(0, len(order), size):
            yield Batch.of(self.asked, order[start : start + size], model.tokenizer.pad_id)

    def labels(self, model: "Transformer") -> Arrays:
        """What the result says of each fact, and of those that were left out."""
        return {
            "relation_name": ([each.relation for each in self.asked], ("fact",)),
            "answer": (token_texts(model, [each.answer for each in self.asked]), ("fact",)),
            "subject_tokens": ([len(each.subject) for each in self.asked], ("fact",)),
            "reason": (np.array(list(self.excluded.values()), dtype=object), ("excluded",)),
        }

    @property
    def axes(self) -> dict[str, list[str]]:
        """The coordinates of the axes of `labels`, and the relations."""
        return {
            "fact": [each.name for each in self.asked],
            "excluded": list(self.excluded),
            "relation": self.relations,
        }

    @property
    def relations(self) -> list[str]:
        """The relations of the facts, in order."""
        return list(dict.fromkeys(each.relation for each in self.asked))

    @property
    def tokens(self) -> Int[Tensor, "text pos"]:
        """All prompts in one grid, for the record."""
        return pad([each.ids for each in self.asked], 0, "left")[0]


def recall_of(model: "Transformer", fact: Fact, prefix: PrefixPolicy) -> Recall:
    """A fact as tokens. Raises `UsageError` where its subject or its answer has no tokens of its own."""
    span = exact_span(model.tokenizer, fact.template, fact.subject, prefix=prefix)
    answer = answer_ids(model.tokenizer, fact.prompt, fact.answer)[0]
    return _placed(model, fact.id, fact.prompt, fact.relation, span, answer, prefix)


def _placed(
    model: "Transformer", name: str, prompt: str, relation: str, span: Span, answer: int, prefix: PrefixPolicy
) -> Recall:
    ids = model.tokenizer.prompt_ids(prompt, prefix)
    before = len(ids) - len(model.tokenizer.encode(prompt)) - len(model.tokenizer.suffix_ids(prefix))
    return Recall(name, relation, tuple(ids), before, tuple(span.positions), answer)
