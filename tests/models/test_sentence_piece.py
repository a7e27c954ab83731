"""SentencePiece vocabularies with scores: cut as SentencePiece cuts, on a vocabulary that can be followed by hand."""

import pytest

from interp.errors import LoadError
from interp.models.sentence_piece import Pieces, merges
from interp.models.tokenizer import Tokenizer

# a token, its score and its kind: 3 control, 4 user-defined, 6 a byte
VOCABULARY: list[tuple[str, float, int]] = [
    ("<unk>", 0.0, 3), ("<s>", 0.0, 3), ("  ", -9.0, 4), ("   ", -9.0, 4), ("<b>", -9.0, 4),
    *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
    ("▁", -7.0, 1), ("a", -8.0, 1), ("b", -8.0, 1), ("c", -8.0, 1),
    ("bc", -1.0, 1), ("ab", -2.0, 1), ("▁a", -3.0, 1), ("abc", -4.0, 1), ("▁abc", -5.0, 1), ("aa", -2.5, 1),
]  # fmt: skip
TOKENS, SCORES, KINDS = (list(column) for column in zip(*VOCABULARY, strict=True))


def fields(**more: object) -> dict[str, object]:
    """The metadata of a file with this vocabulary."""
    stated = {
        "model": "llama",
        "tokens": TOKENS,
        "scores": SCORES,
        "token_type": KINDS,
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "add_space_prefix": False,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (stated | more).items() if value is not None}


def pieces(text: str, **more: object) -> list[str]:
    """The tokens of a text, as the file writes them."""
    return [TOKENS[index] for index in Tokenizer.from_gguf(fields(**more)).encode(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", ["abc"]),  # b and c first, whose piece scores best, then a with bc
        ("abab", ["ab", "ab"]),
        ("aab", ["a", "ab"]),  # ab scores better than aa
        (" abc", ["▁abc"]),
        ("a abc", ["a", "▁abc"]),
        ("a  abc", ["a", "  ", "abc"]),  # a run of spaces that is a token of its own comes before all
        ("a   a", ["a", "   ", "a"]),
        ("<b>a", ["<b>", "a"]),
        ("aé", ["a", "<0xC3>", "<0xA9>"]),
        ("<s>a", ["<s>", "a"]),
        ("<0x41>", [f"<0x{byte:02X}>" for byte in b"<0x41>"]),  # the name of a byte is text like any other
        ("", []),
    ],
)
def test_the_best_scores_are_merged_first(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
    tokenizer = Tokenizer.from_gguf(fields())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_text_may_be_read_as_if_a_space_stood_before_it() -> None:
    for more in ({"add_space_prefix": True}, {"add_space_prefix": None}):
        assert pieces("abc", **more) == ["▁abc"]
        assert pieces(" abc", **more) == ["  ", "abc"]
        assert Tokenizer.from_gguf(fields(**more)).decode([TOKENS.index("▁abc")]) == "abc"


def test_every_cut_of_a_piece_in_two_pieces_is_a_merge_the_longer_left_part_first() -> None:
    vocabulary = {token: index for index, token in enumerate(TOKENS)}
    found = merges(Pieces(TOKENS, SCORES, KINDS), vocabulary)
    assert found[:2] == [("b", "c"), ("a", "b")]
    assert [cut for cut in found if "".join(cut) == "abc"] == [("ab", "c"), ("a", "bc")]
    assert not any("".join(cut).startswith("<") for cut in found)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"scores": None}, "no tokenizer.ggml.scores for each of its 271 tokens"),
        ({"scores": ["1"] * 271}, "no tokenizer.ggml.scores for each of its 271 tokens"),
        ({"scores": [1.0]}, "no tokenizer.ggml.scores for each of its 271 tokens"),
        ({"token_type": [1]}, "no tokenizer.ggml.token_type for each of its 271 tokens"),
        ({"tokens": [*TOKENS[:-1], "a" * 513]}, "has more than 512 characters"),
        ({"add_space_prefix": 1}, "rewrites text in a way that is not known"),
        ({"precompiled_charsmap": [1]}, "rewrites text in a way that is not known"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        Tokenizer.from_gguf(fields(**more))
