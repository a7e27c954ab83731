"""How parts add up to a number: bars that begin where the one before them ended."""

from typing import TYPE_CHECKING

import numpy as np

from interp.plots import Labels, Numbers, visible

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

UP, DOWN, TOTAL = "#c23b4e", "#1f5fa8", "#7a7a7a"


def waterfall(labels: Labels, values: Numbers, *, title: str, total: str) -> "Figure":
    """Horizontal bars from the top down, each beginning where the last one ended; the lowest is their sum."""
    from plotly.graph_objects import Figure, Waterfall

    names, steps = [visible(str(label)) for label in labels], np.asarray(values, dtype=np.float64)
    bars = Waterfall(
        y=[*names, "sum"],
        x=[*steps, steps.sum()],
        measure=["relative"] * len(steps) + ["total"],
        orientation="h",
        increasing={"marker": {"color": UP}},
        decreasing={"marker": {"color": DOWN}},
        totals={"marker": {"color": TOTAL}},
        text=[f"{value:+.2f}" for value in (*steps, steps.sum())],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y} %{text}<extra></extra>",
    )
    figure = Figure(bars).update_layout(
        title={"text": visible(title), "x": 0.02, "xanchor": "left"},
        template="plotly_white",
        margin={"l": 130, "r": 60, "t": 70, "b": 60},
        height=170 + 24 * (len(names) + 1),
        width=820,
    )
    ends = [0.0, *np.cumsum(steps)]
    room = 0.12 * (max(ends) - min(ends) or 1.0)  # for the numbers beside the longest bars
    figure.update_xaxes(title_text=visible(total), zeroline=True, range=[min(ends) - room, max(ends) + room])
    return figure.update_yaxes(autorange="reversed")
