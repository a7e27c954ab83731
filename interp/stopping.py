"""Stopping long work in the middle: whoever waits says whether it is still wanted, and every layer asks.

    with stopping(lambda: button.pressed):
        causal_trace(model, prompt, subject)     # raises `Cancelled` within a layer of the press

The question lives in a context variable, so that threads sharing one model stop for themselves alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from interp.errors import Cancelled

_WANTED: ContextVar[Callable[[], bool] | None] = ContextVar("wanted", default=None)


@contextmanager
def stopping(cancelled: Callable[[], bool] | None) -> Iterator[None]:
    """Inside, work is stopped once `cancelled()` is true, or what an outer block asks; None asks nothing more."""
    outer = _WANTED.get()
    inner = cancelled if cancelled is None or outer is None else lambda: cancelled() or outer()
    token = _WANTED.set(outer if inner is None else inner)
    try:
        yield
    finally:
        _WANTED.reset(token)


def check_wanted() -> None:
    """To be called between two steps of long work. Raises `Cancelled` where it is no longer wanted."""
    cancelled = _WANTED.get()
    if cancelled is not None and cancelled():
        raise Cancelled("The work was stopped before its end.")
