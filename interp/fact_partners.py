"""For each fact another of its relation whose subject can take its place token for token: symmetric replacement.

    paired = partners(model.tokenizer, facts, seed=0)
    fact, partner = paired.pairs[0]     # fact.prompt, and fact.template filled with partner.subject, are equally long
    paired.without                      # id of each other fact → why it has none

To corrupt a fact by another subject instead of by noise, both prompts need equally many tokens, the two subjects in the
same places, and answers that differ in their first token (Zhang & Nanda 2024, "Towards best practices of activation
patching", arXiv 2309.16042). Which pairs fit depends on the tokenizer, so they are computed, not stored. A partner is
drawn from those that fit, by (seed, id of the fact); where a fact names its counterfactual it is that one or none.
"""

import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from interp.errors import UsageError
from interp.facts import Fact, answer_ids, exact_span, fill
from interp.prompts import Prefix, PromptTokenizer


@dataclass(frozen=True)
class Partners:
    """Facts, now with their `counterfactual`, each with its partner; and the ids of the others, with the reason."""

    pairs: tuple[tuple[Fact, Fact], ...]
    without: Mapping[str, str]


class _Shape(NamedTuple):
    """What the sentence about one subject must share with that about the other."""

    start: int
    stop: int
    length: int


def partners(tokenizer: PromptTokenizer, facts: Iterable[Fact], *, seed: int = 0, prefix: Prefix = "doc") -> Partners:
    """A partner for every fact that has one. A fact without one is told, with the reason, and is no error."""
    given = tuple(facts)
    relations: dict[str, list[Fact]] = {}
    for fact in given:
        relations.setdefault(fact.relation, []).append(fact)
    pairs, without = [], {}
    for fact in given:
        try:
            partner = _partner(tokenizer, fact, relations[fact.relation], seed, prefix)
        except UsageError as error:
            without[fact.id] = str(error)
        else:
            pairs.append((replace(fact, counterfactual=partner.subject), partner))
    return Partners(tuple(pairs), without)


def _partner(tokenizer: PromptTokenizer, fact: Fact, relation: Sequence[Fact], seed: int, prefix: Prefix) -> Fact:
    """The first fact that fits, in an order drawn for this one. Raises `UsageError`, saying why, where none does."""
    others = [other for other in relation if other.subject != fact.subject and other.object != fact.object]
    if fact.counterfactual is not None:
        others = [other for other in others if other.subject == fact.counterfactual]
    if not others:
        named = "" if fact.counterfactual is None else f" about {fact.counterfactual!r}"
        raise UsageError(f"the relation {fact.relation!r} has no other fact{named} with another object.")
    shape, answer = _measured(tokenizer, fact, fact, prefix)
    for other in random.Random(f"{seed} {fact.id}").sample(others, len(others)):
        with contextlib.suppress(UsageError):  # a subject that cannot be placed is no partner
            other_shape, other_answer = _measured(tokenizer, fact, other, prefix)
            if other_shape == shape and other_answer != answer:
                return other
    raise UsageError(
        f"none of {len(others)} other subjects fits where {fact.subject!r} has {shape.stop - shape.start} tokens; "
        "expected as many, in a prompt as long, and an answer that begins otherwise."
    )


def _measured(tokenizer: PromptTokenizer, fact: Fact, other: Fact, prefix: Prefix) -> tuple[_Shape, int]:
    """The fact's own sentence about the other's subject, and the first token of the other's answer there."""
    prompt = fill(fact.template, other.subject)
    span = exact_span(tokenizer, fact.template, other.subject, prefix=prefix)
    shape = _Shape(span.start, span.stop, len(tokenizer.prompt_ids(prompt, prefix)))
    return shape, answer_ids(tokenizer, prompt, other.answer)[0]
