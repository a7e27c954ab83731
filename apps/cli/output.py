"""What a command writes: data to stdout, messages to stderr, files into a folder that is never half-written."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from interp.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNBROKEN = 32  # wider values may wrap
PIPE_WIDTH = 160
GAP = 3  # what parts a column from the next, at most
BROKEN_PIPE = 141  # what a shell reports for a program that its reader left, as in `interp points | head`

_json_lines: ContextVar[bool] = ContextVar("json_lines", default=False)


def write_data(text: str) -> None:
    """Write a text to stdout and end its line."""
    write_part(text if text.endswith("\n") else text + "\n")


def write_part(text: str) -> None:
    """Write to stdout, now; if the reader has gone away, end quietly with code 141."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as gone:
        _swallow_stdout()
        raise typer.Exit(BROKEN_PIPE) from gone


def _swallow_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at the end does not complain once more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(document: Mapping[str, object]) -> None:
    """Write one JSON document to stdout. Not-a-number becomes null: JSON has no word for it."""
    write_data(json.dumps(plain(document), ensure_ascii=False, indent=2, allow_nan=False))


def plain(value: object) -> object:
    """`value` in JSON's own types; arrays and numbers of numpy and torch through `tolist`."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if value is None or isinstance(value, str | int | bool):
        return value
    tolist = getattr(value, "tolist", None)
    return plain(tolist()) if tolist is not None else str(value)


def speak_json(on: bool) -> None:
    """From here on, every line of stderr is one JSON object (or a line of text again)."""
    _json_lines.set(on)


def write_event(event: str, **facts: object) -> None:
    """Write one JSON object as a line of stderr: `{"event": ..., ...}`."""
    _to_stderr(json.dumps(plain({"event": event, **facts}), ensure_ascii=False, allow_nan=False))


def write_message(text: str) -> None:
    """Write a line of log to stderr."""
    if _json_lines.get():
        write_event("message", text=text)
    else:
        _to_stderr(text)


def write_error(text: str, label: str = "Error: ") -> None:
    """Write the one message that says what went wrong."""
    if _json_lines.get():
        write_event("error", text=f"{label}{text}")
    else:
        _to_stderr(f"{label}{text}")


def _to_stderr(line: str) -> None:
    """A closed stderr is nobody's concern."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def show(*parts: "RenderableType") -> None:
    """Draw on stdout: in colour and to the window's width on a terminal, plain and unbroken in a pipe."""
    console = _console()
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    text = captured.get()
    write_data(text if console.is_terminal else "\n".join(line.rstrip() for line in text.splitlines()))


def _width() -> int:
    """Columns to draw in: those of the window, or of COLUMNS; a pipe has no width to wrap at and gets many."""
    return shutil.get_terminal_size((PIPE_WIDTH, 0)).columns


def _console() -> "Console":
    from rich.console import Console

    return Console(file=sys.stdout, width=_width(), highlight=False, emoji=False, markup=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> "RenderableType":
    """A table of literal texts (brackets are not markup); columns whose name ends in `>` stand to the right.

    Where the window is too narrow, headings take several lines so that values stay whole; where that does not help,
    the columns that have no room stand below, behind the first one once more.
    """
    from rich.console import Group

    widths = _column_widths(columns, rows)
    blocks = _blocks(widths)
    parts = [
        _one_table(
            [columns[place] for place in block],
            [[row[place] for place in block] for row in rows],
            [widths[place] for place in block],
            title if block is blocks[0] else None,
        )
        for block in blocks
    ]
    return Group(parts[0], *(piece for part in parts[1:] for piece in ("", part)))


def _one_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int | None], title: str | None
) -> "RenderableType":
    """As wide as its columns are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for column, width in zip(columns, widths, strict=True):
        heading, right = column.removesuffix(">"), column.endswith(">")
        drawn.add_column(Text(heading), justify="right" if right else "left", overflow="fold", width=width)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def _column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int | None]:
    """Nothing to state where everything fits; else the widest value, or None where values are sentences."""
    from rich.cells import cell_len

    headings = [column.removesuffix(">") for column in columns]
    widest = [max((cell_len(row[place]) for row in rows), default=0) for place in range(len(columns))]
    if sum(map(max, map(len, headings), widest)) + GAP * len(columns) <= _width():
        return [None] * len(columns)
    words = [max(map(len, heading.split()), default=0) for heading in headings]
    return [max(pair) if pair[1] <= UNBROKEN else None for pair in zip(words, widest, strict=True)]


def _blocks(widths: Sequence[int | None]) -> list[list[int]]:
    """Columns that stand side by side; every block but the first begins with the first column once more."""
    if None in widths:  # what may wrap makes room
        return [list(range(len(widths)))]
    taken = [(width or 0) + GAP for width in widths]
    blocks, left = [[0]], _width() - taken[0]
    for place in range(1, len(widths)):
        if taken[place] > left and len(blocks[-1]) > 1:
            blocks.append([0])
            left = _width() - taken[0]
        blocks[-1].append(place)
        left -= taken[place]
    return blocks


def show_token(text: str) -> str:
    r"""A token between quotes, its line breaks and other control characters spelled out.

    >>> show_token(" Paris"), show_token("\n")
    ('" Paris"', '"\\n"')
    """
    return json.dumps(text, ensure_ascii=False)


def number(value: float, places: int = 3, *, signed: bool = False) -> str:
    """A number without the sign of a nought; a dash where there is none.

    >>> number(-0.0001), number(0.25, 1, signed=True), number(float("nan"))
    ('0.000', '+0.2', '–')
    """
    return "–" if value != value else f"{round(value, places) + 0.0:{'+' if signed else ''}.{places}f}"


def interval(low: float, high: float, form: str = "+.3f") -> str:
    """The ends of an interval; a dash where there is none, as of one observation.

    >>> interval(-0.25, 0.5), interval(float("nan"), float("nan"))
    ('-0.250 to +0.500', '–')
    """
    return "–" if low != low else f"{low:{form}} to {high:{form}}"


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder; its files move to `folder` when the block ends well, and vanish otherwise.

    Files of the same names are replaced, others that the folder holds stay. Raises `UsageError`, before the block
    begins, if nothing can be written there.
    """
    with _stage(folder) as stage:
        yield stage
        _move_into(stage, folder)


def check_folder(folder: Path) -> None:
    """Raises `UsageError` if nothing can be written there: to be asked before work whose result would be lost."""
    with _stage(folder):
        pass


@contextlib.contextmanager
def _stage(folder: Path) -> Iterator[Path]:
    """An empty folder inside `folder`, or beside it as long as it does not exist; nothing of it stays behind."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"The output folder {str(folder)!r} is a file. Give --out a folder, it may be a new one.")
    home = folder.absolute() if folder.exists() else folder.absolute().parent
    made = [path for path in (home, *home.parents) if not path.exists()]
    try:
        home.mkdir(parents=True, exist_ok=True)
        holder = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=home))
    except OSError as error:
        raise UsageError(f"Cannot write to {str(folder)!r}: {error.strerror}. Give --out another folder.") from error
    stage = holder / "out"  # mkdtemp's own folder is private, a result folder is an ordinary one
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(holder, ignore_errors=True)
        for directory in made:  # those that are still empty were made for nothing
            with contextlib.suppress(OSError):
                directory.rmdir()


def _move_into(stage: Path, folder: Path) -> None:
    if not folder.exists():
        stage.rename(folder)
        return
    for source in sorted(path for path in stage.rglob("*") if path.is_file()):
        target = folder / source.relative_to(stage)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
