"""Two prompts that differ in one thing, and what follows them: written by hand, or read from a table.

    read_pairs("pairs.jsonl")   # or .csv, .parquet, a pandas DataFrame, any iterable of mappings or of pairs

A table has the columns `clean`, `corrupted` and `answer`, and may have `foil` and `group`; others are ignored. Texts
are taken as they are, spaces included: in most vocabularies an answer begins with one.
"""

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from interp.errors import LoadError, UsageError, nearest
from interp.tables import Rows, numbered, read_rows

Role = str | int | tuple[str, int]
"""Where a role stands in the clean prompt: words that occur once; words and which occurrence of them, 0 the first and
−1 the last; or a position of the prompt, its prefix counted, −1 the last."""

REQUIRED = ("clean", "corrupted", "answer")
OPTIONAL = ("foil", "group")
SUFFIXES = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class PromptPair:
    """A clean and a corrupted prompt of equally many tokens.

    `answer` is what follows the clean prompt and `foil` what does not, one token each, with the space before it.
    `roles` names places of the clean prompt, `group` what the pair belongs to, such as its template.
    """

    clean: str
    corrupted: str
    answer: str
    foil: str | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    group: str = ""


def read_pairs(source: str | Path | Iterable[object]) -> list[PromptPair]:
    """Pairs from a file (JSON lines, CSV or Parquet), a DataFrame, or an iterable of mappings or pairs.

    Raises `LoadError` for a file that is absent, empty or malformed, naming the line, and `UsageError` for the same in
    tables in memory and for a suffix that is not known.
    """
    if isinstance(source, str | Path):
        return _of_file(Path(source))
    return [_pair(place, row) for place, row in _not_empty(_in_memory(source))]


def _of_file(path: Path) -> list[PromptPair]:
    rows = read_rows(path, "pairs", SUFFIXES)
    try:
        return [_pair(place, row) for place, row in _not_empty(iter(rows))]
    except UsageError as error:
        raise LoadError(f"The pairs in {path}: {error}") from error


def _in_memory(source: Iterable[object]) -> Rows:
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return numbered(source.astype(object).where(source.notna(), None).to_dict("records"))
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise UsageError(
            f"Pairs are read from a file, a DataFrame or a list of mappings, not from {type(source).__name__}."
        )
    return numbered(source)


def _not_empty(rows: Rows) -> list[tuple[str, object]]:
    found = list(rows)
    if not found:
        raise UsageError(f"there is no pair in it; expected rows with the columns {', '.join(REQUIRED)}.")
    return found


def _pair(place: str, row: object) -> PromptPair:
    if isinstance(row, PromptPair):
        return row
    if isinstance(row, UsageError):
        raise row
    if not isinstance(row, Mapping):
        raise UsageError(f"{place} is {type(row).__name__}; expected a mapping with {', '.join(REQUIRED)}.")
    for column in REQUIRED:
        if column not in row:
            there = [str(name) for name in row]
            raise UsageError(
                f"{place} has no column {column!r}; its columns are {', '.join(there) or 'none'}."
                f"{nearest(column, there, count=1)} A pair needs {', '.join(REQUIRED)} and may have "
                f"{' and '.join(OPTIONAL)}."
            )
    clean, corrupted, answer = (_text(place, column, row[column]) for column in REQUIRED)
    foil, group = (None if row.get(column) in (None, "") else _text(place, column, row[column]) for column in OPTIONAL)
    return PromptPair(clean, corrupted, answer, foil, group=group or "")


def _text(place: str, column: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{place}: the {column} is {type(value).__name__}, {reprlib.repr(value)}; expected text.")
    if not value:
        raise UsageError(f"{place}: the {column} is an empty text; a pair needs {', '.join(REQUIRED)}.")
    return value
