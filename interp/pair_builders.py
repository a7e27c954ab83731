"""Prompt pairs made from templates and word lists, for a tokenizer.

    pairs = align(model.tokenizer, ioi(model.tokenizer, n=64, seed=0))

| builder | clean, then corrupted | answer | foil |
|---|---|---|---|
| `ioi` | When Mary and John went to the store, John (Mary) gave a drink to | " Mary" | " John" |
| `greater_than` | The war lasted from the year 1745 (1701) to the year 17 | "6" | "2" |
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
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from interp.errors import UsageError
from interp.prompt_pairs import PromptPair, Role
from interp.prompts import PromptTokenizer

WOMEN = (
    *("Mary", "Anna", "Sarah", "Emily", "Laura", "Alice", "Helen", "Julia", "Susan", "Rachel", "Elizabeth", "Lisa"),
    *(
        "Karen",
        "Linda",
        "Nancy",
        "Rebecca",
        "Jennifer",
        "Jessica",
        "Martha",
        "Catherine",
        "Diana",
        "Sophie",
        "Margaret",
    ),
    *("Barbara", "Lucy", "Hannah", "Charlotte"),
)
MEN = (
    *("John", "James", "Robert", "David", "Michael", "William", "Thomas", "Peter", "Paul", "Daniel", "Kevin", "Brian"),
    *("Steven", "Richard", "George", "Edward", "Andrew", "Simon", "Henry", "Adam", "Charles", "Joseph", "Matthew"),
    *("Patrick", "Philip", "Martin", "Anthony"),
)
PLACES = ("store", "park", "school", "office", "library", "station", "hospital", "beach", "market", "museum")
OBJECTS = ("drink", "book", "ring", "letter", "gift", "computer", "key", "bottle", "watch", "ticket", "map", "flower")

IOI_TEMPLATES = (
    "When {first} and {second} went to the {place}, {giver} gave a {object} to",
    "After {first} and {second} arrived at the {place}, {giver} handed a {object} to",
    "Yesterday {first} and {second} met at the {place}, and {giver} showed a {object} to",
    "Then {first} and {second} had a long talk at the {place}, and {giver} gave a {object} to",
    "While {first} and {second} were walking to the {place}, {giver} offered a {object} to",
    "Since {first} and {second} wanted to see the {place}, {giver} brought a {object} to",
    "Once {first} and {second} were back from the {place}, {giver} sent a {object} to",
)

DURATIONS = (
    *("war", "journey", "siege", "voyage", "project", "drought", "festival", "reign", "strike", "famine"),
    *("expedition", "conflict", "revolt", "epidemic", "campaign", "alliance", "crisis"),
)
CENTURIES = ("12", "13", "14", "15", "16", "17", "18")


class Country(NamedTuple):
    """A country; its most widely spoken language and its continent are None where there is no one short answer."""

    name: str
    capital: str
    language: str | None
    continent: str | None


COUNTRIES = (
    Country("France", "Paris", "French", "Europe"),
    Country("Germany", "Berlin", "German", "Europe"),
    Country("Italy", "Rome", "Italian", "Europe"),
    Country("Spain", "Madrid", "Spanish", "Europe"),
    Country("Portugal", "Lisbon", "Portuguese", "Europe"),
    Country("Greece", "Athens", "Greek", "Europe"),
    Country("Poland", "Warsaw", "Polish", "Europe"),
    Country("Sweden", "Stockholm", "Swedish", "Europe"),
    Country("Norway", "Oslo", "Norwegian", "Europe"),
    Country("Denmark", "Copenhagen", "Danish", "Europe"),
    Country("Finland", "Helsinki", None, "Europe"),
    Country("Hungary", "Budapest", "Hungarian", "Europe"),
    Country("Austria", "Vienna", "German", "Europe"),
    Country("Belgium", "Brussels", None, "Europe"),
    Country("Ireland", "Dublin", None, "Europe"),
    Country("Romania", "Bucharest", "Romanian", "Europe"),
    Country("Bulgaria", "Sofia", "Bulgarian", "Europe"),
    Country("Russia", "Moscow", "Russian", None),
    Country("Turkey", "Ankara", "Turkish", None),
    Country("Japan", "Tokyo", "Japanese", "Asia"),
    Country("China", "Beijing", "Chinese", "Asia"),
    Country("Thailand", "Bangkok", "Thai", "Asia"),
    Country("Vietnam", "Hanoi", "Vietnamese", "Asia"),
    Country("India", "New Delhi", None, "Asia"),
    Country("Nepal", "Kathmandu", None, "Asia"),
    Country("Pakistan", "Islamabad", None, "Asia"),
    Country("Iran", "Tehran", "Persian", "Asia"),
    Country("Iraq", "Baghdad", "Arabic", "Asia"),
    Country("Syria", "Damascus", "Arabic", "Asia"),
    Country("Lebanon", "Beirut", "Arabic", "Asia"),
    Country("Egypt", "Cairo", "Arabic", "Africa"),
    Country("Morocco", "Rabat", None, "Africa"),
    Country("Kenya", "Nairobi", None, "Africa"),
    Country("Nigeria", "Abuja", None, "Africa"),
    Country("Ghana", "Accra", None, "Africa"),
    Country("Canada", "Ottawa", None, None),
    Country("Cuba", "Havana", "Spanish", None),
    Country("Argentina", "Buenos Aires", "Spanish", None),
    Country("Chile", "Santiago", "Spanish", None),
    Country("Peru", "Lima", "Spanish", None),
    Country("Colombia", "Bogotá", "Spanish", None),
    Country("Brazil", "Brasília", "Portuguese", None),
)

CountryFact = Literal["capital", "language", "continent"]
COUNTRY_TEMPLATES: dict[CountryFact, str] = {
    "capital": "The capital of {country} is",
    "language": "The main language of {country} is",
    "continent": "The country of {country} lies on the continent of",
}

THINGS = (
    *("key", "book", "picture", "letter", "lamp", "cup", "painting", "bottle", "flower", "chair", "boy", "girl"),
    *("dog", "cat", "teacher", "guard", "farmer", "doctor"),
)
SITES = (
    *("cabinet", "car", "tree", "door", "table", "house", "window", "road", "bridge", "tower", "garden", "wall"),
    *("river", "shop"),
)
PREPOSITIONS = ("near", "behind", "beside", "next to", "in front of")
VERBS = {"singular": " is", "plural": " are"}

GENDER_TEMPLATES = (
    "When {name} woke up this morning,",
    "Because {name} was tired after work,",
    "After {name} read the letter,",
    "As {name} opened the door,",
    "Everyone knows {name} because",
    "Our friends say of {name} that",
)
PRONOUNS = {"woman": " she", "man": " he"}


def ioi(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Indirect object identification: who is given something by the person named twice (Wang et al. 2022).

    Corrupted, the other person gives. Groups are the order of names, `ABB` (indirect object first) or `BAB`, and the
    template's number. Roles: `IO`, `S1` and `S2` (the subject's two mentions), `END`.
    """
    names = _single(tokenizer, (*WOMEN, *MEN), "names")
    places, objects = _single(tokenizer, PLACES, "places"), _single(tokenizer, OBJECTS, "objects")
    people = list(itertools.permutations(names, 2))
    drawn = _draw(n, seed, range(len(IOI_TEMPLATES)), ("ABB", "BAB"), people, places, objects)
    return [_ioi(*choice) for choice in drawn]


def _ioi(template: int, order: str, people: tuple[str, str], place: str, item: str) -> PromptPair:
    indirect, subject = people
    first, second = people if order == "ABB" else (subject, indirect)
    clean, corrupted = (
        IOI_TEMPLATES[template].format(first=first, second=second, place=place, giver=giver, object=item)
        for giver in (subject, indirect)
    )
    roles: dict[str, Role] = {"IO": indirect, "S1": (subject, 0), "S2": (subject, 1), "END": -1}
    return PromptPair(clean, corrupted, f" {indirect}", f" {subject}", roles, f"{order} {template}")


def greater_than(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Years that come later: an interval's end is not before its beginning (Hanna et al. 2023).

    Answer and foil are one token each. Where digits are tokens of their own it is the digit of the last year's decade:
    a later decade than that of the first year, and an earlier one. Where the last two digits are one token it is those,
    of a later and of an earlier year. Corrupted, the first year ends in 01, so that both are later. Two endings are
    compared; Hanna's own measure sums the probabilities of all of them.

    Roles: `START` (the token of the first year that decides: its decade's digit, or its last two digits), `END`. Groups
    are the digits of the century. Raises `UsageError` for a tokenizer that cuts years in another way.
    """
    for width in (1, 2):
        if spans := _year_spans(tokenizer, width):
            break
    else:
        raise UsageError("This tokenizer cuts years neither into digits nor into two halves; greater-than needs that.")
    drawn = _draw(n, seed, _single(tokenizer, DURATIONS, "nouns"), spans)
    return [_greater_than(noun, *span, width=width) for noun, span in drawn]


def _greater_than(noun: str, century: str, endings: tuple[str, str, str], *, width: int) -> PromptPair:
    earlier, start, later = endings
    clean, corrupted = (
        f"The {noun} lasted from the year {century}{ending} to the year {century}" for ending in (start, "01")
    )
    roles: dict[str, Role] = {"START": f"{century}{start}"[: 2 + width], "END": -1}
    return PromptPair(clean, corrupted, later[:width], earlier[:width], roles, century)


def _year_spans(tokenizer: PromptTokenizer, width: int) -> list[tuple[str, tuple[str, str, str]]]:
    """Centuries, and endings of three years in order, all cut into century and tokens of `width` digits."""
    found = []
    for century in CENTURIES:
        good = {ending for ending in map("{:02d}".format, range(100)) if _is_cut(tokenizer, century, ending, width)}
        for decades in itertools.combinations(range(1, 10), 3):
            for unit in range(2, 10):
                earlier, start, later = (f"{decade}{unit}" for decade in decades)
                if good >= {"01", earlier, start, later}:
                    found.append((century, (earlier, start, later)))
    return found


def _is_cut(tokenizer: PromptTokenizer, century: str, ending: str, width: int) -> bool:
    before, whole = _ids(tokenizer, f" {century}"), _ids(tokenizer, f" {century}{ending}")
    next_token = _ids(tokenizer, ending[:width])
    return whole[: len(before) + 1] == before + next_token and len(whole) == len(before) + 2 // width


def capitals(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """The capital of one country, with that of another as foil. Roles: `country`, `END`."""
    return country_swap(tokenizer, n=n, seed=seed, facts=("capital",))


def country_swap(
    tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0, facts: Sequence[CountryFact] = ("language", "continent")
) -> list[PromptPair]:
    """A fact about one country and about another, for which it is different.

    The fact is the pair's group: `capital`, `language` or `continent`. Roles: `country`, `END`.
    """
    if not facts or not set(facts) <= set(COUNTRY_TEMPLATES):
        raise UsageError(f"The facts are {facts!r}; expected some of {', '.join(COUNTRY_TEMPLATES)}.")
    swaps = [(fact, *swap) for fact in facts for swap in _swaps(tokenizer, fact)]
    return [_country(*choice) for (choice,) in _draw(n, seed, swaps)]


def _swaps(tokenizer: PromptTokenizer, fact: CountryFact) -> list[tuple[Country, Country]]:
    """Ordered pairs of countries that differ in a fact, all of single tokens."""
    values = {country: getattr(country, fact) for country in COUNTRIES if getattr(country, fact)}
    names = _single(tokenizer, [country.name for country in values], "countries")
    answers = _single(tokenizer, list(dict.fromkeys(values.values())), f"answers for {fact}")
    known = [country for country, value in values.items() if country.name in names and value in answers]
    return [(one, other) for one, other in itertools.permutations(known, 2) if values[one] != values[other]]


def _country(fact: CountryFact, one: Country, other: Country) -> PromptPair:
    clean, corrupted = (COUNTRY_TEMPLATES[fact].format(country=country.name) for country in (one, other))
    answer, foil = (f" {getattr(country, fact)}" for country in (one, other))
    return PromptPair(clean, corrupted, answer, foil, {"country": one.name, "END": -1}, fact)


def agreement(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Is the verb singular or plural, after a noun that stands between subject and verb (Linzen et al. 2016)?

    Corrupted, the subject has the other number. Groups say the clean subject's number and the attractor's, such as
    `plural, singular`. Roles: `subject`, `attractor`, `END`, which is the attractor's last token.
    """
    subjects, attractors = _nouns(tokenizer, THINGS, "subjects"), _nouns(tokenizer, SITES, "attractors")
    drawn = _draw(n, seed, PREPOSITIONS, subjects, tuple(VERBS), attractors, tuple(VERBS))
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
    answer, foil = (VERBS[each] for each in numbers)
    roles: dict[str, Role] = {"subject": (subject[number], 0), "attractor": (attractor[other_number], -1), "END": -1}
    return PromptPair(clean, corrupted, answer, foil, roles, f"{number}, {other_number}")


def gender(tokenizer: PromptTokenizer, *, n: int = 64, seed: int = 0) -> list[PromptPair]:
    """Which pronoun goes on about a name; corrupted, the name is one that mostly the other gender bears.

    Groups are `woman` and `man`, by the clean name. Roles: `name`, `END`. It measures what the model takes for usual,
    and says nothing about a person.
    """
    women, men = _single(tokenizer, WOMEN, "names of women"), _single(tokenizer, MEN, "names of men")
    drawn = _draw(n, seed, GENDER_TEMPLATES, tuple(PRONOUNS), women, men)
    return [_gender(*choice) for choice in drawn]


def _gender(template: str, who: str, woman: str, man: str) -> PromptPair:
    order = ("woman", "man") if who == "woman" else ("man", "woman")
    names = {"woman": woman, "man": man}
    clean, corrupted = (template.format(name=names[each]) for each in order)
    answer, foil = (PRONOUNS[each] for each in order)
    return PromptPair(clean, corrupted, answer, foil, {"name": names[who], "END": -1}, who)


def _ids(tokenizer: PromptTokenizer, text: str) -> list[int]:
    return tokenizer.encode_with_offsets(text)[0]


def _single(tokenizer: PromptTokenizer, words: Sequence[str], what: str) -> list[str]:
    """The words that are one token behind a space; `UsageError` where fewer than two are."""
    kept = [word for word in words if len(_ids(tokenizer, f" {word}")) == 1]
    if len(kept) < 2:
        raise UsageError(
            f"Of {len(words)} {what} this tokenizer has {len(kept)} as single tokens, and 2 are needed; "
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
