"""SIGTERM as an orderly stop: it ends a command as Ctrl-C does, with another exit code."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143


@dataclass
class Stop:
    """Which of the two it was: the exit code that a stopped command ends with."""

    code: int = INTERRUPTED


@contextlib.contextmanager
def terminable() -> Iterator[Stop]:
    """Turn the first SIGTERM inside the block into a `KeyboardInterrupt`; a second one ends the process at once.

    Signals belong to the main thread; in any other the block runs as it is.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop.code = TERMINATED
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
