"""The address bar is the state: what it says becomes values, and whatever the values become is written into it.

Streamlit's own binding drops defaults and values that cannot be used without a word; here all values are written, with
the version of the table, and what a link says wrongly is said.
"""

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import VERSION, cut, defaults, read, write
from interp.apps.dashboard.session import workshop
from interp.apps.dashboard.shelf import DEVICES, DTYPES, Chosen
from interp.errors import UsageError

GO = "_go"
"""The key of the page that is to be opened next."""
Query = dict[str, list[str]]
PENDING = "_pending"
"""Where values wait that were set after their widgets had been drawn."""
_TOLD = "_told"
"""Widgets whose values were set by the program, and when."""
HEARD = 4.0  # seconds after which even a busy browser has drawn what it was told
_PICKED = ("choice", "choices", "flag")
"""Kinds whose widgets have no text to type."""


def arrive(page: Page) -> dict[str, Any]:
    """The values of the page for this run of its script: those of a new link, else those of the widgets."""
    query = _query()
    if query and not _ours(page, query):
        _follow(page, query)
        _written()[:] = [(page.key, query, time.monotonic())]  # the browser has it, and so what came before is past
    kept = _kept(page)
    for name, value in st.session_state.pop(PENDING, {}).items():
        assign(page, name, value)
    for parameter in page.parameters:
        key = widget_key(page, parameter.name)
        value = st.session_state.get(key, kept[parameter.name])
        value = tuple(value) if parameter.kind == "choices" else value
        if parameter.problem(value) is None and value != kept[parameter.name]:
            kept[parameter.name] = value
            _told().pop(key, None)  # it comes from the browser
    return kept


def leave(page: Page) -> None:
    """Write all values into the address bar, at the end of a run."""
    chosen = current_model()
    head = {"v": VERSION, "model": chosen.model, "device": chosen.device, "dtype": chosen.dtype}
    said = {**head, **write(page.parameters, _kept(page)), "asked": ",".join(sorted(asked(page)))}
    query, written = {name: [text] for name, text in said.items()}, _written()
    changed = not written or (page.key, query) != written[-1][:2]
    if changed or query != _query():
        st.query_params.from_dict(said)
    if changed:
        written.append((page.key, query, time.monotonic()))


def _query() -> Query:
    """What the address bar said when the browser asked for this run."""
    return {name: st.query_params.get_all(name) for name in st.query_params}


def _written() -> list[tuple[str, Query, float]]:
    """What this session followed or wrote into the address bar: page, query, when. Before the newest, what went."""
    found: list[tuple[str, Query, float]] = st.session_state.setdefault("_written", [])
    return found


def _ours(page: Page, query: Query) -> bool:
    """Whether an address is one that this session knows, and no link that somebody has just opened.

    A browser that asks for a run before it has heard how the last one ended still says the address before that one. The
    same address some time later, or after the newer one was heard, is that of somebody who went back.
    """
    written = _written()
    said = [(key, before) == (page.key, query) for key, before, _ in written]
    if written and said[-1]:
        del written[:-1]
        return True
    return any(said) and time.monotonic() - written[-1][2] < HEARD


def widget_key(page: Page, name: str) -> str:
    """The key of a parameter's widget."""
    return f"{page.key}.{name}"


def assign(page: Page, name: str, value: Any) -> None:
    """Change a value: in a callback, or before its widget is drawn."""
    tell(page, name, value)
    complaints(page).clear()


def tell(page: Page, name: str, value: Any) -> None:
    """Give a widget that is drawn later in this run, or in the next, a value."""
    _kept(page)[name] = value
    st.session_state[widget_key(page, name)] = value
    _told()[widget_key(page, name)] = time.monotonic()


def seed(page: Page, name: str) -> str:
    """Make sure that the widget begins with the value; returns its key.

    Streamlit forgets widgets it does not draw. It also tells the browser a value in one run only, which is lost where
    the next run begins before the browser has drawn that one: the widget would then begin with its own default and
    report that as a choice. So the value is told again: for some time, unless another is typed, and in every run where
    no half-typed text can be lost by it.
    """
    key = widget_key(page, name)
    if key not in st.session_state:
        tell(page, name, _kept(page)[name])
    elif page.parameter(name).kind in _PICKED or time.monotonic() - _told().get(key, -HEARD) < HEARD:
        st.session_state[key] = st.session_state[key]
    return key


def values_of(page: Page) -> dict[str, Any]:
    """The values of the page as they are now."""
    return _kept(page)


def complaints(page: Page) -> list[str]:
    """What the link said that could not be used, until something is changed."""
    found: list[str] = st.session_state.setdefault(f"_complaints.{page.key}", [])
    return found


def asked(page: Page) -> dict[str, dict[str, Any]]:
    """Work that was asked for: its name → the inputs that it was asked with."""
    found: dict[str, dict[str, Any]] = st.session_state.setdefault(f"_asked.{page.key}", {})
    return found


def current_model() -> Chosen:
    """The model that this session works on."""
    chosen: Chosen = st.session_state.setdefault("_chosen", Chosen(workshop().options.model))
    return chosen


def choose(chosen: Chosen) -> None:
    """Work on another model from now on."""
    st.session_state["_chosen"] = chosen


def _told() -> dict[str, float]:
    found: dict[str, float] = st.session_state.setdefault(_TOLD, {})
    return found


def _kept(page: Page) -> dict[str, Any]:
    kept: dict[str, Any] = st.session_state.setdefault(f"_values.{page.key}", defaults(page.parameters))
    return kept


def _follow(page: Page, query: Query) -> None:
    """Take a link for what it says."""
    reading = read(page.parameters, query)
    for name, value in reading.values.items():
        tell(page, name, value)
    complaints(page)[:] = [*reading.complaints, *_follow_model(query)]
    asked(page).clear()
    known = [*([page.main] if page.main else []), *page.further]
    for name in query.get("asked", [""])[-1].split(","):
        work = next((work for work in known if work.name == name), None)
        if work is not None:
            asked(page)[name] = page.inputs(work, reading.values)
        elif name:
            complaints(page).append(f"The link asks for {cut(name)!r}, which this page does not compute.")


def _follow_model(query: Mapping[str, list[str]]) -> list[str]:
    """The model of a link; what cannot be used stays as it was, and is said."""
    before, found = current_model(), []
    said = {name: query[name][-1] for name in ("model", "device", "dtype") if name in query}
    for name, allowed in (("device", DEVICES), ("dtype", DTYPES)):
        if said.get(name, allowed[0]) not in allowed:
            stays = getattr(before, name)
            shown = cut(said.pop(name))
            found.append(f"{name} = {shown!r} in the link: one of {', '.join(allowed)} is expected. {stays} is used.")
    if "model" in said:
        try:
            workshop().shelf.resolved(said["model"])
        except UsageError as error:
            found.append(f"The link's model cannot be opened here: {error} {before.model} is used.")
            del said["model"]
    choose(Chosen(**{**vars(before), **said}))
    return found
