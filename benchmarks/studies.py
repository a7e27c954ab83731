"""What the machinery of studies costs: a study of 200 items against the bare loop over the same function.

Both sides load the model. The study plans, tokenizes, hashes, computes, writes parts, ledger, summary and manifest; the
loop computes the same batches and throws the tables away.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import interp
from benchmarks.measuring import Row, medians
from interp.analyses.fact_data import bundled_facts
from interp.analyses.study import Study, load_study, plan_study, running
from interp.analyses.study.batches import compute
from interp.analyses.study.planning import StudyPlan
from interp.analyses.study.task import Work

ITEMS, REPEATS, MARK = 200, 3, 3.0

_STUDY = """
name = "bench"
[[models]]
name = "smollm2-135m"
device = "cpu"
[[data]]
name = "texts"
kind = "prompts"
source = "texts.txt"
[[data]]
name = "sequences"
kind = "repeated"
count = {count}
[[analyses]]
analysis = "{analysis}"
"""


def studies() -> Iterator[Row]:
    """Lens and induction; overhead in % of the bare loop, medians of runs that take turns."""
    for analysis in ("lens", "induction"):
        with tempfile.TemporaryDirectory() as folder:
            found = _both(Path(folder), analysis)
        over = 100 * (found["study"] / found["loop"] - 1)
        measured = f"{found['study']:.2f} s against {found['loop']:.2f} s"
        yield Row(f"study of {ITEMS} {analysis} items ÷ bare loop", measured, over, MARK, "%")


def _both(folder: Path, analysis: str) -> dict[str, float]:
    plan = plan_study(_study(folder, analysis))
    return medians({"study": lambda: _whole(folder, analysis), "loop": lambda: _bare(plan)}, REPEATS)


def _study(folder: Path, analysis: str) -> Study:
    (folder / "texts.txt").write_text("\n".join(fact.prompt for fact in bundled_facts()[:ITEMS]))
    (folder / "study.toml").write_text(_STUDY.format(count=ITEMS, analysis=analysis))
    return load_study(folder / "study.toml")


def _whole(folder: Path, analysis: str) -> None:
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    running.run_study(_study(folder, analysis), out)


def _bare(plan: StudyPlan) -> None:
    """The model, and the same batches computed and forgotten."""
    model = interp.load("smollm2-135m", device="cpu")
    for job in plan.jobs:
        work = Work(model, job.settings, plan.study.run.prefix, plan.study.seed)
        start = 0
        for size in job.packing:
            found = compute(job.task, work, job.items[start : start + size])
            assert not found.failures
            start += size
