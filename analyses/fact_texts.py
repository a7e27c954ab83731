"""Facts in all their wordings, as one batch of tokens: each prompt and paraphrase with the first token of its answer.

What a text is to a fact is its *group*: the fact's own prompt, its paraphrases, those that were held out when something
was found by the others, and the prompts of other facts of the same relation, and of other relations.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.last_logits import last_logits
from interp.analyses.left_out import none_left
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.facts import Fact, answer_ids
from interp.models.batching import pad
from interp.models.tokenizer import Tokenizer
from interp.prompts import Prefix

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

GROUPS = ("fact", "paraphrases", "held out", "same relation", "other relations")


@dataclass(frozen=True)
class Question:
    """A fact as it is asked for: one prompt or several in other words, the same answer, its space before it.

    `answer_ids`: of each prompt the token that is measured, where that is known. Told by its text alone it would be
    found by tokenizing again, which part of a word or of a letter does not survive. `answer_tokens`: of how many tokens
    the whole answer then is.
    """

    id: str
    relation: str
    prompts: tuple[str, ...]
    answer: str
    answer_ids: tuple[int, ...] | None = None
    answer_tokens: int = 1

    def __post_init__(self) -> None:
        if self.answer_ids is not None and len(self.answer_ids) != len(self.prompts):
            raise UsageError(f"There are {len(self.answer_ids)} answers to {len(self.prompts)} prompts; give one each.")

    def first_token(self, tokenizer: Tokenizer, wording: int) -> tuple[int, int]:
        """What is measured behind a prompt, and how many tokens the answer has.

        Raises `UsageError` where the answer begins inside a token.
        """
        if self.answer_ids is not None:
            return self.answer_ids[wording], self.answer_tokens
        ids = answer_ids(tokenizer, self.prompts[wording], self.answer)
        return ids[0], len(ids)

    @classmethod
    def of(cls, fact: "Fact | Question") -> "Question":
        """A fact's own wordings."""
        if isinstance(fact, Question):
            return fact
        return cls(fact.id, fact.relation, (fact.prompt, *fact.paraphrase_prompts), fact.answer)


def question_of(model: "Transformer", prompt: str, answer: str | None = None, *, prefix: Prefix = "doc") -> Question:
    """A prompt with its answer, by default the token that the model says."""
    if answer is not None:
        return Question("the prompt", "the prompt", (prompt,), answer)
    said = int(last_logits(model, model.to_tokens(prompt, prefix=prefix), None)[0, -1].argmax())
    return Question("the prompt", "the prompt", (prompt,), token_texts(model, [said])[0], (said,))


@dataclass(frozen=True)
class FactText:
    """One wording of one fact, as tokens."""

    fact: Question
    text: str
    ids: list[int]
    answer: int
    answer_tokens: int
    """Of how many tokens the whole answer is."""
    wording: int
    """0 for the prompt, from 1 on its paraphrases."""
    held_out: bool

    def group(self, fact: Question) -> str | None:
        """What this text is to a fact; None for a paraphrase of another."""
        if self.fact.id != fact.id:
            if self.wording > 0:
                return None
            return GROUPS[3] if self.fact.relation == fact.relation else GROUPS[4]
        return GROUPS[0] if self.wording == 0 else GROUPS[2] if self.held_out else GROUPS[1]


def fact_texts(
    model: "Transformer", facts: Iterable[Question], *, held_out: int = 0, prefix: Prefix = "doc"
) -> tuple[list[FactText], dict[str, str]]:
    """All wordings of all facts; the last `held_out` paraphrases of each are marked. And what was skipped, with why.

    A text is skipped whose answer begins inside a token, or that is longer than the context; a fact whose prompt is,
    altogether. Raises `UsageError` for no facts, two of one id, and where nothing is left.
    """
    given, texts, skipped = tuple(facts), list[FactText](), dict[str, str]()
    if not given or len({fact.id for fact in given}) < len(given):
        raise UsageError(f"Expected facts, each once; came {len(given)}: {[fact.id for fact in given][:6]}.")
    for fact in given:
        for wording, text in enumerate(fact.prompts):
            try:
                ids = model.to_tokens(text, prefix=prefix)[0].tolist()
                answer, count = fact.first_token(model.tokenizer, wording)
            except UsageError as error:
                skipped[f"{fact.id}: {text}"] = str(error)
                if wording == 0:
                    break
                continue
            last = wording > max(0, len(fact.prompts) - 1 - held_out)
            texts.append(FactText(fact, text, ids, answer, count, wording, last))
    if not texts:
        raise none_left(f"None of the {len(given)} facts can be measured", skipped)
    return texts, skipped


def as_batch(
    tokenizer: Tokenizer, texts: Sequence[FactText]
) -> tuple[Int[Tensor, "text pos"], Bool[Tensor, "text pos"]]:
    """The texts as tokens, padded on the left, and the mask of real ones."""
    return pad([text.ids for text in texts], tokenizer.pad_id, "left")


def members(
    texts: Sequence[FactText], facts: Sequence[Question], *, most: int | None = None, seed: int = 0
) -> Bool[np.ndarray, "group fact text"]:
    """Which texts are which group of which fact; of other relations at `most` so many, drawn at random."""
    groups = np.array([[text.group(fact) for text in texts] for fact in facts], dtype=object)
    found = np.stack([groups == group for group in GROUPS])
    for number, own in enumerate(found[-1] if most is not None else ()):
        places = np.flatnonzero(own)
        dropped = max(0, len(places) - (most or 0))
        own[np.random.default_rng([seed, number]).choice(places, dropped, replace=False)] = False
    return found
