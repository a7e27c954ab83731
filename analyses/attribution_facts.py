"""Direct logit attribution over many facts: which parts write the object, on the mean over those that the model knows.

    mean over known facts of the terms of   logit(first token of the object) − logit(that of another object)

at the last token of each prompt, the other object being that of another fact of the same relation: so what all objects
of a relation have in common falls out of the difference. A relation of one fact has no other object; without foils the
terms are of logit(first token of the object) alone. Facts that the model does not know are left out of the means,
and named with what it says instead; so are facts that cannot be measured. The others go on.

What it does NOT tell: where a fact is kept. The terms are of what is written at the last token, mostly by heads that
bring it from the subject; and a mean over relations hides parts that serve one of them alone (`of_relation`).
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from interp.analyses.attribution import Attribution, direct_logit_attribution
from interp.analyses.attribution_runs import By
from interp.analyses.fact_filter import KnownFacts, filter_facts
from interp.analyses.left_out import first_token_lines, none_left
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.batching import pad
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Foils = Literal["relation", "none"]


class FactAttribution(Attribution, kind="attribution.facts"):
    """The terms of the objects of many facts; the axis `prompt` has the ids of those that the model knows.

    As `Attribution`, and `relation` and `answer_tokens` [prompt], how many the object has, of which the first is
    `answer`; `reason` [excluded], why a fact is in no mean, by its id.
    """

    title = "Direct logit attribution over facts"

    @property
    def explained(self) -> str:
        """What the terms add up to, in words."""
        other = " − logit(another object of its relation)" * (self.settings["foils"] == "relation")
        return f"logit(object){other}{', before the soft-cap' * (self.settings['logit_cap'] is not None)}"

    @property
    def excluded(self) -> Mapping[str, str]:
        """Id of each fact that is in no mean → why."""
        return dict(zip(map(str, self.axes["excluded"]), map(str, self["reason"]), strict=True))

    def of_relation(self, relation: str) -> np.ndarray:
        """The mean terms over the facts of one relation, by [part]. Raises `UsageError` where there are none."""
        chosen = self["relation"] == relation
        if not chosen.any():
            there = ", ".join(dict.fromkeys(map(str, self["relation"])))
            raise UsageError(f"No known fact has the relation {relation!r}; there are {there}.")
        return self["contribution"][chosen].mean(0, dtype=np.float64)

    def summary(self) -> list[str]:
        """The mean terms, and how many facts are not in them."""
        *lines, caution = super().summary()
        left = f"  {len(self.excluded)} of {self.settings['facts']} facts are left out"
        return [*lines, left, *first_token_lines(self), caution]


def attribute_facts(
    model: "Transformer",
    facts: Iterable[Fact],
    *,
    by: By = "head",
    foils: Foils = "relation",
    prefix: PrefixPolicy = "doc",
    seed: int = 0,
    max_bytes: int = 256 * 2**20,
    progress: Callable[[int, int], None] | None = None,
) -> FactAttribution:
    """The mean terms of the objects of the facts that the model knows, at the last token of their prompts.

    `foils`: the object of another fact of the same relation, drawn by (seed, id of the fact) from those that begin with
    another token, a fact without one being left out; or none. Raises `UsageError` where no fact is left, and as
    `direct_logit_attribution` and `filter_facts` do. Key positions of different prompts do not correspond, so that
    `by="source"` takes prompts of one length only.
    """
    if foils not in get_args(Foils):
        raise UsageError(f"foils is {foils!r}: expected one of {', '.join(get_args(Foils))}.")
    given = tuple(facts)
    filtered = filter_facts(model, given, prefix=prefix, max_bytes=max_bytes)
    asked, excluded = _questions(given, filtered, foils, seed)
    tokens, mask = pad([model.tokenizer.prompt_ids(each.fact.prompt, prefix) for each in asked], 0, "left")
    found = direct_logit_attribution(
        model,
        tokens,
        [each.answer for each in asked],
        [each.foil for each in asked if each.foil is not None] or None,
        by=by,
        mask=None if mask.all() else mask,
        seed=seed,
        max_bytes=max_bytes,
        progress=progress,
    )
    return FactAttribution(
        arrays={
            **{name: array for name, array in found.arrays.items() if name != "token"},
            "relation": ([each.fact.relation for each in asked], ("prompt",)),
            "answer_tokens": ([int(filtered.at("answer_tokens", fact=each.fact.id)) for each in asked], ("prompt",)),
            "reason": (np.array(list(excluded.values()), dtype=object), ("excluded",)),
        },
        axes={"part": found.axes["part"], "prompt": [each.fact.id for each in asked], "excluded": list(excluded)},
        settings={**found.settings, "prefix": prefix, "foils": foils, "facts": len(given)},
        provenance={**found.provenance, "prefix": prefix},
    )


@dataclass(frozen=True)
class _Asked:
    """A known fact, and the first tokens of its object and of another one."""

    fact: Fact
    answer: int
    foil: int | None


def _questions(
    facts: Sequence[Fact], filtered: KnownFacts, foils: Foils, seed: int
) -> tuple[list[_Asked], dict[str, str]]:
    """What is asked of the known facts; and of all others the id and the reason. `UsageError` if that is all."""
    first = dict(zip(filtered.axes["fact"], filtered["answer_id"].tolist(), strict=True))
    objects: dict[str, list[int]] = {}
    for name, relation in zip(filtered.axes["fact"], filtered["relation_name"], strict=True):
        objects.setdefault(relation, []).append(first[name])
    asked, excluded = [], dict(filtered.left_out)
    for fact in filtered.known(facts):
        foil = None if foils == "none" else _other(fact, {*objects[fact.relation]} - {first[fact.id]}, seed)
        if foil is None and foils == "relation":
            excluded[fact.id] = _without_foil(fact.relation, len(objects[fact.relation]))
        else:
            asked.append(_Asked(fact, first[fact.id], foil))
    if not asked:
        raise none_left(f"None of the {len(facts)} facts can be attributed", excluded)
    return asked, excluded


def _without_foil(relation: str, facts: int) -> str:
    """Why a fact of a relation has no foil, and what to do."""
    why = "has no other fact" if facts == 1 else f"has {facts} objects that begin with the same token"
    return (
        f"its relation {relation!r} {why}, so that there is no foil. Give more of its facts, or ask for no foils "
        "(foils='none', --foils none)."
    )


def _other(fact: Fact, tokens: set[int], seed: int) -> int | None:
    """One of the tokens with which other objects begin, by (seed, id of the fact)."""
    return random.Random(f"{seed}/{fact.id}").choice(sorted(tokens)) if tokens else None
