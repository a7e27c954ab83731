"""What a run will do: jobs, each one analysis of one model over items, cut into batches before anything is computed."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from interp.errors import UsageError
from interp.named import plain

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")  # small letters only: some file systems know no others


@dataclass(frozen=True)
class Job:
    """One analysis of one model over the items of one data set.

    `packing` are the sizes of its batches, in order; they add up to the number of items. Raises `UsageError` for a name
    that cannot name a folder, for an item that comes twice, and where packing and items do not fit.
    """

    name: str
    model: str
    analysis: str
    data: str
    settings: Mapping[str, object] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    packing: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", plain(self.settings, f"Job {self.name!r}: settings"))
        object.__setattr__(self, "items", tuple(self.items))
        object.__setattr__(self, "packing", tuple(self.packing))
        if not _SAFE.fullmatch(self.name):
            raise UsageError(
                f"The job name {self.name!r} cannot name a folder: expected letters, digits, '.', '_' and '-', "
                "beginning with a letter or digit, at most 100."
            )
        _check_items(self.name, self.items)
        if sum(self.packing) != len(self.items) or any(size < 1 for size in self.packing):
            raise UsageError(
                f"Job {self.name!r} packs {sum(self.packing)} items into {len(self.packing)} batches and has "
                f"{len(self.items)}: expected sizes of at least 1 that add up."
            )


def _check_items(job: str, items: Sequence[str]) -> None:
    if len(set(items)) != len(items):
        twice = next(item for place, item in enumerate(items) if item in items[:place])
        raise UsageError(f"Job {job!r} has the item {twice!r} twice: the ids of a job's items must differ.")
    for item in items:
        if not item or (not item.isascii() and item.encode("utf-8", "replace").decode() != item):
            raise UsageError(f"Job {job!r} has the item {item!r}: expected text of at least one character, in UTF-8.")


@dataclass(frozen=True)
class Batch:
    """Items that are computed together. `index` counts over all jobs; `attempt` is above 1 for items that failed."""

    index: int
    job: str
    items: tuple[str, ...]
    attempt: int = 1

    @property
    def part(self) -> str:
        """The path, in the run directory, of the file that holds the batch's rows."""
        again = f"-{self.attempt}" if self.attempt > 1 else ""
        return f"results/part-{self.index:05d}{again}.parquet"


def batches_of(jobs: Iterable[Job]) -> tuple[Batch, ...]:
    """Every batch of the jobs, in order."""
    found: list[Batch] = []
    for job in jobs:
        ends = list(accumulate(job.packing, initial=0))
        found += [Batch(len(found) + place, job.name, job.items[a:b]) for place, (a, b) in enumerate(pairwise(ends))]
    return tuple(found)


def folder_name(item: str) -> str:
    """A name for a folder of the item: the item itself where every file system takes it, else with a hash behind.

    >>> folder_name("induction-3"), folder_name("../Etc")
    ('induction-3', 'etc~2a7e1d8e9c2f')
    """
    if _PLAIN.fullmatch(item):
        return item
    start = re.sub(r"[^a-z0-9]+", "-", item.lower())[:40].strip("-") or "item"
    return f"{start}~{hashlib.sha256(item.encode()).hexdigest()[:12]}"
