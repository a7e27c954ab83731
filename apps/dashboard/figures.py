"""Figures on a page: fitted to its width, in the colours of its theme, saved as a picture by the browser itself."""

from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DRAWN = ("heatmap",)


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
    for trace in copy.data:
        if trace.type in DRAWN and trace.name is None and trace.showscale is not False:
            trace.colorscale = look.scale(trace.zmid == 0)
            trace.colorbar.title.side = "right"
            trace.colorbar.thickness = 12
    return copy


def draw(name: str, figure: "Figure", alt: str) -> None:
    """Draw a figure; `name` is its key, and the name of its picture."""
    with st.container(key=f"figure-{name.replace('.', '-')}"):
        st.plotly_chart(fitted(figure), key=f"plot.{name}", config=config(name), alt=alt, width="stretch")
