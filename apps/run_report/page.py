"""The report of a run as a page: what was run and how it ended, what each job found, failures, provenance."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interp.apps.report import Column, Figure, Highlight, Report, Section, Table
from interp.apps.run_report.tables import as_table
from interp.apps.run_summary import JobFinding

if TYPE_CHECKING:
    import pandas as pd
    from interp.runs import Job, Run, RunStatus

LONG = 600  # height in pixels from which a figure may scroll sideways on a phone
FAILURES, JOBS = "failures", "jobs"


def report(run: "Run", found: Mapping[str, JobFinding]) -> Report:
    """The whole page as values."""
    status, errors = run.status(), run.errors()
    sections = [_job_section(job, found[job.name], run) for job in run.jobs if job.name in found]
    waiting = [job.name for job in run.jobs if job.name not in found]
    return Report(
        title=run.manifest.name,
        lead=_lead(run, status),
        highlights=_highlights(run, status, sections),
        facts=_facts(run, status),
        sections=[*sections, *([_failures(errors)] if len(errors) else []), _provenance(run)],
        notes=[*(f"Nothing yet of {name}." for name in waiting), f"Folder: {run.folder}"],
        card="The run",
    )


def _lead(run: "Run", status: "RunStatus") -> str:
    analyses = _listed(dict.fromkeys(job.analysis for job in run.jobs))
    models = _listed(dict.fromkeys(job.model for job in run.jobs))
    what = "A study" if run.manifest.kind == "study" else "One analysis"
    left = f" {status.remaining:,} items are still to do: this page shows what is there." if status.remaining else ""
    return f"{what}: {analyses}, of {models}.{left}"


def _listed(words: Mapping[str, None]) -> str:
    named = list(words)
    return ", ".join(named) if len(named) < 4 else f"{', '.join(named[:3])} and {len(named) - 3} more"


def _highlights(run: "Run", status: "RunStatus", sections: list[Section]) -> list[Highlight]:
    first = sections[0].slug if sections else "model"
    tiles = [
        Highlight(f"{status.done:,} of {status.total:,}", "items done", f"state: {status.state}", "model"),
        Highlight(f"{len(run.jobs):,}", "jobs" if len(run.jobs) != 1 else "job", "an analysis of one model", first),
        Highlight(f"{len(run.manifest.models):,}", "models" if len(run.manifest.models) != 1 else "model",
                  _listed(dict.fromkeys(str(model["name"]) for model in run.manifest.models)), "provenance"),
    ]  # fmt: skip
    target = FAILURES if status.failed else "model"
    return [
        *tiles,
        Highlight(
            f"{status.failed:,}",
            "items failed",
            "each with its cause below" if status.failed else "none left behind",
            target,
        ),
    ]


def _facts(run: "Run", status: "RunStatus") -> list[tuple[str, str]]:
    manifest = run.manifest
    facts = [
        ("State", status.state),
        ("Items", f"{status.done:,} done, {status.failed:,} failed, {status.remaining:,} to do"),
        ("Begun", str(manifest.created)),
        ("Seed", str(manifest.seed)),
        ("Prefix", str(manifest.prefix)),
        ("Numbers", f"{manifest.dtype} on {manifest.device}"),
        ("Models", ", ".join(str(model["name"]) for model in manifest.models)),
        ("Data", ", ".join(f"{one['name']} ({one['items']} items)" for one in manifest.data)),
    ]
    if manifest.shard is not None:
        facts.append(("Shard", f"{manifest.shard[0]} of {manifest.shard[1]}"))
    return [(name, value) for name, value in facts if value]


def _job_section(job: "Job", found: JobFinding, run: "Run") -> Section:
    blocks: list[Figure | Table] = []
    if found.figure is not None:
        blocks.append(Figure(found.figure, f"{job.analysis} of {job.model}. {len(job.items):,} items planned.", 480))
    if len(found.frame):
        blocks.append(as_table(job.name, found.frame, f"{job.name}.summary.csv"))
    asked = ", ".join(f"{name} {value}" for name, value in job.settings.items())
    return Section(
        slug=f"job-{job.name}",
        title=f"{job.analysis} of {job.model}",
        question=f"Data {job.data}" + (f"; {asked}" if asked else ""),
        lines=found.lines,
        blocks=blocks,
        not_shown=found.caution,
        eyebrow=job.name,
    )


def _failures(errors: "pd.DataFrame") -> Section:
    columns = {"job": Column("job"), "item": Column("item"), "error": Column("kind"), "message": Column("cause")}
    causes = errors["error"].value_counts()
    return Section(
        slug=FAILURES,
        title="Items that failed",
        question=f"{len(errors):,} items gave no result; they are in no mean above.",
        lines=[f"{count:,} × {cause}" for cause, count in causes.items()],
        blocks=[Table(FAILURES, errors, "All of them are in", columns, 20, file="errors.jsonl of the run")],
        eyebrow="Failures",
    )


def _provenance(run: "Run") -> Section:
    import pandas as pd

    manifest = run.manifest
    rows = [
        ("settings", manifest.settings_sha256),
        *((name, str(version)) for name, version in manifest.versions.items()),
    ]
    for model in manifest.models:
        rows += [(f"weights of {model['name']}", str(model.get("weights_sha256"))),
                 (f"tokenizer of {model['name']}", str(model.get("tokenizer_sha256")))]  # fmt: skip
    rows += [(f"data {one['name']}", str(one.get("sha256"))) for one in manifest.data]
    frame = pd.DataFrame(rows, columns=["what", "version or SHA-256"])
    columns = {name: Column(name) for name in frame}
    return Section(
        slug="provenance",
        title="What this came from",
        question="Versions, and hashes of everything that went in. The same run again must find the same.",
        blocks=[Table("provenance", frame, "All settings are in", columns, file="manifest.json of the run")],
        eyebrow="Provenance",
    )
