"""Every error that `interp` raises on purpose.

A message says what came, what was expected, and what to do. Each class carries the exit code that the command
line ends with, so that a script can tell a typing mistake (2) from a model that could not be loaded (4).
"""

import difflib
from collections.abc import Iterable


class InterpError(Exception):
    """Base class: anything that `interp` refuses to do, with the reason. Exit code 1."""

    exit_code = 1


class UsageError(InterpError, ValueError):
    """An argument cannot be used as given: unknown name, empty prompt, a position outside. Exit code 2."""

    exit_code = 2


class PointError(UsageError):
    """A hook point that does not exist, or that cannot fire in this model or this run."""


class HookError(UsageError):
    """A hook returned something that cannot stand at its point: another shape, dtype or device."""


class BudgetError(UsageError):
    """The work asked for needs more memory than the stated budget."""


class LockedError(UsageError):
    """Another process works on the same run directory; the message says which."""


class StorageError(UsageError):
    """The disk does not take what is to be written: full, over its quota, read-only. What was kept stands there."""


class IntegrityError(InterpError):
    """Something is not what it was: a hash, a number that is none, a run resumed otherwise. Exit code 5."""

    exit_code = 5

    def __init__(self, message: str) -> None:
        super().__init__(_printable(message))


class FailuresError(InterpError):
    """More items failed than the caller allows; what was done until then is kept. Exit code 6."""

    exit_code = 6


class Cancelled(InterpError):
    """Work was stopped between two of its steps because the caller asked for it. Exit code 130, as for an interrupt."""

    exit_code = 130


class LoadError(InterpError):
    """A model, tokenizer or data file could not be loaded; nothing was left half-done. Exit code 4.

    Messages repeat what a file says. Whatever that is, they are of bounded length, and no terminal obeys them.
    """

    exit_code = 4

    def __init__(self, message: str) -> None:
        super().__init__(_printable(message))


def _printable(message: str, longest: int = 2000) -> str:
    """The message, control characters and halves of characters escaped, the middle of an endless one left out."""
    if len(message) > longest:
        half = longest // 2
        message = f"{message[:half]} … ({len(message) - 2 * half} characters) … {message[-half:]}"
    if message.isprintable():
        return message
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in message
    )


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """A clause naming the known words closest to `name`, or an empty string if none is close.

    >>> nearest("attn.hook_patern", ["attn.hook_pattern", "attn.hook_q"], count=1)
    " Did you mean 'attn.hook_pattern'?"
    """
    close = difflib.get_close_matches(name, list(known), n=count, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(word) for word in close)}?" if close else ""
