"""What is wrong with a study, all of it at once: each problem names the key, what came, and what is allowed."""

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args, get_origin

from interp.errors import UsageError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80
MOST = 50  # problems that a message tells of

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
    "string_too_short": "text that is not empty",
    "string_pattern_mismatch": "text without a NUL character",
    "string_unicode": "text",
    "int_parsing_size": "a smaller number",
}


@dataclass(frozen=True)
class FileProblem:
    """One thing that is wrong: the key, dotted and with places in lists counted from 0; the value; what is allowed."""

    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.key} {self.value}: expected {self.allowed}"


class StudyError(UsageError):
    """A study that cannot be used as it is written. `problems` has every one of them, the message tells them all."""

    def __init__(self, source: str, problems: Sequence[FileProblem]) -> None:
        self.problems = tuple(problems)
        lines = [f"  {problem}" for problem in self.problems[:MOST]]
        more = len(self.problems) - MOST
        rest = [f"  and {more} more"] if more > 0 else []
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(_printable("\n".join([f"The study {source} has {count}:", *lines, *rest])))


def _printable(text: str) -> str:
    """The text with control characters and halves of characters escaped: no terminal obeys a study file."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def shown(value: object) -> str:
    """A value in a message: `is 3`, shortened where it is long."""
    return f"is {_SHOWN.repr(value)}"


def misspelt(key: str, value: object, known: Iterable[str], what: str) -> FileProblem:
    """The problem of a name that is none of the known ones, with the nearest of them."""
    names = list(known)
    close = nearest(str(value), names)
    there = f"one of {', '.join(names)}" if names else f"none, for there are no {what}"
    return FileProblem(key, shown(value), f"{there}.{close}" if close else there)


def of_validation(error: "ValidationError", model: "type[BaseModel]", under: str = "") -> list[FileProblem]:
    """What pydantic found, in our words; `under` is where the table stands that was checked."""
    return [_problem(dict(each), model, under) for each in error.errors(include_url=False)]


def _problem(found: Mapping[str, object], model: "type[BaseModel]", under: str) -> FileProblem:
    location = [str(part) for part in found["loc"]]  # type: ignore[attr-defined]
    key, kind = ".".join([under, *location] if under else location) or "the study", str(found["type"])
    if kind == "extra_forbidden":
        names = list(_table_at(model, location[:-1]).model_fields)
        return FileProblem(key, "is no key here", f"one of {', '.join(names)}.{nearest(location[-1], names)}")
    if kind == "missing":
        return FileProblem(key, "is missing", _described(model, location) or "a value")
    return FileProblem(key, shown(found["input"]), _allowed(kind, found.get("ctx") or {}, model, location))


def _allowed(kind: str, context: object, model: "type[BaseModel]", location: Sequence[str]) -> str:
    details = context if isinstance(context, Mapping) else {}
    if kind == "value_error":  # a rule of ours: its error says what would have been taken
        return str(details["error"])
    if kind == "literal_error":
        return f"one of {details['expected']}"
    limits = {"greater_than_equal": ("ge", "{} or more"), "less_than_equal": ("le", "{} or less")}
    limits |= {"greater_than": ("gt", "more than {}"), "less_than": ("lt", "less than {}")}
    if kind in limits:
        name, words = limits[kind]
        return words.format(details[name])
    if kind in ("too_short", "too_long"):
        return (
            f"{'at least' if kind == 'too_short' else 'at most'} {details.get('min_length', details.get('max_length'))}"
        )
    return _described(model, location) or _TYPES.get(kind, kind.replace("_", " "))


def _table_at(model: "type[BaseModel]", location: Sequence[str]) -> "type[BaseModel]":
    """The table that a key belongs to."""
    for part in location:
        if part in model.model_fields:
            inner = _tables_in(model.model_fields[part].annotation)
            model = inner[0] if inner else model
    return model


def _tables_in(annotation: object) -> "list[type[BaseModel]]":
    from pydantic import BaseModel

    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [table for part in get_args(annotation) for table in _tables_in(part)]


def _described(model: "type[BaseModel]", location: Sequence[str]) -> str:
    """What the field itself says is allowed."""
    field = _table_at(model, location[:-1]).model_fields.get(location[-1]) if location else None
    return (field.description or "") if field is not None else ""
