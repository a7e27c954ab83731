"""What models take, as a picture: parameters by component, and keys and values against the length of a text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from interp.plots import SERIES_COLOURS, visible

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def sizes_figure(
    parameters: Mapping[str, Mapping[str, int]], contexts: Sequence[int], kv_bytes: Mapping[str, Sequence[int]]
) -> "Figure":
    """Two panels: stacked bars of parameters, `model → component → count`, and lines of bytes at each context."""
    from plotly.graph_objects import Bar, Scatter
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, subplot_titles=("Parameters", "Keys and values of one text"), horizontal_spacing=0.14)
    models = [visible(name) for name in parameters]
    components = dict.fromkeys(name for counts in parameters.values() for name, count in counts.items() if count)
    for place, component in enumerate(components):
        bar = Bar(
            x=models,
            y=[counts.get(component, 0) for counts in parameters.values()],
            name=component,
            marker={"color": SERIES_COLOURS[place % len(SERIES_COLOURS)]},
            hovertemplate=f"%{{x}}<br>{component} %{{y:,}}<extra></extra>",
        )
        figure.add_trace(bar, 1, 1)
    for place, (name, sizes) in enumerate(kv_bytes.items()):
        line = Scatter(
            x=list(contexts),
            y=[size / 2**30 for size in sizes],
            name=visible(name),
            mode="lines+markers",
            line={"color": SERIES_COLOURS[place % len(SERIES_COLOURS)]},
            legend="legend2",
            hovertemplate=f"{visible(name)}<br>%{{x:,}} tokens %{{y:.3f}} GiB<extra></extra>",
        )
        figure.add_trace(line, 1, 2)
    figure.update_xaxes(title_text="tokens", type="log", row=1, col=2)
    figure.update_yaxes(title_text="GiB", type="log", showgrid=True, row=1, col=2)
    figure.update_yaxes(title_text="numbers stored", showgrid=True, row=1, col=1)
    legends = {"legend": {"x": 0.0, "y": -0.25, "orientation": "h"}, "legend2": {"x": 0.58, "y": -0.25}}
    return figure.update_layout(template="plotly_white", barmode="stack", width=1100, height=560, **legends)
