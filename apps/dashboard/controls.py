"""Widgets from the table of parameters."""

from typing import Any

import streamlit as st

from interp.apps.dashboard import address
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import Parameter

FEW = 4  # so many choices stand side by side
A_ROW = 4


def inputs(page: Page) -> None:
    """All parameters that decide the result: texts over the whole width, the rest beside each other."""
    own = [parameter for parameter in page.parameters if not parameter.view]
    for parameter in own:
        if parameter.kind == "text":
            widget(page, parameter)
    rest = [parameter for parameter in own if parameter.kind != "text"]
    for start in range(0, len(rest), A_ROW):
        row = rest[start : start + A_ROW]
        for column, parameter in zip(st.columns(max(len(row), 2)), row, strict=False):
            with column:
                widget(page, parameter)


def widget(page: Page, parameter: Parameter, low: float | None = None, high: float | None = None) -> Any:
    """The widget of one parameter, its value afterwards; `low` and `high` narrow the range of a number."""
    key = address.seed(page, parameter.name)
    value = _DRAWN[parameter.kind](parameter, key, _bounds(parameter, low, high))
    address.values_of(page)[parameter.name] = value
    return value


def _bounds(parameter: Parameter, low: float | None, high: float | None) -> dict[str, Any]:
    if parameter.kind not in ("whole", "number"):
        return {}
    number = int if parameter.kind == "whole" else float
    low, high = parameter.low if low is None else low, parameter.high if high is None else high
    return {
        "min_value": None if low is None else number(low),
        "max_value": None if high is None else number(high),
        "step": 1 if parameter.kind == "whole" else None,
    }


def _changed(parameter: Parameter, key: str) -> dict[str, Any]:
    """What all widgets are given."""
    return {"label": parameter.label, "key": key, "help": parameter.help or None, "on_change": _forget_complaints}


def _forget_complaints() -> None:
    """A value was changed by hand: what a link said wrongly is history."""
    for key in list(st.session_state):
        if str(key).startswith("_complaints."):
            st.session_state[key] = []


def _text(parameter: Parameter, key: str, bounds: dict[str, Any]) -> str:
    return st.text_area(**_changed(parameter, key), height=90, max_chars=None)


def _line(parameter: Parameter, key: str, bounds: dict[str, Any]) -> str:
    return st.text_input(**_changed(parameter, key))


def _number(parameter: Parameter, key: str, bounds: dict[str, Any]) -> Any:
    return st.number_input(**_changed(parameter, key), **bounds)


def _choice(parameter: Parameter, key: str, bounds: dict[str, Any]) -> str:
    return str(st.selectbox(**_changed(parameter, key), options=parameter.choices, format_func=parameter.shown))


def _choices(parameter: Parameter, key: str, bounds: dict[str, Any]) -> tuple[str, ...]:
    if isinstance(st.session_state[key], tuple):
        st.session_state[key] = list(st.session_state[key])
    return tuple(st.multiselect(**_changed(parameter, key), options=parameter.choices, format_func=parameter.shown))


def _flag(parameter: Parameter, key: str, bounds: dict[str, Any]) -> bool:
    return st.toggle(**_changed(parameter, key))


_DRAWN = {
    "text": _text,
    "line": _line,
    "whole": _number,
    "number": _number,
    "choice": _choice,
    "choices": _choices,
    "flag": _flag,
}
