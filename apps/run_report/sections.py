"""The sections of a run's report: what each job found, which items failed, where everything came from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interp.apps.report import Column, Figure, Section, Table
from interp.apps.run_report.tables import as_table
from interp.apps.run_summary import JobFinding

if TYPE_CHECKING:
    import pandas as pd

    from interp.runs import Job, Manifest

FAILURES, PROVENANCE = "failures", "provenance"
NARROWEST = 640  # pixels that the layers of a model need on an axis
LONGEST = 120  # letters of one setting that are shown


def job_section(job: "Job", found: JobFinding) -> Section:
    """One job: its lines, its figure, its table."""
    blocks: list[Figure | Table] = []
    if found.figure is not None:
        of = "1 item" if len(job.items) == 1 else f"{len(job.items):,} items"
        blocks.append(Figure(found.figure, f"{job.analysis} of {job.model}, {of}", NARROWEST))
    if len(found.frame):
        blocks.append(as_table(job.name, found.frame, f"{job.name}.summary.csv"))
    return Section(
        slug=f"job-{job.name}",
        title=f"{job.analysis} of {job.model}",
        question=_asked(job),
        lines=found.lines,
        blocks=blocks,
        not_shown=found.caution,
        eyebrow=f"Job {job.name}",
    )


def _asked(job: "Job") -> str:
    """Data and settings in one line."""
    parts = [f"data {job.data}"] if job.data else []
    parts += [f"{name.replace('_', ' ')} {_short(value)}" for name, value in job.settings.items() if value is not None]
    return " · ".join(parts)


def _short(value: object) -> str:
    """A setting in words, cut where it is long."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {inner}" for name, inner in value.items())
    else:
        text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def failures(errors: "pd.DataFrame") -> Section:
    """Every item that failed, with its cause."""
    columns = {"job": Column("job"), "item": Column("item"), "error": Column("kind"), "message": Column("cause")}
    causes = errors["error"].value_counts()
    return Section(
        slug=FAILURES,
        title="Items that failed",
        question="They gave no result, and are in no mean above.",
        lines=[f"{count:,} × {cause}" for cause, count in causes.items()],
        blocks=[Table(FAILURES, errors, "All of them:", columns, 20, file="errors.jsonl of the run")],
        eyebrow="Failures",
    )


def provenance(manifest: "Manifest") -> Section:
    """Versions, and the hashes of settings, weights, tokenizers and data."""
    import pandas as pd

    rows = [("settings", manifest.settings_sha256), *((name, str(one)) for name, one in manifest.versions.items())]
    for model in manifest.models:
        rows += [(f"{part} of {model['name']}", str(model.get(f"{part}_sha256") or "–")) for part in _PARTS]
    rows += [(f"data {one['name']}", str(one.get("sha256") or "–")) for one in manifest.data]
    frame = pd.DataFrame(rows, columns=["what", "version or SHA-256"])
    columns = {str(name): Column(str(name)) for name in frame}
    return Section(
        slug=PROVENANCE,
        title="What this came from",
        question="Versions, and hashes of all that went in.",
        blocks=[Table(PROVENANCE, frame, "All settings:", columns, file="manifest.json of the run")],
        eyebrow="Provenance",
    )


_PARTS = ("weights", "tokenizer")
