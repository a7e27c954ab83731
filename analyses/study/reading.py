"""From a study file to a checked study: `load_study`, and where each value may come from.

Later ones win: what the package takes for granted, the file, the environment (`INTERP_DEVICE`, `INTERP_DTYPE`,
`INTERP_SEED`, `INTERP_WORKERS`, `INTERP_BATCH_SIZE`, `INTERP_MAX_FAILURES`, `INTERP_OUT`), then `overrides` such as
"analyses.0.settings.top_k=3", whose values are written as in TOML (a single word may go without its quotes).

Everything that is wrong is told at once; see `problems`.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from interp.analyses.study.checks import checked
from interp.analyses.study.file import Study
from interp.analyses.study.problems import FileProblem, StudyError, of_validation
from interp.analyses.study.ready import ready_studies
from interp.named import jsonable

ENVIRONMENT = {
    "INTERP_DEVICE": "models.*.device",
    "INTERP_DTYPE": "models.*.dtype",
    "INTERP_SEED": "seed",
    "INTERP_WORKERS": "run.workers",
    "INTERP_BATCH_SIZE": "run.batch_size",
    "INTERP_MAX_FAILURES": "run.max_failures",
    "INTERP_OUT": "outputs.folder",
}
"""Variables that say something about a study, and the keys that they set; an empty one says nothing."""

_BARE = re.compile(r"[A-Za-z_./~][\w./:@~+-]*")
_DEEPEST = 200  # brackets: tomllib would run out of stack on a few hundred more


def load_study(path: str | Path, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Study:
    """The study in a file, or a ready one by its name.

    Raises `StudyError` that lists every problem: the key, the value, and what is allowed.
    """
    file = _file(str(path))
    raw = _parsed(file)
    problems = [*_from_environment(raw, environment or {}), *_override(raw, overrides)]
    study, found = checked(raw, file.parent.absolute())
    problems += found
    if problems or study is None:
        raise StudyError(str(path), problems)
    return study


def study_of(stated: Mapping[str, object]) -> Study:
    """The study that a manifest states. Raises `StudyError` where it states none."""
    try:
        return Study.model_validate(jsonable(stated))
    except ValidationError as error:
        raise StudyError("in the manifest", of_validation(error, Study)) from error


def _file(path: str) -> Path:
    """The file that is meant: a path, or the name of a ready study."""
    ready, file = ready_studies(), Path(path)
    try:
        if path in ready and not file.is_file():
            return ready[path]
        if file.is_file():
            return file
    except (OSError, ValueError) as error:  # a name longer than any file's, or with a NUL in it
        raise StudyError(path, [FileProblem("the file", "cannot be looked up", f"a path ({error})")]) from error
    there = f"a TOML file, or a ready study: {', '.join(ready)}"
    what = "is a folder" if file.is_dir() else "does not exist"
    raise StudyError(path, [FileProblem("the file", what, there)])


def _parsed(file: Path) -> dict[str, Any]:
    """What the TOML says; `StudyError` with line and column where it is none."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(str(file), [FileProblem("the file", "cannot be read", f"TOML in UTF-8 ({error})")]) from error
    try:
        return _toml(text)
    except ValueError as error:
        raise StudyError(str(file), [FileProblem("the file", f"is no TOML: {error}", "TOML")]) from error


def _toml(text: str) -> dict[str, Any]:
    """Raises `ValueError` for what is no TOML, too deep, or a number too long to read."""
    depth = 0
    for character in text:
        depth = max(0, depth + (character in "[{") - (character in "]}"))
        if depth > _DEEPEST:
            raise ValueError("brackets are nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


# --------------------------------------------------------------------------------------------- values from elsewhere


def _from_environment(raw: dict[str, Any], environment: Mapping[str, str]) -> list[FileProblem]:
    problems = []
    for variable, key in ENVIRONMENT.items():
        text = environment.get(variable, "")
        if text:
            whole = key.rsplit(".", 1)[-1] in ("seed", "workers", "batch_size", "max_failures")
            problems += _set(raw, key, int(text) if whole and _is_whole(text) else text, variable)
    return problems


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,18}", text) is not None


def _override(raw: dict[str, Any], overrides: Sequence[str]) -> list[FileProblem]:
    problems = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            problems.append(FileProblem(f"--set {override}", "names no value", "key=value, such as run.batch_size=8"))
            continue
        try:
            value = _toml(f"value = {text.strip()}\n")["value"]
        except ValueError:
            value = text.strip()
            if not _BARE.fullmatch(value):
                problems.append(FileProblem(key.strip(), f"is set to {text!r}", "a value as in TOML"))
                continue
        problems += _set(raw, key.strip(), value, f"--set {override}")
    return problems


def _set(raw: dict[str, Any], key: str, value: object, who: str) -> list[FileProblem]:
    """Put a value in its place; `*` is every place of a list. What is no table or list on the way is a problem."""
    *way, last = key.split(".")
    tables: list[Any] = [raw]
    for part in way:
        tables = [inner for table in tables for inner in _entered(table, part)]
    reached = [
        table for table in tables if isinstance(table, dict) or (isinstance(table, list) and _place(table, last))
    ]
    for table in reached:
        if isinstance(table, list):
            table[int(last)] = value
        else:
            table[last] = value
    if reached or "*" in way:  # a file without models has a problem of its own
        return []
    return [FileProblem(key, f"is set by {who}, but there is no such place", "the key of a value in the study")]


def _entered(table: object, part: str) -> list[Any]:
    if isinstance(table, list):
        if part == "*":
            return table
        return [table[int(part)]] if _place(table, part) else []
    if isinstance(table, dict):
        return [table.setdefault(part, {})]
    return []


def _place(table: Sequence[object], part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(table)
