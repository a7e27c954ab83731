"""Hook points as the forward pass meets them, and the hooks that are active in the running context.

A `HookPoint` is an identity with a name; it holds no state. The active hooks live in a context variable, so that
threads sharing one model never see each other's, contexts nest, and an exception leaves nothing behind. While nobody
listens, a hook point costs one context-variable read.

Two kinds of listeners stand at a point. *Edits* see the value first, each on a copy of its own, and may change it;
*recorders* see it last, so that a cache holds what the model went on to use.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import HookError
from interp.points import Names, Point, PointTable

HookFn = Callable[[Tensor, "HookPoint"], Tensor | None]
"""`hook(value, point)` returns a tensor to go on with, or None to go on with `value`, looked at or edited in place."""

Recorder = Callable[[Tensor, "HookPoint"], Tensor]
Hooks = Sequence[tuple[Names, HookFn]]


@dataclass(frozen=True)
class Rows:
    """Which tokens the rows of the current forward pass are."""

    positions: Int[Tensor, "batch pos"]
    """Absolute position of each row in its own text, padding not counted."""
    start: int = 0
    """Column of the token grid at which the rows begin: 0, or the length of a cache that they continue."""
    mask: Bool[Tensor, "batch pos"] | None = None
    """Which rows are real tokens; None if none of them is padding."""
    partial: bool = False
    """Whether they are a part of a longer text: one that is read piece by piece, or whose other rows are known."""
    total: int | None = None
    """Columns of that longer text, where it has an end already."""


class HookPoint:
    """The place in a forward pass where one named value can be read and edited."""

    __slots__ = ("name", "spec")

    def __init__(self, name: str, spec: Point) -> None:
        self.name = name
        self.spec = spec

    def __repr__(self) -> str:
        return f"HookPoint({self.name!r}: {' '.join(self.spec.axes)})"

    def __call__(self, value: Tensor) -> Tensor:
        """The value as the active hooks leave it."""
        active = _ACTIVE.get()
        return value if active is None else active.apply(self, value)

    @property
    def listened(self) -> bool:
        """Whether an edit or a recorder stands here: the question of points that are computed on demand."""
        active = _ACTIVE.get()
        return active is not None and (self.name in active.edits or self.name in active.recorders)

    @property
    def edited(self) -> bool:
        """Whether an edit stands here."""
        active = _ACTIVE.get()
        return active is not None and self.name in active.edits

    @property
    def differentiated(self) -> bool:
        """Whether the gradient with respect to this very value is wanted."""
        active = _ACTIVE.get()
        return active is not None and self.name in active.differentiated

    @property
    def written(self) -> bool:
        """Whether what follows must be computed from this very value."""
        return self.edited or self.differentiated

    @property
    def rows(self) -> Rows:
        """Which tokens the rows of the running forward pass are; for hooks that work by absolute position."""
        return _ROWS.get()

    @property
    def layer(self) -> int | None:
        """The layer this point belongs to; None for the embedding, the final norm and the unembedding."""
        return int(self.name.split(".", 2)[1]) if self.spec.per_layer else None


@dataclass(frozen=True)
class ActiveHooks:
    """The hooks of one context: name → functions, outer contexts first. Never changed, only extended."""

    edits: dict[str, tuple[HookFn, ...]] = field(default_factory=dict)
    recorders: dict[str, tuple[Recorder, ...]] = field(default_factory=dict)
    differentiated: frozenset[str] = frozenset()
    selections: tuple[frozenset[str], ...] = ()
    """The points of each edit that was asked for: one of them at least should fire."""

    def apply(self, point: HookPoint, value: Tensor) -> Tensor:
        """Run the edits, then the recorders, that stand at a point."""
        for edit in self.edits.get(point.name, ()):
            value = edited(edit, value, point)
        for record in self.recorders.get(point.name, ()):
            value = record(value, point)
        return value


_ACTIVE: ContextVar[ActiveHooks | None] = ContextVar("interp_active_hooks", default=None)
_ROWS: ContextVar[Rows] = ContextVar("interp_rows")


def anyone_listens() -> bool:
    """Whether hooks of any kind are active in the running context: else nobody meets the values of a pass."""
    return _ACTIVE.get() is not None


def unreached_edit(reached: Collection[str]) -> str | None:
    """A point of an active edit none of whose points is among those that a run reaches, if there is such an edit."""
    active = _ACTIVE.get()
    lost = [] if active is None else [names for names in active.selections if names.isdisjoint(reached)]
    return min(lost[0]) if lost else None


def active_edits() -> dict[str, tuple[HookFn, ...]]:
    """The edits of the running context by full name, outer ones first."""
    active = _ACTIVE.get()
    return {} if active is None else dict(active.edits)


def edited(edit: HookFn, value: Tensor, point: HookPoint) -> Tensor:
    """What one edit makes of a value, on a copy of its own: writing in place never rewrites what others hold."""
    own = value.clone()
    result = edit(own, point)
    if result is None:
        return own
    if not isinstance(result, Tensor):
        raise HookError(
            f"The hook at {point.name} returned {type(result).__name__}; return a tensor, or None to only look."
        )
    expected = (tuple(value.shape), value.dtype, value.device)
    if (tuple(result.shape), result.dtype, result.device) != expected:
        came = f"{tuple(result.shape)} {result.dtype} on {result.device}"
        axes = " ".join(point.spec.axes)
        raise HookError(
            f"The hook at {point.name} returned {came}; "
            f"{axes} = {expected[0]} {expected[1]} on {expected[2]} was expected."
        )
    return result


def _merged(old: dict[str, tuple[Any, ...]], new: Iterable[tuple[str, Any]]) -> dict[str, tuple[Any, ...]]:
    merged = dict(old)
    for name, function in new:
        merged[name] = (*merged.get(name, ()), function)
    return merged


@contextmanager
def edits_active(points: PointTable, hooks: Hooks) -> Iterator[None]:
    """Let hooks edit every forward pass inside the `with` block, in this thread and context only.

    Raises `PointError` for a selection that matches nothing, before anything runs.
    """
    chosen = [(points.resolve(names), function) for names, function in hooks]
    active = _ACTIVE.get() or ActiveHooks()
    edits = _merged(active.edits, [(name, function) for names, function in chosen for name in names])
    selections = (*active.selections, *(frozenset(names) for names, _ in chosen))
    token = _ACTIVE.set(replace(active, edits=edits, selections=selections))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def edits_replaced(edits: dict[str, tuple[HookFn, ...]]) -> Iterator[None]:
    """Let these edits alone act, by full name; whatever else the running context holds is out of sight meanwhile."""
    token = _ACTIVE.set(ActiveHooks(edits))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def recorders_active(recorder: Recorder, names: Iterable[str], *, differentiate: bool = False) -> Iterator[None]:
    """Let one recorder see the named points; with `differentiate` the pass is built so that they carry gradients."""
    active = _ACTIVE.get() or ActiveHooks()
    names = list(names)
    differentiated = active.differentiated | frozenset(names) if differentiate else active.differentiated
    recorders = _merged(active.recorders, [(name, recorder) for name in names])
    token = _ACTIVE.set(replace(active, recorders=recorders, differentiated=differentiated))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def rows_active(rows: Rows) -> Iterator[None]:
    """State which tokens the rows of a forward pass are, for as long as it runs."""
    token = _ROWS.set(rows)
    try:
        yield
    finally:
        _ROWS.reset(token)
