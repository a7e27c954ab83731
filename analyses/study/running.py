"""Running a study: batch by batch into a run directory, so that a kill at any moment loses the batch under way.

The manifest is written before anything is computed. Models are loaded one after another, and only those that have
something left to do; a finished study loads none. What is found does not depend on how often a run was stopped, on the
number of workers, or on shards: with equal threads it is the same to the bit.
"""

import gc
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from interp.analyses.study.batches import Filled, Order, fill
from interp.analyses.study.file import Study
from interp.analyses.study.planning import Opened, StudyPlan, plan_study
from interp.analyses.study.reading import study_of
from interp.analyses.study.workers import Pool
from interp.errors import Cancelled, FailuresError, IntegrityError
from interp.models.loading import load_checkpoint
from interp.models.transformer import Transformer
from interp.runs import Batch, Failure, RunWriter, open_run


@dataclass(frozen=True)
class StudyEvent:
    """Told after every batch. Counts are of the whole run, or of its shard; `seconds` since the call began."""

    job: str
    batch: int
    done: int
    failed: int
    total: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """How a run stands. `resumed`: how many of the items were there before this call."""

    folder: Path
    total: int
    done: int
    failed: int
    resumed: int


Progress = Callable[[StudyEvent], None]


@dataclass(frozen=True)
class RunOptions:
    """How to run, whatever is asked: nothing here changes what is found.

    `max_failures`: so many items may have failed; one more ends the run. `cancelled` is asked before every batch, and
    inside sweeps.
    """

    workers: int = 1
    retry_failed: bool = False
    max_failures: int | None = None
    progress: Progress | None = None
    cancelled: Callable[[], bool] | None = None


def run_study(
    study: Study,
    folder: str | Path,
    *,
    limit: int | None = None,
    shard: tuple[int, int] | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    max_failures: int | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Run a study into a directory, or go on with it there. `workers` and `max_failures` default to the study's own.

    Raises `IntegrityError` where the directory holds a run of something else, telling every difference; `LockedError`
    where another process works on it; `FailuresError` beyond `max_failures`; `Cancelled`. What is done stays done.
    """
    options = RunOptions(
        workers=study.run.workers if workers is None else workers,
        retry_failed=retry_failed,
        max_failures=study.run.max_failures if max_failures is None else max_failures,
        progress=progress,
        cancelled=cancelled,
    )
    return run_plan(plan_study(study, limit=limit, shard=shard), folder, options)


def resume_study(
    folder: str | Path,
    *,
    workers: int = 1,
    retry_failed: bool = False,
    max_failures: int | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Go on with the study that a directory's manifest states; parameters and errors as those of `run_study`."""
    manifest = open_run(folder).manifest
    if manifest.kind != "study":
        raise IntegrityError(f"{folder} holds a single analysis, which is finished: there is nothing to resume.")
    stated = dict(manifest.settings)
    limit = stated.pop("limit", None)
    plan = plan_study(study_of(stated), limit=limit, shard=manifest.shard)
    return run_plan(plan, folder, RunOptions(workers, retry_failed, max_failures, progress, cancelled))


def run_plan(plan: StudyPlan, folder: str | Path, options: RunOptions) -> Outcome:
    """Run what was planned."""
    with RunWriter.open(folder, plan.manifest()) as writer:
        before = writer.state
        pending = writer.pending(retry_failed=options.retry_failed)
        if pending:
            _work_off(plan, writer, pending, options)
        if not writer.finished:
            write_summary(writer, figures=plan.study.outputs.figures)
        state = writer.state
        return Outcome(writer.folder, state.total, state.done, state.failed, before.done + before.failed)


def _work_off(plan: StudyPlan, writer: RunWriter, pending: Sequence[Batch], options: RunOptions) -> None:
    """Compute the batches, model by model, and commit each as soon as it is there."""
    started = time.monotonic()
    failed = 0 if options.retry_failed else writer.state.failed  # what is tried again gets another chance
    _check_failures(failed, writer.folder, options)
    for number, (_, batches) in enumerate(groupby(pending, key=lambda batch: plan.job(batch.job).model.key)):
        if number:
            gc.collect()  # the model before this one makes room
        mine = list(batches)
        model = plan.job(mine[0].job).model
        writer.log(f"model {model.spec.name}: {len(mine)} batches")
        with closing(_computed(plan, writer.folder, mine, options)) as done:
            for batch, filled in done:
                for item, result in filled.results.items():
                    writer.save_result(batch.job, item, result)
                writer.commit(batch, filled.part, filled.failures)
                _tell(writer, batch, filled.failures, options, time.monotonic() - started)
                failed += len(filled.failures)
                _check_failures(failed, writer.folder, options)


def _computed(
    plan: StudyPlan, folder: Path, batches: Sequence[Batch], options: RunOptions
) -> Generator[tuple[Batch, Filled], None, None]:
    """The batches of one model, in order with one worker, else as they are ready."""
    orders = [order_of(plan, batch) for batch in batches]
    model = plan.job(batches[0].job).model
    if options.workers > 1 and len(batches) > 1:
        with Pool(min(options.workers, len(batches)), model.load_arguments, folder) as pool:
            yield from pool.computed(orders, options.cancelled)
        return
    loaded = load_opened(model)
    for order in orders:
        _check_cancelled(options)
        yield order.batch, fill(loaded, order, folder, options.cancelled)


def load_opened(opened: Opened) -> Transformer:
    """The model itself, from the files that planning has opened."""
    spec = opened.spec
    return load_checkpoint(opened.checkpoint, spec.name, device=opened.device, dtype=spec.dtype, revision=spec.revision)


def order_of(plan: StudyPlan, batch: Batch) -> Order:
    """All that is needed to compute a batch, beside the model."""
    job, places = plan.job(batch.job), {item: place for place, item in enumerate(batch.items)}
    items = sorted((item for item in job.items if item.id in places), key=lambda item: places[item.id])
    study = plan.study
    return Order(batch, job.task.name, job.settings, items, study.run.prefix, study.seed, study.outputs.arrays)


def _check_cancelled(options: RunOptions) -> None:
    if options.cancelled is not None and options.cancelled():
        raise Cancelled("The study was stopped. What is done is kept; run it again to go on.")


def _check_failures(failed: int, folder: Path, options: RunOptions) -> None:
    if options.max_failures is not None and failed > options.max_failures:
        raise FailuresError(
            f"{failed} items have failed, and {options.max_failures} may; why, tells "
            f"{folder / 'errors.jsonl'}. What is done is kept; mend the cause, then run it again, "
            "with more allowed or with failed items retried."
        )


def _tell(writer: RunWriter, batch: Batch, failures: Sequence[Failure], options: RunOptions, seconds: float) -> None:
    for failure in failures:
        writer.log(f"{batch.job}: item {failure.item!r} failed: {failure.error}: {failure.message}")
    if options.progress is not None:
        state = writer.state
        options.progress(StudyEvent(batch.job, batch.index, state.done, state.failed, state.total, seconds))


def write_summary(writer: RunWriter, *, figures: bool) -> None:
    """Finish a run of which nothing is left: its summary, and figures where they are wanted."""
    from interp.analyses.study.summaries import figure_page, summarise

    writer.arrange()
    told = summarise(open_run(writer.folder))
    if figures:
        for name, each in told.items():
            if each.figure is not None:
                writer.write(f"figures/{name}.html", figure_page(name, each.figure))
    writer.finish({name: {"lines": each.lines} for name, each in told.items()})
