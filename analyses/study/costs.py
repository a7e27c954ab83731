"""What a study will cost: the sum over its jobs, from lengths and configurations.

Of facts and pairs it is counted where the two runs of an item part, so that sweeps cost what they will; every fact is
taken for known.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interp.analyses.costs import AnalysisCost, analysis_cost
from interp.errors import InterpError
from interp.facts import Fact, exact_span
from interp.prompt_pairs import PromptPair

if TYPE_CHECKING:
    from interp.analyses.study.planning import PlannedJob, StudyPlan
    from interp.models.planner.speed import Speed

_KEPT = ("positions",)
"""Settings of which None says something: all of them."""


def cost_of(plan: "StudyPlan", speed: "Speed | None" = None) -> AnalysisCost:
    """The cost of all jobs, one after the other."""
    total = AnalysisCost(seconds=None if speed is None else 0.0)
    for job in plan.jobs:
        total = total + job_cost(job, plan.study.run.prefix, speed)
    return total


def job_cost(job: "PlannedJob", prefix: str, speed: "Speed | None" = None) -> AnalysisCost:
    """The cost of one job. Items that have no length, or do not fit the context, will fail and cost nothing."""
    context = job.model.config.n_ctx
    fitting = [(item.value, length) for item, length in zip(job.items, job.lengths, strict=True) if length]
    fitting = [(value, length) for value, length in fitting if length <= context]
    stated = job.settings.model_dump(mode="json")
    settings = {name: value for name, value in stated.items() if value is not None or name in _KEPT}
    settings |= {"dtype": job.model.spec.dtype, "prefix": prefix}
    settings |= {"n_seqs": len(job.items)} if job.task.kinds == ("repeated",) else {}
    settings |= {"check": None} if job.task.name == "attribution-patching" else {}
    changed = [_changed(job, value, length, prefix) for value, length in fitting]
    settings |= {"changed": changed} if fitting and isinstance(fitting[0][0], Fact | PromptPair) else {}
    facts = bool(fitting) and isinstance(fitting[0][0], Fact)
    return analysis_cost(
        _cost_name(job, facts), job.model.config, [length for _, length in fitting], settings, speed=speed
    )


_OF_FACTS: Mapping[str, str] = {"tracing": "fact-tracing", "attribution": "fact-attribution"}


def _cost_name(job: "PlannedJob", facts: bool) -> str:
    """The analysis whose cost it is, where many facts have one of their own."""
    return _OF_FACTS.get(job.task.name, job.task.name) if facts else job.task.name


def _changed(job: "PlannedJob", value: object, length: int, prefix: str) -> list[int]:
    """Where the two runs of an item differ: a fact's subject, what is not the same in a pair; else behind the first."""
    tokenizer, found = job.model.tokenizer, list[int]()
    assert tokenizer is not None
    try:
        if isinstance(value, Fact):
            found = list(exact_span(tokenizer, value.template, value.subject, prefix=prefix).positions)  # type: ignore[arg-type]
        elif isinstance(value, PromptPair):
            both = [tokenizer.prompt_ids(text, prefix) for text in (value.clean, value.corrupted)]  # type: ignore[arg-type]
            found = [place for place, (one, other) in enumerate(zip(*both, strict=False)) if one != other]
    except InterpError:
        found = []
    return found or list(range(min(1, length - 1), length))
