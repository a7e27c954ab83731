"""What every job of a run found: a few lines, a table, a figure; of studies and of single analyses alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from interp.runs import Run


@dataclass(frozen=True)
class JobFinding:
    """One job: lines for people, its summary table, a figure where there is something to draw, and a caution."""

    lines: list[str]
    frame: "pd.DataFrame"
    figure: "Figure | None"
    caution: str = ""


def findings(run: "Run") -> dict[str, JobFinding]:
    """Job name → what it found. Jobs of which no item is done are left out."""
    if run.kind == "analysis":
        results = {job: run.result(item, job) for job, item in run.results()}
        return {
            job: JobFinding(result.summary(), result.to_frame(), result.figure(), result.caution)
            for job, result in results.items()
        }
    from interp.analyses.study import summarise

    return {job: JobFinding(list(found.lines), found.frame, found.figure) for job, found in summarise(run).items()}


def summary_lines(run: "Run") -> dict[str, list[str]]:
    """Job name → its lines, without drawing anything: those that the run wrote when it finished, else made now."""
    written = run.summary()
    if all(isinstance(written.get(job), Mapping) and "lines" in written[job] for job in run.jobs):
        return {job: [str(line) for line in written[job]["lines"]] for job in run.jobs}
    return {name: found.lines for name, found in findings(run).items()}
