"""A fact as text: a subject, a sentence that stops before its object, and the object.

    fact = Fact(subject="France", relation="capital", template="The capital of {} is", object="Paris")
    fact.prompt      # "The capital of France is"
    fact.answer      # " Paris"

Spaces: subject and object are written without any around them and templates end without one, since in most vocabularies
a word carries the space before it. `answer` is the object with that one space, which is what follows the prompt.

The subject's tokens are found from the place of `{}` in the template, never by searching the prompt, in which the same
letters may stand elsewhere. How many tokens an object has depends on the tokenizer; the first is what is measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from interp.errors import UsageError, nearest
from interp.prompts import Prefix, PromptTokenizer, Span, find_subject

SLOT = "{}"


@dataclass(frozen=True)
class Fact:
    """One fact; `UsageError` on construction where a template has not one `{}`, or a text is empty or ends in a space.

    `paraphrases` are further templates, for the same subject and object. `counterfactual` is the subject of another
    fact of the same relation, to put in this subject's place. `id` is "relation/subject" unless one is given.
    """

    subject: str
    relation: str
    template: str
    object: str
    paraphrases: tuple[str, ...] = ()
    counterfactual: str | None = None
    id: str = ""

    def __post_init__(self) -> None:
        for name in ("subject", "relation", "object"):
            _check_words(name, getattr(self, name))
        for name, template in (("template", self.template), *(("paraphrase", each) for each in self.paraphrases)):
            _check_template(name, template)
        if self.counterfactual is not None:
            _check_words("counterfactual", self.counterfactual)
            if self.counterfactual == self.subject:
                raise UsageError(f"the counterfactual is the subject itself, {self.subject!r}; name another subject.")
        if not self.id:
            object.__setattr__(self, "id", f"{self.relation}/{self.subject}")

    @property
    def prompt(self) -> str:
        """The sentence up to its object."""
        return fill(self.template, self.subject)

    @property
    def answer(self) -> str:
        """What follows the prompt: the object, one space before it."""
        return f" {self.object}"

    @property
    def paraphrase_prompts(self) -> tuple[str, ...]:
        """The same fact in other words, each up to its object."""
        return tuple(fill(template, self.subject) for template in self.paraphrases)


def fill(template: str, subject: str) -> str:
    """The template with the subject in its place; other braces stay."""
    return template.replace(SLOT, subject, 1)


def exact_span(tokenizer: PromptTokenizer, template: str, subject: str, *, prefix: Prefix = "doc") -> Span:
    """The tokens of the subject that fills the template, as positions of the prompt.

    Raises `UsageError` as `find_subject` does, and where a token holds more than the subject and the space before it.
    """
    text, slot = fill(template, subject), template.index(SLOT)
    earlier = sum(text.startswith(subject, place) for place in range(slot))
    span = find_subject(tokenizer, text, subject, prefix=prefix, occurrence=earlier)
    if not span.exact:
        raise UsageError(f"the subject {subject!r} shares a token with its neighbours: {list(span.pieces)}.")
    return span


def answer_ids(tokenizer: PromptTokenizer, prompt: str, answer: str) -> list[int]:
    """The tokens of the answer where it follows the prompt, at least one.

    Raises `UsageError` where a token would reach across their border, so that the answer has no first token of its own.
    """
    before, whole = (tokenizer.encode_with_offsets(text)[0] for text in (prompt, prompt + answer))
    if whole[: len(before)] != before or len(whole) == len(before):
        shown = tokenizer.str_tokens(whole[len(before) - 1 :])
        raise UsageError(f"no token begins with the answer {answer!r}: behind the prompt the text goes on as {shown}.")
    return whole[len(before) :]


def of_relations(facts: Iterable[Fact], relations: Iterable[str]) -> tuple[Fact, ...]:
    """The facts of some relations, in their order. Raises `UsageError` for a relation that has none."""
    given, wanted = tuple(facts), tuple(relations)
    there = list(dict.fromkeys(fact.relation for fact in given))
    for relation in wanted:
        if relation not in there:
            hint = nearest(relation, there, count=1)
            raise UsageError(f"There are no facts of the relation {relation!r}.{hint} There are {', '.join(there)}.")
    return tuple(fact for fact in given if fact.relation in wanted)


def spread(facts: Iterable[Fact], limit: int | None) -> tuple[Fact, ...]:
    """At most so many of the facts, evenly spread over all of them, in their order; all for None."""
    given = tuple(facts)
    if limit is None or limit >= len(given):
        return given
    return tuple(given[place * len(given) // limit] for place in range(limit))


def _check_words(name: str, text: str) -> None:
    if not text or text != text.strip():
        raise UsageError(f"the {name} is {text!r}; expected words without spaces around them.")


def _check_template(name: str, template: str) -> None:
    count = template.count(SLOT)
    if count != 1:
        raise UsageError(f"the {name} {template!r} has {count or 'no'} {SLOT}; expected one, where the subject stands.")
    if template != template.rstrip():
        raise UsageError(f"the {name} {template!r} ends in a space; leave it out, the answer brings its own.")
