"""What the ledger of a run says, read whole or for one item."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interp.errors import IntegrityError, LoadError
from interp.runs.index import INDEX, offsets_of
from interp.runs.ledger import ERRORS, LEDGER, Counted, Entry, counted, entry, read_lines
from interp.runs.parts import ADVICE
from interp.runs.plan import Batch
from interp.runs.repair import SUMMARY
from interp.runs.sealed import digest, read_document, read_line

_TRIES = 3  # a writer may replace ledger and summary between our two reads


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary document of a finished run, checked; None for a run that is not finished."""
    path = folder / SUMMARY
    try:
        facts, intact = read_document(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise IntegrityError(f"{path} is not valid JSON ({error}). {ADVICE}") from error
    if not intact or not isinstance(facts.get("summary"), dict):
        raise IntegrityError(f"{path} was changed after it was written: its hash does not fit. {ADVICE}")
    return facts


def read_counted(folder: Path, batches: Sequence[Batch]) -> Counted:
    """The attempts that count. Raises `IntegrityError` where a finished run's ledger is not what it was."""
    for _ in range(_TRIES):
        lines = read_lines(folder / LEDGER)
        summary = read_summary(folder)
        if summary is None or summary.get("ledger_sha256") == _ledger_sha256(folder):
            return counted(batches, [found for _, facts in lines if (found := entry(facts))])
    raise IntegrityError(f"{folder / LEDGER} is not what it was when the run was finished. {ADVICE}")


def _ledger_sha256(folder: Path) -> str:
    path = folder / LEDGER
    return digest(path.read_bytes() if path.exists() else b"")


def read_errors(folder: Path) -> dict[tuple[object, object, object], dict[str, Any]]:
    """(batch, attempt, item) → what `errors.jsonl` says of it, of lines that are whole."""
    found = {}
    for _, facts in read_lines(folder / ERRORS):
        if facts is not None:
            found[facts.get("batch"), facts.get("attempt"), facts.get("item")] = facts
    return found


def find_entry(folder: Path, job: str, item: str) -> Entry | None:
    """The last entry of an item by way of the index; None where the index does not lead to one."""
    path = folder / LEDGER
    found: list[Entry] = []
    try:
        with path.open("rb") as ledger:
            for offset in offsets_of(folder / INDEX, path.stat().st_size, job, item):
                ledger.seek(offset)
                each = entry(read_line(ledger.readline().rstrip(b"\n")))
                if each and (each.job, each.item) == (job, item):
                    found.append(each)
    except (OSError, OverflowError, ValueError):
        return None
    return max(found, key=lambda each: each.attempt, default=None)
