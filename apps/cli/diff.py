"""`interp diff`: what two runs differ in."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import AsJson, Debug

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.apps.run_diff import JobDifference, RunDifference

EPILOG = """\b
Examples:
  interp diff runs/first runs/second
  interp diff runs/one-by-one runs/batched --tolerance 1e-4

\b
Ends with 0 where both have the same jobs and items and no value differs by more than the tolerance, else with 3.
Settings, models and versions that differ are shown; they alone do not change the exit code.
"""

DIFFERENT = 3
SHOWN = 5  # items of one run alone that are named


def diff(
    first: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of another.", show_default=False)],
    tolerance: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="Numbers that differ by no more count as equal.")
    ] = 0.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare two runs: settings, models, versions, items, and the largest difference in every column.

    Rows are compared over the items that both have. Ends with 3 where values differ by more than the tolerance.
    """
    from dataclasses import asdict

    import interp
    from interp.apps.cli.output import show, write_json
    from interp.apps.run_diff import compare

    found = compare(interp.open_run(first), interp.open_run(second))
    equal = found.within(tolerance)
    if as_json:
        write_json({"equal": equal, "tolerance": tolerance, **asdict(found)})
    else:
        show(*_diff_parts(found, tolerance, equal))
    if not equal:
        raise typer.Exit(DIFFERENT)


def _diff_parts(found: "RunDifference", tolerance: float, equal: bool) -> "list[RenderableType]":
    from interp.apps.cli.output import table

    parts: list[RenderableType] = []
    if found.manifest:
        rows = [(one.what, str(one.ours), str(one.theirs)) for one in found.manifest]
        parts += [table(["asked or made of", "first", "second"], rows), ""]
    for where, jobs in (("first", found.only_ours), ("second", found.only_theirs)):
        parts += [f"Only in the {where}: job {job}" for job in jobs]
    for job in found.jobs:
        parts += [*_job_parts(job), ""]
    said = "No value differs" if equal else "Values differ"
    return [*parts, f"{said} by more than {tolerance:g}."]


def _job_parts(job: "JobDifference") -> "list[RenderableType]":
    from interp.apps.cli.output import table

    title = job.ours if job.ours == job.theirs else f"{job.ours} / {job.theirs}"
    rows = [
        (column.column, f"{column.cells:,}", f"{column.different:,}", f"{column.largest:.3g}", column.item or "")
        for column in job.columns
    ]
    parts: list[RenderableType] = [table(["column", "cells>", "differ>", "largest>", "at item"], rows, title)]
    for where, items in (("first", job.only_ours), ("second", job.only_theirs)):
        if items:
            more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
            parts.append(f"Only in the {where}: {', '.join(items[:SHOWN])}{more}")
    if job.unpaired_rows:
        parts.append(f"{job.unpaired_rows} rows of shared items stand in one run only.")
    return parts
