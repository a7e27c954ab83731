"""The one process that keeps a run: it makes or resumes the directory, and says what is done.

The order of writing carries the guarantees: a part is whole before the ledger speaks of it, an error is told before the
ledger counts it, and the summary goes before the ledger changes and comes back last.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from interp.errors import IntegrityError, StorageError, UsageError
from interp.named import jsonable, plain
from interp.runs.differences import differences
from interp.runs.durable import append, make_folder, remove_file, storing, write_file
from interp.runs.index import INDEX, index
from interp.runs.ledger import DONE, ERRORS, FAILED, LEDGER, Entry, Failure
from interp.runs.lock import LOCK, Lock
from interp.runs.manifest import MANIFEST, Manifest, read_manifest
from interp.runs.parts import RESULTS, Part
from interp.runs.plan import Batch, folder_name
from interp.runs.repair import SAVED, SUMMARY, Kept, key, repair
from interp.runs.sealed import digest, document
from interp.runs.status import Counts, count

if TYPE_CHECKING:
    from interp.results import Result

LOG = "log.txt"
_SHOWN = 12


class RunWriter:
    """A run directory that this process works on; `open` makes one. A context manager, which lets go of the lock.

    A `StorageError` that leaves the block says how much is kept, and how to go on.
    """

    def __init__(self, folder: Path, manifest: Manifest, lock: Lock, kept: Kept) -> None:
        self.folder, self.manifest = folder, manifest
        self._lock, self._kept, self._changed = lock, kept, False
        self._planned = {batch.index: batch for batch in manifest.of_shard()}
        self._counts = count(self._planned.values(), kept.attempts)

    @classmethod
    def open(cls, folder: str | Path, manifest: Manifest) -> Self:
        """Make the run directory, or go on with the one that is there.

        Raises `IntegrityError`, naming every difference, where the run there was asked something else; `LockedError`
        where another process works on it; `UsageError` where the folder holds something that is no run.
        """
        folder = Path(folder)
        _refuse_foreign(folder)
        make_folder(folder)
        lock = Lock(folder)
        try:
            if (folder / MANIFEST).exists():
                _compare(folder, manifest, read_manifest(folder))
            else:
                write_file(folder / MANIFEST, manifest.to_json())
            make_folder(folder / RESULTS)
            kept = repair(folder, manifest.of_shard())
        except BaseException:
            lock.release()
            raise
        writer = cls(folder, manifest, lock, kept)
        writer.log(f"opened: {writer.state.done} of {writer.state.total} items are done")
        for note in kept.notes:
            writer.log(note)
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        if isinstance(error, StorageError):
            raise StorageError(f"{error} {self._kept_in_words()}") from error

    def _kept_in_words(self) -> str:
        state = self.state
        return f"{state.done} of {state.total} items are done and kept; go on with: interp resume {self.folder}"

    @property
    def state(self) -> Counts:
        """How many items are planned, done, failed and left."""
        return self._counts

    @property
    def finished(self) -> bool:
        """Whether all was tried and the summary is written."""
        return not self.pending() and (self.folder / SUMMARY).exists()

    def pending(self, *, retry_failed: bool = False) -> list[Batch]:
        """The batches that are left, in order; with `retry_failed` also failed items, as batches of their own."""
        left = [self._left(index) for index in self._planned]
        return [batch for batch in left if batch and (retry_failed or batch.attempt == 1)]

    def _left(self, index: int) -> Batch | None:
        """What can be done of a batch: all of it, or what failed of it."""
        batch, attempts = self._planned[index], self._kept.attempts.get(index, [])
        if not attempts:
            return batch
        failed = tuple(each.item for each in attempts[-1] if each.status == FAILED)
        return Batch(index, batch.job, failed, len(attempts) + 1) if failed else None

    def commit(self, batch: Batch, part: Part | None = None, failures: Sequence[Failure] = ()) -> None:
        """Enter a batch into the ledger: its part holds the rows of each item that did not fail.

        Raises `UsageError` where part and failures are not the batch, and `StorageError`; then nothing is entered.
        """
        entries = _entries(batch, part, failures)
        if batch.index not in self._planned or batch != self._left(batch.index):
            raise UsageError(
                f"Batch {batch.index} of this run, attempt {batch.attempt}, is not one that is left to do."
            )
        if not self._changed:
            for name in (SUMMARY, INDEX):
                remove_file(self.folder / name)
            self._changed = True
        lines = {(batch.index, batch.attempt, failure.item): failure.line(batch) for failure in failures}
        if lines:
            append(self.folder / ERRORS, b"".join(lines[key(each)] for each in entries if key(each) in lines))
        append(self.folder / LEDGER, b"".join(each.line() for each in entries))
        self._kept.errors.update(lines)
        self._kept.attempts.setdefault(batch.index, []).append(entries)
        self._counts = self._counts.after(len(entries) - len(failures), len(failures), again=batch.attempt > 1)

    def save_result(self, job: str, item: str, result: "Result") -> Path:
        """Keep a whole result, arrays and all; to be done before its batch is committed."""
        folder = self.folder / SAVED / job / folder_name(item)
        make_folder(folder.parent)
        with storing(folder):
            return result.save(folder)

    def write(self, name: str, content: bytes) -> Path:
        """Put a further file into the run, such as `figures/lens.html`, in one step. Raises `StorageError`."""
        path = self.folder / name
        make_folder(path.parent)
        write_file(path, content)
        return path

    def log(self, text: str) -> None:
        """Add a line with the time to `log.txt`; a disk that does not take it will be told of by what matters."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError), (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time} {' '.join(text.split())}\n")

    def finish(self, summary: Mapping[str, object] | None = None) -> None:
        """Write the summary (JSON values) and bring the ledger into the order of the plan.

        Raises `UsageError` while batches are left.
        """
        if left := self.pending():
            raise UsageError(f"The run cannot be finished: {len(left)} batches are left.")
        self.arrange()
        facts = {"format": "interp-run-summary", "schema": 1, "counts": _counts(self.state)}
        facts |= {"ledger_sha256": digest(self._kept.ledger()), "summary": jsonable(plain(summary or {}, "summary"))}
        write_file(self.folder / SUMMARY, document(facts))
        self._changed = False
        self.log(f"finished: {self.state.done} items done, {self.state.failed} failed")

    def arrange(self) -> None:
        """Bring ledger and errors into the order of the plan, and index them."""
        for name, content in ((LEDGER, self._kept.ledger()), (ERRORS, self._kept.error_lines())):
            if _content(self.folder / name) != content:
                write_file(self.folder / name, content)
        self._write_index()

    def close(self) -> None:
        """Let go of the run. What is committed stays; the next `open` goes on from there."""
        if self._changed:
            with contextlib.suppress(StorageError):
                self._write_index()
            self.log(f"closed: {self.state.done} of {self.state.total} items are done")
        self._lock.release()

    def _write_index(self) -> None:
        content = _content(self.folder / LEDGER)
        known = {each.line(): each for each in self._kept.entries()}
        lines, offset = [], 0
        for text in content.splitlines(keepends=True):
            lines.append((known[text].job, known[text].item, offset))
            offset += len(text)
        write_file(self.folder / INDEX, index(lines, len(content)))


def _counts(state: Counts) -> dict[str, int]:
    return {"total": state.total, "done": state.done, "failed": state.failed, "batches": state.batches}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _entries(batch: Batch, part: Part | None, failures: Sequence[Failure]) -> tuple[Entry, ...]:
    """The lines of a batch, in the order of its items."""
    spans = dict(part.spans) if part else {}
    failed = {failure.item for failure in failures}
    if len(failed) != len(failures) or failed & set(spans) or failed | set(spans) != set(batch.items):
        raise UsageError(
            f"Batch {batch.index} has the items {list(batch.items)}; rows came of {list(spans)} and failures of "
            f"{sorted(failed)}: expected each item once, in one of them."
        )
    where = (batch.job, batch.index)
    return tuple(
        Entry(item, *where, FAILED, batch.attempt)
        if item in failed or part is None
        else Entry(item, *where, DONE, batch.attempt, part.file, part.sha256, *spans[item])
        for item in batch.items
    )


def _refuse_foreign(folder: Path) -> None:
    """Raises `UsageError` for anything that is neither free, nor a run, nor one that was killed in its first moment."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"Cannot keep a run in {folder}: a file is there. Choose another name.")
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    found = [path.name for path in folder.iterdir()]
    if any(name not in (LOCK, RESULTS) and not name.startswith(f".{MANIFEST}.") for name in found):
        raise UsageError(
            f"Cannot keep a run in {folder}: it holds other files ({', '.join(sorted(found)[:3])}). "
            f"Choose a new folder, for example {folder / 'run'}."
        )


def _compare(folder: Path, asked: Manifest, there: Manifest) -> None:
    found = differences(there, asked)
    if found:
        lines = "".join(f"\n  {each}" for each in found[:_SHOWN])
        more = f"\n  … and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise IntegrityError(
            f"{folder} holds a run of something else (there, against now):{lines}{more}\n"
            "Resume it as it was made, or choose another folder for this one."
        )
