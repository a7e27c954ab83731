"""Damaged models, loaded where they can do no harm: what comes out is our error or the model as it was.

Each copy is loaded in a child process with a bound on its memory and its time, which notes every file that is opened.
The mutations are in `mutations.py`; `soak.py` runs more of them than the tests do.
"""

import multiprocessing
import os
import random
import resource
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from mutations import KINDS, SUBJECTS, Mutation, prepared

TIME_LIMIT = 10.0
"""Seconds; the child is warm, so that loading takes a few milliseconds."""
SPARE_ADDRESSES = 1 << 30
SPARE_BYTES = 8 << 20
"""Where the files are tiny: the memory that a load may take besides a multiple of their size."""
MULTIPLE = 8
LONGEST_MESSAGE = 2100
TOKENS = [[1, 5, 9, 3, 60, 2]]


@dataclass(frozen=True)
class Outcome:
    """What came of loading one copy: `kind` is refused, loaded, or what should not be."""

    kind: str
    message: str = ""
    same: bool = False
    outside: list[str] = field(default_factory=list)
    peak: int = 0

    def complaints(self, size: int) -> list[str]:
        """What is wrong with it, for files of `size` bytes together."""
        found = [f"opened {path}" for path in self.outside]
        if self.kind not in ("refused", "loaded"):
            found.append(f"{self.kind}: {self.message}")
        if self.kind == "refused" and (len(self.message) > LONGEST_MESSAGE or not _plain(self.message)):
            found.append(f"a message that cannot be shown: {self.message[:LONGEST_MESSAGE]!r}")
        if self.kind == "loaded" and not self.same:
            found.append("other logits, without a word")
        if self.peak > SPARE_BYTES + MULTIPLE * size:
            found.append(f"{self.peak / 2**20:.0f} MiB for {size} bytes of files")
        return found


def _plain(message: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in message)


class Child:
    """A process that loads what it is sent; a new one takes the place of one that crashed or hung."""

    def __init__(self, originals: Path) -> None:
        self._originals = originals
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(self._originals)), daemon=True)
        self._process.start()
        theirs.close()
        assert self._pipe.poll(120), "the child did not come up"
        assert self._pipe.recv() == "ready"

    def load(self, path: Path, subject: str) -> Outcome:
        """Load one copy there."""
        self._pipe.send((str(path), subject))
        try:
            if self._pipe.poll(TIME_LIMIT):
                answer: Outcome = self._pipe.recv()
                return answer
            outcome = Outcome("a hang", f"no answer within {TIME_LIMIT:.0f} s")
        except EOFError:
            outcome = Outcome("a crash", "the process ended")
        self.close()
        self._start()
        return outcome

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def run(folder: Path, count: int, first: int = 0) -> Iterator[tuple[Mutation, Outcome, list[str]]]:
    """Mutations `first` to `first + count` (each has its own seed), what came of them, and what is wrong with that."""
    originals, kinds = prepared(folder), random.Random(0).sample(KINDS, len(KINDS))  # a few are of all sorts
    with _child(originals) as child:
        for index in range(first, first + count):
            mutation = Mutation(kinds[index % len(kinds)], seed=index)
            copy = folder / "copies" / "model"
            shutil.rmtree(copy.parent, ignore_errors=True)
            shutil.copytree(originals / mutation.subject, copy, symlinks=True)
            path = mutation.apply(copy)
            size = sum(file.lstat().st_size for file in copy.rglob("*"))
            outcome = child.load(path, mutation.subject)
            yield mutation, outcome, outcome.complaints(size)


@contextmanager
def _child(originals: Path) -> Iterator[Child]:
    child = Child(originals)
    try:
        yield child
    finally:
        child.close()


# ------------------------------------------------------------------------------------------------ in the child


def _serve(pipe: Connection, originals: str) -> None:
    """Load the originals, then whatever comes, with every warning an error."""
    import interp

    warnings.simplefilter("error")
    os.environ |= {"HF_HUB_OFFLINE": "1", "INTERP_CACHE": str(Path(originals) / "cache")}
    torch.set_num_threads(1)
    expected = {}
    for name, path in SUBJECTS.items():
        expected[name] = _logits(interp.load(Path(originals) / path, device="cpu"))
    with torch.no_grad():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_ADDRESSES, resource.RLIM_INFINITY))
        opened = _listen()
        pipe.send("ready")
        while True:
            path, subject = pipe.recv()
            opened.clear()
            pipe.send(_outcome(path, expected[subject], opened))


def _logits(model: "object") -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor(TOKENS))  # type: ignore[operator]
    return logits


def _listen() -> list[str]:
    """The paths that this process opens from now on."""
    opened: list[str] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            opened.append(os.fsdecode(arguments[0]))

    sys.addaudithook(note)
    return opened


def _outcome(path: str, expected: torch.Tensor, opened: list[str]) -> Outcome:
    import interp
    from interp.errors import LoadError, UsageError

    Path("/proc/self/clear_refs").write_text("5")
    before, logits = _status("VmRSS"), None
    try:
        logits = _logits(interp.load(path, device="cpu"))
        kind, message = "loaded", ""
    except (LoadError, UsageError) as error:
        kind, message = "refused", str(error)
    except BaseException as error:  # noqa: BLE001 – whatever else comes out is what is looked for
        kind, message = f"a foreign {type(error).__name__}", repr(error)[:LONGEST_MESSAGE]
    same = logits is not None and torch.equal(logits, expected)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return Outcome(kind, message, same, _outside(opened, folder), _status("VmHWM") - before)


def _outside(opened: list[str], folder: str) -> list[str]:
    """Files that belong neither to the model nor to Python itself."""
    allowed = [
        *map(
            os.path.realpath,
            (folder, os.environ["INTERP_CACHE"], sys.prefix, sys.base_prefix, Path(__file__).parents[1]),
        ),
        "/proc",
    ]
    real = {os.path.realpath(path) for path in opened}
    return sorted(path for path in real if not any(path.startswith(place.rstrip("/") + "/") for place in allowed))


def _status(entry: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(entry))
