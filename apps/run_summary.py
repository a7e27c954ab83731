"""What every job of a run found: a few lines, a table, a figure; of studies and of single analyses alike."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from interp.runs import Run
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class JobFinding:
    """One job: lines for people, its summary table, a figure where there is something to draw, and a caution."""

    lines: list[str]
    frame: "pd.DataFrame"
    figure: "Figure | None"
    caution: str = ""


def findings(run: "Run") -> dict[str, JobFinding]:
    """Job name → what it found. Jobs of which no item is done are left out."""
    if run.manifest.kind == "analysis":
        results = {job: run.result(item, job) for job, item in run.results()}
        return {
            job: JobFinding(result.summary(), result.to_frame(), result.figure(), result.caution)
            for job, result in results.items()
        }
    from interp.analyses.study import summarise

    return {job: JobFinding(list(found.lines), found.frame, found.figure) for job, found in summarise(run).items()}


def summary_lines(run: "Run") -> dict[str, list[str]]:
    """Job name → its lines, without drawing anything: those that the run wrote when it finished, else made now."""
    jobs = (run.summary() or {}).get("jobs")
    if isinstance(jobs, dict) and all("lines" in job for job in jobs.values()):
        return {name: [str(line) for line in job["lines"]] for name, job in jobs.items()}
    return {name: found.lines for name, found in findings(run).items()}
