"""What of a run still stands when work on it begins again; the rest is removed, so that it is done once more.

A batch falls back to being planned where a line of it is missing, torn or damaged, where its part is missing or not
what was written, or where a failed item has lost its error.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interp.runs.durable import PARTIAL, remove_file, storing, write_file
from interp.runs.index import INDEX
from interp.runs.ledger import ERRORS, FAILED, LEDGER, Attempt, Entry, counted, entry, read_lines
from interp.runs.parts import RESULTS, part_intact
from interp.runs.plan import Batch
from interp.runs.sealed import digest, line, read_document

SUMMARY = "summary.json"
SAVED = "saved"
Key = tuple[int, int, str]
"""(batch, attempt, item)"""


@dataclass
class Kept:
    """What stands: by batch the attempts that count, the lines of `errors.jsonl` of their failures, and notes."""

    attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    errors: dict[Key, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def entries(self) -> list[Entry]:
        """All entries in the order of the plan."""
        return [each for _, attempts in sorted(self.attempts.items()) for attempt in attempts for each in attempt]

    def ledger(self) -> bytes:
        """The ledger of a run that nothing disturbed."""
        return b"".join(each.line() for each in self.entries())

    def error_lines(self) -> bytes:
        """The errors of a run that nothing disturbed."""
        return b"".join(self.errors[key(each)] for each in self.entries() if each.status == FAILED)


def key(each: Entry) -> Key:
    """What names an entry among all."""
    return each.batch, each.attempt, each.item


def repair(folder: Path, batches: Sequence[Batch]) -> Kept:
    """Bring a run directory into the state after its last batch that counts. The caller holds the lock."""
    kept = Kept()
    _remove_partial(folder)
    entries = [found for _, facts in read_lines(folder / LEDGER) if (found := entry(facts))]
    errors = _errors(folder)
    for index, attempts in counted(batches, entries).items():
        standing = _standing(folder, attempts, errors)
        if standing:
            kept.attempts[index] = standing
    failed = [key(each) for each in kept.entries() if each.status == FAILED]
    kept.errors = {each: errors[each] for each in failed}
    _rewrite(folder, kept, entries)
    _remove_foreign_parts(folder, kept)
    _remove_stale(folder, kept)
    return kept


def _errors(folder: Path) -> dict[Key, bytes]:
    found = {}
    for _, facts in read_lines(folder / ERRORS):
        if facts and {"batch", "attempt", "item"} <= set(facts):
            facts.pop("crc")
            found[facts["batch"], facts["attempt"], facts["item"]] = line(facts)
    return found


def _standing(folder: Path, attempts: Iterable[Attempt], errors: dict[Key, bytes]) -> list[Attempt]:
    """The leading attempts whose rows and errors are all there."""
    found = []
    for attempt in attempts:
        parts = {(each.part, each.sha256) for each in attempt if each.part and each.sha256}
        explained = all(key(each) in errors for each in attempt if each.status == FAILED)
        if not explained or not all(part_intact(folder, *part) for part in parts):
            break
        found.append(attempt)
    return found


def _rewrite(folder: Path, kept: Kept, entries: Iterable[Entry]) -> None:
    """Keep the lines that count, in the order in which they stand; leave files alone that hold nothing else."""
    counting = {key(each): each for each in kept.entries()}
    order = [each for each in dict.fromkeys(map(key, entries)) if each in counting]
    ledger = b"".join(counting[each].line() for each in order)
    errors = b"".join(kept.errors[each] for each in order if each in kept.errors)
    for name, content in ((LEDGER, ledger), (ERRORS, errors)):
        path = folder / name
        if content != (path.read_bytes() if path.exists() else b""):
            write_file(path, content)
            kept.notes.append(f"{name} held lines that do not count, or had lost some: {len(order)} items stand")


def _remove_partial(folder: Path) -> None:
    """Remove what was being written when a writer was killed."""
    with storing(folder):
        for path in [*folder.glob(f".*{PARTIAL}"), *folder.glob(f"{RESULTS}/.*{PARTIAL}")]:
            path.unlink(missing_ok=True)
        for path in folder.glob(f"{SAVED}/**/.*{PARTIAL}-*"):
            shutil.rmtree(path, ignore_errors=True)


def _remove_foreign_parts(folder: Path, kept: Kept) -> None:
    """Remove parts that no entry speaks of: their batches will be done again, or never were of this run."""
    known = {each.part for each in kept.entries()}
    for path in sorted((folder / RESULTS).glob("part-*.parquet")):
        if f"{RESULTS}/{path.name}" not in known:
            remove_file(path)
            kept.notes.append(f"{path.name} belongs to no batch that counts, and was removed")


def _remove_stale(folder: Path, kept: Kept) -> None:
    """Remove summary and index where they are not those of this ledger."""
    try:
        facts, intact = read_document((folder / SUMMARY).read_bytes())
    except (OSError, ValueError):
        facts, intact = {}, False
    path = folder / LEDGER
    content = path.read_bytes() if path.exists() else b""
    if not intact or facts.get("ledger_sha256") != digest(content):
        for name in (SUMMARY, INDEX):
            remove_file(folder / name)
