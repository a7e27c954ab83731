"""Progress on stderr: bars on a terminal, one line per step elsewhere, nothing with --quiet."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from interp.apps.cli.output import write_message

Progress = Callable[[int, int], None]
"""What long work reports to: (steps done, steps in all)."""


@contextlib.contextmanager
def step(label: str, quiet: bool = False) -> Iterator[Progress]:
    """Show `label` while the block runs; the yielded callback moves its bar."""
    if quiet:
        yield lambda done, total: None
    elif not sys.stderr.isatty():
        write_message(f"{label} …")
        yield lambda done, total: None
    else:
        with _bar(label) as move:
            yield move


@contextlib.contextmanager
def _bar(label: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
        shown = bars.tasks[0].total or 1
        bars.update(task, total=shown, completed=shown)
