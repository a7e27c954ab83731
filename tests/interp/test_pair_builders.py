"""Generated pairs are aligned for every tokenizer, all different, and what they say they are."""

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from words import Words

from interp import pair_builders
from interp.errors import UsageError
from interp.pair_words import COUNTRIES, GENDER_TEMPLATES, IOI_TEMPLATES, MEN, WOMEN
from interp.pairs import PromptPair, align

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Builder = Callable[..., list[PromptPair]]
BUILDERS: dict[str, Builder] = {
    name: getattr(pair_builders, name)
    for name in ("ioi", "greater_than", "capitals", "country_swap", "agreement", "gender")
}
builders = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


@builders
def test_pairs_are_aligned_for_a_real_tokenizer(smollm2: "Transformer", build: Builder) -> None:
    """One column differs between the prompts of a pair, for years its two last digits; roles are in every pair."""
    made = build(smollm2.tokenizer, n=200)
    pairs = align(smollm2.tokenizer, made)
    assert len(pairs) == 200
    changed = (pairs.clean != pairs.corrupted).sum(1)
    assert set(changed.tolist()) <= ({1, 2} if build is pair_builders.greater_than else {1})
    assert set(pairs.roles) == set(made[0].roles)
    assert pairs.roles["END"] == (pairs.clean.shape[1] - 1,) * 200


@builders
@pytest.mark.parametrize("letters", [6, 8, 20])
def test_pairs_are_aligned_where_long_words_are_cut(build: Builder, letters: int) -> None:
    tokenizer = Words(letters=letters)
    align(tokenizer, build(tokenizer, n=30))


@builders
def test_pairs_are_all_different(build: Builder) -> None:
    made = build(Words(), n=400)
    assert len({(pair.clean, pair.corrupted) for pair in made}) == 400


@builders
def test_a_pair_depends_on_seed_and_number_alone(build: Builder) -> None:
    state = random.getstate()
    made = build(Words(), n=50, seed=3)
    assert build(Words(), n=50, seed=3) == made
    assert build(Words(), n=7, seed=3) == made[:7]
    assert build(Words(), n=50, seed=4) != made
    assert random.getstate() == state


@builders
def test_a_tokenizer_that_leaves_too_few_words_is_refused(build: Builder) -> None:
    with pytest.raises(UsageError, match=r"Of \d+ .* this tokenizer has [01] as single tokens, and 2 are needed"):
        build(Words(letters=1), n=1)


@builders
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n": 0}, "n is 0; expected a whole number from 1 on"),
        ({"n": 2.0}, "n is 2.0"),
        ({"n": True}, "n is True"),
        ({"n": 1, "seed": -1}, "seed is -1; expected a whole number from 0 on"),
        ({"n": 10**9}, r"n is 1000000000, and the words .* make \d+ pairs"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_numbers_that_cannot_be_meant_are_refused(build: Builder, settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build(Words(), **settings)


def test_all_pairs_that_there_are_can_be_had() -> None:
    """Every ordered pair of countries of which each has a capital of one token, once."""
    single = [country for country in COUNTRIES if " " not in country.capital]
    made = pair_builders.capitals(Words(), n=len(single) * (len(single) - 1))
    assert len({pair.clean + pair.corrupted for pair in made}) == len(made)
    with pytest.raises(UsageError, match=f"make {len(made)} pairs"):
        pair_builders.capitals(Words(), n=len(made) + 1)


# ------------------------------------------------------------------------------------------------- each builder


def test_in_ioi_the_second_subject_becomes_the_indirect_object() -> None:
    tokenizer = Words()
    made = pair_builders.ioi(tokenizer, n=300)
    pairs = align(tokenizer, made)
    for row, pair in enumerate(made):
        ids = pairs.clean[row].tolist()
        words = {role: tokenizer.pieces[ids[columns[row]]] for role, columns in pairs.roles.items()}
        assert (words["IO"], words["S1"], words["S2"], words["END"]) == (pair.answer, pair.foil, pair.foil, " to")
        places = [pairs.roles[role][row] for role in ("IO", "S1", "S2", "END")]
        assert (places[0] < places[1]) == pair.group.startswith("ABB")
        assert max(places[:2]) < places[2] < places[3]
        ids[places[2]] = tokenizer.single_token(pair.answer)
        assert ids == pairs.corrupted[row].tolist()
    orders = [order for order in ("ABB", "BAB") for _ in IOI_TEMPLATES]
    numbers = [*range(len(IOI_TEMPLATES))] * 2
    assert {pair.group for pair in made} == {f"{order} {number}" for order, number in zip(orders, numbers, strict=True)}


def test_no_name_is_part_of_another_word_of_its_prompt() -> None:
    """Roles are found by their words: Ann would be found in Anna."""
    words = [*WOMEN, *MEN, *re.findall(r"\w+", " ".join(IOI_TEMPLATES + GENDER_TEMPLATES))]
    for name in (*WOMEN, *MEN):
        assert [word for word in words if name in word] == [name]


@pytest.mark.parametrize(("digits", "width"), [(1, 1), (2, 2)])
def test_the_answer_is_later_than_the_first_year_and_the_foil_earlier(digits: int, width: int) -> None:
    tokenizer = Words(digits=digits)
    made = pair_builders.greater_than(tokenizer, n=300)
    pairs = align(tokenizer, made)
    for row, pair in enumerate(made):
        begins, century = re.fullmatch(r"The \w+ lasted from the year (\d{4}) to the year (\d\d)", pair.clean).groups()
        corrupted = re.fullmatch(r"The \w+ lasted from the year (\d{4}) to the year (\d\d)", pair.corrupted)
        assert corrupted.groups() == (f"{century}01", century)
        assert (begins[:2], pair.group) == (century, century)
        assert "01"[:width] < pair.foil < begins[2 : 2 + width] < pair.answer
        assert int(pair.answer) - int(pair.foil) == (2 if width == 1 else 20)
        assert len(pair.foil) == len(pair.answer) == width
        assert tokenizer.pieces[pairs.clean[row, pairs.roles["START"][row]]] == begins[2 : 2 + width]
        continued = tokenizer.prompt_ids(pair.clean + pair.answer, "doc")
        assert continued == [*pairs.clean[row].tolist(), pairs.answers[row]]


@pytest.mark.parametrize("digits", [3, 4])
def test_years_that_are_cut_in_another_way_are_refused(digits: int) -> None:
    with pytest.raises(UsageError, match="neither into digits nor into two halves"):
        pair_builders.greater_than(Words(digits=digits), n=1)


@pytest.mark.parametrize("fact", ["capital", "language", "continent"])
def test_swapped_countries_differ_in_the_fact(fact: str) -> None:
    facts = {country.name: getattr(country, fact) for country in COUNTRIES}
    for pair in pair_builders.country_swap(Words(), n=200, facts=[fact]):
        one = pair.roles["country"]
        (other,) = (name for name in facts if pair.clean.replace(one, name) == pair.corrupted)
        assert (pair.answer, pair.foil, pair.group) == (f" {facts[one]}", f" {facts[other]}", fact)
        assert pair.answer != pair.foil


def test_facts_are_mixed_and_unknown_ones_refused() -> None:
    groups = [pair.group for pair in pair_builders.country_swap(Words(), n=100)]
    assert set(groups) == {"language", "continent"}
    for facts in ((), ("language", "river")):
        with pytest.raises(UsageError, match="expected some of capital, language, continent"):
            pair_builders.country_swap(Words(), n=1, facts=facts)


def test_the_verb_agrees_with_the_subject_whatever_the_attractor() -> None:
    made = pair_builders.agreement(Words(), n=300)
    for pair in made:
        subject, attractor = pair.roles["subject"][0], pair.roles["attractor"][0]
        assert pair.answer == (" are" if subject.endswith("s") else " is")
        assert {pair.answer, pair.foil} == {" are", " is"}
        other = subject.removesuffix("s") if subject.endswith("s") else f"{subject}s"
        assert pair.corrupted == pair.clean.replace(f"The {subject} ", f"The {other} ")
        assert pair.clean.endswith(f" the {attractor}")
        numbers = ["plural" if noun.endswith("s") else "singular" for noun in (subject, attractor)]
        assert pair.group == ", ".join(numbers)
    assert len({pair.group for pair in made}) == 4


def test_the_pronoun_follows_the_name() -> None:
    made = pair_builders.gender(Words(), n=200)
    for pair in made:
        own, others = (WOMEN, MEN) if pair.answer == " she" else (MEN, WOMEN)
        name = pair.roles["name"]
        assert name in own
        assert pair.corrupted in {pair.clean.replace(name, other) for other in others}
        assert pair.group == ("woman" if own is WOMEN else "man")
        assert {pair.answer, pair.foil} == {" she", " he"}
    assert {pair.group for pair in made} == {"woman", "man"}
