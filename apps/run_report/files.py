"""The files of a run's report: the page, and two tables of every job."""

from pathlib import Path
from typing import TYPE_CHECKING

from interp.apps.report import render
from interp.apps.run_report.page import report
from interp.apps.run_summary import findings

if TYPE_CHECKING:
    from interp.runs import Run

PAGE = "report.html"


def write(run: "Run", folder: Path) -> None:
    """Fill an empty folder."""
    found = findings(run)
    (folder / PAGE).write_text(render(report(run, found)), encoding="utf-8")
    for job, finding in found.items():
        run.frame(job).to_csv(folder / f"{job}.csv", index=False)
        finding.frame.to_csv(folder / f"{job}.summary.csv", index=False)
