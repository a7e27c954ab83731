"""Prompt pairs made from templates and word lists, for a tokenizer.

    pairs = align(model.tokenizer, ioi(model.tokenizer, n=64, seed=0))

| builder | clean, then corrupted | answer | foil |
|---|---|---|---|
| `ioi` | When Mary and John went to the store, John (Mary) gave a drink to | " Mary" | " John" |
| `greater_than` | The war lasted from the year 1745 (1701) to the year 17 | "5" | "3" |
| `capitals` | The capital of France (Italy) is | " Paris" | " Rome" |
| `country_swap` | The main language of France (Italy) is | " French" | " Italian" |
| `agreement` | The keys (key) to the cabinet | " are" | " is" |
| `gender` | When Mary (John) woke up this morning, | " she" | " he" |

Words that are no single token of the tokenizer are left out, so that the two prompts of a pair have equally many
tokens; `align` checks it. Pairs are all different. Pair i is drawn from (seed, i) and does not depend on `n`; where a
draw comes up twice the next free pair takes its place. Each has its roles, `END` among them, the last token.

Papers: Wang et al. 2022, "Interpretability in the wild" (IOI, arXiv 2211.00593); Hanna et al. 2023, "How does GPT-2
compute greater-than?" (arXiv 2305.00586); Linzen et al. 2016 (agreement with attractors, arXiv 1611.01368). Sentences
and word lists are our own.

What they do NOT tell: whether the model solves the task; see `interp.analyses.pair_filter`.
"""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from interp import pair_words as words
from interp.errors import UsageError
from interp.prompt_pairs import PromptPair, Role
from interp.prompts import PromptTokenizer


def ioi(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Indirect object identification: who is given something by the person named twice (Wang et al. 2022).

    Corrupted, the other person gives. Groups are the order of names, `ABB` (indirect object first) or `BAB`, and the
    template's number. Roles: `IO`, `S1` and `S2` (the subject's two mentions), `END`.
    """
    names = _single(tokenizer, (*words.WOMEN, *words.MEN), "names")
    places, objects = _single(tokenizer, words.PLACES, "places"), _single(tokenizer, words.OBJECTS, "objects")
    people = list(itertools.permutations(names, 2))
    drawn = _draw(n, seed, range(len(words.IOI_TEMPLATES)), ("ABB", "BAB"), people, places, objects)
    return [_ioi(*choice) for choice in drawn]


def _ioi(template: int, order: str, people: tuple[str, str], place: str, item: str) -> PromptPair:
    indirect, subject = people
    first, second = people if order == "ABB" else (subject, indirect)
    clean, corrupted = (
        words.IOI_TEMPLATES[template].format(first=first, second=second, place=place, giver=giver, object=item)
        for giver in (subject, indirect)
    )
    roles: dict[str, Role] = {"IO": indirect, "S1": (subject, 0), "S2": (subject, 1), "END": -1}
    return PromptPair(clean, corrupted, f" {indirect}", f" {subject}", roles, f"{order} {template}")


def greater_than(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Years that come later: an interval's end is not before its beginning (Hanna et al. 2023).

    Answer and foil are one token each. Where digits are tokens of their own it is the digit of the last year's decade:
    one after that of the first year, and one before it. Where the last two digits are one token it is those, ten years
    after the first year and ten before. Corrupted, the first year ends in 01, so that both are later. Two endings are
    compared; Hanna's own measure sums the probabilities of all of them.

    Roles: `START` (the token of the first year that decides: its decade's digit, or its last two digits), `END`. Groups
    are the digits of the century. Raises `UsageError` for a tokenizer that cuts years in another way.
    """
    for width in (1, 2):
        if spans := _year_spans(tokenizer, width):
            break
    else:
        raise UsageError("This tokenizer cuts years neither into digits nor into two halves; greater-than needs that.")
    drawn = _draw(n, seed, _single(tokenizer, words.DURATIONS, "nouns"), spans)
    return [_greater_than(noun, *span, width=width) for noun, span in drawn]


def _greater_than(noun: str, century: str, endings: tuple[str, str, str], *, width: int) -> PromptPair:
    earlier, start, later = endings
    clean, corrupted = (
        f"The {noun} lasted from the year {century}{ending} to the year {century}" for ending in (start, "01")
    )
    roles: dict[str, Role] = {"START": f"{century}{start}"[: 2 + width], "END": -1}
    return PromptPair(clean, corrupted, later[:width], earlier[:width], roles, century)


def _year_spans(tokenizer: PromptTokenizer, width: int) -> list[tuple[str, tuple[str, str, str]]]:
    """Centuries, and endings of years ten years apart, all cut into the century and tokens of `width` digits."""
    endings = [tuple(f"{year:02d}" for year in (year - 10, year, year + 10)) for year in range(22, 90) if year % 10 > 1]
    return [
        (century, (earlier, start, later))
        for century in words.CENTURIES
        for earlier, start, later in endings
        if all(_is_cut(tokenizer, century, ending, width) for ending in ("01", earlier, start, later))
    ]


def _is_cut(tokenizer: PromptTokenizer, century: str, ending: str, width: int) -> bool:
    """Whether the year's tokens are those of its century and then one for each `width` digits."""
    before, whole = _ids(tokenizer, f" {century}"), _ids(tokenizer, f" {century}{ending}")
    next_token = _ids(tokenizer, ending[:width])
    return whole[: len(before) + 1] == before + next_token and len(whole) == len(before) + 2 // width


def capitals(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """The capital of one country, with that of another as foil. Roles: `country`, `END`."""
    return country_swap(tokenizer, n=n, seed=seed, facts=("capital",))


def country_swap(
    tokenizer: PromptTokenizer,
    *,
    n: int = 64,
    seed: int = 0,
    facts: Sequence[words.CountryFact] = ("language", "continent"),
) -> list[PromptPair]:
    """A fact about one country and about another, for which it is different.

    The fact is the pair's group: `capital`, `language` or `continent`. Roles: `country`, `END`.
    """
    if not facts or not set(facts) <= set(words.COUNTRY_TEMPLATES):
        raise UsageError(f"The facts are {facts!r}; expected some of {', '.join(words.COUNTRY_TEMPLATES)}.")
    swaps = [(fact, *swap) for fact in facts for swap in _swaps(tokenizer, fact)]
    return [_country(*choice) for (choice,) in _draw(n, seed, swaps)]


def _swaps(tokenizer: PromptTokenizer, fact: words.CountryFact) -> list[tuple[words.Country, words.Country]]:
    """Ordered pairs of countries that differ in a fact, all of single tokens."""
    values = {country: getattr(country, fact) for country in words.COUNTRIES if getattr(country, fact)}
    names = _single(tokenizer, [country.name for country in values], "countries")
    answers = _single(tokenizer, list(dict.fromkeys(values.values())), f"answers for {fact}")
    known = [country for country, value in values.items() if country.name in names and value in answers]
    return [(one, other) for one, other in itertools.permutations(known, 2) if values[one] != values[other]]


def _country(fact: words.CountryFact, one: words.Country, other: words.Country) -> PromptPair:
    clean, corrupted = (words.COUNTRY_TEMPLATES[fact].format(country=country.name) for country in (one, other))
    answer, foil = (f" {getattr(country, fact)}" for country in (one, other))
    return PromptPair(clean, corrupted, answer, foil, {"country": one.name, "END": -1}, fact)


def agreement(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Is the verb singular or plural, after a noun that stands between subject and verb (Linzen et al. 2016)?

    Corrupted, the subject has the other number. Groups say the clean subject's number and the attractor's, such as
    `plural, singular`. Roles: `subject`, `attractor`, `END`, which is the attractor's last token.
    """
    subjects, attractors = _nouns(tokenizer, words.THINGS, "subjects"), _nouns(tokenizer, words.SITES, "attractors")
    drawn = _draw(n, seed, words.PREPOSITIONS, subjects, tuple(words.VERBS), attractors, tuple(words.VERBS))
    return [_agreement(*choice) for choice in drawn]


def _nouns(tokenizer: PromptTokenizer, nouns: Sequence[str], what: str) -> list[dict[str, str]]:
    """The two numbers of each noun of which both are single tokens."""
    plurals = _single(tokenizer, [f"{noun}s" for noun in nouns], what)
    singulars = _single(tokenizer, [plural.removesuffix("s") for plural in plurals], what)
    return [{"singular": noun, "plural": f"{noun}s"} for noun in singulars]


def _agreement(
    preposition: str, subject: dict[str, str], number: str, attractor: dict[str, str], other_number: str
) -> PromptPair:
    numbers = (number, "plural" if number == "singular" else "singular")
    between = f"{preposition} the {attractor[other_number]}"
    clean, corrupted = (f"The {subject[each]} {between}" for each in numbers)
    answer, foil = (words.VERBS[each] for each in numbers)
    roles: dict[str, Role] = {"subject": (subject[number], 0), "attractor": (attractor[other_number], -1), "END": -1}
    return PromptPair(clean, corrupted, answer, foil, roles, f"{number}, {other_number}")


def gender(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Which pronoun goes on about a name; corrupted, the name is one that mostly the other gender bears.

    Groups are `woman` and `man`, by the clean name. Roles: `name`, `END`. It measures what the model takes for usual,
    and says nothing about a person.
    """
    women, men = _single(tokenizer, words.WOMEN, "names of women"), _single(tokenizer, words.MEN, "names of men")
    drawn = _draw(n, seed, words.GENDER_TEMPLATES, tuple(words.PRONOUNS), women, men)
    return [_gender(*choice) for choice in drawn]


def _gender(template: str, who: str, woman: str, man: str) -> PromptPair:
    order = ("woman", "man") if who == "woman" else ("man", "woman")
    names = {"woman": woman, "man": man}
    clean, corrupted = (template.format(name=names[each]) for each in order)
    answer, foil = (words.PRONOUNS[each] for each in order)
    return PromptPair(clean, corrupted, answer, foil, {"name": names[who], "END": -1}, who)


def _ids(tokenizer: PromptTokenizer, text: str) -> list[int]:
    return tokenizer.encode_with_offsets(text)[0]


def _single(tokenizer: PromptTokenizer, candidates: Sequence[str], what: str) -> list[str]:
    """The words that are one token behind a space; `UsageError` where fewer than two are."""
    kept = [word for word in candidates if len(_ids(tokenizer, f" {word}")) == 1]
    if len(kept) < 2:
        raise UsageError(
            f"Of {len(candidates)} {what} this tokenizer has {len(kept)} as single tokens, and 2 are needed; "
            "write the pairs yourself and align them."
        )
    return kept


def _draw(n: int, seed: int, *axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The first `n` choices of one value an axis, all different; choice i is drawn from (seed, i)."""
    for name, value, least in (("n", n, 1), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise UsageError(f"{name} is {value!r}; expected a whole number from {least} on.")
    shape = tuple(len(axis) for axis in axes)
    size = math.prod(shape)
    if n > size:
        raise UsageError(f"n is {n}, and the words that this tokenizer has as single tokens make {size} pairs.")
    taken: dict[int, None] = {}  # in the order of drawing
    for item in range(n):
        place = random.Random(f"{seed} {item}").randrange(size)
        while place in taken:
            place = (place + 1) % size
        taken[place] = None
    places = (np.unravel_index(place, shape) for place in taken)
    return [tuple(axis[int(index)] for axis, index in zip(axes, place, strict=True)) for place in places]


BUILDERS: dict[str, Callable[..., list[PromptPair]]] = {
    "ioi": ioi,
    "greater-than": greater_than,
    "capitals": capitals,
    "country-swap": country_swap,
    "agreement": agreement,
    "gender": gender,
}
"""The builders by the name that the command line takes."""
