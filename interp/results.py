"""What every analysis returns: named arrays, a long table, a figure, and where they came from.

A `Result` is a frozen value. Its arrays are read-only numpy arrays with named axes; every axis has coordinates
(layer numbers, head numbers, positions); settings say what was asked, provenance says of which weights, tokens,
device and versions. An analysis declares its own kind:

    class HeadScores(Result, kind="induction.heads"):
        grid = ("layer", "head")             # the axes of the default table
        title = "Induction scores"
        caution = "A score says where a head looks, not what it does."

        def figure(self) -> "Figure": ...
        def summary(self) -> list[str]: ...

    result = HeadScores(
        arrays={"prefix_matching": (values, ("layer", "head"))},
        axes={"layer": range(30)},           # axes that are not named here count from 0
        settings={"seq_len": 50},
        provenance=provenance(model.provenance, tokens=tokens, prefix="doc", seed=0),
    )
    result["prefix_matching"]                # the numpy array
    result.at("prefix_matching", layer=18, head=6)
    result.to_frame()                        # one row a cell of the grid, one column an array
    result.to_frame(("layer", "head", "sequence"))
    result.top("prefix_matching", 5)         # the highest rows of the table
    result.figure(); result.summary()
    result.save("out/heads"); Result.load("out/heads")    # the right class comes back, bit for bit

Labels are arrays too: text over an axis, such as the token at each position, is an array of strings, and so it
stands in every table whose rows have that axis.
"""

import hashlib
import importlib
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from interp import __version__
from interp.errors import LoadError, UsageError, nearest
from interp.named import NamedArray, Record, plain

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

Coordinates = tuple[int, ...] | tuple[str, ...]
Arrays = Mapping[str, "NamedArray | tuple[object, Sequence[str]]"]

_KINDS: dict[str, type["Result"]] = {}


def kinds() -> dict[str, type["Result"]]:
    """Every result kind that is known so far; a kind becomes known when its analysis is imported."""
    return dict(_KINDS)


def provenance(model: Mapping[str, object], *, tokens: object = None, **facts: object) -> dict[str, object]:
    """The model's own provenance with the facts of one run: prefix, seed, device, and a hash of the tokens read."""
    found: dict[str, object] = {**model, **{name: fact for name, fact in facts.items() if fact is not None}}
    if tokens is not None:
        ids = np.ascontiguousarray(np.asarray(tokens), dtype=np.int64)
        found["tokens_sha256"] = hashlib.sha256(repr(ids.shape).encode() + ids.tobytes()).hexdigest()
        found["tokens_shape"] = ids.shape
    versions = {"interp": __version__, "python": platform.python_version(), "numpy": np.__version__}
    stated = found.get("versions")
    found["versions"] = {**versions, **(stated if isinstance(stated, Mapping) else {})}
    return found


def _named(name: str, array: "NamedArray | tuple[object, Sequence[str]]") -> NamedArray:
    try:
        return array if isinstance(array, NamedArray) else NamedArray(array[0], tuple(array[1]))
    except UsageError as error:
        raise UsageError(f"Array {name!r}: {error}") from error


def _coordinates(axis: str, given: Iterable[object] | None, length: int) -> Coordinates:
    values = tuple(range(length)) if given is None else tuple(plain(value, f"axes.{axis}") for value in given)
    alike = all(type(value) is int for value in values) or all(type(value) is str for value in values)
    if len(values) != length or len(set(values)) != length or not alike:
        raise UsageError(
            f"Axis {axis!r} has {length} places and came with {len(values)} coordinates {values[:6]}: "
            "expected as many, all different, all whole numbers or all text."
        )
    return values  # type: ignore[return-value]  # the check above is what the type says


def _all_coordinates(arrays: Mapping[str, NamedArray], given: Mapping[str, Iterable[object]]) -> dict[str, Coordinates]:
    lengths: dict[str, int] = {}
    for name, array in arrays.items():
        for axis, length in zip(array.axes, array.values.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise UsageError(
                    f"Array {name!r} has {length} places on axis {axis!r}, other arrays have {lengths[axis]}."
                )
    unused = sorted(set(given) - set(lengths))
    clash = sorted(set(arrays) & set(lengths))
    if unused or clash:
        what = f"no array has the axes {unused}" if unused else f"{clash} name both arrays and axes"
        raise UsageError(f"The result's parts do not fit together: {what}.")
    return {axis: _coordinates(axis, given.get(axis), length) for axis, length in lengths.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Result(ABC):
    """What one analysis found. See the module's text for how it is built, read, saved and loaded.

    Raises `UsageError` on construction where arrays, axes and coordinates do not fit together.
    """

    arrays: Mapping[str, NamedArray]
    axes: Mapping[str, Coordinates]
    settings: Mapping[str, object]
    provenance: Mapping[str, object]

    kind: ClassVar[str]
    grid: ClassVar[tuple[str, ...]]
    title: ClassVar[str]
    caution: ClassVar[str] = ""

    def __init_subclass__(cls, *, kind: str | None = None, **rest: object) -> None:
        """A class without a kind holds what several kinds share, and has no results of its own."""
        super().__init_subclass__(**rest)
        if kind is not None:
            cls.kind = kind
            _KINDS[kind] = cls

    def __init__(
        self,
        *,
        arrays: Arrays,
        axes: Mapping[str, Iterable[object]] | None = None,
        settings: Mapping[str, object] | None = None,
        provenance: Mapping[str, object] | None = None,
    ) -> None:
        named = {name: _named(name, array) for name, array in arrays.items()}
        object.__setattr__(self, "arrays", Record(named))
        object.__setattr__(self, "axes", Record(_all_coordinates(named, axes or {})))
        object.__setattr__(self, "settings", plain(settings or {}, "settings"))
        object.__setattr__(self, "provenance", plain(provenance or {}, "provenance"))

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of one array, read-only. Raises `UsageError` with the nearest names if there is none."""
        return self.named(name).values

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def named(self, name: str) -> NamedArray:
        """One array with its axis names."""
        if name not in self.arrays:
            hint = nearest(str(name), self.arrays)
            raise UsageError(f"{type(self).__name__} has no array {name!r}.{hint} It has {', '.join(self.arrays)}.")
        return self.arrays[name]

    def at(self, name: str, **where: int | str) -> np.ndarray:
        """The array's values where its axes have these coordinates: `at("entropy", layer=-1, position=3)`."""
        array = self.named(name)
        unknown = sorted(set(where) - set(array.axes))
        if unknown:
            raise UsageError(f"Array {name!r} has axes {list(array.axes)}, not {unknown}.")
        index = tuple(self._place(axis, where[axis]) if axis in where else slice(None) for axis in array.axes)
        return np.asarray(array.values[index])

    def _place(self, axis: str, coordinate: int | str) -> int:
        places = self.axes[axis]
        if coordinate not in places:
            raise UsageError(
                f"Axis {axis!r} has no coordinate {coordinate!r}: it runs from {places[0]!r} to {places[-1]!r}."
            )
        return places.index(coordinate)

    def grids(self) -> list[tuple[str, ...]]:
        """The different sets of axes that this result's arrays have: each is a table that `to_frame` can make."""
        return list(dict.fromkeys(array.axes for array in self.arrays.values()))

    def to_frame(self, axes: Sequence[str] | None = None) -> "pandas.DataFrame":
        """A long table: one row a cell of `axes` (default: the kind's own grid), a column for each axis and array.

        Arrays over some of these axes repeat along the others; arrays with further axes are left out (ask for
        their axes to get them, `grids()` lists what there is).
        """
        import pandas

        grid = self.grid if axes is None else tuple(axes)
        missing = [axis for axis in grid if axis not in self.axes]
        if missing:
            raise UsageError(f"This result has no axes {missing}: it has {', '.join(self.axes)}.")
        shape = tuple(len(self.axes[axis]) for axis in grid)
        labels = {axis: NamedArray(list(self.axes[axis]), (axis,)) for axis in grid}
        shown = {name: array for name, array in self.arrays.items() if set(array.axes) <= set(grid)}
        return pandas.DataFrame({name: array.spread(grid, shape) for name, array in {**labels, **shown}.items()})

    def top(self, metric: str, count: int = 10, *, largest: bool = True) -> "pandas.DataFrame":
        """The rows of the table with the highest (or lowest) values of one metric, in order."""
        frame = self.to_frame(self.grid if set(self.named(metric).axes) <= set(self.grid) else self.named(metric).axes)
        return frame.sort_values(metric, ascending=not largest, kind="stable").head(count).reset_index(drop=True)

    @abstractmethod
    def figure(self) -> "Figure":
        """The picture of this result, as one plotly figure."""

    @abstractmethod
    def summary(self) -> list[str]:
        """What was found, in a few short lines for a terminal."""

    def identical(self, other: "Result") -> bool:
        """Same kind, axes, settings, provenance and array bits."""
        if self.kind != other.kind or list(self.arrays) != list(other.arrays):
            return False
        facts = all(getattr(self, part) == getattr(other, part) for part in ("axes", "settings", "provenance"))
        return facts and all(self.arrays[name].identical(other.arrays[name]) for name in self.arrays)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write the result as a folder of JSON, safetensors and a Parquet table; all of it or nothing.

        An earlier result in the same place is replaced; a folder with anything else in it is refused.
        """
        from interp.result_files import write

        return write(self, Path(folder))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a saved result back, checked against its hashes, as the class that wrote it.

        Raises `LoadError` for anything missing, cut short or changed, and where the result is of another kind
        than the class that was asked.
        """
        from interp.result_files import read

        found = read(Path(folder))
        result = found.pop("class")(**found)
        if not isinstance(result, cls):
            raise LoadError(f"{folder} holds a result of kind {result.kind!r}, expected {cls.kind!r}. Use Result.load.")
        return result

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name} {list(array.axes)}" for name, array in self.arrays.items())
        return f"<{type(self).__name__} of {self.provenance.get('model', 'an unnamed model')}: {arrays}>"

    def _repr_html_(self) -> str:
        """For notebooks: the summary and the head of the table. Plain HTML, no script; `figure()` draws."""
        frame = self.to_frame()
        table = frame.head(8).to_html(index=False, border=0, float_format=lambda value: f"{value:.4g}")
        notes = [
            f"{min(8, len(frame))} of {len(frame)} rows",
            *(f"{key}: {value}" for key, value in self.settings.items()),
        ]
        caution = f"<p><em>{escape(self.caution)}</em></p>" if self.caution else ""
        return (
            f"<div><h4>{escape(self.title)}</h4><pre>{escape(chr(10).join(self.summary()))}</pre>{caution}"
            f"{table}<p><small>{escape(' · '.join(notes))}</small></p></div>"
        )


def kind_class(kind: str, module: str) -> type[Result]:
    """The class of a result kind, importing the analysis that defines it if it is one of ours."""
    if kind not in _KINDS and module.startswith("interp."):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise LoadError(f"Results of kind {kind!r} come from {module}, which is not installed here.") from error
    if kind not in _KINDS:
        raise LoadError(
            f"{kind!r} is not a result kind known here (known: {', '.join(sorted(_KINDS)) or 'none'}). "
            f"Import the module that defines it first, {module}."
        )
    return _KINDS[kind]
