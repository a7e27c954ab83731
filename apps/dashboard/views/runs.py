"""Runs: what was computed and is being computed, how far it is, and back to the page that shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard.context import Context
from interp.apps.dashboard.look import duration
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.session import workshop
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    import pandas

    from interp.runs.reader import Run

MOST = 200  # directories that are listed: the newest
MOST_ROWS = 1_000  # rows of a job that are drawn

PARAMETERS = (
    Parameter("run", "line", "", "Run", "The name of a directory below the folder of runs.", view=True),
    Parameter("job", "line", "", "Job", "Which of its jobs is shown; the first by default.", view=True),
)


@dataclass(frozen=True)
class Listed:
    """One directory of the list; `said` is its status in a word, or why it cannot be read."""

    folder: Path
    said: str
    about: Mapping[str, Any]


def show(context: Context, results: Results) -> None:
    """The jobs of this process, the directories on the disk, and the one that is chosen."""
    _jobs()
    folder = workshop().options.runs
    found = listed(folder)
    st.subheader("Run directories", anchor=False)
    st.caption(f"Below {folder}")
    if not found:
        st.info("No run is kept here yet. What a page computes is kept here, and so is what `interp run` writes.")
        return
    _choose(context, found)
    chosen = next((each for each in found if each.folder.name == context.values["run"]), None)
    if chosen is not None:
        _one(context, chosen)
    elif context.values["run"]:
        st.warning(f"There is no run called {context.values['run'][:80]!r} below {folder}.")


def _jobs() -> None:
    """What waits and runs now, of all sessions."""
    running = [job for job in workshop().jobs.all() if not job.over]
    if not running:
        return
    st.subheader("Being computed", anchor=False)
    for job in running:
        far = f"{job.done:,} of {job.total:,}" if job.total else "started"
        state = f"waiting, {job.place} before it" if job.state == "waiting" else f"{far}, {duration(job.seconds)}"
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.markdown(f"{job.label} · {state}")
        if right.button("Cancel", key=f"_stop.{job.key}"):
            workshop().jobs.cancel(job.key)
            st.rerun()


def listed(folder: Path, most: int = MOST) -> list[Listed]:
    """The newest directories below the folder that are runs, or were meant to be."""
    if not folder.is_dir():
        return []
    found = [path.parent for path in folder.glob("*/manifest.json") if not path.parent.name.startswith(".")]
    found.sort(key=lambda path: -path.stat().st_mtime)
    return [_listed(path) for path in found[:most]]


def _listed(folder: Path) -> Listed:
    import interp
    from interp.errors import InterpError

    try:
        run = interp.open_run(folder)
        status = run.status()
        about = {"name": run.name, "items": f"{status.done:,} of {status.total:,}", "failed": status.failed}
        return Listed(folder, status.state, {**about, "jobs": ", ".join(run.jobs)})
    except InterpError as error:
        return Listed(folder, f"cannot be read: {error}", {})


def _choose(context: Context, found: list[Listed]) -> None:
    """The list; a click on a row, or its name typed below, chooses it."""
    import pandas as pd

    rows = [
        {
            "run": each.folder.name,
            "state": each.said,
            **each.about,
            "written": datetime.fromtimestamp(each.folder.stat().st_mtime).strftime("%Y-%m-%d %H:%M"),
        }
        for each in found
    ]
    frame = pd.DataFrame(rows)
    context.export("runs", frame)

    def clicked() -> None:
        from interp.apps.dashboard import address

        picked = st.session_state["_runs.list"].selection.rows
        if picked:
            address.assign(context.page, "run", rows[picked[0]]["run"])
            address.assign(context.page, "job", "")

    st.dataframe(
        frame, hide_index=True, width="stretch", key="_runs.list", on_select=clicked, selection_mode="single-row"
    )
    with st.container(horizontal=True):
        context.control("run")
        context.control("job")


def _one(context: Context, chosen: Listed) -> None:
    """Status, summary, rows and errors of one run."""
    import interp
    from interp.errors import InterpError

    st.subheader(chosen.folder.name, anchor=False)
    try:
        run = interp.open_run(chosen.folder)
        _back(context, run)
        _summary(run)
        _rows(context, run)
        errors = run.errors()
        if len(errors):
            st.markdown(f"{len(errors)} items failed:")
            context.table("errors", errors)
    except InterpError as error:
        st.error(str(error))


def _back(context: Context, run: "Run") -> None:
    """To the page that shows it, with the values that it was computed with."""
    from interp.apps.dashboard.registry import all_pages

    settings = run.manifest.settings
    page = next((page for page in all_pages() if page.key == settings.get("page")), None)
    values = settings.get("values")
    if page is None or not isinstance(values, Mapping):
        return
    known = {parameter.name: parameter for parameter in page.parameters}
    usable = {
        name: tuple(value) if name in known and known[name].kind == "choices" else value
        for name, value in values.items()
    }
    usable = {name: value for name, value in usable.items() if name in known and known[name].problem(value) is None}
    context.link(f"Show on the page {page.title!r}", page.key, usable)


def _summary(run: "Run") -> None:
    import json

    lines = [line for job in _jobs_of(run.summary()) for line in job]
    if lines:
        st.code("\n".join(lines), language=None, wrap_lines=True)
    with st.expander("Settings and models"):
        manifest = run.manifest
        said = {"settings": manifest.settings, "models": manifest.models, "versions": manifest.versions}
        st.code(json.dumps(said, indent=2, default=_plain, ensure_ascii=False), language="json")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else str(value)


def _jobs_of(summary: Mapping[str, Any]) -> list[list[str]]:
    """The lines of every job, whatever else a summary holds."""
    parts = summary.get("jobs", summary)
    each = parts.values() if isinstance(parts, Mapping) else ()
    return [list(map(str, part["lines"])) for part in each if isinstance(part, Mapping) and "lines" in part]


def _rows(context: Context, run: "Run") -> None:
    """The table of one job, its first rows drawn, all of them for export."""
    job = context.values["job"] or run.jobs[0]
    if job not in run.jobs:
        st.warning(f"This run has no job {job[:80]!r}; it has {', '.join(run.jobs)}.")
        return
    frame: pandas.DataFrame = run.frame(job)
    st.caption(f"Job {job}: {len(frame):,} rows" + (f", the first {MOST_ROWS:,} of them" * (len(frame) > MOST_ROWS)))
    st.dataframe(frame.head(MOST_ROWS), hide_index=True, width="stretch")
    context.export(job, frame)


def command(values: Values, chosen: Chosen) -> list[str]:
    """The list, or the status of the chosen run."""
    folder = workshop().options.runs
    return ["interp", "status", str(folder / values["run"])] if values["run"] else ["interp", "ls", str(folder)]


def python(values: Values, chosen: Chosen) -> str:
    """The chosen run, opened."""
    folder = workshop().options.runs
    if not values["run"]:
        return f"""
from pathlib import Path

for manifest in Path({str(folder)!r}).glob("*/manifest.json"):
    run = interp.open_run(manifest.parent)
    print(run.folder.name, run.status().state, *run.jobs)
"""
    job = f"{values['job']!r}" if values["job"] else "run.jobs[0]"
    return f"""
run = interp.open_run({str(folder / values["run"])!r})
print(run.status())
print(run.frame({job}))
"""


PAGE = Page(
    key="runs",
    title="Runs",
    icon=":material/inventory_2:",
    question="What was computed, how far is what is being computed, and what was found?",
    parameters=PARAMETERS,
    example={},
    show=show,
    command=command,
    python=python,
    needs_model=False,
)
