"""What leaves a page: tables as CSV and Parquet, figures as a picture and as one HTML file, settings as JSON."""

import io
import json
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp import __version__
from interp.apps.dashboard import address
from interp.apps.dashboard.clipboard import picture_button
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.parameters import VERSION
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure


def bar(context: Context, results: Results) -> None:
    """The export bar of a page: everything that was drawn or handed over can be taken away."""
    frames = {**{name: _Lazy(result) for name, result in results.items()}, **context.tables}
    with st.expander("Export", icon=":material/download:"):
        if frames:
            name = _pick("Table", list(frames), f"_table.{context.page.key}")
            _tables(context, name, frames[name])
        if context.figures:
            name = _pick("Figure", list(context.figures), f"_figure.{context.page.key}")
            _figures(context, name, results)
        st.download_button(
            "Settings (JSON)",
            data=lambda: json.dumps(settings(context, results), indent=2, ensure_ascii=False),
            file_name=f"interp-{context.page.key}-settings.json",
            mime="application/json",
            on_click="ignore",
            key=f"_json.{context.page.key}",
        )
        st.caption("PNG pictures are drawn by your browser, in the colours of the page; all else by this program.")


class _Lazy:
    """The table of a result, made when it is asked for."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def frame(self) -> "pandas.DataFrame":
        return self._result.to_frame()


def _pick(label: str, names: list[str], key: str) -> str:
    if len(names) == 1:
        return names[0]
    if st.session_state.get(key) not in names:
        st.session_state.pop(key, None)
    return str(st.selectbox(label, names, key=key))


def _frame(source: Any) -> "pandas.DataFrame":
    return source.frame() if isinstance(source, _Lazy) else source


def _tables(context: Context, name: str, source: Any) -> None:
    file = f"interp-{context.page.key}-{name}"
    with st.container(horizontal=True):
        st.download_button(
            "CSV",
            data=lambda: _frame(source).to_csv(index=False),
            file_name=f"{file}.csv",
            mime="text/csv",
            on_click="ignore",
            key=f"_csv.{context.page.key}",
        )
        st.download_button(
            "Parquet",
            data=lambda: parquet(_frame(source)),
            file_name=f"{file}.parquet",
            mime="application/vnd.apache.parquet",
            on_click="ignore",
            key=f"_parquet.{context.page.key}",
        )


def _figures(context: Context, name: str, results: Results) -> None:
    with st.container(horizontal=True):
        picture_button("PNG", f"figure-{context.page.key}-{name}", key=f"_png.{context.page.key}")
        st.download_button(
            "HTML, all figures",
            data=lambda: html(context.page.title, context.figures, settings(context, results)),
            file_name=f"interp-{context.page.key}.html",
            mime="text/html",
            on_click="ignore",
            key=f"_html.{context.page.key}",
        )


def parquet(frame: "pandas.DataFrame") -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def settings(context: Context, results: Results) -> dict[str, Any]:
    """Everything that decides the page, with the provenance of what it shows."""
    return {
        "format": "interp-dashboard-settings",
        "v": VERSION,
        "interp": __version__,
        "page": context.page.key,
        "model": vars(context.chosen),
        "values": {name: _jsonable(value) for name, value in context.values.items()},
        "asked": sorted(address.asked(context.page)),
        "provenance": {name: _jsonable(result.provenance) for name, result in results.items()},
    }


def html(title: str, figures: "Mapping[str, Callable[[], Figure]]", said: Mapping[str, Any]) -> str:
    """One HTML file that needs no other: plotly's script inside, figures, settings."""
    from plotly.offline import get_plotlyjs

    drawn = [
        f"<h2>{escape(name)}</h2>"
        + made().to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})
        for name, made in figures.items()
    ]
    stated = escape(json.dumps(said, indent=2, ensure_ascii=False))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        "<style>body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem}"
        "pre{overflow:auto;background:#f4f5f9;padding:1rem}</style>"
        f"<script>{get_plotlyjs()}</script></head>\n<body><h1>{escape(title)}</h1>{''.join(drawn)}"
        f"<h2>Settings</h2><pre>{stated}</pre></body></html>\n"
    )


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(each) for key, each in value.items()}
    return [_jsonable(each) for each in value] if isinstance(value, tuple | list) else value
