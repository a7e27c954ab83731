"""How far a run is: counts of items, and one word."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from interp.runs.ledger import DONE, LEDGER, Counted, standing
from interp.runs.lock import Holder
from interp.runs.plan import Batch

STATES = ("planned", "running", "interrupted", "failed items", "finished")


@dataclass(frozen=True)
class Counts:
    """Items of a run, or of its shard: `total` = `done` + `failed` + `remaining`. A finished batch has no remaining."""

    total: int
    done: int
    failed: int
    batches: int
    batches_done: int

    @property
    def remaining(self) -> int:
        return self.total - self.done - self.failed

    def after(self, done: int, failed: int, *, again: bool) -> "Counts":
        """The counts after one more batch; `again` where it was tried before and all of its items had failed."""
        before = done + failed if again else 0
        batches = self.batches_done + (not again)
        return replace(self, done=self.done + done, failed=self.failed + failed - before, batches_done=batches)


@dataclass(frozen=True)
class RunStatus:
    """What state a run is in, one of `STATES`; its items; who writes it; when it was planned and last written (UTC)."""

    state: str
    total: int
    done: int
    failed: int
    remaining: int
    batches: int
    batches_done: int
    locked_by: Holder | None
    started: str
    updated: str


def count(batches: Iterable[Batch], counted: Counted) -> Counts:
    """What the entries that count add up to."""
    planned = list(batches)
    now = [entry for attempts in counted.values() for entry in standing(attempts).values()]
    done = sum(entry.status == DONE for entry in now)
    return Counts(sum(len(batch.items) for batch in planned), done, len(now) - done, len(planned), len(counted))


def status(folder: Path, counts: Counts, locked_by: Holder | None, started: str, finished: bool) -> RunStatus:
    """The status of a run with these counts; `finished` says whether its summary is written."""
    updated = max((path.stat().st_mtime for path in _written(folder)), default=0.0)
    return RunStatus(
        state=_state(counts, locked_by is not None, finished),
        total=counts.total,
        done=counts.done,
        failed=counts.failed,
        remaining=counts.remaining,
        batches=counts.batches,
        batches_done=counts.batches_done,
        locked_by=locked_by,
        started=started,
        updated=datetime.fromtimestamp(updated, UTC).isoformat(timespec="seconds"),
    )


def _state(counts: Counts, locked: bool, finished: bool) -> str:
    if locked:
        return "running"
    if counts.batches_done == counts.batches and finished:
        return "failed items" if counts.failed else "finished"
    return "interrupted" if counts.batches_done else "planned"


def _written(folder: Path) -> list[Path]:
    return [path for path in (folder / LEDGER, folder / "manifest.json", folder / "summary.json") if path.exists()]
