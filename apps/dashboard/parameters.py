"""What a page can be told, as a typed table; widgets, links, settings and copied commands are made from it.

A link carries every value as text. What it says is checked here: a value that cannot be used, is missing, or belongs
to nothing on the page gives a sentence, and the default stands in its place.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from interp.errors import nearest

Kind = Literal["text", "line", "whole", "number", "choice", "choices", "flag"]
Values = Mapping[str, Any]
"""Name of a parameter → its value: str, int, float, bool, or a tuple of str for `choices`."""

VERSION = "1"
LONGEST = 20_000  # characters of a text: more would make links that no browser takes, and pages that wait
RESERVED = ("v", "asked", "model", "device", "dtype")
_SHOWN = 60
_YES_NO = {"1": True, "0": False}


@dataclass(frozen=True)
class Parameter:
    """One value of a page: how it is called, what it may be, and what it is for.

    `kind`: a `text` of several lines, a `line`, a `whole` number or `number` between `low` and `high`, one `choice` or
    several `choices` of those listed, a `flag`. A `view` parameter changes what is shown of a result, never the result.
    A `needed` text may not be empty, always or where a function of all values says so: without it the page has nothing
    to compute. `tokens` marks a text that the model
    reads, so that results are kept by its tokens. `check` says in words what is wrong with a value, or None.
    """

    name: str
    kind: Kind
    default: Any
    label: str
    help: str = ""
    choices: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    view: bool = False
    needed: bool | Callable[[Mapping[str, Any]], bool] = False
    tokens: bool = False
    check: Callable[[Any], str | None] | None = None

    def __post_init__(self) -> None:
        assert self.name not in RESERVED, f"{self.name!r} is a word of the address itself"
        assert self.problem(self.default) is None, f"the default of {self.name!r}: {self.problem(self.default)}"

    def is_needed(self, values: Values) -> bool:
        """Whether these values leave nothing to compute without it."""
        return self.needed(values) if callable(self.needed) else self.needed

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, in words; None if it can be used."""
        found = _PROBLEMS[self.kind](self, value)
        return found if found is not None or self.check is None else self.check(value)

    def written(self, value: Any) -> str:
        """The value as a link carries it."""
        if self.kind == "flag":
            return "1" if value else "0"
        if self.kind == "number":
            return repr(float(value))
        return ",".join(value) if self.kind == "choices" else str(value)

    def parsed(self, text: str) -> Any:
        """The value that a link carries. Raises `ValueError`, in words, for what cannot be used."""
        value = _PARSERS[self.kind](text)
        if (problem := self.problem(value)) is not None:
            raise ValueError(problem)
        return value

    def shown(self, choice: str) -> str:
        """A choice as its widget shows it."""
        return self.labels.get(choice, choice.replace("_", " "))


@dataclass(frozen=True)
class Reading:
    """What a link said: values for every parameter, and a sentence for each that could not be used as given."""

    values: dict[str, Any]
    complaints: list[str]


def defaults(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Every parameter at its default."""
    return {parameter.name: parameter.default for parameter in parameters}


def write(parameters: Sequence[Parameter], values: Values) -> dict[str, str]:
    """All values as a link carries them."""
    return {parameter.name: parameter.written(values[parameter.name]) for parameter in parameters}


def read(parameters: Sequence[Parameter], query: Mapping[str, Sequence[str]]) -> Reading:
    """Values from the query of a link: name → everything it says under that name."""
    values, complaints = defaults(parameters), _strangers(parameters, query)
    for parameter in parameters:
        said = query.get(parameter.name, ())
        if len(said) > 1:
            complaints.append(f"The link says {parameter.name} {len(said)} times; the last one counts.")
        if not said:
            if "v" in query:
                complaints.append(f"The link does not say {parameter.name}; {_stands(parameter)} is used.")
            continue
        try:
            values[parameter.name] = parameter.parsed(said[-1])
        except ValueError as error:
            shown = cut(said[-1])
            complaints.append(f"{parameter.name} = {shown!r} in the link: {error} {_stands(parameter)} is used.")
    return Reading(values, complaints)


def cut(text: str) -> str:
    """A text short enough to be repeated in a sentence."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _stands(parameter: Parameter) -> str:
    written = parameter.written(parameter.default)
    return f"the default, {cut(written)}," if written else "the default, nothing,"


def _strangers(parameters: Sequence[Parameter], query: Mapping[str, Sequence[str]]) -> list[str]:
    """What a link says that no parameter asks for, and a version other than ours."""
    known = [parameter.name for parameter in parameters]
    found = [
        f"The link says {cut(name)!r}, which this page does not know.{nearest(name, known)} It is left out."
        for name in query
        if name not in known and name not in RESERVED
    ]
    version = query.get("v", [VERSION])[-1]
    if version != VERSION:
        found.append(f"The link is of version {cut(version)!r}, this dashboard writes {VERSION}; it may not fit.")
    return found


# ------------------------------------------------------------------------------------------------- kinds of values


def _text_problem(parameter: Parameter, value: Any) -> str | None:
    if not isinstance(value, str):
        return "a text is expected."
    if len(value) > LONGEST:
        return f"the text has {len(value):,} characters; {LONGEST:,} are the most."
    if parameter.kind == "line" and "\n" in value:
        return "one line is expected."
    return None


def _number_problem(parameter: Parameter, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int if parameter.kind == "whole" else (int, float)):
        return f"a {parameter.kind} is expected." if parameter.kind == "number" else "a whole number is expected."
    low = -math.inf if parameter.low is None else parameter.low
    high = math.inf if parameter.high is None else parameter.high
    if not (low <= value <= high) or not math.isfinite(value):
        return f"a number {_range(parameter)} is expected."
    return None


def _range(parameter: Parameter) -> str:
    if parameter.low is not None and parameter.high is not None:
        return f"from {parameter.low:g} to {parameter.high:g}"
    if parameter.low is not None:
        return f"of at least {parameter.low:g}"
    return "that is finite" if parameter.high is None else f"of at most {parameter.high:g}"


def _choice_problem(parameter: Parameter, value: Any) -> str | None:
    if value in parameter.choices:
        return None
    hint = nearest(str(value), parameter.choices)
    return f"one of {', '.join(parameter.choices)} is expected.{hint}"


def _choices_problem(parameter: Parameter, value: Any) -> str | None:
    if not isinstance(value, tuple) or len(set(value)) != len(value):
        return "a list of different words is expected."
    wrong = [each for each in value if each not in parameter.choices]
    return f"{wrong[0]!r} is none of {', '.join(parameter.choices)}." if wrong else None


def _flag_problem(parameter: Parameter, value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{parameter.label} is on (1) or off (0)."


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number is expected.") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number is expected.") from None


def _flag(text: str) -> bool:
    if text not in _YES_NO:
        raise ValueError("1 (on) or 0 (off) is expected.")
    return _YES_NO[text]


def _several(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


_PROBLEMS: dict[Kind, Callable[[Parameter, Any], str | None]] = {
    "text": _text_problem,
    "line": _text_problem,
    "whole": _number_problem,
    "number": _number_problem,
    "choice": _choice_problem,
    "choices": _choices_problem,
    "flag": _flag_problem,
}
_PARSERS: dict[Kind, Callable[[str], Any]] = {
    "text": str,
    "line": str,
    "whole": _whole,
    "number": _number,
    "choice": str,
    "choices": _several,
    "flag": _flag,
}
