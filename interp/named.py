"""Arrays whose axes have names, and records that cannot change: what results are made of."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Generic, TypeVar

import numpy as np

from interp.errors import UsageError

Value = TypeVar("Value")

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMERIC_DTYPES = ("bool", *WHOLE, "float16", "float32", "float64")


class Record(Mapping[str, Value], Generic[Value]):
    """A dictionary that cannot be written to, and that pickles (`types.MappingProxyType` does not)."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


def plain(value: object, where: str) -> object:
    """The value as JSON can hold it, frozen: records, tuples, strings, whole numbers, finite floats, booleans, None.

    Lists and tuples become tuples and numpy scalars Python ones, so that what is loaded equals what was saved.
    Raises `UsageError`, naming `where`, for anything else.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise UsageError(f"{where} is {value}: settings hold finite numbers only. Use None for 'not set'.")
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return Record({str(key): plain(inner, f"{where}.{key}") for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return tuple(plain(inner, f"{where}[{index}]") for index, inner in enumerate(value))
    raise UsageError(
        f"{where} is a {type(value).__name__}: settings and provenance hold JSON values only. "
        "Put arrays among the result's arrays, and name other objects by a string."
    )


def jsonable(value: object) -> object:
    """The same value in the built-in types that the `json` module writes: records as dicts, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: jsonable(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [jsonable(inner) for inner in value]
    return value


def _as_numpy(values: object) -> np.ndarray:
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.dtype.kind == "U":  # numpy's fixed-width text drops trailing NULs, which are tokens like any other
        array = np.array(values, dtype=object)
    array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    text = array.dtype == object and all(isinstance(cell, str) for cell in array.flat)
    if array.dtype.name not in NUMERIC_DTYPES and not text:
        raise UsageError(
            f"An array of dtype {array.dtype.name} cannot be kept in a result: expected text or one of "
            f"{', '.join(NUMERIC_DTYPES)}. Convert it first."
        )
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class NamedArray:
    """A read-only numpy array, one name per axis. Text is held as objects, every cell a `str`.

    The values are copied, so that nothing outside can change them.
    """

    values: np.ndarray
    axes: tuple[str, ...]

    def __init__(self, values: object, axes: tuple[str, ...] | list[str] = ()) -> None:
        array = _as_numpy(values)
        if array.ndim != len(axes) or len(set(axes)) != len(axes):
            raise UsageError(
                f"An array of shape {list(array.shape)} came with axis names {list(axes)}: "
                "expected one name per axis, each different."
            )
        object.__setattr__(self, "values", array)
        object.__setattr__(self, "axes", tuple(axes))

    def __reduce__(self) -> tuple[type["NamedArray"], tuple[np.ndarray, tuple[str, ...]]]:
        return type(self), (self.values, self.axes)

    @property
    def is_text(self) -> bool:
        """True where the cells are strings."""
        return self.values.dtype == object

    def identical(self, other: "NamedArray") -> bool:
        """Equal axes, dtype, shape and bits: NaNs of the same bits count as equal, 0.0 and -0.0 do not."""
        mine, theirs = self.values, other.values
        if self.axes != other.axes or mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return False
        return list(mine.flat) == list(theirs.flat) if self.is_text else mine.tobytes() == theirs.tobytes()

    def spread(self, grid: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        """The array laid out over the axes `grid`, repeated along those that it does not have, as one flat column."""
        order = [self.axes.index(name) for name in grid if name in self.axes]
        lengths = [length if name in self.axes else 1 for name, length in zip(grid, shape, strict=True)]
        return np.broadcast_to(self.values.transpose(order).reshape(lengths), shape).reshape(-1)
