"""The demo's files: the page, a Parquet file for every table, the results as the analyses returned them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from interp.apps.cli.output import plain
from interp.apps.demo.page import report
from interp.apps.demo.questions import Findings
from interp.apps.demo.summary import document
from interp.apps.report import render

if TYPE_CHECKING:
    import pandas as pd

PAGE = "report.html"


def write(findings: Findings, frames: "dict[str, pd.DataFrame]", folder: Path) -> None:
    """Fill an empty folder."""
    (folder / PAGE).write_text(render(report(findings, frames)), encoding="utf-8")
    summary = json.dumps(plain(document(findings, frames)), ensure_ascii=False, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(summary, encoding="utf-8")
    (folder / "tables").mkdir()
    for name, frame in frames.items():
        frame.to_parquet(folder / "tables" / f"{name}.parquet", index=False)
    (folder / "results").mkdir()
    for finding in findings.lenses():
        finding.result.save(folder / "results" / f"{finding.sentence.slug}_lens")
    findings.induction.scores.save(folder / "results" / "heads")
    findings.induction.loss.save(folder / "results" / "repeat_loss")
    findings.induction.removal.save(folder / "results" / "head_ablation")
    for slug, trace in findings.traces.items():
        trace.save(folder / "results" / slug)
