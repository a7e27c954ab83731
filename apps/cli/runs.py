"""`interp status`, `interp ls` and `interp merge`: runs that are there."""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.apps.cli.options import AsJson, Debug, Quiet

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.runs import Run, RunStatus

STATUS_EPILOG = """\b
Examples:
  interp status runs/first
  interp status runs/first --json
"""
LS_EPILOG = """\b
Examples:
  interp ls
  interp ls runs --json
"""
MERGE_EPILOG = """\b
Example:
  interp merge runs/part-1 runs/part-2 runs/part-3 --out runs/whole
"""

MANIFEST = "manifest.json"

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.", show_default=False)]


def status(folder: Folder, as_json: AsJson = False, debug: Debug = False) -> None:
    """Say how far a run is: what is done, what failed, whether a process works on it, and how to go on."""
    import interp
    from interp.apps.cli.output import show, write_json

    run = interp.open_run(folder)
    found = run.status()
    if as_json:
        write_json(_document(run, found))
    else:
        show(*_status_parts(run, found))


def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to look, folders in it too.")] = Path("."),
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the runs below a folder: what they are, of which models, how far they are, and since when."""
    from interp.apps.cli.output import show, table, write_json
    from interp.errors import LoadError

    if not folder.is_dir():
        raise LoadError(f"There is no folder {folder}. Give a folder in which there are runs.")
    rows = [_listed(path) for path in find_runs(folder)]
    if as_json:
        write_json({"folder": folder, "runs": rows})
        return
    if not rows:
        show(f"No runs below {folder}.")
        return
    columns = ["folder", "name", "kind", "models", "state", "items>", "begun"]
    show(table(columns, [_cells(row, folder) for row in rows]))


def _cells(row: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """One row of the table."""
    items = "" if row["total"] is None else f"{row['done']} of {row['total']}"
    models = ", ".join(row["models"])
    return os.path.relpath(row["folder"], folder), row["name"], row["kind"], models, row["state"], items, row["created"]


def find_runs(folder: Path) -> Iterator[Path]:
    """The run directories in a folder, those in others left out; hidden folders and what cannot be read are passed."""
    for place, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if MANIFEST in files and looks_like_run(Path(place)):
            names.clear()
            yield Path(place)


def looks_like_run(folder: Path) -> bool:
    """Whether the manifest in a folder is that of a run, as far as its first bytes say."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            return b'"interp-run"' in file.read(200)
    except OSError:
        return False


def _listed(folder: Path) -> dict[str, Any]:
    """One row; a run that cannot be read says why, and the others are listed all the same."""
    import interp
    from interp.errors import InterpError

    row: dict[str, Any] = {"folder": str(folder), "name": "", "kind": "", "models": [], "total": None, "done": None}
    try:
        run = interp.open_run(folder)
        found = run.status()
    except InterpError as error:
        return {**row, "failed": None, "state": f"unreadable: {error}", "created": ""}
    return {**row, **_facts(run, found)}


def _facts(run: "Run", found: "RunStatus") -> dict[str, object]:
    manifest = run.manifest
    return {
        "name": manifest.name,
        "kind": manifest.kind,
        "models": [str(model["name"]) for model in manifest.models],
        "state": found.state,
        "total": found.total,
        "done": found.done,
        "failed": found.failed,
        "created": manifest.created,
    }


def _document(run: "Run", found: "RunStatus") -> dict[str, object]:
    more = {name: getattr(found, name) for name in ("remaining", "batches", "started", "updated")}
    more["locked_by"] = None if found.locked_by is None else asdict(found.locked_by)
    jobs = [
        {"name": job.name, "model": job.model, "analysis": job.analysis, "data": job.data, "items": len(job.items)}
        for job in run.manifest.jobs
    ]
    return {"folder": str(run.folder), **_facts(run, found), **more, "shard": run.manifest.shard, "jobs": jobs}


def _status_parts(run: "Run", found: "RunStatus") -> "list[RenderableType]":
    from interp.apps.cli.output import table

    manifest = run.manifest
    shard = "" if manifest.shard is None else f", shard {manifest.shard[0]} of {manifest.shard[1]}"
    failed = f", {found.failed} failed" if found.failed else ""
    facts = [
        ("State", found.state),
        ("Items", f"{found.done} of {found.total} done{failed}, {found.remaining} to do{shard}"),
        ("Kind", f"{manifest.kind} {manifest.name}"),
        ("Models", ", ".join(str(model["name"]) for model in manifest.models)),
        ("Begun", str(found.started or manifest.created)),
        ("Last written", str(found.updated or "–")),
    ]
    if found.locked_by:
        facts.append(("At work", str(found.locked_by)))
    jobs = [(job.name, job.analysis, job.model, job.data, str(len(job.items))) for job in run.manifest.jobs]
    return [
        table(["fact", "value"], facts),
        "",
        table(["job", "analysis", "model", "data", "items>"], jobs),
        *(f"\n{line}" for line in _advice(run, found)),
    ]


def _advice(run: "Run", found: "RunStatus") -> list[str]:
    """How to go on with what is not finished."""
    again = f"interp resume {shlex.quote(str(run.folder))}"
    if found.state in ("planned", "interrupted"):
        return [f"To go on: {again}"]
    return [f"To try the failed items once more: {again} --retry-failed"] if found.failed else []


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="All shards.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the whole run.", show_default=False)],
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Put the shards of one study together: the run that would be there, had nobody divided it.

    Refused, with the difference shown, for runs of different studies, and where a shard is missing or comes twice.
    """
    from interp.analyses.study import merge_studies
    from interp.apps.cli.output import write_message

    run = merge_studies(folders, out)
    found = run.status()
    if not quiet:
        failed = f", {found.failed} failed" if found.failed else ""
        write_message(f"Run: {out} ({found.done} of {found.total} items done{failed})")
