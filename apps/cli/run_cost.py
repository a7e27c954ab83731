"""What a study would do, what it costs, and what is wrong with it: all before anything runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.study import Study, StudyPlan, Validation
    from interp.analyses.study.planning import PlannedJob

SHOWN = 20  # problems that are named; --json names all


def show_plan(study: "Study", folder: Path, limit: int | None, shard: tuple[int, int] | None, *, as_json: bool) -> None:
    """Print what a run would do: every job, its batches, its tokens and its cost. Nothing is written."""
    from interp.analyses.study import plan_study
    from interp.apps.cli.output import show, write_json

    plan = plan_study(study, limit=limit, shard=shard)
    if as_json:
        write_json({"kind": "study.plan", "folder": str(folder), **_document(plan)})
    else:
        show(*_parts(plan), f"\nNothing was run. The run would stand in {folder}.")


def show_validation(study: "Study", limit: int | None, *, as_json: bool) -> bool:
    """Print what was found in a study; whether it can run as it is."""
    from dataclasses import asdict

    from interp.analyses.study import validate_study
    from interp.apps.cli.output import show, write_json

    found = validate_study(study, limit=limit)
    if as_json:
        plan = {} if found.plan is None else _document(found.plan)
        problems = [asdict(problem) for problem in found.problems]
        write_json({"kind": "study.validation", "valid": found.ok, "problems": problems, "notes": found.notes, **plan})
    else:
        show(*_problems(found))
    return found.ok


def _problems(found: "Validation") -> "list[RenderableType]":
    lines = [str(problem) for problem in found.problems[:SHOWN]]
    more = len(found.problems) - SHOWN
    lines += [f"… and {more} more; --json names all"] if more > 0 else []
    count = f"{len(found.problems)} problems." if found.problems else "No problems."
    table = [] if found.plan is None else [*_parts(found.plan), ""]
    return [*table, *lines, count]


def _document(plan: "StudyPlan") -> dict[str, object]:
    jobs = [
        {
            "name": job.name,
            "analysis": job.task.name,
            "model": job.model.key,
            "data": job.spec.data,
            "items": len(job.items),
            "batches": len(job.packing),
            "tokens": _tokens(job),
        }
        for job in plan.jobs
    ]
    return {"name": plan.study.name, "shard": plan.shard, "jobs": jobs}


def _tokens(job: "PlannedJob") -> int:
    """Tokens of the items that have any."""
    return sum(length or 0 for length in job.lengths)


def _parts(plan: "StudyPlan") -> "list[RenderableType]":
    from interp.apps.cli.output import table

    rows = [
        (job.name, job.task.name, job.model.key, str(job.spec.data), *map(_number, _counts(job))) for job in plan.jobs
    ]
    total = [sum(column) for column in zip(*(_counts(job) for job in plan.jobs), strict=True)]
    rows.append(("together", "", "", "", *map(_number, total)))
    shard = [] if plan.shard is None else [f"\nShard {plan.shard[0]} of {plan.shard[1]} runs its part of the batches."]
    columns = ["job", "analysis", "model", "data", "items>", "batches>", "tokens>"]
    return [table(columns, rows), *shard]


def _counts(job: "PlannedJob") -> Sequence[int]:
    return len(job.items), len(job.packing), _tokens(job)


def _number(count: int) -> str:
    return f"{count:,}"
