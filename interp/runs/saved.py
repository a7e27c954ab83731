"""Whole results that a run keeps, in `saved/<job>/<item>/`, and the one that is meant."""

from pathlib import Path

from interp.errors import UsageError
from interp.result_files import is_result
from interp.runs.manifest import Manifest, read_manifest
from interp.runs.plan import folder_name
from interp.runs.repair import SAVED


def saved_results(folder: Path, manifest: Manifest) -> list[tuple[str, str, Path]]:
    """(job, item, folder) of each, in the order of the plan."""
    found = []
    for job in manifest.jobs:
        home = folder / SAVED / job.name
        there = {path.name for path in home.iterdir()} if home.is_dir() else set()
        if there:
            named = ((item, folder_name(item)) for item in job.items)
            found += [(job.name, item, home / name) for item, name in named if name in there and is_result(home / name)]
    return found


def find_result(folder: Path, manifest: Manifest, item: str | None = None, job: str | None = None) -> Path:
    """The folder of the one result that is meant. Raises `UsageError`, naming those that there are, otherwise."""
    every = saved_results(folder, manifest)
    found = [each for each in every if job in (None, each[0]) and item in (None, each[1])]
    if len(found) == 1:
        return found[0][2]
    names = ", ".join(f"{job}/{item}" for job, item, _ in (found or every)[:12]) or "none"
    raise UsageError(
        f"{folder} keeps {len(found)} results that may be meant, of {len(every)}: expected one. It has {names}. "
        "Name one: interp.open_run(folder).result(item, job)."
    )


def only_result(folder: Path) -> Path:
    """The folder of the only result of a run directory."""
    return find_result(folder, read_manifest(folder))
