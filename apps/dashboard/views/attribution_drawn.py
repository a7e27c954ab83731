"""What the page of attribution draws of its results."""

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.heatmaps import Grid
from interp.apps.dashboard.look import seen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    import pandas

    from interp.analyses.attribution import Attribution

FOR, AGAINST = "#3d94cf", "#d9822b"
MOST_ROWS = 200  # of a table on the page; exports hold all
MOST_BARS = 16
ENOUGH = 1e-3  # relative: a sum that is off by more is no rounding


def explained(results: Results) -> None:
    """The logit, and how far the parts are from adding up to it."""
    first = results["sublayer"]
    st.markdown(f"**{look.plain(first.explained)} = {float(first['logit'].mean()):+.4f}**")
    ways = [f"{len(found['mean'])} by {by.replace('_', ' and ')} within {found.worst_error:.0e}"
            for by, found in results.items()]  # fmt: skip
    st.caption(f"Its parts add up to it (completeness error): {'; '.join(ways)}.")
    worst = max(found.worst_error for found in results.values())
    if worst > ENOUGH * max(1.0, abs(float(first["logit"].mean()))):
        st.warning("The parts do not add up: what follows is not the whole of this logit.")


def waterfall(context: Context, found: "Attribution") -> None:
    """The strongest parts, up to the logit; all of them in a table."""
    from interp.analyses.attribution import SHOWN

    by = str(found.settings["by"])
    frame = parts(found)
    said = ", ".join(f"{row.part} {row.mean:+.2f}" for row in frame.head(5).itertuples())
    figure = found.figure()
    figure.update_layout(height=110 + 24 * (min(SHOWN, len(frame)) + 2))
    figure.update_traces(increasing_marker_color=FOR, decreasing_marker_color=AGAINST)  # those of the maps below
    context.plot("waterfall", figure, f"Waterfall by {by} up to {found.explained}: {said}; the others follow.")
    with st.expander(f"All {len(frame):,} parts, the strongest first"):
        st.dataframe(frame.head(MOST_ROWS), width="stretch", hide_index=True)
        if len(frame) > MOST_ROWS:
            st.caption(f"The first {MOST_ROWS} are shown; exports hold all.")
    context.export(f"parts by {by}", frame)


def parts(found: "Attribution") -> "pandas.DataFrame":
    """All parts, the strongest first."""
    frame = found.to_frame().drop(columns=["low", "high"])
    return frame.loc[frame["mean"].abs().sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


# ------------------------------------------------------------------------------------------------------------- heads


def heads(found: "Attribution") -> tuple[Grid, str]:
    """The map of heads, and what it shows in words."""
    values = found.layer_map()
    layer, head = (int(each) for each in np.unravel_index(np.nanargmax(np.abs(values)), values.shape))
    grid = Grid(
        values=values,
        row="layer",
        column="head",
        rows=[str(place) for place in range(values.shape[0])],
        columns=[str(place) for place in range(values.shape[1])],
        metric="logits",
        row_title="layer",
        column_title="head",
        signed=True,
        form="+.3f",
    )
    return grid, (
        f"Map of what {values.shape[1]} heads in each of {values.shape[0]} layers write directly for "
        f"{found.explained}; the strongest is {layer}.{head} with {values[layer, head]:+.2f} logits."
    )


def one_head(found: "Attribution", layer: int, head: int) -> None:
    """The term of one head among the others."""
    values = found.layer_map()
    own = float(values[layer, head])
    place = 1 + int((np.abs(values) > abs(own)).sum())
    st.markdown(
        f"{own:+.3f} logits, place {place} of {np.isfinite(values).sum()} heads. All heads together: "
        f"{np.nansum(values):+.3f} of {float(found['logit'].mean()):+.3f}."
    )


def sources_of_head(context: Context, found: "Attribution", layer: int, head: int) -> None:
    """What one head brings from each token."""
    own = head_sources(found, layer, head)
    _bars(context, "head sources", found, own, f"Head {layer}.{head} from each token")


def head_sources(found: "Attribution", layer: int, head: int) -> np.ndarray:
    """The terms of one head by key position, for an attribution by heads and sources."""
    starts = f"L{layer}.H{head}←"
    inside = np.array([str(part).startswith(starts) for part in found.axes["part"]])
    values = np.zeros(len(found["token"]))
    values[found["part_index"][inside]] = found["mean"][inside]
    return values


def apart(found: "Attribution") -> str:
    """Why the two columns differ."""
    foil = " The foil plays no part in it." if "foil" in found else ""
    return (
        "The direct term leaves out what later layers make of a head, and without it the norm and later layers "
        f"change: the two need not agree.{foil}"
    )


# ----------------------------------------------------------------------------------------------------------- sources


def sources(found: "Attribution") -> tuple[Grid, str]:
    """The map of layers and key positions, and what it shows in words."""
    values = found.layer_map()
    layer, place = (int(each) for each in np.unravel_index(np.nanargmax(np.abs(values)), values.shape))
    grid = Grid(
        values=values,
        row="source_layer",
        column="source",
        rows=[str(each) for each in range(values.shape[0])],
        columns=[f"{token} {each}" for each, token in enumerate(found["token"])][: values.shape[1]],
        metric="logits",
        row_title="layer",
        column_title="source token",
        signed=True,
        form="+.3f",
    )
    return grid, (
        f"Map of what attention in {values.shape[0]} layers brings from {values.shape[1]} tokens for "
        f"{found.explained}; the strongest is {seen(found['token'][place])} (position {place}) in layer {layer} with "
        f"{values[layer, place]:+.2f} logits."
    )


def by_token(found: "Attribution") -> np.ndarray:
    """What attention of all layers brings from each token."""
    values = np.zeros(len(found["token"]))
    totals = np.nansum(found.layer_map(), axis=0)
    values[: len(totals)] = totals
    return values


def tokens(found: "Attribution") -> None:
    """The text, each token shaded by what all layers bring from it."""
    values = by_token(found)
    reach = float(np.abs(values).max()) or 1.0
    shades = [
        f"rgba({'61,148,207' if value > 0 else '217,130,43'},{0.75 * abs(value) / reach:.2f})" for value in values
    ]
    hints = [f"position {place}: {value:+.3f} logits" for place, value in enumerate(values.tolist())]
    look.strip(found["token"], hints, chosen=int(str(found.settings["position"])), shades=shades)
    st.caption(
        "What attention of all layers brings from each token: blue for it, orange against it. Framed: the token whose "
        "logits are explained."
    )


def one_source(found: "Attribution", layer: int, place: int) -> None:
    """What the chosen cell says."""
    values = found.layer_map()
    token = look.chip(str(found["token"][place]))
    look.sentence(
        f"Attention of layer <b>{layer}</b> brings <b>{values[layer, place]:+.3f}</b> logits from {token} (position "
        f"{place}); all layers together {by_token(found)[place]:+.3f}."
    )


def all_sources(context: Context, found: "Attribution") -> None:
    """The tokens that most is brought from."""
    _bars(context, "by token", found, by_token(found), "Attention of all layers from each token")


def _bars(context: Context, name: str, found: "Attribution", values: np.ndarray, what: str) -> None:
    """One bar a token, or the strongest where there are many; the table holds all."""
    import pandas as pd

    from interp.plots import ranked_bars, visible

    shown = np.sort(np.argsort(-np.abs(values), kind="stable")[:MOST_BARS])
    labels = [f"{visible(str(found['token'][place]))} {place}" for place in shown]
    figure = ranked_bars(labels, {"logits": values[shown]}, title="", metric="logits", label="from")
    colours: list[Any] = [FOR if value > 0 else AGAINST for value in values[shown]]
    figure.update_traces(marker_color=colours).update_layout(height=92 + 24 * len(shown))
    best = int(np.abs(values).argmax())
    context.plot(name.replace(" ", "-"), figure, f"{what}: most from {seen(found['token'][best])} (position {best}), "
                                                 f"{values[best]:+.2f} logits.")  # fmt: skip
    if len(values) > len(shown):
        st.caption(f"The {len(shown)} of {len(values)} tokens that most is brought from.")
    frame = pd.DataFrame({"position": range(len(values)), "token": list(found["token"]), "logits": values})
    context.export(name, frame)
