"""The report of a run as a page: what was run and how it ended, what each job found, failures, provenance."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from interp.apps.report import Highlight, Report, Section
from interp.apps.run_report.sections import FAILURES, PROVENANCE, failures, job_section, provenance
from interp.apps.run_summary import JobFinding

if TYPE_CHECKING:
    from interp.runs import Run, RunStatus

STATES = {"failed items": "finished; some items failed"}
RUN = "model"  # where the card of the run's facts stands on the page


def report(run: "Run", found: Mapping[str, JobFinding]) -> Report:
    """The whole page as values."""
    status, errors = run.status(), run.errors()
    sections = [job_section(job, found[job.name]) for job in run.manifest.jobs if job.name in found]
    waiting = [job for job in run.jobs if job not in found]
    return Report(
        title=run.manifest.name,
        lead=_lead(run, status),
        highlights=_highlights(run, status, sections),
        facts=_facts(run, status),
        sections=[*sections, *([failures(errors)] if len(errors) else []), provenance(run.manifest)],
        notes=[*(f"Nothing yet of {name}." for name in waiting), f"Folder: {run.folder}"],
        card="The run",
    )


def _lead(run: "Run", status: "RunStatus") -> str:
    analyses = _listed(dict.fromkeys(job.analysis for job in run.manifest.jobs))
    models = _listed(dict.fromkeys(job.model for job in run.manifest.jobs))
    what = "A study" if run.kind == "study" else "One analysis"
    left = f" {status.remaining:,} items are still to do: this page shows what is there." if status.remaining else ""
    return f"{what}: {analyses}, of {models}.{left}"


def _listed(words: Mapping[str, None]) -> str:
    named = list(words)
    return ", ".join(named) if len(named) < 4 else f"{', '.join(named[:3])} and {len(named) - 3} more"


def _highlights(run: "Run", status: "RunStatus", sections: list[Section]) -> list[Highlight]:
    models = [str(model["name"]) for model in run.manifest.models]
    first = sections[0].slug if sections else RUN
    causes = "each with its cause below" if status.failed else "every item that was tried gave a result"
    return [
        Highlight(f"{status.done:,} of {status.total:,}", "items done", STATES.get(status.state, status.state), RUN),
        Highlight(f"{len(run.jobs):,}", _counted("job", run.jobs), "each one analysis of one model", first),
        Highlight(f"{len(models):,}", _counted("model", models), _listed(dict.fromkeys(models)), PROVENANCE),
        Highlight(f"{status.failed:,}", "items failed", causes, FAILURES if status.failed else RUN),
    ]


def _counted(word: str, things: Sequence[object]) -> str:
    return word if len(things) == 1 else f"{word}s"


def _facts(run: "Run", status: "RunStatus") -> list[tuple[str, str]]:
    manifest = run.manifest
    facts = [
        ("State", STATES.get(status.state, status.state)),
        ("Items", f"{status.done:,} done, {status.failed:,} failed, {status.remaining:,} to do"),
        ("Begun", str(manifest.created)),
        ("Seed", _said(manifest.seed)),
        ("Prefix", _said(manifest.prefix)),
        ("Numbers", " on ".join(filter(None, (manifest.dtype, manifest.device)))),
        ("Models", ", ".join(str(model["name"]) for model in manifest.models)),
        ("Data", ", ".join(f"{one['name']} ({one.get('items', '?')} items)" for one in manifest.data)),
    ]
    if manifest.shard is not None:
        facts.append(("Shard", f"{manifest.shard[0]} of {manifest.shard[1]}"))
    return [(name, value) for name, value in facts if value]


def _said(value: object) -> str:
    return "" if value is None else str(value)
