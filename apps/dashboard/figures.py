"""Figures on a page: fitted to its width, in the colours of its theme, saved as a picture by the browser itself."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DRAWN = ("heatmap",)
FEW = 4
THINNED, MOST_TICKS = ("scatter", "bar"), 12  # kinds over steps of which not each needs a name, on half a page


def config(name: str) -> dict[str, Any]:
    """What plotly's own bar offers: a picture, drawn by the browser; nothing is sent anywhere."""
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
        "toImageButtonOptions": {"format": "png", "scale": 2, "filename": f"interp-{name.replace('.', '-')}"},
    }


def fitted(figure: "Figure") -> "Figure":
    """A copy without fixed width, template and title; heat maps get the scale of the theme."""
    import pandas  # noqa: F401  plotly reads of it whatever is loaded, and fails while a job's thread loads it
    from plotly.graph_objects import Figure

    copy = Figure(figure)
    copy.update_layout(template=None, width=None, title=None, margin={"l": 60, "r": 10, "t": 28, "b": 50})
    if len(copy.data) <= FEW:  # a few names stand above, many at the side
        copy.update_layout(legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "title": None})
    for trace in copy.data:
        if trace.type in DRAWN and trace.name is None and trace.showscale is not False:
            trace.colorscale = look.scale(trace.zmid == 0)
            trace.colorbar.title.side = "right"
            trace.colorbar.thickness = 12
        for part in (trace[name] for name in ("marker", "line") if look.theme() == "dark" and name in trace):
            if isinstance(part.color, str):
                part.color = look.BRIGHTER.get(part.color, part.color)
    ticks = copy.layout.xaxis.tickvals or ()
    if len(ticks) > MOST_TICKS and all(trace.type in THINNED for trace in copy.data):
        step = -(-len(ticks) // MOST_TICKS)
        copy.update_xaxes(tickvals=ticks[::step], ticktext=copy.layout.xaxis.ticktext[::step])
    return copy


def draw(name: str, figure: "Figure", alt: str, on_click: Callable[[Sequence[Any]], None] | None = None) -> None:
    """Draw a figure; `name` is its key, and the name of its picture. `on_click` gets what the clicked point carries."""
    key = f"plot.{name}"

    def clicked() -> None:
        points = st.session_state[key].selection.points
        if points and on_click is not None:
            on_click(points[0]["customdata"])

    how: dict[str, Any] = {"key": key, "config": config(name), "alt": alt, "width": "stretch"}
    with st.container(key=f"figure-{name.replace('.', '-')}"):
        if on_click is None:
            st.plotly_chart(fitted(figure), **how)
        else:
            st.plotly_chart(fitted(figure), on_select=clicked, selection_mode="points", **how)
