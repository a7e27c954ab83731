"""`python killed_runs.py FOLDER [EVERY]`: a run killed at each call of the system in turn, and resumed.

Prints one line for every kill after which the resumed run is not, to the byte, the undisturbed one, then how many kills
there were. Each process is a copy of this one, which has imported everything and computed nothing, so that it is cheap.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import sample_runs

DIED = 9


def in_child(work: Callable[[], None]) -> int:
    """Run it in a copy of this process; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(folder: Path, number: int) -> int:
    """The exit code of a writer that dies at that call."""

    def work() -> None:
        with sample_runs.at_call(number, lambda: os._exit(DIED)):
            sample_runs.work(folder)

    return in_child(work)


def main(home: Path, every: int = 1) -> int:
    """Kill until a writer lives to the end; the number of kills that did harm."""
    assert in_child(lambda: sample_runs.work(home / "undisturbed")) == 0
    expected, number, harmed = sample_runs.contents(home / "undisturbed"), 0, 0
    while True:
        folder = home / f"killed-{number}"
        code = killed_at(folder, number)
        if code != DIED:
            break
        again = in_child(lambda folder=folder: sample_runs.work(folder))  # type: ignore[misc]
        found = sample_runs.contents(folder)
        if again != 0 or found != expected:
            harmed += 1
            changed = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
            sys.stdout.write(f"killed at call {number}: exit code {again}, other files {changed}\n")
        shutil.rmtree(folder)
        number += every
    sys.stdout.write(f"{number // every} kills, {harmed} did harm; the last ended with {code}\n")
    return harmed + code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:3])))
