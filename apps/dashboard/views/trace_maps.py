"""Traces, drawn: a map for everything that was restored, the chosen cell, severed sublayers, knockout curves."""

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.heatmaps import Grid

if TYPE_CHECKING:
    import pandas

    from interp.analyses.fact_traces import FactTraces
    from interp.analyses.knockout import AttentionKnockout
    from interp.analyses.tracing import CausalTrace
    from interp.apps.dashboard.context import Context

    Traces = CausalTrace | FactTraces

MEASURES = {"effect": "indirect effect (probability)", "logit_effect": "indirect effect (logit)"}


def draw(context: "Context", found: "Traces") -> int:
    """The maps, which share the chosen cell and one scale of colours, and what is known of it; returns its row."""
    averaged = "fact" in found.axes
    look.lines([_headline(found)])
    measure = str(context.values["measure"])
    kinds = [str(kind) for kind in found.axes["kind"] if not str(kind).startswith("severed")]
    reach = float(np.nanmax(np.abs(found[measure]), initial=0.0)) or 1.0
    at: tuple[int, int] | None = None
    for kind in kinds:
        st.markdown(f"**Restored: {found.panel(kind)}**")
        grid = _grid(found, kind, measure, reach)
        at = context.heatmap(f"{kind}-map", grid, _alt(found, kind, grid), beside=("measure",), at=at)
    assert at is not None, "a trace restores something"
    rows = _averages(found, at) if averaged else _cell(found, at)  # type: ignore[arg-type]
    look.sentence(f"{_named(found, at[0])}, <b>layer {at[1]}</b>:")
    context.table("cell", rows)
    if averaged:
        _of_a_set(context, found, at)  # type: ignore[arg-type]
    return at[0]


def _headline(found: "Traces") -> str:
    """What was traced, and where it is strongest; the caution stands elsewhere."""
    lines = found.summary()
    if "fact" in found.axes:
        return lines[0]
    total = found.total_effect  # type: ignore[union-attr]
    more = lines[1].strip() if not found.settings["answer_is_prediction"] else ""
    return f"{lines[0]}; total effect {total:+.3f}. {more}"


def _rows(found: "Traces") -> list[str]:
    """What stands down the maps: tokens, the subject's with a star, or roles with the number of their facts."""
    if "fact" in found.axes:
        return [f"{role} ({count})" for role, count in zip(found.axes["role"], found["count"], strict=True)]
    marked = zip(found["token"], found["in_subject"], strict=True)
    return [f"{token}{'*' if inside else ''} {place}" for place, (token, inside) in enumerate(marked)]


def _named(found: "Traces", place: int) -> str:
    """A row of the maps, as HTML."""
    if "fact" in found.axes:
        return f"<b>{str(found.axes['role'][place]).capitalize()}</b>"
    return f"{look.chip(str(found['token'][place]))} <b>position {place}</b>"


def _grid(found: "Traces", kind: str, measure: str, reach: float) -> Grid:
    values = np.asarray(found.at(measure, kind=kind), dtype=np.float64)
    first, last = found.at("first_layer", kind=kind), found.at("last_layer", kind=kind)
    windows = [
        f"layers {low} to {high}" if low != high else f"layer {low}" for low, high in zip(first, last, strict=True)
    ]
    return Grid(
        values=values,
        row="position",
        column="layer",
        rows=_rows(found),
        columns=[str(layer) for layer in range(values.shape[1])],
        metric=MEASURES[measure].removeprefix("indirect "),
        row_title="role" if "fact" in found.axes else "token",
        column_title="layer",
        signed=True,
        bounds=(-reach, reach),
        details=np.array([windows] * len(values), dtype=object),
        upwards=False,
        form="+.4f",
    )


def _alt(found: "Traces", kind: str, grid: Grid) -> str:
    """What a map shows, and its strongest cell."""
    down, across = grid.values.shape
    head = f"Map of what restoring the {found.panel(kind)} brings back, {down} {grid.row_title}s by {across} layers"
    if not np.isfinite(grid.values).any():
        return f"{head}: none is done."
    row, column = (int(place) for place in np.unravel_index(np.nanargmax(grid.values), grid.values.shape))
    return f"{head}: most, {grid.values[row, column]:+.3f}, at {grid.rows[row].strip()}, layer {column}."


def _cell(found: "CausalTrace", at: tuple[int, int]) -> "pandas.DataFrame":
    """One row a kind: the runs that are compared, the probability with the state restored, and how sure."""
    import pandas as pd

    clean, corrupted = float(found["clean_probability"]), float(found["corrupted_probability"])
    rows = []
    for kind in map(str, found.axes["kind"]):
        where: dict[str, Any] = {"kind": kind, "position": found.axes["position"][at[0]], "layer": at[1]}
        rows.append(
            {
                "restored": found.panel(kind),
                "layers": _layers(found, kind, at[1]),
                "P clean": clean,
                "P corrupted": corrupted,
                "P restored": float(found.at("probability", **where)),
                "effect": float(found.at("effect", **where)),
                "±": float(found.at("effect_error", **where)),
                "logit effect": float(found.at("logit_effect", **where)),
            }
        )
    return pd.DataFrame(rows).dropna(axis="columns", how="all")  # one sample has no standard error


def _averages(found: "FactTraces", at: tuple[int, int]) -> "pandas.DataFrame":
    """One row a kind: the mean effect over facts, with its interval."""
    import pandas as pd

    rows = []
    for kind in map(str, found.axes["kind"]):
        where: dict[str, Any] = {"kind": kind, "role": found.axes["role"][at[0]], "layer": at[1]}
        numbers = {name: float(found.at(name, **where)) for name in ("effect", "effect_low", "effect_high")}
        more = {"logit effect": float(found.at("logit_effect", **where)), "facts": int(found["count"][at[0]])}
        rows.append({"restored": found.panel(kind), "layers": _layers(found, kind, at[1]), **numbers, **more})
    return pd.DataFrame(rows)


def _layers(found: "Traces", kind: str, layer: int) -> str:
    first, last = (int(found.at(f"{end}_layer", kind=kind, layer=layer)) for end in ("first", "last"))
    return str(first) if first == last else f"{first} to {last}"


def _of_a_set(context: "Context", found: "FactTraces", at: tuple[int, int]) -> None:
    """What stands behind the averages: relations, facts, and those that were left out."""
    import pandas as pd

    with st.expander("By relation: what hiding the subject takes away"):
        names = ("relation_count", "relation_total_effect", "relation_total_effect_low", "relation_total_effect_high")
        context.table(
            "relations", pd.DataFrame({"relation": found.axes["relation"], **{each: found[each] for each in names}})
        )
    with st.expander("Fact by fact, at the chosen cell"):
        effects = found["fact_effect"][:, :, at[0], at[1]]
        frame = found.to_frame(("fact",))[
            ["fact", "prompt", "answer_token", "clean_probability", "corrupted_probability"]
        ]
        for place, kind in enumerate(map(str, found.axes["kind"])):
            frame[f"effect, {found.panel(kind)}"] = effects[:, place]
        context.table("facts", frame)
    if found.left_out:
        with st.expander(
            f"Left out: {len(found.left_out)} facts that the model does not know, or that cannot be traced"
        ):
            context.table(
                "left-out", pd.DataFrame({"fact": list(found.left_out), "why": list(found.left_out.values())})
            )


def severed(context: "Context", found: "Traces", row: int) -> None:
    """How much of the effect in the chosen row of the maps needs a sublayer."""
    from interp.analyses.fact_traces import FactTraces

    st.subheader("With sublayers severed", anchor=False)
    many = isinstance(found, FactTraces)
    place = str(found.axes["role"][row]) if many else row
    where = f"the role {place}" if many else f"{str(found['token'][row])!r} (position {row})"
    kinds = [kind for kind in map(str, found.axes["kind"]) if kind.startswith(("resid", "severed"))]
    effects = {kind: np.nan_to_num(found.at("effect", kind=kind)[row]) for kind in kinds}
    said = [f"{found.panel(kind)} {each.max():+.3f} at layer {each.argmax()}" for kind, each in effects.items()]
    alt = f"Effect of restoring at {where}, by layer; most: {'; '.join(said)}."
    context.plot("severed", found.severed_figure(place), alt)  # type: ignore[arg-type]
    st.caption(
        f"{alt} What falls away where a sublayer is severed went through it. A click into a map chooses the row."
    )


def knocked_out(context: "Context", found: "AttentionKnockout") -> None:
    """The change of the answer's probability, a curve for everything that cannot be read."""
    alt = " ".join(line.strip() for line in found.summary()[:-1])
    context.plot("knockout", found.figure(), alt)
    look.lines(found.summary())
    with st.expander("Every layer in a table"):
        context.table("knockout", found.to_frame())
