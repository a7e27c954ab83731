"""What a study would do, what it costs, and what is wrong with it: all before anything runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.costs import AnalysisCost
    from interp.analyses.study import Study, StudyPlan, Validation
    from interp.analyses.study.planning import PlannedJob
    from interp.models.planner import Speed

    Costs = dict[str, AnalysisCost]  # job → what it costs

SHOWN = 20  # problems that are named; --json names all
HERE = "this machine"


def show_plan(plan: "StudyPlan", folder: Path, on: str | None, *, as_json: bool, quiet: bool) -> None:
    """Print what a run would do: every job, its batches, its tokens and its cost. Nothing is written."""
    from interp.apps.cli.output import show, write_json

    costs = _costs(plan, on, quiet)
    if as_json:
        write_json({"kind": "study.plan", "folder": str(folder), **_document(plan, costs, on)})
    else:
        show(*_parts(plan, costs, on), f"\nNothing was run. The run would stand in {folder}.")


def show_validation(study: "Study", limit: int | None, *, as_json: bool, quiet: bool) -> bool:
    """Print what was found in a study; whether it can run as it is."""
    from dataclasses import asdict

    from interp.analyses.study import validate_study
    from interp.apps.cli.output import show, write_json

    found = validate_study(study, limit=limit)
    costs = {} if found.plan is None or not found.ok else _costs(found.plan, None, quiet)
    if as_json:
        plan = {} if found.plan is None else _document(found.plan, costs, None)
        problems = [asdict(problem) for problem in found.problems]
        write_json({"kind": "study.validation", "valid": found.ok, "problems": problems, "notes": found.notes, **plan})
    else:
        table = [] if found.plan is None else [*_parts(found.plan, costs, None), ""]
        show(*table, *_problems(found))
    return found.ok


def _problems(found: "Validation") -> list[str]:
    lines = [str(problem) for problem in found.problems[:SHOWN]]
    more = len(found.problems) - SHOWN
    lines += [f"… and {more} more; --json names all"] if more > 0 else []
    counts = {0: "No problems.", 1: "1 problem."}
    return [*lines, counts.get(len(found.problems), f"{len(found.problems)} problems.")]


def _costs(plan: "StudyPlan", on: str | None, quiet: bool) -> "Costs":
    """What each job costs, with seconds on the accelerator that is named, or here, where each shape is timed once."""
    from interp.analyses.study.costs import job_cost
    from interp.apps.cli.progress import step
    from interp.models.planner import accelerator, this_machine

    speeds: dict[str, Speed] = {}
    costs = {}
    with step("Timing this machine" if on is None else f"Looking up {on}", quiet):
        for job in plan.jobs:
            if job.model.key not in speeds:
                speeds[job.model.key] = this_machine(job.model.config) if on is None else accelerator(on)
            costs[job.name] = job_cost(job, plan.study.run.prefix, speeds[job.model.key])
    return costs


def _document(plan: "StudyPlan", costs: "Costs", on: str | None) -> dict[str, object]:
    from dataclasses import asdict

    jobs = [
        {
            "name": job.name,
            "analysis": job.task.name,
            "model": job.model.key,
            "data": job.spec.data,
            **dict(zip(("items", "batches", "tokens"), _counts(job), strict=True)),
            "cost": asdict(costs[job.name]) if job.name in costs else None,
        }
        for job in plan.jobs
    ]
    total = asdict(_together(costs)) if costs else None
    return {"name": plan.study.name, "shard": plan.shard, "on": on or HERE, "jobs": jobs, "cost": total}


def _together(costs: "Costs") -> "AnalysisCost":
    from interp.analyses.costs import AnalysisCost

    return sum(costs.values(), start=AnalysisCost(seconds=0.0))


def _parts(plan: "StudyPlan", costs: "Costs", on: str | None) -> "list[RenderableType]":
    """A row for every job, and one for all; what a shard does of it."""
    from interp.apps.cli.output import table

    rows = [
        (job.name, job.task.name, job.model.key, str(job.spec.data), *map(_number, _counts(job)), *_spent(costs, job))
        for job in plan.jobs
    ]
    total = [sum(column) for column in zip(*(_counts(job) for job in plan.jobs), strict=True)]
    spent = _words(_together(costs)) if costs else ()
    rows.append(("together", "", "", "", *map(_number, total), *spent))
    columns = ["job", "analysis", "model", "data", "items>", "batches>", "tokens>"]
    columns += ["GFLOP>", "memory>", f"time on {on or HERE}>"] if costs else []
    shard = [] if plan.shard is None else [f"\nShard {plan.shard[0]} of {plan.shard[1]} runs its part of the batches."]
    return [table(columns, rows), *shard]


def _counts(job: "PlannedJob") -> Sequence[int]:
    """Items, batches, and the tokens of those items that have any."""
    return len(job.items), len(job.packing), sum(length or 0 for length in job.lengths)


def _spent(costs: "Costs", job: "PlannedJob") -> tuple[str, ...]:
    return _words(costs[job.name]) if job.name in costs else ()


def _words(cost: "AnalysisCost") -> tuple[str, str, str]:
    from interp.apps.cli.run_progress import duration
    from interp.apps.model_facts import size

    return f"{cost.flops / 1e9:,.1f}", size(cost.bytes), duration(cost.seconds or 0.0)


def _number(count: int) -> str:
    return f"{count:,}"
