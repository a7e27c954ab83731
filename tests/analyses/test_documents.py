"""The documents that come along are long, distinct and whole; a user's are read or refused by name."""

from collections import Counter
from pathlib import Path

import pytest

import interp
from interp.analyses.documents import Document, bundled, read_documents, sha256_of
from interp.errors import LoadError
from interp.models.sources.gguf_header import read_header
from interp.models.tokenizer import Tokenizer

OURS = bundled()


def tokenizer_in(file: Path) -> Tokenizer:
    return Tokenizer.from_gguf(read_header(file).fields)


class TestBundledDocuments:
    def test_each_is_long_enough_for_the_vocabularies_of_both_models_that_come_along(self) -> None:
        small = tokenizer_in(interp.pull("smollm2-135m"))
        large = tokenizer_in(interp.pull("gemma3-270m", accept_terms=True))
        lengths = {each.name: (len(small.encode(each.text)), len(large.encode(each.text))) for each in OURS}
        assert {name: both for name, both in lengths.items() if both[0] < 640 or both[1] < 600} == {}

    def test_there_are_enough_for_an_interval_and_no_two_are_alike(self) -> None:
        assert len(OURS) >= 34
        assert len({each.name for each in OURS}) == len({each.text for each in OURS}) == len(OURS)

    def test_no_line_stands_twice(self) -> None:
        lines = Counter(line for each in OURS for line in each.text.splitlines() if line)
        assert [line for line, count in lines.items() if count > 1] == []

    def test_no_dozen_words_in_a_row_stand_twice(self) -> None:
        """Nothing was written by filling in a form."""
        runs: Counter[tuple[str, ...]] = Counter()
        for each in OURS:
            words = each.text.split()
            runs.update(tuple(words[start : start + 12]) for start in range(len(words) - 11))
        assert [" ".join(run) for run, count in runs.items() if count > 1] == []

    def test_they_are_plain_text_without_control_markers(self) -> None:
        assert [each.name for each in OURS if not each.text.replace("\n", "").isprintable() or "<|" in each.text] == []

    def test_they_come_in_the_order_of_their_names(self) -> None:
        names = [each.name for each in OURS]
        assert names == sorted(names)
        assert OURS[0].name == "01-why-tides-are-late"
        assert OURS[0].text.startswith("Why the tide is late\n")


class TestReadingDocuments:
    def test_a_file_is_one_document_under_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "a letter.txt").write_bytes("\ufeffÀ toi,\r\nd'ici".encode())
        assert read_documents(tmp_path / "a letter.txt") == (Document("a letter", "À toi,\nd'ici"),)

    def test_a_folder_gives_its_text_files_in_order(self, tmp_path: Path) -> None:
        (tmp_path / "deeper").mkdir()
        for name in ("b.txt", "a.txt", "notes.md", "deeper/c.txt"):
            (tmp_path / name).write_text(f"this is {name}")
        assert read_documents(str(tmp_path)) == (Document("a", "this is a.txt"), Document("b", "this is b.txt"))

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("absent.txt", None, "There is no file or folder .*absent.txt; expected a .txt file"),
            ("blank.txt", b" \n\t", "The document .*blank.txt is empty"),
            ("latin.txt", "Müller".encode("latin-1"), "latin.txt is not UTF-8 .*at byte 1"),
            ("page.html", b"<p>", "page.html is no .txt file"),
            (".", None, "The folder .* holds no .txt file"),
        ],
    )
    def test_what_is_no_document_is_refused(
        self, tmp_path: Path, name: str, content: bytes | None, message: str
    ) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(LoadError, match=message):
            read_documents(tmp_path / name)

    def test_one_bad_file_in_a_folder_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "good.txt").write_text("text")
        (tmp_path / "worse.txt").write_text("")
        with pytest.raises(LoadError, match="worse.txt is empty"):
            read_documents(tmp_path)


class TestTheirHash:
    def test_it_knows_texts_their_order_and_where_each_ends(self) -> None:
        variants = [("one", "two"), ("two", "one"), ("onet", "wo"), ("onetwo",), ("one", "two", "")]
        hashes = {sha256_of(Document(str(place), text) for place, text in enumerate(texts)) for texts in variants}
        assert len(hashes) == len(variants)

    def test_names_do_not_count(self) -> None:
        assert sha256_of([Document("a", "text")]) == sha256_of([Document("b", "text")])
