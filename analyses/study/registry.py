"""The analyses that a study can ask, by name. Adding one is one entry: a `Task`, beside those it resembles."""

from collections.abc import Mapping
from functools import cache

from interp.analyses.study.task import Task


@cache
def tasks() -> Mapping[str, Task]:
    """Name → task. The names are those of `ANALYSES`; `tracing` and the like take many facts instead of one prompt."""
    from interp.analyses.study import fact_tasks, head_tasks, lens_tasks, pair_tasks, prompt_tasks

    found = (
        lens_tasks.LENS,
        lens_tasks.LENS_PARTS,
        lens_tasks.FACT_LENS,
        prompt_tasks.ATTRIBUTION,
        head_tasks.INDUCTION,
        head_tasks.ATLAS,
        head_tasks.REPEAT_LOSS,
        head_tasks.IN_CONTEXT,
        head_tasks.HEAD_ABLATION,
        head_tasks.COMPOSITION,
        fact_tasks.FACTS,
        fact_tasks.TRACING,
        fact_tasks.KNOCKOUT,
        fact_tasks.SUBLAYER_KNOCKOUT,
        fact_tasks.EXTRACTION,
        prompt_tasks.MEMORIES,
        fact_tasks.KNOWLEDGE_NEURONS,
        pair_tasks.PATCHING,
        pair_tasks.ATTRIBUTION_PATCHING,
    )
    return {task.name: task for task in found}
