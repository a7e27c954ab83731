"""Small runs whose rows follow from the item's name, and ways to stop the writing of one at any call of the system."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from interp.results import Result
from interp.runs import Failure, Job, Manifest, RunWriter, write_part

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CREATED = "2026-01-02T03:04:05+00:00"
VERSIONS = {"interp": "0", "code": "c" * 64}
ITEMS = ("a", "b", "c bad", "d", "e", "../f", "ü 🙂")


class Numbers(Result, kind="test.numbers"):
    """A result of no analysis."""

    grid = ("place",)
    title = "Numbers"

    def figure(self) -> "Figure":
        from plotly.graph_objects import Figure, Scatter

        return Figure(Scatter(y=self["value"]))

    def summary(self) -> list[str]:
        return [f"{len(self['value'])} numbers"]


def numbers(item: str = "a") -> Numbers:
    """A result that follows from the item."""
    facts = {"model": "tiny", "weights_sha256": "w" * 64, "seed": 1, "prefix": "doc", "dtype": "float32"}
    return Numbers(arrays={"value": (frame(item)["value"].to_numpy(), ("place",))}, provenance=facts)


def manifest(**changes: object) -> Manifest:
    """Two jobs over seven items in five batches; "c bad" fails in the first job."""
    jobs = (
        Job("lens", "tiny", "lens", "texts", {"top_k": 3}, ITEMS, (3, 2, 2)),
        Job("heads", "tiny", "atlas", "texts", {}, ("a", "h"), (1, 1)),
    )
    models = ({"name": "tiny", "weights_sha256": "w" * 64},)
    facts = {"settings": {"run": {"batch_size": 3}}, "seed": 0, "models": models, "versions": VERSIONS}
    return Manifest(**{"name": "sample", "jobs": jobs, "created": CREATED, **facts, **changes})  # type: ignore[arg-type]


def frame(item: str) -> pd.DataFrame:
    """Some rows."""
    seed = int.from_bytes(hashlib.sha256(item.encode()).digest()[:4], "little")
    rng = np.random.default_rng(seed)
    rows = 2 + seed % 4
    return pd.DataFrame({"layer": np.arange(rows), "value": rng.normal(size=rows), "token": [f" {item}"] * rows})


def work(
    folder: Path, plan: Manifest | None = None, *, stop: int | None = None, retry: bool = False, save: bool = True
) -> None:
    """Do what is left, or `stop` batches of it; items that are bad fail unless they are tried again."""
    with RunWriter.open(folder, plan or manifest()) as writer:
        for batch in writer.pending(retry_failed=retry)[:stop]:
            bad = [item for item in batch.items if "bad" in item and batch.attempt == 1]
            good = [item for item in batch.items if item not in bad]
            if save and "a" in good:
                writer.save_result(batch.job, "a", numbers())
            part = write_part(folder, batch, {item: frame(item) for item in good}) if good else None
            writer.commit(batch, part, [Failure(item, "ValueError", f"{item} is bad", 2) for item in bad])
        if stop is None and not writer.finished:
            writer.finish({"lens": {"lines": ["three"]}})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its log."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "log.txt"}


CALLS = ("write", "fsync", "replace", "rename", "mkdir")


@contextmanager
def at_call(number: int, then: Callable[[], None], calls: tuple[str, ...] = CALLS) -> Iterator[list[int]]:
    """Lets the system do `number` calls that change files; at each later one `then` runs first.

    The first of these, if it writes, writes half before. The list that comes counts the calls.
    """
    real = {name: getattr(os, name) for name in calls}
    done = [0]

    def instead(name: str) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            done[0] += 1
            if done[0] > number:
                if name == "write" and done[0] == number + 1:
                    descriptor, content = arguments
                    real["write"](descriptor, content[: len(content) // 2])  # type: ignore[index,arg-type]
                then()
            return real[name](*arguments, **named)

        return call

    for name in calls:
        setattr(os, name, instead(name))
    try:
        yield done
    finally:
        for name, call in real.items():
            setattr(os, name, call)


def no_space() -> None:
    """What a full disk says."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
