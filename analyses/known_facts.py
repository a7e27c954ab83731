"""The facts that a model knows, as analyses over facts take them: their first tokens, and why others are left out.

known = known_facts(model, bundled_facts())
known.facts, known.answers, known.left_out
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp.analyses.fact_filter import KnownFacts, filter_facts
from interp.analyses.left_out import none_left
from interp.facts import Fact
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Arrays

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


@dataclass(frozen=True)
class Known:
    """Facts in the order given, and what was found when the model was asked for them."""

    facts: tuple[Fact, ...]
    asked: KnownFacts

    @property
    def left_out(self) -> Mapping[str, str]:
        """Id of each fact that is not known → why it was skipped, or what the model says instead."""
        return self.asked.left_out

    @property
    def answers(self) -> list[int]:
        """The first token of each answer."""
        return self.of("answer_id")

    def of(self, name: str) -> list[int]:
        """One number of each fact, an array [fact] of `KnownFacts`."""
        return [int(self.asked.at(name, fact=fact.id)) for fact in self.facts]

    @property
    def labels(self) -> Arrays:
        """Of how many tokens each answer is, by which results say where only the first was measured."""
        return {"answer_tokens": (self.of("answer_tokens"), ("fact",))}


def known_facts(
    model: "Transformer", facts: Iterable[Fact], *, prefix: PrefixPolicy = "doc", max_bytes: int = 256 * 2**20
) -> Known:
    """The facts that the model knows. Raises `UsageError` where there is none, and as `filter_facts` does."""
    given = tuple(facts)
    asked = filter_facts(model, given, prefix=prefix, max_bytes=max_bytes)
    known = asked.known(given)
    if not known:
        raise none_left(f"The model knows none of the {len(given)} facts", asked.left_out)
    return Known(known, asked)
