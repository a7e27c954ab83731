"""Pairs are equally long inside, padded on the left among each other, and read from any table."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
import torch
from words import Words

from interp.errors import LoadError, UsageError
from interp.pairs import Pairs, PromptPair, align, of_texts, read_pairs
from interp.prompts import Prefix

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

MARY = PromptPair(
    "When Mary and John met, John gave it to",
    "When Mary and John met, Mary gave it to",
    " Mary",
    " John",
    {"IO": "Mary", "S1": ("John", 0), "S2": ("John", -1), "END": -1},
    "names",
)
FRANCE = PromptPair("I say France is", "I say Italy is", " Paris", " Rome", {"country": "France", "END": -1}, "capital")
TABLE = [
    PromptPair('The "key", is', "The keys, is", " is", " are", group="one, two"),
    PromptPair("Zürich ist", "Genève ist", " 🙂", " nein"),
]
ROWS = [
    {"clean": pair.clean, "corrupted": pair.corrupted, "answer": pair.answer, "foil": pair.foil, "group": pair.group}
    for pair in TABLE
]


def strings(tokenizer: Words, pairs: Pairs) -> list[str]:
    return ["|".join(tokenizer.str_tokens(row)) for row in pairs.clean.tolist()]


def test_pairs_of_one_length_need_no_mask() -> None:
    tokenizer = Words()
    pairs = align(tokenizer, iter([FRANCE, FRANCE]))
    assert strings(tokenizer, pairs) == ["<doc>|I| say| France| is"] * 2
    assert tokenizer.str_tokens(pairs.corrupted[0].tolist()) == ["<doc>", "I", " say", " Italy", " is"]
    assert tokenizer.str_tokens(pairs.answers) == [" Paris", " Paris"]
    assert tokenizer.str_tokens(pairs.foils) == [" Rome", " Rome"]
    assert (len(pairs), pairs.mask, pairs.prompts, pairs.prefix) == (2, None, (FRANCE, FRANCE), "doc")


def test_shorter_pairs_are_padded_on_the_left() -> None:
    tokenizer = Words()
    pairs = align(tokenizer, [FRANCE, MARY], prefix="none")
    assert strings(tokenizer, pairs)[0] == "<pad>|<pad>|<pad>|<pad>|<pad>|<pad>|I| say| France| is"
    assert pairs.corrupted.shape == pairs.mask.shape == (2, 10)
    assert pairs.mask.tolist() == [[False] * 6 + [True] * 4, [True] * 10]


@pytest.mark.parametrize(("prefix", "before", "end"), [("none", 0, 9), ("doc", 1, 10), ("chat", 1, 12)])
def test_roles_are_columns_of_the_prompt_that_is_read(prefix: Prefix, before: int, end: int) -> None:
    """With a chat turn the answer is read behind its last marker, so `END` is there and not at the text's end."""
    pairs = align(Words(), [MARY], prefix=prefix)
    assert pairs.roles == {"IO": (before + 1,), "S1": (before + 3,), "S2": (before + 6,), "END": (end,)}


def test_roles_move_with_the_padding_and_only_those_of_all_pairs_are_kept() -> None:
    pairs = align(Words(), [FRANCE, MARY])
    assert pairs.roles == {"END": (10, 10)}
    longer = PromptPair("I would say Spain is", "I would say Italy is", " Madrid", " Rome", {"country": "Spain"})
    assert align(Words(), [FRANCE, longer]).roles == {"country": (4, 4)}


def test_words_of_several_tokens_stand_where_they_have_been_read() -> None:
    pair = PromptPair("I say Frankreich is", "I say Österreich is", " yes", roles={"country": "Frankreich"})
    assert align(Words(letters=5), [pair], prefix="none").roles == {"country": (3,)}


def test_selected_pairs_are_those_that_alignment_of_them_alone_would_give() -> None:
    tokenizer = Words()
    all_pairs = [MARY, FRANCE, PromptPair("So Peru is", "So Chile is", " Lima", " Rome", {"END": 2})]
    for chosen in ([1], [2, 1], [0, 2], slice(1, None), torch.tensor([-1, 1])):
        selected = align(tokenizer, all_pairs).select(chosen)
        places = range(3)[chosen] if isinstance(chosen, slice) else list(chosen)
        alone = align(tokenizer, [all_pairs[place] for place in places])
        assert torch.equal(selected.clean, alone.clean)
        assert torch.equal(selected.corrupted, alone.corrupted)
        assert (selected.mask is None) == (alone.mask is None)
        assert alone.mask is None or torch.equal(selected.mask, alone.mask)
        for name in ("answers", "foils", "prompts", "prefix"):
            assert getattr(selected, name) == getattr(alone, name), name
        assert selected.roles["END"] == alone.roles["END"]


def test_a_selection_outside_is_refused() -> None:
    with pytest.raises(UsageError, match="the pairs, 2 lies outside"):
        align(Words(), [FRANCE, MARY]).select([2])


def test_one_pair_may_be_given_as_texts() -> None:
    pairs = of_texts(Words(), "So France is", "So Italy is", " Paris", prefix="none")
    assert pairs.clean.shape == (1, 3)
    assert pairs.foils is None
    assert pairs.prompts == (PromptPair("So France is", "So Italy is", " Paris"),)


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (
            PromptPair("I say Spain is now", "I say the USA is now", " a", " b"),
            r"Pair 1 \('I say Spain.*has 6 tokens and the corrupted one 7; from position 3 on they are "
            r"\[' Spain', ' is', ' now'\] and \[' the', ' USA', ' is', ' now'\]",
        ),
        (PromptPair("So I", "So I say", " a", " b"), r"from position 3 on they are \[\] and \[' say'\]"),
        (PromptPair("So I", "So you", " New York", " a"), r"Pair 1.*' New York' is 2 tokens.*' New', ' York'"),
        (PromptPair("So I", "So you", " a", " New York"), r"Pair 1.*' New York' is 2 tokens"),
        (PromptPair("So I", "So you", " a", " a"), "Pair 1.*answer and foil are the same token, ' a'"),
        (PromptPair("So I", "So you", " a", " b", {"who": "you"}), "Pair 1.*role 'who': The subject 'you' does not"),
        (PromptPair("I, I", "you, I", " a", " b", {"who": "I"}), "Pair 1.*role 'who'.*stands 2 times"),
        (PromptPair("So I", "So you", " a", " b", {"who": 3}), "Pair 1.*role 'who', 3 lies outside; there are 0 to 2"),
        (PromptPair("So I", "So you", " a"), "Pair 1 has no foil and others have one"),
    ],
)
def test_pairs_that_cannot_be_aligned_are_refused_by_number(pair: PromptPair, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        align(Words(), [FRANCE, pair])


def test_of_long_prompts_that_differ_only_the_beginning_is_shown() -> None:
    with pytest.raises(UsageError, match=r"(' so', ){11}' so'\] and 88 more and \[' now'\]"):
        of_texts(Words(), "I" + " so" * 100, "I now", " a")


def test_no_pairs_are_refused() -> None:
    with pytest.raises(UsageError, match="no pair to align"):
        align(Words(), [])


@pytest.mark.usefixtures("shapes_unchecked")
def test_mappings_are_to_be_read_first() -> None:
    with pytest.raises(UsageError, match="Pair 1 is dict; expected PromptPair, which `read_pairs` makes"):
        align(Words(), [FRANCE, ROWS[0]])


@pytest.mark.parametrize("prefix", ["doc", "none", "chat"])
def test_a_model_reads_padded_pairs_as_it_reads_each_alone(smollm2: "Transformer", prefix: Prefix) -> None:
    pairs = align(smollm2.tokenizer, [FRANCE, MARY], prefix=prefix)
    for which in ("clean", "corrupted"):
        together = smollm2(getattr(pairs, which), pairs.mask)[:, -1]
        for row, pair in zip(together, (FRANCE, MARY), strict=True):
            alone = smollm2(smollm2.to_tokens(getattr(pair, which), prefix=prefix))[0, -1]
            assert (row - alone).abs().max() < 1e-5 * alone.abs().max()


# ----------------------------------------------------------------------------------------------------- tables


def written(folder: Path, suffix: str) -> Path:
    """The table in a file of that kind."""
    path = folder / f"pairs{suffix}"
    if suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n\n", encoding="utf-8")
    elif suffix == ".csv":
        pd.DataFrame(ROWS).to_csv(path, index=False)
    else:
        pd.DataFrame(ROWS).to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_files_give_the_pairs_that_were_written(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, suffix)
    assert read_pairs(path) == read_pairs(str(path)) == TABLE


class Dataset:
    """What a data set of a hub looks like: rows by iteration, with columns of its own beside."""

    def __iter__(self) -> Iterator[dict[str, object]]:
        return iter([{**row, "id": number, "group": row["group"] or None} for number, row in enumerate(ROWS)])


def test_tables_in_memory_give_the_same() -> None:
    frame = pd.DataFrame(ROWS)
    for source in (TABLE, ROWS, [TABLE[0], ROWS[1]], iter(ROWS), Dataset(), frame, frame.convert_dtypes()):
        assert read_pairs(source) == TABLE


def test_columns_that_are_optional_may_lack_altogether_or_in_some_rows() -> None:
    row = {"clean": "a", "corrupted": "b", "answer": "c"}
    rows = [row, {**row, "foil": "d"}]
    expected = [PromptPair("a", "b", "c"), PromptPair("a", "b", "c", "d")]
    assert read_pairs(rows) == read_pairs(pd.DataFrame(rows)) == expected


def test_files_of_other_systems_are_read(tmp_path: Path) -> None:
    """A byte-order mark, line ends of Windows, blank lines, and a field that goes over two lines."""
    (tmp_path / "a.csv").write_bytes('\ufeffanswer,clean,corrupted\r\n\r\n c,"a\nb",d\r\n'.encode())
    assert read_pairs(tmp_path / "a.csv") == [PromptPair("a\nb", "d", " c")]
    (tmp_path / "a.JSONL").write_bytes('\ufeff{"clean": "a", "corrupted": "b", "answer": "c"}\r\n\r\n'.encode())
    assert read_pairs(tmp_path / "a.JSONL") == [PromptPair("a", "b", "c")]


GOOD = '{"clean": "a", "corrupted": "b", "answer": "c"}'


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"", "a.jsonl: there is no pair in it"),
        ("a.jsonl", b"\n \n", "there is no pair in it"),
        ("a.jsonl", f"{GOOD}\n\n{{broken\n".encode(), "a.jsonl: Line 3 is not JSON"),
        ("a.jsonl", b"[" * 200_000, "Line 1 is not JSON"),
        ("a.jsonl", f"{GOOD}\n[1, 2]\n".encode(), "Line 2 is list; expected a mapping"),
        (
            "a.jsonl",
            b'{"clean": "a", "corupted": "b"}',
            "Line 1 has no column 'corrupted'; its columns are clean, corupted. Did you mean 'corupted'",
        ),
        ("a.jsonl", f"{GOOD}\n{GOOD[:-4]}7}}".encode(), "Line 2: the answer is int, 7; expected text"),
        ("a.jsonl", GOOD.replace('"a"', "null").encode(), "Line 1: the clean is NoneType"),
        ("a.jsonl", GOOD.replace('"a"', '""').encode(), "Line 1: the clean is an empty text"),
        ("a.jsonl", b"\xff\xfe{}", "cannot be read"),
        ("a.csv", b"", "there is no pair in it"),
        ("a.csv", b"clean,corrupted,answer\n", "there is no pair in it"),
        ("a.csv", b"clean,corrupted\na,b\n", "Line 2 has no column 'answer'; its columns are clean, corrupted"),
        ("a.csv", b"clean,corrupted,answer\na,b,c\n\na,b,c,d\n", "Line 4 has 4 fields, the header 3"),
        ("a.csv", b"clean,corrupted,answer\na,b\n", "Line 2 has 2 fields, the header 3"),
        ("a.csv", b'clean,corrupted,answer\na,"b"x,c\n', "Line 2 is not CSV"),
        ("a.csv", b'clean,corrupted,answer\na,"b,c\n', "Line 2 is not CSV"),
        ("a.parquet", b"", "not Parquet, or damaged"),
        ("a.parquet", b"PAR1 and nothing else", "not Parquet, or damaged"),
    ],
)
def test_a_file_that_is_damaged_is_refused_with_the_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadError, match=says):
        read_pairs(tmp_path / name)


def test_parquet_of_other_columns_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"text": ["a"], "answer": ["b"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(LoadError, match="Row 0 has no column 'clean'; its columns are text, answer"):
        read_pairs(tmp_path / "a.parquet")


def test_files_that_are_not_there_or_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="There is no file.*missing.csv"):
        read_pairs(tmp_path / "missing.csv")
    with pytest.raises(LoadError, match="There is no file.*missing.parquet"):
        read_pairs(tmp_path / "missing.parquet")
    with pytest.raises(UsageError, match=r"ending in .jsonl, .csv, .parquet; '.*pairs.xlsx' does not"):
        read_pairs(tmp_path / "pairs.xlsx")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(LoadError, match="cannot be read"):
        read_pairs(tmp_path / "folder.csv")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ([], "there is no pair"),
        (pd.DataFrame({"clean": []}), "there is no pair"),
        (ROWS[0], "not from dict"),
        (7, "not from int"),
        ([ROWS[0], "text"], "Row 1 is str; expected a mapping"),
        ([ROWS[0], {**ROWS[0], "foil": 3}], "Row 1: the foil is int, 3"),
        (pd.DataFrame([ROWS[0], {**ROWS[0], "answer": None}]), "Row 1: the answer is NoneType"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_tables_in_memory_that_hold_no_pairs_are_refused(source: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_pairs(source)


def test_pairs_of_the_commonest_length_need_no_mask() -> None:
    """A position is one place in all of them, whatever was padded before."""
    texts = [("a b c", "a d c"), ("a b", "a d"), ("b b c", "d b c")]
    aligned = align(Words(), [PromptPair(clean, corrupted, "b", "c") for clean, corrupted in texts], prefix="none")
    chosen = aligned.of_one_length()
    assert aligned.mask is not None
    assert chosen.mask is None
    assert chosen.clean.tolist() == aligned.clean[[0, 2]].tolist()
    assert chosen.of_one_length() is chosen
