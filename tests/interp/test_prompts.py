"""A subject's tokens are those that overlap its characters, counted in the prompt that the model reads."""

import random
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pytest

from interp.errors import UsageError
from interp.prompts import Prefix, Span, find_subject, replaced

if TYPE_CHECKING:
    from interp.models.tokenizer import Tokenizer
    from interp.models.transformer import Transformer

TOWER = "The Eiffel Tower is located in the city of"
TWICE = "Paris is Paris"


@pytest.fixture
def tokenizer(smollm2: "Transformer") -> "Tokenizer":
    return smollm2.tokenizer


@pytest.mark.parametrize(
    ("text", "subject", "start", "pieces"),
    [
        (TOWER, "The Eiffel Tower", 1, ("The", " E", "iffel", " Tower")),
        (TOWER, "Eiffel Tower", 2, (" E", "iffel", " Tower")),
        (TOWER, " Tower", 4, (" Tower",)),
        ("iPhone 4S was made by", "iPhone 4S", 1, ("i", "Phone", " ", "4", "S")),
        ("iPhone 4S was made by", "4S", 4, ("4", "S")),
        ("Megan plays", "Megan", 1, ("Me", "gan")),
        ("The Parisian café", "Paris", 2, (" Paris",)),
        ("I say 🙂 twice", "🙂", 3, (" 🙂",)),
        ("Look: 🙃!", "🙃", 3, (r" \xf0\x9f", r"\x99", r"\x83")),
        ("東京は日本", "日", 7, (r"\xe6\x97", r"\xa5")),
    ],
)
def test_the_tokens_of_a_subject_may_carry_the_space_before_it(
    tokenizer: "Tokenizer", text: str, subject: str, start: int, pieces: tuple[str, ...]
) -> None:
    assert find_subject(tokenizer, text, subject) == Span(start, start + len(pieces), subject, pieces, exact=True)


@pytest.mark.parametrize(
    ("text", "subject", "pieces"),
    [
        ("iPhone 4S was made by", "Phon", ("Phone",)),
        ("It is located there", "cat", (" located",)),
        ("The Parisian café", "Pari", (" Paris",)),
        ("naïve cafés", "café", (" caf", "és")),
        (TOWER, "iff", ("iffel",)),
        (TOWER, "fel Tow", ("iffel", " Tower")),
        (TOWER, "Tower ", (" Tower", " is")),
    ],
)
def test_a_subject_cut_inside_a_token_is_not_exact(
    tokenizer: "Tokenizer", text: str, subject: str, pieces: tuple[str, ...]
) -> None:
    span = find_subject(tokenizer, text, subject)
    assert span.pieces == pieces
    assert not span.exact
    with pytest.raises(UsageError, match="begins or ends inside a token"):
        span.must_be_exact()


@pytest.mark.parametrize("prefix", ["doc", "none", "chat"])
@pytest.mark.parametrize("subject", ["The", "Eiffel Tower", "of", TOWER])
def test_positions_are_those_of_the_tokens_that_the_model_reads(
    smollm2: "Transformer", subject: str, prefix: Prefix
) -> None:
    span = find_subject(smollm2.tokenizer, TOWER, subject, prefix=prefix)
    read = smollm2.to_str_tokens(TOWER, prefix=prefix)
    assert tuple(read[place] for place in span.positions) == span.pieces
    assert "".join(span.pieces).strip() == subject
    assert span.positions[-1] == span.last == span.stop - 1


def test_a_prefix_moves_the_subject_by_its_own_length(tokenizer: "Tokenizer") -> None:
    bare = find_subject(tokenizer, TOWER, "Eiffel Tower", prefix="none")
    assert bare.positions == [1, 2, 3]
    for prefix in ("doc", "chat"):
        moved = find_subject(tokenizer, TOWER, "Eiffel Tower", prefix=prefix)
        assert moved.start - bare.start == moved.stop - bare.stop == len(tokenizer.prefix_ids(prefix)) > 0


def test_a_text_that_brings_the_separator_along_is_placed_behind_it(smollm2: "Transformer") -> None:
    text = f"<|endoftext|>{TOWER}"
    span = find_subject(smollm2.tokenizer, text, "Eiffel Tower")
    assert span == find_subject(smollm2.tokenizer, TOWER, "Eiffel Tower")
    assert span == find_subject(smollm2.tokenizer, text, "Eiffel Tower", prefix="none")
    assert tuple(smollm2.to_str_tokens(text)[span.start : span.stop]) == span.pieces


def test_of_several_occurrences_one_is_chosen(tokenizer: "Tokenizer") -> None:
    with pytest.raises(UsageError, match="stands 2 times.*occurrence: 0 to 1"):
        find_subject(tokenizer, TWICE, "Paris")
    spans = [find_subject(tokenizer, TWICE, "Paris", occurrence=which) for which in (0, 1)]
    assert [span.start for span in spans] == [1, 3]
    assert [span.pieces for span in spans] == [("Paris",), (" Paris",)]
    assert find_subject(tokenizer, TWICE, "Paris", occurrence=-1) == spans[1]
    assert find_subject(tokenizer, TWICE, "Paris", occurrence=-2) == spans[0]
    assert find_subject(tokenizer, TWICE, " Paris") == Span(3, 4, " Paris", (" Paris",), exact=True)


def test_occurrences_may_overlap(tokenizer: "Tokenizer") -> None:
    with pytest.raises(UsageError, match="stands 2 times"):
        find_subject(tokenizer, "1 2 1 2 1", "1 2 1")
    first, second = (find_subject(tokenizer, "1 2 1 2 1", "1 2 1", occurrence=which) for which in (0, 1))
    assert first.start < second.start < first.stop < second.stop


def test_another_subject_takes_the_place_of_the_occurrence_that_is_meant() -> None:
    with pytest.raises(UsageError, match="stands 2 times"):
        replaced(TWICE, "Paris", "Rome")
    assert [replaced(TWICE, "Paris", "Rome", occurrence=which) for which in (0, 1, -1)] == [
        "Rome is Paris",
        "Paris is Rome",
        "Paris is Rome",
    ]


def test_the_only_occurrence_may_be_chosen_too(tokenizer: "Tokenizer") -> None:
    plain = find_subject(tokenizer, TOWER, "Eiffel")
    assert find_subject(tokenizer, TOWER, "Eiffel", occurrence=0) == plain
    assert find_subject(tokenizer, TOWER, "Eiffel", occurrence=-1) == plain


@pytest.mark.parametrize(
    ("text", "subject", "occurrence", "says"),
    [
        (TOWER, "", None, "subject is ''"),
        (TOWER, 7, None, "subject is 7"),
        (TOWER, "Louvre", None, "'Louvre' does not stand in 'The Eiffel.*letter for letter"),
        (TOWER, "eiffel tower", None, "It contains 'Eiffel Tower' in other letters"),
        ("ÉCOLE", "école", None, "It contains 'ÉCOLE' in other letters"),
        ("Why (not)?", "(NOT)", None, "'\\(not\\)' in other letters"),
        (TOWER, " The Eiffel Tower", None, "It contains 'The Eiffel Tower' without those spaces"),
        (TOWER, "\t", None, "letter for letter"),
        (TWICE, "Paris", 2, "no occurrence 2 of 'Paris': expected 0 to 1"),
        (TWICE, "Paris", -3, "no occurrence -3"),
        (TWICE, "Paris", True, "no occurrence True"),
        (TWICE, "Paris", 0.0, "no occurrence 0.0"),
        (TWICE, "Paris", [0, 1], "no occurrence \\[0, 1\\]"),
        (TOWER, "Eiffel", 1, "expected 0 to 0"),
        ("", "Paris", None, "prompt '' is empty"),
        (None, "Paris", None, "text is expected, not NoneType"),
    ],
)
def test_subjects_that_cannot_be_meant_are_refused(
    tokenizer: "Tokenizer", text: str, subject: str, occurrence: int | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        find_subject(tokenizer, text, subject, occurrence=occurrence)


def test_an_unknown_prefix_is_refused(tokenizer: "Tokenizer") -> None:
    with pytest.raises(UsageError, match="prefix policy"):
        find_subject(tokenizer, TOWER, "Eiffel", prefix="bos")


class Lossy:
    """A tokenizer of single letters that drops digits, without a word."""

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        kept = [place for place, letter in enumerate(text) if not letter.isdigit()]
        return [ord(text[place]) for place in kept], [(place, place + 1) for place in kept]

    def prompt_ids(self, text: str, prefix: Prefix) -> list[int]:
        return self.encode_with_offsets(text)[0]

    def suffix_ids(self, policy: Prefix) -> list[int]:
        return []

    def str_tokens(self, ids: Iterable[int]) -> list[str]:
        return [chr(index) for index in ids]


def test_a_subject_that_no_token_covers_is_refused() -> None:
    assert find_subject(Lossy(), "ab12cd", "cd").positions == [2, 3]
    with pytest.raises(UsageError, match="No token covers '12'"):
        find_subject(Lossy(), "ab12cd", "12")


WORDS = [
    *("the", "Eiffel", "Tower", "Megan", "naïve", "cafés", "Łódź", "Straße", "e\u0301te\u0301", "don't", "4S", "2024"),
    *("東京", "日本語", "한국어", "العربية", "עברית", "ไทย", "हिन्दी", "Ελλάδα", "Москва", "𝔘𝔫𝔦", "½"),
    *("🙂", "🙃", "👩\u200d👧", "🇫🇷🇩🇪", "👍🏽", "<|im_end|>", "\u00a0", "\n", "  ", "…", "“so”"),
]


def random_case(rng: random.Random) -> tuple[str, str, int]:
    """A text, a substring of it, and which of its occurrences is meant."""
    text = "".join(rng.choice(["", " ", " "]) + rng.choice(WORDS) for _ in range(rng.randint(1, 12)))
    first = rng.randrange(len(text))
    subject = text[first : rng.randint(first + 1, min(len(text), first + 12))]
    return text, subject, sum(text.startswith(subject, place) for place in range(first))


def test_the_tokens_of_any_subject_are_those_that_hold_its_bytes(tokenizer: "Tokenizer") -> None:
    """Placed a second time, by the bytes of each token in place of the tokenizer's offsets."""
    rng = random.Random(0)
    for _ in range(200):
        text, subject, occurrence = random_case(rng)
        starts = [place for place in range(len(text)) if text.startswith(subject, place)]
        low = len(text[: starts[occurrence]].encode())
        high = low + len(subject.encode())
        ends = accumulate((len(tokenizer.token_bytes(index)) for index in tokenizer.encode(text)), initial=0)
        holding = [place for place, (start, stop) in enumerate(pairwise(ends)) if start < high and stop > low]
        span = find_subject(tokenizer, text, subject, prefix="none", occurrence=occurrence)
        assert span.positions == holding, (text, subject, occurrence)


def test_the_tokens_of_any_subject_spell_it_and_none_of_them_can_be_spared(tokenizer: "Tokenizer") -> None:
    rng = random.Random(1)
    checked = 0
    while checked < 200:
        text, subject, _ = random_case(rng)
        if sum(text.startswith(subject, place) for place in range(len(text))) > 1:
            continue
        span = find_subject(tokenizer, text, subject)
        ids = tokenizer.prompt_ids(text)[span.start : span.stop]
        assert subject in tokenizer.decode(ids), (text, subject)
        assert subject not in tokenizer.decode(ids[1:]), (text, subject)
        assert subject not in tokenizer.decode(ids[:-1]), (text, subject)
        checked += 1
