"""What taking heads away does, drawn beside where they look: effects, controls, and what must not be concluded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.analyses.ablation import Ablation
    from interp.analyses.ablation_sets import Controlled
    from interp.analyses.head_ablation import HeadAblation
    from interp.apps.dashboard.context import Context

SAID = {
    "loss": "loss of the text (nats)",
    "log_probability": "log-probability of the answer",
    "kl": "KL of what is said last (nats)",
    "nll": "loss on the last repeat (nats)",
}


def effects(found: "Controlled", metrics: Mapping[str, tuple[int, ...]]) -> "pandas.DataFrame":
    """One row a set and metric: effect, that of its controls, their spread; the metrics' further places as given."""
    import pandas as pd

    rows = []
    for place, label in enumerate(found.axes["removed"]):
        for metric, cell in metrics.items():
            at = (place, *cell)
            rows.append(
                {
                    "taken away": label,
                    "metric": metric,
                    "effect": float(found[f"{metric}_effect"][at]),
                    "low": float(found[f"{metric}_low"][at]),
                    "high": float(found[f"{metric}_high"][at]),
                    "others, mean": float(found[f"{metric}_control_mean"][at]),
                    "others, sd": float(found[f"{metric}_control_std"][at]),
                    "deviations": float(found[f"{metric}_deviations"][at]),
                    "others": int(found["controls"][place]),
                }
            )
    return pd.DataFrame(rows)


def each_control(found: "Controlled", metric: str, cell: tuple[int, ...] = ()) -> "Figure":
    """The first set and each of its controls as bars, the set on top."""
    from interp.plots import ranked_bars

    own = float(found[f"{metric}_effect"][(0, *cell)])
    every: Any = (0, slice(None), *cell)
    others = found[f"{metric}_control_effect"][every]
    names = [str(name) for name in found["control_components"][0]]
    order = sorted((place for place, name in enumerate(names) if name), key=lambda place: -abs(float(others[place])))
    label = str(found.axes["removed"][0])
    figure = ranked_bars(
        [f"<b>{label}</b>", *(names[place] for place in order)],
        {"effect": [own, *(float(others[place]) for place in order)]},
        title="",
        metric=f"effect on {SAID[metric]}",
        label="without",
    )
    colours = ["#d9822b", *["#8a93a3"] * len(order)]
    figure.update_traces(marker_color=colours)
    return figure.update_layout(height=92 + 24 * (1 + len(order)))


def sentence(found: "Controlled", metric: str, place: int = 0, cell: tuple[int, ...] = ()) -> str:
    """What a removal does to one metric, beside others, in words."""
    return (
        f"Without {found.axes['removed'][place]}, the {SAID[metric]} changes by {found.interval(metric, place, *cell)};"
        f" without others of the same layers by {found.beside(metric, place, *cell)}."
    )


def draw(
    context: "Context", found: "Ablation | HeadAblation", metric: str, cells: Mapping[str, tuple[int, ...]]
) -> None:
    """The bars of one metric, a sentence on the last set, the table of all; the caution of the result.

    Of one set, each of its controls has a bar; of several, their mean.
    """
    cell, count = cells[metric], len(found.axes["removed"])
    said = sentence(found, metric, count - 1, cell)
    figure = each_control(found, metric, cell) if count == 1 else found.figure(metric)
    context.plot("without", figure, said)
    st.markdown(said)
    frame = effects(found, cells)
    rounded: dict[str, Any] = {
        name: st.column_config.NumberColumn(format="%+.3f") for name in ("effect", "others, mean", "deviations")
    }
    context.export("effects", frame)
    shown = frame.loc[:, [name for name in frame if not np.all(frame[name].isna())]]
    st.dataframe(shown, width="stretch", hide_index=True, column_config=rounded)
    st.caption(found.caution)
