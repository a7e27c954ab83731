"""The items of a study's data: prompts, pairs, facts, documents, random sequences, or the model itself."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interp.analyses.documents import Document, bundled, read_documents
from interp.analyses.fact_data import bundled_facts
from interp.analyses.study.file import DataSpec
from interp.analyses.study.prompts import PromptItem
from interp.analyses.study.task import Item
from interp.errors import LoadError, UsageError
from interp.fact_files import facts_of, read_facts
from interp.facts import Fact, of_relations
from interp.pair_builders import BUILDERS
from interp.prompt_pairs import PromptPair, read_pairs
from interp.tables import Rows, numbered, read_rows

if TYPE_CHECKING:
    from interp.models.tokenizer import Tokenizer

PAIRS, SEQUENCES = 64, 16
"""How many are made unless a study says."""
_FIELDS = ("prompt", "answer", "foil", "id")


def items_of(spec: DataSpec, tokenizer: "Tokenizer | None", seed: int) -> list[Item]:
    """The items of a data table, in order; pairs that are built depend on the tokenizer.

    Raises `LoadError` and `UsageError` as the readers of files do, and for two items of one id.
    """
    found = _KINDS[spec.kind](spec, tokenizer, seed if spec.seed is None else spec.seed)
    found = found if spec.count is None else found[: spec.count]
    ids = [item.id for item in found]
    if len(set(ids)) < len(ids):
        twice = next(name for place, name in enumerate(ids) if name in ids[:place])
        raise UsageError(f"The data {spec.name!r} has two items {twice!r}; give each an id of its own.")
    return found


def sha256_of(items: Sequence[Item]) -> str:
    """A hash of all that the items hold, in their order."""
    found = hashlib.sha256()
    for item in items:
        value = asdict(item.value) if is_dataclass(item.value) and not isinstance(item.value, type) else item.value
        line = json.dumps([item.id, value], sort_keys=True, ensure_ascii=True)
        found.update(line.encode() + b"\n")
    return found.hexdigest()


def _facts(spec: DataSpec, tokenizer: object, seed: int) -> list[Item]:
    facts: Sequence[Fact]
    if spec.source is None or spec.source == "bundled":
        facts = bundled_facts()
    elif isinstance(spec.source, str):
        facts = read_facts(spec.source)
    else:
        facts = facts_of(list(numbered(spec.source, "Fact")), f"the data {spec.name!r}")
    chosen = facts if spec.relations is None else of_relations(facts, spec.relations)
    return [Item(fact.id, fact) for fact in chosen]


def _pairs(spec: DataSpec, tokenizer: "Tokenizer | None", seed: int) -> list[Item]:
    pairs: list[PromptPair]
    if spec.builder is not None:
        if tokenizer is None:
            raise UsageError(f"The pairs of {spec.builder} are made of words, and this model has no tokenizer.")
        pairs = BUILDERS[spec.builder](tokenizer, n=spec.count or PAIRS, seed=seed)
    else:
        assert spec.source is not None, "checked when the study was read"
        pairs = read_pairs(spec.source)
    return [Item(str(place), pair) for place, pair in enumerate(pairs)]


def _prompts(spec: DataSpec, tokenizer: object, seed: int) -> list[Item]:
    rows: Rows
    if isinstance(spec.source, str):
        path = Path(spec.source)
        rows = (
            _lines(path) if path.suffix == ".txt" else iter(read_rows(path, "prompts", (".jsonl", ".csv", ".parquet")))
        )
    else:
        rows = numbered(spec.source or [], "Prompt")
    found = [_prompt(number, place, row) for number, (place, row) in enumerate(rows)]
    if not found:
        raise LoadError(f"The data {spec.name!r} holds no prompt; expected at least one.")
    return found


def _lines(path: Path) -> Rows:
    """The lines of a text file that are not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"The prompts in {path} cannot be read: {error}.") from error
    return ((f"Line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _prompt(number: int, place: str, row: object) -> Item:
    if isinstance(row, UsageError):
        raise row
    if isinstance(row, str):
        return Item(str(number), PromptItem(row))
    if not isinstance(row, Mapping):
        raise UsageError(f"{place} is {type(row).__name__}; expected a text, or a table with {', '.join(_FIELDS)}.")
    values = {name: row.get(name) or None for name in _FIELDS}
    wrong = [name for name, value in values.items() if value is not None and not isinstance(value, str)]
    if wrong or values["prompt"] is None:
        raise UsageError(f"{place} has {'no text' if wrong else 'none'} under {wrong[0] if wrong else 'prompt'!r}.")
    value = PromptItem(str(values["prompt"]), values["answer"], values["foil"])
    return Item(values["id"] or str(number), value)


def _documents(spec: DataSpec, tokenizer: object, seed: int) -> list[Item]:
    documents: Sequence[Document]
    if spec.source is None or spec.source == "bundled":
        documents = bundled()
    elif isinstance(spec.source, str):
        documents = read_documents(spec.source)
    else:
        documents = [_document(number, row) for number, row in enumerate(spec.source)]
    return [Item(each.name, each) for each in documents]


def _document(number: int, row: object) -> Document:
    if isinstance(row, str):
        return Document(str(number), row)
    if isinstance(row, Mapping) and isinstance(row.get("text"), str):
        return Document(str(row.get("name") or number), row["text"])
    raise UsageError(f"Document {number} has no 'text'; expected a text, or a table with name and text.")


def _repeated(spec: DataSpec, tokenizer: object, seed: int) -> list[Item]:
    return [Item(str(index), (seed, index)) for index in range(spec.count or SEQUENCES)]


def _model(spec: DataSpec, tokenizer: object, seed: int) -> list[Item]:
    return [Item("model", None)]


_KINDS: Mapping[str, "Callable[[DataSpec, Tokenizer | None, int], list[Item]]"] = {
    "facts": _facts,
    "pairs": _pairs,
    "prompts": _prompts,
    "documents": _documents,
    "repeated": _repeated,
    "model": _model,
}
