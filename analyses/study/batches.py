"""One batch: its items asked together; and where that fails, one by one, so that a bad item harms no other.

Alone an item is computed in another shape than among others, so that its values may differ from theirs in the last
bits, as batches of another size do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.analyses.study.registry import tasks
from interp.analyses.study.task import Found, Item, Outcomes, Task, Work, faults
from interp.errors import Cancelled, IntegrityError, InterpError
from interp.runs import Batch, Failure, Part, write_part

if TYPE_CHECKING:
    import pyarrow as pa

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer
    from interp.results import Result

Caught = (
    *(InterpError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError),
    *(TypeError, ValueError),
)
"""What may befall an item without ending a study: its own fault, or one of ours, which the others need not share."""


@dataclass(frozen=True)
class Order:
    """A batch with all that is needed to compute it, beside the model; it can be sent to another process."""

    batch: Batch
    task: str
    settings: Any
    items: Sequence[Item]
    prefix: "PrefixPolicy"
    seed: int
    arrays: bool


@dataclass(frozen=True)
class Filled:
    """A batch whose part is written; whole results, where they are to be kept."""

    part: Part | None
    failures: Sequence[Failure]
    results: "Mapping[str, Result]"


@dataclass(frozen=True)
class Computed:
    """What a batch came to: a table of each item that was done, and why the others failed."""

    tables: "Mapping[str, pa.Table]"
    failures: Sequence[Failure] = ()
    results: "Mapping[str, Result]" = field(default_factory=dict)


def fill(model: "Transformer", order: Order, folder: Path, cancelled: Callable[[], bool] | None = None) -> Filled:
    """Compute a batch and write its part; the run's ledger is another's affair."""
    work = Work(model, order.settings, order.prefix, order.seed, cancelled)
    found = compute(tasks()[order.task], work, order.items)
    part = write_part(folder, order.batch, found.tables) if found.tables else None
    return Filled(part, found.failures, found.results if order.arrays else {})


def compute(task: Task, work: Work, items: Sequence[Item]) -> Computed:
    """The tables of a batch. Raises nothing but what stops a study: `Cancelled`, an interrupt, a system at its end."""
    outcomes = _outcomes(task, work, items)
    tables, failures, results = {}, [], {}
    for item in items:
        found = outcomes[item.id]
        try:
            if isinstance(found, Exception):
                raise found
            tables[item.id] = _table(task, work, found)
        except Caught as error:
            failures.append(failure_of(item.id, error))
            continue
        if found.result is not None:
            results[item.id] = found.result
    return Computed(tables, tuple(failures), results)


def failure_of(item: str, error: BaseException) -> Failure:
    """What the ledger says of an error."""
    message = str(error) or type(error).__name__
    return Failure(item, type(error).__name__, message, getattr(error, "exit_code", 1))


def _outcomes(task: Task, work: Work, items: Sequence[Item]) -> Mapping[str, Found | Exception]:
    try:
        return _all(task.compute(work, items), items)
    except Cancelled:
        raise
    except Caught as error:
        if len(items) == 1:
            return {items[0].id: error}
    return {item.id: each for item in items for each in _outcomes(task, work, [item]).values()}


def _all(outcomes: Outcomes, items: Sequence[Item]) -> Outcomes:
    missing = [item.id for item in items if item.id not in outcomes]
    if missing:
        raise RuntimeError(f"The analysis said nothing of the item {missing[0]!r}.")
    return outcomes


def _table(task: Task, work: Work, found: Found) -> "pa.Table":
    """The item's table; `IntegrityError` where it holds what is no number."""
    table = task.table(work.settings, found)
    wrong = [] if found.left_out else faults(table, task.finite)
    if wrong:
        raise IntegrityError(
            f"NaN or infinity stands under {', '.join(wrong)}: the model computes no numbers for this item. Look at "
            "its weights, or use a wider dtype."
        )
    return table
