"""The frame of all pages: navigation, header, controls, states, exports. A page is a table and a few functions."""

import traceback
from typing import Any

import streamlit as st

from interp.apps.dashboard import address, controls, exports, header, look, repeat, states, work
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.page import MAIN, Page
from interp.apps.dashboard.registry import PAGES
from interp.apps.dashboard.store import Partial, Results
from interp.errors import InterpError


def main() -> None:
    """One run of the script: choose the page, draw it, write the address."""
    st.set_page_config(page_title="interp", page_icon=look.ICON, layout="wide")
    st.html(look.STYLE)
    made = {page.key: _entry(page) for group in PAGES.values() for page in group}
    chosen = st.navigation({group: [made[page.key] for page in members] for group, members in PAGES.items()})
    if (key := st.session_state.pop(address.GO, None)) is not None:
        st.switch_page(made[key])
    chosen.run()


def _first() -> Page:
    return next(iter(PAGES.values()))[0]


def _entry(page: Page) -> Any:
    """The page as Streamlit's navigation knows it."""
    return st.Page(_script(page), title=page.title, icon=page.icon, url_path=page.key, default=page is _first())


def _script(page: Page) -> Any:
    """The script of a page, under a name of its own: Streamlit tells pages apart by it."""

    def script() -> None:
        draw(page)

    script.__name__ = page.key
    return script


def draw(page: Page) -> None:
    """One page, whatever state it is in. An error of the page's own is said in words."""
    values = address.arrive(page)
    header.header()
    st.title(page.title, anchor=False)
    st.html(f'<p class="interp-question">{look.plain(page.question)}</p>')
    for complaint in address.complaints(page):
        st.warning(complaint, icon=":material/link_off:")
    try:
        state = _body(page, values)
    except InterpError as error:
        st.error(str(error))
        state = "error"
    except Exception as error:  # noqa: BLE001  the last stop of a page: words, not a traceback
        traceback.print_exc()
        st.error(f"This is a fault in interp: {type(error).__name__}: {error}. The program's own output says where.")
        state = "error"
    address.leave(page)
    st.html(f'<span class="interp-state" data-page="{page.key}" data-state="{state}"></span>')


def _body(page: Page, values: dict[str, Any]) -> str:
    """Everything below the question; the state that the page ends in, for whoever waits for it."""
    if any(not parameter.view for parameter in page.parameters):
        with st.container(border=True):
            controls.inputs(page)
            _buttons(page, values)
    chosen = address.current_model()
    model = work.model_in_memory(chosen) if page.needs_model else None
    if page.needs_model and model is None:
        return "loading"
    context = Context(page, values, chosen, model)
    if page.preview is not None:
        page.preview(context)
    results: Results | None = {}
    if page.main is not None:
        assert model is not None, "what computes needs the model"
        if MAIN not in address.asked(page):
            states.empty(page, values)
            return "empty"
        results = work.present(page, page.main, model, values)
    if results is None:
        return "waiting"
    _import_whole()
    page.show(context, results)
    repeat.offer(context)
    exports.bar(context, results)
    return "partial" if isinstance(results, Partial) else "shown"


def _import_whole() -> None:
    """Wait until pandas is imported: plotly looks into it even where another thread has only begun to import it."""
    import pandas  # noqa: F401


def _buttons(page: Page, values: dict[str, Any]) -> None:
    with st.container(horizontal=True):
        if page.main is not None:
            missing = page.missing(values)
            pressed = st.button("Compute", type="primary", key=f"_run.{page.key}", disabled=bool(missing))
            if pressed:
                address.asked(page)[MAIN] = page.inputs(page.main, values)
        if page.example:
            st.button("Load example", key=f"_example.{page.key}", on_click=_load_example, args=(page,))


def _load_example(page: Page) -> None:
    """The example's values, and its computation asked for. A callback: widgets are not drawn yet."""
    for name, value in page.example.items():
        address.assign(page, name, value)
    if page.main is not None:
        address.asked(page)[MAIN] = page.inputs(page.main, address.values_of(page))
