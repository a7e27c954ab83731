"""The ledger of a run: one line an item, appended when its batch is done, and which of the lines count.

A batch is done when the ledger has a line for each of its items: they are written in one go, so that only a kill or a
full disk leaves fewer. Failed items may be tried again, all those of a batch together: attempt k of a batch counts if
it covers just the items that failed in attempt k - 1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interp.errors import LoadError
from interp.runs.plan import Batch
from interp.runs.sealed import line, read_line

LEDGER, ERRORS = "items.jsonl", "errors.jsonl"
DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class Entry:
    """What became of an item. Its rows are `rows` rows from `start` in the file `part`; a failed item has none."""

    item: str
    job: str
    batch: int
    status: str
    attempt: int
    part: str | None = None
    sha256: str | None = None
    start: int = 0
    rows: int = 0

    def line(self) -> bytes:
        """The line of the ledger, with its break."""
        return line(asdict(self))


@dataclass(frozen=True)
class Failure:
    """Why an item failed: the class of the error, its message, and the exit code that it would have as a command."""

    item: str
    error: str
    message: str
    exit_code: int = 1

    def line(self, batch: Batch) -> bytes:
        """The line of `errors.jsonl`, with its break."""
        where = {"item": self.item, "job": batch.job, "batch": batch.index, "attempt": batch.attempt}
        return line({**where, "error": self.error, "message": self.message, "exit_code": self.exit_code})


Attempt = tuple[Entry, ...]
Counted = Mapping[int, list[Attempt]]
"""Global number of a batch → its attempts that count, each with one entry an item, in the plan's order."""


def read_lines(path: Path) -> list[tuple[int, dict[str, Any] | None]]:
    """(offset, content) of each line of a file of records; None as the content of a damaged or torn line."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from error
    found, start = [], 0
    for text in content.split(b"\n"):
        if text:
            whole = start + len(text) < len(content)  # a last line without its break is torn
            found.append((start, read_line(text) if whole else None))
        start += len(text) + 1
    return found


def entry(facts: Mapping[str, Any] | None) -> Entry | None:
    """The entry that a line holds, if it is one."""
    try:
        return Entry(**{name: value for name, value in (facts or {}).items() if name != "crc"})
    except TypeError:
        return None


def counted(batches: Iterable[Batch], entries: Iterable[Entry]) -> dict[int, list[Attempt]]:
    """The attempts that count, by batch, of those of the plan. Batches that none counts of are not in it."""
    lines: dict[tuple[int, int], dict[str, Entry]] = {}
    for each in entries:
        lines.setdefault((each.batch, each.attempt), {})[each.item] = each
    found = {batch.index: _attempts(batch, lines) for batch in batches}
    return {index: attempts for index, attempts in found.items() if attempts}


def _attempts(batch: Batch, lines: Mapping[tuple[int, int], Mapping[str, Entry]]) -> list[Attempt]:
    found: list[Attempt] = []
    items = batch.items
    while items:
        these = lines.get((batch.index, len(found) + 1), {})
        if set(these) != set(items) or any(these[item].job != batch.job for item in items):
            break
        found.append(tuple(these[item] for item in items))
        items = tuple(each.item for each in found[-1] if each.status == FAILED)
    return found


def standing(attempts: Iterable[Attempt]) -> dict[str, Entry]:
    """Item → its last entry: what is true of it now."""
    return {each.item: each for attempt in attempts for each in attempt}
