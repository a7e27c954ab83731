"""Progress of a run on stderr: bars on a terminal, lines at intervals elsewhere, or one JSON object a line."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from interp.apps.cli.options import RunOptions
from interp.apps.cli.output import speak_json, write_event, write_message

if TYPE_CHECKING:
    from interp.analyses.study import StudyEvent

Reporter = Callable[["StudyEvent"], None]

INTERVAL = 10.0  # seconds between two plain lines, at least


@contextlib.contextmanager
def reporting(label: str, options: RunOptions) -> Iterator[Reporter]:
    """Show what a run does while the block runs; the yielded function takes its events.

    With `--progress json` every line of stderr is a JSON object from here on, messages and errors too.
    """
    mode = _mode(options)
    speak_json(mode == "json")
    if mode == "none":
        yield lambda event: None
    elif mode == "json":
        yield lambda event: write_event("progress", **asdict(event))
    elif mode == "bars":
        with _bars(label) as report:
            yield report
    else:
        write_message(f"{label} …")
        yield Lines(0.0 if options.verbose else INTERVAL)


def _mode(options: RunOptions) -> str:
    if options.quiet and options.progress != "json":
        return "none"
    if options.progress != "auto":
        return options.progress
    return "bars" if sys.stderr.isatty() and not options.verbose else "plain"


class Lines:
    """One line for the first batch and the last, and for others when `interval` seconds have passed since a line."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self.clock = clock
        self.begun = clock()
        self.told: float | None = None
        self.first: int | None = None

    def __call__(self, event: "StudyEvent") -> None:
        """Tell of it, or not yet."""
        now, seen = self.clock(), event.done + event.failed
        self.first = seen if self.first is None else self.first
        if self.told is not None and now - self.told < self.interval and seen < event.total:
            return
        self.told = now
        write_message(described(event, left(event, self.first, now - self.begun)))


def left(event: "StudyEvent", first: int, elapsed: float) -> float | None:
    """Seconds that the rest will take, if it goes on as since the first event; None while nobody can know."""
    since = event.done + event.failed - first
    return elapsed / since * (event.total - event.done - event.failed) if since > 0 else None


def described(event: "StudyEvent", seconds: float | None) -> str:
    """An event in one line."""
    failed = f", {event.failed} failed" if event.failed else ""
    rest = "" if seconds is None or event.done + event.failed >= event.total else f", about {duration(seconds)} left"
    return f"{event.done + event.failed} of {event.total} items{failed}{rest} ({event.job})"


def duration(seconds: float) -> str:
    """A time span for people.

    >>> duration(4.2), duration(90), duration(7500)
    ('4 s', '2 min', '2.1 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def _bars(label: str) -> Iterator[Reporter]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None)

        def report(event: "StudyEvent") -> None:
            failed = f" ({event.failed} failed)" if event.failed else ""
            bars.update(
                task, completed=event.done + event.failed, total=event.total, description=f"{event.job}{failed}"
            )

        yield report
