"""What two runs differ in: what was asked, of which models, with which versions, and the values that came out.

Jobs are paired by name; one that is left over on each side is paired where analysis, data and settings are equal, as
of the same study on two models. Rows are paired by item and by the first columns that tell an item's rows apart in both
runs, which are the axes of the table; where no columns do, by their order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from interp.runs import Difference, Job, Run


@dataclass(frozen=True)
class ColumnDifference:
    """One column of one job: over how many cells it was compared, how many differ, and by how much at the most.

    `largest` is the largest absolute difference of numbers, infinite where only one of two is a number; of texts, 1
    where any differs.
    """

    column: str
    cells: int
    different: int
    largest: float
    item: str | None


@dataclass(frozen=True)
class JobDifference:
    """One job in both runs: items that only one has, rows of shared items that only one has, and every column."""

    ours: str
    theirs: str
    only_ours: tuple[str, ...]
    only_theirs: tuple[str, ...]
    unpaired_rows: int
    columns: tuple[ColumnDifference, ...]

    def within(self, tolerance: float) -> bool:
        """Same items, same rows, and no value further off than `tolerance`."""
        alone = self.only_ours or self.only_theirs or self.unpaired_rows
        return not alone and all(column.largest <= tolerance for column in self.columns)


@dataclass(frozen=True)
class RunDifference:
    """Two runs: facts of their manifests that differ, the jobs of both, and the jobs of one alone."""

    manifest: "tuple[Difference, ...]"
    jobs: tuple[JobDifference, ...]
    only_ours: tuple[str, ...]
    only_theirs: tuple[str, ...]

    def within(self, tolerance: float) -> bool:
        """Same jobs, items and values; settings and versions may differ, they are told and not judged."""
        return not (self.only_ours or self.only_theirs) and all(job.within(tolerance) for job in self.jobs)


def compare(ours: "Run", theirs: "Run") -> RunDifference:
    """Everything in which two runs differ."""
    from interp.runs import differences

    pairs = list(_paired(ours.manifest.jobs, theirs.manifest.jobs))
    matched_ours, matched_theirs = {a.name for a, _ in pairs}, {b.name for _, b in pairs}
    return RunDifference(
        tuple(differences(ours.manifest, theirs.manifest)),
        tuple(_job(ours, theirs, a, b) for a, b in pairs),
        tuple(name for name in ours.jobs if name not in matched_ours),
        tuple(name for name in theirs.jobs if name not in matched_theirs),
    )


def _paired(ours: "Sequence[Job]", theirs: "Sequence[Job]") -> "Iterator[tuple[Job, Job]]":
    named = {job.name: job for job in theirs}
    yield from ((job, named[job.name]) for job in ours if job.name in named)
    shared = {job.name for job in ours} & set(named)
    rest = [[job for job in jobs if job.name not in shared] for jobs in (ours, theirs)]
    for job in rest[0]:
        alike = [[other for other in jobs if _asks(other) == _asks(job)] for jobs in rest]
        if len(alike[0]) == len(alike[1]) == 1:
            yield job, alike[1][0]


def _asks(job: "Job") -> tuple[str, str, Mapping[str, object]]:
    return job.analysis, job.data, job.settings


def _job(ours: "Run", theirs: "Run", a: "Job", b: "Job") -> JobDifference:
    left, right = ours.frame(a.name), theirs.frame(b.name)
    done = [list(dict.fromkeys(frame["item"])) for frame in (left, right)]
    shared = set(done[0]) & set(done[1])
    left, right = (frame[frame["item"].isin(shared)].reset_index(drop=True) for frame in (left, right))
    keys = _keys(left, right)
    left, right = (_numbered(frame) if keys is None else frame for frame in (left, right))
    keys = keys or ["item", ROW]
    both = left.merge(right, on=keys, suffixes=("", OTHER), how="inner")
    names = [name for name in left.columns if name not in keys and name in right.columns]
    return JobDifference(
        a.name,
        b.name,
        tuple(item for item in done[0] if item not in shared),
        tuple(item for item in done[1] if item not in shared),
        len(left) + len(right) - 2 * len(both),
        tuple(_column(name, both) for name in names),
    )


ROW, OTHER = "\0row", "\0other"  # no analysis names a column so


def _numbered(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame.assign(**{ROW: frame.groupby("item", sort=False).cumcount()})


def _keys(left: "pd.DataFrame", right: "pd.DataFrame") -> list[str] | None:
    """The shortest run of first columns that tell the rows of both tables apart; measured numbers are none."""
    keys: list[str] = []
    for name in left.columns:
        if name not in right.columns or left[name].dtype.kind not in "iubOUT" or left[name].dtype != right[name].dtype:
            return None
        keys.append(name)
        if not (left.duplicated(keys).any() or right.duplicated(keys).any()):
            return keys
    return None


def _column(name: str, both: "pd.DataFrame") -> ColumnDifference:
    a, b = both[name].to_numpy(), both[name + OTHER].to_numpy()
    if a.dtype.kind in "iubf" and b.dtype.kind in "iubf":
        x, y = a.astype(np.float64), b.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore"):
            off = np.where(same, 0.0, np.abs(x - y))
        off = np.where(np.isnan(off), np.inf, off)
    else:
        off = np.array([float(str(x) != str(y)) for x, y in zip(a, b, strict=True)])
    worst = int(off.argmax()) if len(off) else None
    largest = 0.0 if worst is None else float(off[worst])
    item = None if worst is None or not largest else str(both["item"].iloc[worst])
    return ColumnDifference(name, len(off), int((off > 0).sum()), largest, item)
