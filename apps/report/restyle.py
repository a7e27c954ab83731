"""A figure made for any place, fitted to the page: its size, title and colours are the page's business."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go


def fitted(figure: "go.Figure") -> "go.Figure":
    """A copy without the fixed width, title, template and colours that it came with; the caption says what it is.

    Heat maps around zero keep `zmid`, by which the page's script knows which scale to give them.
    """
    import plotly.graph_objects as go

    copy = go.Figure(figure)
    copy.update_layout(template=None, title=None, width=None, margin={"l": 60, "r": 16, "t": 24, "b": 56})
    for trace in copy.data:
        if trace.type == "heatmap":
            trace.colorscale = None
            trace.colorbar.title.side = "right"
        elif trace.type == "scatter":
            trace.line.color = None
        elif trace.type == "bar":
            trace.marker.color = None
    return copy
