"""Marked sentences: every word stands where it is said to, and no head gains by its liking for a place."""

from typing import TYPE_CHECKING

import pytest
import torch

from interp import pair_words
from interp.analyses.role_sentences import Marked, Twice, attractor_sentences, marked, pronoun_sentences
from interp.analyses.text_scores import SentenceText, sentence_text

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

SENTENCES = {"pronouns": pronoun_sentences(), "attractors": attractor_sentences()}


def both(kind: str) -> list[Marked]:
    return [each for twice in SENTENCES[kind] for each in (twice.written, twice.swapped)]


def test_marked_words_are_found_again() -> None:
    found = marked("At noon {one} met {other}.", one="Mary", other="Al")
    assert found.text == "At noon Mary met Al."
    assert found.places == {"one": (8, 12), "other": (17, 19)}
    assert (found["one"], found["other"]) == ("Mary", "Al")


@pytest.mark.parametrize(("kind", "least"), [("pronouns", 48), ("attractors", 40)])
def test_there_are_enough_and_all_are_different(kind: str, least: int) -> None:
    texts = {each.text for each in both(kind)}
    assert len(SENTENCES[kind]) >= least
    assert len(texts) == 2 * len(SENTENCES[kind])


@pytest.mark.parametrize("kind", SENTENCES)
def test_swapped_the_nouns_have_changed_places_and_the_target_is_the_same(kind: str) -> None:
    for twice in SENTENCES[kind]:
        for name in ("target", "competitor", "query"):
            assert twice.written[name] == twice.swapped[name]
        starts = [[each.places[name][0] for name in ("target", "competitor", "query")] for each in _orders(twice)]
        assert sorted(starts[0]) == starts[0]
        assert starts[1][1] < starts[1][0] < starts[1][2]


def _orders(twice: Twice) -> tuple[Marked, Marked]:
    return twice.written, twice.swapped


def test_a_pronoun_fits_its_antecedent_and_not_the_other_noun() -> None:
    fits = {
        "she": lambda noun: noun in pair_words.WOMEN,
        "he": lambda noun: noun in pair_words.MEN,
        "they": lambda noun: noun[0].islower() and noun.endswith("s"),
        "it": lambda noun: noun[0].islower() and not noun.endswith("s"),
    }
    pronouns = [twice.written["query"] for twice in SENTENCES["pronouns"]]
    assert {pronoun: pronouns.count(pronoun) for pronoun in fits} == dict.fromkeys(fits, 12)
    for twice in SENTENCES["pronouns"]:
        fit = fits[twice.written["query"]]
        assert fit(twice.written["target"])
        assert not fit(twice.written["competitor"])


def test_a_verb_agrees_with_its_subject_and_not_with_the_attractor() -> None:
    numbers = [twice.written["verb"] for twice in SENTENCES["attractors"]]
    assert numbers.count(" is") == numbers.count(" are") == 20
    for twice in SENTENCES["attractors"]:
        plural = twice.written["verb"] == " are"
        assert twice.written["target"].endswith("s") == plural
        assert twice.written["competitor"].endswith("s") != plural
        assert all(each.places["query"][1] == each.places["verb"][0] for each in _orders(twice))


@pytest.mark.parametrize("kind", SENTENCES)
def test_words_stand_at_their_tokens(smollm2: "Transformer", kind: str) -> None:
    for each in both(kind):
        found = sentence_text(smollm2.tokenizer, each, "doc", ["query"])
        pieces = smollm2.tokenizer.str_tokens(found.tokens.tolist())
        assert "".join(pieces[place] for place in found.target).strip() == each["target"]
        assert "".join(pieces[place] for place in found.competitor).strip() == each["competitor"]
        assert each["query"].endswith(pieces[found.queries[0]].strip())
        assert max(*found.target, *found.competitor) < found.queries[0]


def test_without_a_prefix_every_word_stands_one_place_earlier(smollm2: "Transformer") -> None:
    each = SENTENCES["attractors"][0].written
    behind, alone = (sentence_text(smollm2.tokenizer, each, prefix, ["query", "verb"]) for prefix in ("doc", "none"))
    assert behind.tokens[1:].tolist() == alone.tokens.tolist()
    assert [place - 1 for place in behind.queries] == list(alone.queries)
    assert [place - 1 for place in behind.target] == list(alone.target)


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_liking_for_a_place_gains_nothing(smollm2: "Transformer", kind: str) -> None:
    """Whichever noun comes first, and whichever is nearer: what one order gives the other takes."""
    for twice in SENTENCES[kind]:
        scores = []
        for each in _orders(twice):
            found = sentence_text(smollm2.tokenizer, each, "doc", ["query"])
            scores.append([_score(found, nouns[0]) for nouns in (_by_place(found), _by_place(found)[::-1])])
        (first, nearer), (first_swapped, nearer_swapped) = scores
        assert (first, nearer) == (1, -1)
        assert first + first_swapped == nearer + nearer_swapped == 0


def _by_place(text: SentenceText) -> list[tuple[int, ...]]:
    """The two nouns, the first one first."""
    return sorted((text.target, text.competitor))


def _score(text: SentenceText, noun: tuple[int, ...]) -> float:
    """The score of a head that looks at one noun, at its last token."""
    pattern = torch.zeros(len(text.tokens), len(text.tokens))
    pattern[:, noun[-1]] = 1
    return float((text.weights()[0] * pattern).sum())


def test_up_to_the_pronoun_nothing_but_its_form_says_who_is_meant() -> None:
    """A model reads from left to right: with both pronouns possible there, the text alone would fit either noun."""
    for twice in SENTENCES["pronouns"]:
        before = [each.text[: each.places["query"][0]] for each in _orders(twice)]
        swapped = (
            before[0]
            .replace(twice.written["target"], "\0")
            .replace(twice.written["competitor"], twice.written["target"])
            .replace("\0", twice.written["competitor"])
        )
        assert swapped == before[1]
