"""Records from files: JSON, JSON lines, CSV and Parquet, row by row, each with the place where it stands.

    for place, row in read_rows(Path("facts.csv"), "facts", (".csv", ".jsonl")):
        if isinstance(row, UsageError): ...     # this row is damaged, the others need not be

A row that cannot be read comes as the error that says why, so that who reads may stop at the first one or tell of all.
Nothing is unpickled.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from interp.errors import LoadError, UsageError

Rows = Iterator[tuple[str, object]]
"""Rows of a table, each with the place where it stands, for errors."""


def read_rows(path: Path, what: str, suffixes: Sequence[str]) -> list[tuple[str, object]]:
    """Every row of the table in a file; `what` names the rows in errors, `suffixes` are the kinds of file allowed.

    Raises `UsageError` for another suffix, and `LoadError` for a file that is absent or that no row can be read from.
    """
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise UsageError(f"{what.capitalize()} are read from files ending in {', '.join(suffixes)}; '{path}' does not.")
    try:
        return list(_READERS[suffix](path))
    except FileNotFoundError as error:
        raise LoadError(f"There is no file {path}; expected a table of {what}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"The file {path} cannot be read: {error}.") from error
    except UsageError as error:
        raise LoadError(f"The {what} in {path}: {error}") from error


def _json_lines(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"Line {number}", _json(line, number)


def _json(line: str, number: int) -> object:
    """What the line says, or the error that it is."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return UsageError(f"Line {number} is not JSON ({reason}); expected one object a line.")


def _json_list(path: Path) -> Rows:
    text = path.read_text(encoding="utf-8-sig")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"Line {error.lineno} is not JSON ({error.msg}); expected one list of objects.") from error
    except RecursionError as error:
        raise UsageError("it is nested too deeply; expected one list of objects.") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise UsageError(f"it cannot be read ({error}); expected one list of objects.") from error
    if not isinstance(found, list):
        raise UsageError(f"it holds one {type(found).__name__}; expected a list of objects.")
    return numbered(found, "Record")


def _csv(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            records = [(f"Line {reader.line_num}", record) for record in reader if record]
        except csv.Error as error:
            raise UsageError(f"Line {reader.line_num} is not CSV ({error}).") from error
    header = records[0][1] if records else []
    for place, record in records[1:]:
        if len(record) == len(header):
            yield place, dict(zip(header, record, strict=True))
        else:
            counts = f"{len(record)} fields, the header {len(header)}"
            yield place, UsageError(f"{place} has {counts}: {', '.join(header)}.")


def _parquet(path: Path) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise UsageError(f"it is not Parquet, or damaged ({error}).") from error
    return numbered(rows)


_READERS: dict[str, Callable[[Path], Rows]] = {
    ".json": _json_list,
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}


def numbered(rows: Iterable[object], word: str = "Row") -> Rows:
    """The rows with their numbers, from 0, for tables whose rows have no lines."""
    return ((f"{word} {number}", row) for number, row in enumerate(rows))
