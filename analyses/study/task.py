"""What a study needs to know of an analysis: a task, from the items of a batch to one long table an item."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from interp.analyses.study.file import Kind, Table
from interp.errors import InterpError

if TYPE_CHECKING:
    import pyarrow as pa

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.tokenizer import Tokenizer
    from interp.models.transformer import Transformer
    from interp.results import Result

Columns = Mapping[str, type]
"""Column → int, float, bool or str."""

LEFT_OUT = "left_out"
"""The column that says why an item has no cells; empty where it has."""
_EMPTY: dict[type, object] = {int: -1, float: np.nan, bool: False, str: ""}


@dataclass(frozen=True)
class Item:
    """One thing that an analysis is asked about; `value` is what its kind of data holds."""

    id: str
    value: Any


@dataclass(frozen=True)
class Work:
    """What holds for all items of a job."""

    model: "Transformer"
    settings: Any
    prefix: "PrefixPolicy"
    seed: int
    cancelled: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Found:
    """What was found of one item: equally long columns; or why there is nothing to find. `result`: all of it."""

    columns: Mapping[str, object] = field(default_factory=dict)
    left_out: str = ""
    result: "Result | None" = None


Outcomes = Mapping[str, Found | InterpError]
"""Item → what was found, or the error that befell it alone."""


class Compute(Protocol):
    """Computes the items of a batch together. May raise: then they are asked one by one."""

    def __call__(self, work: Work, items: Sequence[Item]) -> Outcomes:
        """What is found of each item."""
        ...


@dataclass(frozen=True)
class Task:
    """How an analysis is asked about many items.

    `kinds`: the data it takes, the first of which it makes itself where none is named. `columns`, of settings: the
    columns of its tables (None: whatever comes, for tables of one item). `cells`: the columns that say where a value
    lies; over items, `values` are averaged in each cell. `finite`: columns in which NaN or infinity is a fault.
    `tokens_at_once`: about how many tokens a batch has that packs itself. `length`: the tokens of an item, its prefix
    included. `check`: what the settings cannot say alone, of a model's configuration.
    """

    name: str
    kinds: tuple[Kind, ...]
    settings: type[Table]
    compute: Compute
    columns: Callable[[Any], Columns] | None
    cells: Callable[[Any], tuple[str, ...]]
    values: tuple[str, ...]
    finite: tuple[str, ...] = ()
    tokens_at_once: int = 1024
    length: "Callable[[Tokenizer, Any, Any, PrefixPolicy], int] | None" = None
    may_leave_out: bool = False

    def table(self, settings: object, found: Found) -> "pa.Table":
        """The columns as a table whose types do not depend on what was found."""
        if self.columns is None:
            return _as_it_comes(found.columns)
        columns = dict(self.columns(settings))
        values = found.columns
        if found.left_out:
            values = {name: [_EMPTY[kind]] for name, kind in columns.items()}
        if self.may_leave_out:
            columns[LEFT_OUT] = str
            length = len(next(iter(values.values())))  # type: ignore[arg-type]  # columns are sequences
            values = {**values, LEFT_OUT: [found.left_out] * length}
        return _typed(columns, values)


def _typed(columns: Columns, values: Mapping[str, object]) -> "pa.Table":
    import pyarrow as pa

    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    arrays = {}
    for name, kind in columns.items():
        column = values[name]
        if kind is not str:
            arrays[name] = pa.array(np.asarray(column).astype(kind), types[kind])
        else:
            arrays[name] = pa.array([str(each) for each in column], types[kind])  # type: ignore[attr-defined]
    return pa.table(arrays)


def _as_it_comes(values: Mapping[str, object]) -> "pa.Table":
    import pyarrow as pa

    return pa.table({name: pa.array(np.asarray(column).tolist()) for name, column in values.items()})


def faults(table: "pa.Table", finite: Sequence[str]) -> list[str]:
    """The columns that hold what is no number where one must be."""
    names = [name for name in finite if name in table.column_names]
    return [name for name in names if not np.isfinite(table.column(name).to_numpy().astype(float)).all()]
