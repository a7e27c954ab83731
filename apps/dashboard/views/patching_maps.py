"""What patching found, drawn: the map of a sweep, the chosen cell, estimates beside exact effects."""

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.heatmaps import Grid

if TYPE_CHECKING:
    import pandas

    from interp.analyses.attribution_patching import AttributionMap
    from interp.analyses.cell_map import CellMap
    from interp.analyses.patching import Patching
    from interp.apps.dashboard.context import Context

MEASURES = {"recovered": "share of the way", "effect": "change of the metric"}
SAMPLES = {"top": "largest estimates", "random": "random others"}
_NAMES = {"pos": "position", "query_pos": "query position", "key_pos": "key position", "kv_head": "KV head"}


def draw(context: "Context", found: "CellMap") -> None:
    """The map with its controls, and everything that is known of the chosen cell."""
    metric = _metric(context, found)
    beside = ["measure"] if "estimate" in found else ["metric", "measure"]
    if len(found.over) == 3:
        beside.append("position")
    grid, at = _grid(context, found, metric)
    row, column = context.heatmap("map", grid, _alt(found, grid), beside=beside)
    cell = _index(found, row, column, at)
    frame = _cell(found, cell)
    look.sentence(f"<b>{look.plain(_place(found, cell))}</b>:")
    context.table("cell", frame)
    if len(found["clean" if "estimate" in found else f"{metric}_clean"]) > 1:
        with st.expander("This cell, pair by pair"):
            context.table("pairs", _pairs(found, cell, metric))


def effects(found: "Patching", metric: str) -> np.ndarray:
    """[*axes]: the mean over pairs of what patching changes in the metric."""
    base = found[f"{metric}_{'corrupted' if found.settings['direction'] == 'denoise' else 'clean'}"]
    return np.asarray(found[metric].mean(-1) - base.mean())


def _metric(context: "Context", found: "CellMap") -> str:
    """The metric that is shown: the one that was asked for, if it was measured."""
    if "estimate" in found:
        return str(found.settings["metric"])
    wanted, there = str(context.values["metric"]), [str(each) for each in found.settings["metrics"]]  # type: ignore[attr-defined]
    if wanted not in there:
        st.warning(
            f"{wanted.replace('_', ' ')} was not measured here, only {', '.join(there)}; {there[0]} is shown. "
            "Add it to the metrics above, and compute again."
        )
    return wanted if wanted in there else there[0]


def _values(found: "CellMap", metric: str, measure: str) -> np.ndarray:
    if "estimate" in found:
        return found["recovered" if measure == "recovered" else "mean_estimate"]
    return found[f"{metric}_recovered"] if measure == "recovered" else effects(found, metric)  # type: ignore[arg-type]


def _grid(context: "Context", found: "CellMap", metric: str) -> tuple[Grid, int]:
    """The map as layers × places, and the position that it is of, where the sweep has three axes."""
    measure, axes, at = str(context.values["measure"]), found.over, 0
    values = _values(found, metric, measure)
    if len(axes) == 3:
        at = context.values["position"] % values.shape[2]
        values, axes = values[:, :, at], axes[:2]
    if len(axes) == 1:
        values, axes = values[None], ("", axes[0])
    layers = found.axes[axes[0]] if axes[0] else ("embedding",)
    steady = axes[0] == "layer" and layers == tuple(range(int(layers[0]), int(layers[0]) + len(layers)))
    kind = "estimated " if "estimate" in found else ""
    shown = "share of the way" if measure == "recovered" else f"{kind}change, {metric.replace('_', ' ')}"
    grid = Grid(
        values=np.asarray(values, dtype=np.float64),
        row="layer",
        column="place",
        rows=[str(layer) for layer in layers],
        columns=found.labels(axes[1]),
        metric=shown,
        row_title=axes[0],
        column_title=_NAMES.get(axes[1], axes[1]),
        row_start=int(layers[0]) if steady else 0,
        signed=True,
        form="+.4f",
    )
    return grid, at


def _index(found: "CellMap", row: int, column: int, at: int) -> tuple[int, ...]:
    return {1: (column,), 2: (row, column), 3: (row, column, at)}[len(found.over)]


def _alt(found: "CellMap", grid: Grid) -> str:
    """What the map shows, and where it is strongest."""
    down, across = grid.values.shape
    head = f"Map of {grid.metric}, {down} × {across} ({grid.row_title or 'embedding'} by {grid.column_title})"
    if not np.isfinite(grid.values).any():
        return f"{head}; no cell has a value, since the two runs hardly differ."
    strongest = np.nanargmax(np.abs(grid.values))
    row, column = (int(place) for place in np.unravel_index(strongest, grid.values.shape))
    return (
        f"{head}; strongest {grid.values[row, column]:+.3f} at {grid.row_title} {grid.rows[row]}, "
        f"{grid.columns[column]}. 0: as without a patch; 1 of the way: as in the other run."
    )


def _place(found: "CellMap", cell: tuple[int, ...]) -> str:
    """Where a cell lies, in words."""
    places = zip(found.over, cell, strict=True)
    return ", ".join(f"{_NAMES.get(axis, axis)} {found.labels(axis)[place].strip()}" for axis, place in places)


def _cell(found: "CellMap", cell: tuple[int, ...]) -> "pandas.DataFrame":
    """One row a metric: both runs, the value with the patch, how much of the way that is, and how sure."""
    import pandas as pd

    if "estimate" in found:
        row = {
            "metric": found.settings["metric"],
            "clean": float(found["clean"].mean()),
            "corrupted": float(found["corrupted"].mean()),
            "estimated change": float(found["mean_estimate"][cell]),
            "estimated share": float(found["recovered"][cell]),
        }
        return pd.DataFrame([row])
    rows = [
        {
            "metric": metric,
            "clean": float(found[f"{metric}_clean"].mean()),
            "corrupted": float(found[f"{metric}_corrupted"].mean()),
            "patched": float(found[metric][cell].mean()),
            "share of the way": float(found[f"{metric}_recovered"][cell]),
            "low": float(found[f"{metric}_low"][cell]),
            "high": float(found[f"{metric}_high"][cell]),
        }
        for metric in map(str, found.settings["metrics"])  # type: ignore[call-overload]
    ]
    return pd.DataFrame(rows)


def _pairs(found: "CellMap", cell: tuple[int, ...], metric: str) -> "pandas.DataFrame":
    """One row a pair, of the metric that is shown."""
    import pandas as pd

    if "estimate" in found:
        columns = {
            "clean": found["clean"],
            "corrupted": found["corrupted"],
            "estimated change": found["estimate"][cell],
        }
    else:
        columns = {
            "clean": found[f"{metric}_clean"],
            "corrupted": found[f"{metric}_corrupted"],
            "patched": found[metric][cell],
            "share of the way": found[f"{metric}_recovered_each"][cell],
        }
    return pd.DataFrame({"pair": list(found.axes["pair"]), **columns})


# ------------------------------------------------------------------------------------------ approximate against exact


def against(context: "Context", exact: "Patching", estimates: "AttributionMap") -> None:
    """Estimates of all cells over what patching them found."""
    import pandas as pd

    from interp.analyses.attribution_patching import agreement
    from interp.plots import estimates_over_exact

    metric = str(estimates.settings["metric"])
    if metric not in exact.settings["metrics"]:  # type: ignore[operator]
        return
    patched, estimated = effects(exact, metric).ravel(), estimates["mean_estimate"].ravel()
    size = max(float(np.abs(estimates[run]).max()) for run in ("clean", "corrupted"))
    close = agreement(estimated, patched, size)
    said = (
        f"All {len(patched):,} cells: Pearson {close['pearson']:.3f}, Spearman {close['spearman']:.3f}, "
        f"same sign {close['sign_agreement']:.0%}, largest miss {close['largest_miss']:.3f}."
    )
    names = [exact.place(row) for row in exact.to_frame().to_dict(orient="records")]
    figure = estimates_over_exact({"cells": (names, patched, estimated)})
    context.plot("agreement", figure, f"Estimates over exact changes of {metric.replace('_', ' ')}. {said}")
    st.caption(f"{said} {estimates.caution}")
    frame = pd.DataFrame({"exact": patched, "estimated": estimated})
    frame.insert(0, "cell", names)
    frame["miss"] = frame["estimated"] - frame["exact"]
    order = frame["miss"].abs().sort_values(ascending=False, kind="stable").index
    with st.expander("The cells that are missed most"):
        context.table("agreement", frame.loc[order].head(20))


def checks(context: "Context", found: "AttributionMap") -> None:
    """The cells of a map of estimates that were patched exactly."""
    import pandas as pd

    from interp.plots import estimates_over_exact

    st.subheader("Approximate against exact", anchor=False)
    points = {}
    for sample, words in SAMPLES.items():
        own = found.checks(sample)
        names = [found.place(row) for row in own.to_dict(orient="records")]
        points[words] = (names, own["exact_effect"].to_numpy(), own["estimated_effect"].to_numpy())
    said = "; ".join(line.strip() for line in found.headline()[2:])
    context.plot(
        "agreement",
        estimates_over_exact(points),
        f"Estimates over exact effects of the cells that were checked. {said}.",
    )
    figures = ("cells_checked", "pearson", "spearman", "sign_agreement", "largest_miss")
    context.table(
        "agreement", pd.DataFrame({"cells": list(SAMPLES.values()), **{name: found[name] for name in figures}})
    )
    with st.expander("The checked cells that are missed most"):
        context.table("misses", found.misses(20))
