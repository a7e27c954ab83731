"""Reading a run: what was planned, how far it is, and its rows, without loading more than is asked for.

    run = interp.open_run("out/probe")
    run.status().state, run.jobs
    run.frame("lens")                        # every row of a job
    run.item("france", job="lens")           # the rows of one item: two small reads, however large the run
    run.errors(); run.results(); run.check()

Everything that is read is checked against its hash; `IntegrityError` says what is damaged. A run may be read while
it is written: what is not committed is not seen.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.errors import IntegrityError, LoadError, UsageError, nearest
from interp.runs.checking import check
from interp.runs.contents import find_entry, read_counted, read_errors, read_summary
from interp.runs.ledger import DONE, FAILED, Counted, Entry, standing
from interp.runs.lock import holder
from interp.runs.manifest import Manifest, read_manifest, read_manifest_head
from interp.runs.parts import read_part, read_rows
from interp.runs.saved import find_result, saved_results
from interp.runs.status import RunStatus, count, status

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from interp.results import Result


def open_run(folder: str | PathLike[str]) -> "Run":
    """Open a run directory; only the head of its manifest is read.

    Raises `LoadError` for a folder that is no run and for a schema not known here, `IntegrityError` for a manifest that
    was changed.
    """
    return Run(Path(folder))


def is_run(folder: str | PathLike[str]) -> bool:
    """Whether the folder holds a run that can be opened here."""
    try:
        open_run(folder)
    except (LoadError, IntegrityError):
        return False
    return True


class Run:
    """A run directory, opened for reading with `open_run`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._head = read_manifest_head(folder)

    def __repr__(self) -> str:
        return f"<Run {self._head['name']!r} in {self.folder}: jobs {', '.join(self.jobs)}>"

    @property
    def name(self) -> str:
        return str(self._head["name"])

    @property
    def kind(self) -> str:
        """What was run: a "study", or a single "analysis"."""
        return str(self._head["kind"])

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names of the jobs; `manifest.jobs` has the jobs themselves."""
        return tuple(job["name"] for job in self._head["jobs"])

    @cached_property
    def manifest(self) -> Manifest:
        """The whole manifest, read when it is first asked for."""
        return read_manifest(self.folder)

    def status(self) -> RunStatus:
        """How far the run is just now."""
        finished = read_summary(self.folder) is not None
        counts = count(self.manifest.of_shard(), self._counted())
        return status(self.folder, counts, holder(self.folder), self.manifest.created, finished)

    def summary(self) -> Mapping[str, Any]:
        """What the run's writer found at the end; empty while the run is not finished."""
        return (read_summary(self.folder) or {}).get("summary", {})

    def table(
        self, job: str | None = None, items: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> "pyarrow.Table":
        """The rows of a job's items that are done, in the order of the plan; the first column is `item`.

        `job` may be left out where the run has one. Raises `UsageError` for unknown jobs and items, and for asked items
        that are not done; `IntegrityError` for damaged files.
        """
        import pyarrow as pa

        job = self._job(job)
        if items is None:
            tables = self._parts(job, columns)
        else:
            tables = [self._rows(self._done(job, item), columns) for item in items]
        if not tables:
            return pa.table({"item": pa.array([], pa.string())})
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise LoadError(f"The parts of job {job!r} in {self.folder} do not fit each other: {error}.") from error

    def frame(
        self, job: str | None = None, items: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> "pandas.DataFrame":
        """The same as `table`, for pandas."""
        return self.table(job, items, columns).to_pandas()

    def item(self, item: str, job: str | None = None) -> "pandas.DataFrame":
        """The rows of one item. Raises as `table` does; `job` may be left out where only one has the item done."""
        return self._rows(self._only(item) if job is None else self._done(self._job(job), item)).to_pandas()

    def errors(self) -> "pandas.DataFrame":
        """The items that failed and were not done since, each with the error's class, message and exit code."""
        import pandas

        told = read_errors(self.folder)
        failed = [each for each in self._standing() if each.status == FAILED]
        rows = [{**told.get((each.batch, each.attempt, each.item), vars(each))} for each in failed]
        return pandas.DataFrame(rows, columns=["item", "job", "batch", "attempt", "error", "message", "exit_code"])

    def results(self) -> list[tuple[str, str]]:
        """(job, item) of every whole result that the run keeps."""
        return [(job, item) for job, item, _ in saved_results(self.folder, self.manifest)]

    def result(self, item: str | None = None, job: str | None = None) -> "Result":
        """A whole result that the run keeps; item and job may be left out as far as there is only one."""
        from interp.results import Result

        return Result.load(find_result(self.folder, self.manifest, item, job))

    def check(self) -> list[str]:
        """What is damaged or does not belong there, one sentence each; every file is held against its hash."""
        return check(self.folder)

    def _counted(self) -> Counted:
        return read_counted(self.folder, self.manifest.of_shard())

    def _standing(self) -> list[Entry]:
        """What is true now of every item that was tried, in the order of the plan."""
        return [each for attempts in self._counted().values() for each in standing(attempts).values()]

    def _job(self, job: str | None) -> str:
        if job is None and len(self.jobs) == 1:
            return self.jobs[0]
        if job not in self.jobs:
            asked = "No job was named" if job is None else f"The run has no job {job!r}.{nearest(job, self.jobs)}"
            raise UsageError(f"{asked.rstrip('.')}. Jobs of this run: {', '.join(self.jobs)}.")
        return job

    def _find(self, job: str, item: str) -> Entry | None:
        """What became of an item, if it was tried."""
        found = find_entry(self.folder, job, item)
        if found is None:  # no index, as of a run in progress
            found = next((each for each in self._standing() if (each.job, each.item) == (job, item)), None)
        return found

    def _done(self, job: str, item: str) -> Entry:
        found = self._find(job, item)
        if found is None or found.status != DONE:
            raise UsageError(self._why_absent(job, item, found))
        return found

    def _only(self, item: str) -> Entry:
        """The entry of an item that one job has done."""
        if len(self.jobs) == 1:
            return self._done(self.jobs[0], item)
        found = [each for job in self.jobs if (each := self._find(job, item)) and each.status == DONE]
        if len(found) != 1:
            names = ", ".join(each.job for each in found) or "none"
            raise UsageError(f"{len(found)} jobs have done the item {item!r} ({names}): name one with job=….")
        return found[0]

    def _why_absent(self, job: str, item: str, found: Entry | None) -> str:
        planned = self.manifest.job(job).items
        if item not in planned:
            return f"Job {job!r} has no item {item!r}.{nearest(item, planned)} It has {len(planned)}."
        if found is None:
            return f"Item {item!r} of job {job!r} is not done yet."
        told = read_errors(self.folder).get((found.batch, found.attempt, found.item), {})
        return f"Item {item!r} of job {job!r} failed: {told.get('error')}: {told.get('message')}"

    def _rows(self, found: Entry, columns: Sequence[str] | None = None) -> "pyarrow.Table":
        span = (found.start, found.rows)
        return read_rows(self.folder, str(found.part), str(found.sha256), found.item, span, columns)

    def _parts(self, job: str, columns: Sequence[str] | None) -> "list[pyarrow.Table]":
        """Every part of a job, whole; where a batch has several, its items in their order."""
        tables = []
        for attempts in self._counted().values():
            now = [each for each in standing(attempts).values() if each.job == job and each.status == DONE]
            files = dict.fromkeys((str(each.part), str(each.sha256)) for each in now)
            if len(files) == 1:
                tables += [read_part(self.folder, *file, columns) for file in files]
            else:
                tables += [self._rows(each, columns) for each in now]
        return tables
