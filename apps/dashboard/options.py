"""What the dashboard was started with, and which paths may be typed into it."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interp.errors import UsageError

DEFAULT_RUNS = "interp-runs"
MIB = 2**20


@dataclass(frozen=True)
class Options:
    """The model that is chosen at first, where runs are kept, which folders may hold models, memory for results."""

    model: str = "smollm2-135m"
    runs: Path = Path(DEFAULT_RUNS)
    models: tuple[Path, ...] = ()
    cache_bytes: int = 512 * MIB

    def words(self) -> list[str]:
        """The same as the words that `parse` reads."""
        folders = [word for folder in self.models for word in ("--models", str(folder))]
        return ["--model", self.model, "--runs", str(self.runs), *folders, "--cache-mib", str(self.cache_bytes // MIB)]


def parse(words: Sequence[str] | None = None) -> Options:
    """Options from words, by default those that follow `streamlit run app.py --`."""
    parser = argparse.ArgumentParser(prog="app.py", add_help=False)
    parser.add_argument("--model", default=Options.model)
    parser.add_argument("--runs", type=Path, default=Path(DEFAULT_RUNS))
    parser.add_argument("--models", type=Path, action="append", default=[])
    parser.add_argument("--cache-mib", type=int, default=Options.cache_bytes // MIB)
    found, _ = parser.parse_known_args(sys.argv[1:] if words is None else list(words))
    return Options(found.model, found.runs, tuple(found.models), found.cache_mib * MIB)


def inside(typed: str, folders: Sequence[Path], what: str) -> Path:
    """The path that was typed, links resolved, if it lies in one of the folders.

    Raises `UsageError` where it lies elsewhere or nowhere; the message does not tell whether something is there.
    """
    allowed = [folder.resolve() for folder in folders]
    try:
        path = Path(typed).expanduser()
        candidates = [path] if path.is_absolute() else [*(folder / path for folder in folders), path]
        resolved = [candidate.resolve() for candidate in candidates]
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{typed[:80]!r} cannot be a path.") from error
    for candidate in resolved:
        if any(candidate.is_relative_to(folder) for folder in allowed) and candidate.exists():
            return candidate
    where = ", ".join(str(folder) for folder in folders) or "no folder"
    raise UsageError(
        f"{typed[:80]!r} is not in a folder that this dashboard may open for {what} ({where}). Start it with "
        f"--{what} FOLDER to allow another."
    )
