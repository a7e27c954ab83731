"""Map, list and scatter of all heads, and the pairs that compose."""

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from interp.apps.dashboard.heatmaps import Grid
from interp.apps.dashboard.views.attention_maps import kv_groups

if TYPE_CHECKING:
    import pandas

    from interp.analyses.atlas import HeadAtlas
    from interp.analyses.composition import Composition, Kind
    from interp.apps.dashboard.context import Context

SHOWN = ("prefix_matching", "previous_token", "random_previous_token", "duplicate_token", "current_token", "sink",
         "agreement", "coreference", "ov_eigenvalue", "behavioural")  # fmt: skip
PAIRS = 8


def known(atlas: "HeadAtlas", score: str) -> str:
    """The score, or strength where this atlas lacks it, which is said."""
    if score in atlas:
        return score
    st.warning(f"There is no score {score.replace('_', ' ')} here; heads are shown by strength.")
    return "strength"


def filtered(atlas: "HeadAtlas", score: str, role: str, least: float) -> "pandas.DataFrame":
    """The heads of a role whose score is high enough, highest first, with all their scores."""
    return atlas.ranked(atlas["role"].size, by=score, role=None if role == "any" else role, least=least)


def score_map(atlas: "HeadAtlas", score: str) -> Grid:
    """Heads downwards, layers across; the first letters of the role stand in the cell."""
    roles = np.array([[str(role)[:3] if role not in ("none", "sink") else "" for role in row] for row in atlas["role"]])
    values = atlas[score]
    return Grid(
        values=values.T,
        row="head",
        column="layer",
        rows=[str(head) for head in atlas.axes["head"]],
        columns=[str(layer) for layer in atlas.axes["layer"]],
        metric=score.replace("_", " "),
        row_title="head",
        column_title="layer",
        signed=bool(np.nanmin(values) < 0),
        texts=roles.T if values.size <= 700 else None,
        details=_details(atlas).T,
        bands=kv_groups(atlas["kv_head"]),
        row_pixels=26,
        upwards=False,
    )


def _details(atlas: "HeadAtlas") -> np.ndarray:
    said = np.empty(atlas["role"].shape, dtype=object)
    for place in np.ndindex(said.shape):
        said[place] = f"role {atlas['role'][place]}, strength {atlas['strength'][place]:.3f}"
    return said


def map_said(atlas: "HeadAtlas", score: str) -> str:
    """The text alternative."""
    layers, heads = atlas["role"].shape
    best = atlas.ranked(3, by=score).itertuples()
    first = ", ".join(f"{row.layer}.{row.head} ({getattr(row, score):.3f})" for row in best)
    return (
        f"{score.replace('_', ' ').capitalize()} of {layers} layers (across) by {heads} heads (down), the first "
        f"letters of the role in each cell; highest: {first}."
    )


def table(context: "Context", listed: "pandas.DataFrame", score: str) -> None:
    """The list; everything that is known of its heads can be exported."""
    columns = ["layer", "head", "kv_head", "role", "strength"]
    columns += [name for name in (score, *SHOWN) if name in listed and name not in columns]
    shown = listed[list(dict.fromkeys(columns))]
    context.export("heads", listed)
    numbers = {name: st.column_config.NumberColumn(format="%.3f") for name in shown.columns[4:]}
    st.dataframe(shown, width="stretch", hide_index=True, height=420, column_config=numbers)


def scatter(context: "Context", atlas: "HeadAtlas", listed: "pandas.DataFrame") -> None:
    """One score against another, heads that are left out of the list faint; a click chooses a head."""
    from interp.analyses.head_roles import ACTIVE, IDLE
    from interp.head_plots import role_scatter

    with st.container(horizontal=True):
        across, upwards = (known(atlas, context.control(name)) for name in ("x", "y"))
    kept = np.zeros(atlas["role"].shape, dtype=bool)
    kept[listed["layer"].to_numpy(dtype=int), listed["head"].to_numpy(dtype=int)] = True
    figure = role_scatter(
        atlas[across], atlas[upwards], atlas["role"], kept=kept, active=ACTIVE, idle=IDLE,
        x_title=across.replace("_", " "), y_title=upwards.replace("_", " "),
    )  # fmt: skip
    there = np.isfinite(atlas[across]) & np.isfinite(atlas[upwards])
    both = np.corrcoef(atlas[across][there], atlas[upwards][there])[0, 1] if there.sum() > 2 else np.nan
    said = f"{upwards.replace('_', ' ')} against {across.replace('_', ' ')} of every head; correlation {both:.2f}."
    context.plot("scatter", figure, said, chooses=("layer", "head"))
    st.caption(f"{said.capitalize()} A click chooses a head.")


def composed(context: "Context", found: "Composition", kind: "Kind", layer: int, head: int) -> None:
    """The strongest pairs of all, those that end in the chosen head, and those that begin there."""
    import pandas as pd

    figure, best = found.ranked_figure(kind), found.pairs(kind, 1).iloc[0]
    said = f"Strongest pairs of heads by {kind} composition; first {int(best['layer'])}.{int(best['head'])} into "
    said += f"{int(best['to_layer'])}.{int(best['to_head'])}, {best[kind]:.3f}; random {float(found['baseline']):.3f}."
    left, right = st.columns([7, 5], gap="large")
    with left:
        context.plot("composition", figure, said)
    into = found.pairs(kind, PAIRS, to=(layer, head))
    every = found.pairs(kind, found[kind].size)
    out = every[(every["layer"] == layer) & (every["head"] == head)].head(PAIRS)
    with right:
        st.markdown(f"Head {layer}.{head} is made to read, and is read by, at most:")
        st.dataframe(pd.concat([into, out]), width="stretch", hide_index=True)
    context.export("composition", every)
    st.caption(found.caution)
