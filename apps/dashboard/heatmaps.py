"""A heat map in which a cell can be chosen, by a click or by numbers typed beside it.

Plotly's heat maps have no selection in Streamlit, so transparent square markers lie over the cells: they are what is
hovered and clicked. A big map is summed up before it goes to the browser: each drawn cell stands for a block and shows
the value that is farthest from zero, and a click chooses the cell that it comes from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from interp.apps.dashboard import address, look, pictures
from interp.apps.dashboard.figures import config

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.apps.dashboard.context import Context

MOST_CELLS = 6_000
MOST_TEXTS = 700
MOST_TICKS = 40
ROW_PIXELS = 19


@dataclass(frozen=True)
class Grid:
    """A table [row, column] to be drawn; `row` and `column` are whole-number view parameters that hold the chosen cell.

    `row_start` and `column_start` are the parameters' values at the first row and column. `signed` values get a scale
    around 0 that reaches as far as the farthest value, or as `bounds`; others one between `bounds` (default: 0 and the
    largest); `log` draws the logarithm of what is at least 1.
    `texts` stand in the cells, `details` when hovering. `upwards` puts the first row below. `pictures` [row, column,
    down, across] are drawn in the cells instead of a colour, a cell `row_pixels` high; `bands` of rows are framed.
    """

    values: np.ndarray
    row: str
    column: str
    rows: Sequence[str]
    columns: Sequence[str]
    metric: str
    row_title: str
    column_title: str
    row_start: int = 0
    column_start: int = 0
    signed: bool = False
    log: bool = False
    bounds: tuple[float, float] | None = None
    texts: np.ndarray | None = None
    details: np.ndarray | None = None
    upwards: bool = True
    form: str = ".4f"
    pictures: np.ndarray | None = None
    bands: Sequence[tuple[int, int, str]] = ()
    row_pixels: int = ROW_PIXELS


@dataclass(frozen=True)
class Drawn:
    """The cells that are drawn: values, and the cell [row, column] of the whole table that each comes from."""

    values: np.ndarray
    source_rows: np.ndarray
    source_columns: np.ndarray
    block: tuple[int, int]


def summed_up(values: np.ndarray, most: int = MOST_CELLS) -> Drawn:
    """The table itself where it is small; else blocks, each with the value that is farthest from zero."""
    rows, columns = values.shape
    high, wide = 1, 1
    while -(-rows // high) * -(-columns // wide) > most:
        if columns / wide >= rows / high:
            wide += 1
        else:
            high += 1
    down, across = -(-rows // high), -(-columns // wide)
    padded = np.full((down * high, across * wide), np.nan)
    padded[:rows, :columns] = values
    blocks = padded.reshape(down, high, across, wide).swapaxes(1, 2).reshape(down, across, high * wide)
    strongest = np.where(np.isnan(blocks), -1.0, np.abs(blocks)).argmax(-1)
    chosen = np.take_along_axis(blocks, strongest[..., None], -1)[..., 0]
    source_rows = np.arange(down)[:, None] * high + strongest // wide
    source_columns = np.arange(across)[None] * wide + strongest % wide
    return Drawn(chosen, source_rows, source_columns, (high, wide))


def heatmap(
    context: "Context",
    name: str,
    grid: Grid,
    alt: str,
    beside: Sequence[str] = (),
    at: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Draw the map with its number inputs, unless the cell stands `at` a place already; the chosen cell, from 0."""
    row, column = at or _inputs(context, grid, beside)
    drawn = summed_up(grid.values)
    context.figures[name] = partial(figure, grid, drawn, None, of="light")
    shown = figure(grid, drawn, (row, column), of=look.theme())
    key = f"map.{context.page.key}.{name}"
    with st.container(key=f"figure-{context.page.key}-{name}"):
        st.plotly_chart(
            shown,
            key=key,
            on_select=lambda: _choose(context, grid, key),
            selection_mode="points",
            config=config(f"{context.page.key}.{name}"),
            alt=alt,
            width="stretch",
        )
    if drawn.block != (1, 1):
        high, wide = drawn.block
        st.caption(
            f"{grid.values.size:,} cells, drawn in blocks of {high} × {wide}: each shows its value farthest from zero. "
            "The table and the exports hold every cell."
        )
    st.caption(alt)
    return row, column


def _inputs(context: "Context", grid: Grid, beside: Sequence[str]) -> tuple[int, int]:
    """The number inputs of the chosen cell, other view parameters before them."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for other in beside:
            context.control(other)
        row = _place(context, grid.row, grid.row_start, grid.values.shape[0])
        return row, _place(context, grid.column, grid.column_start, grid.values.shape[1])


def _place(context: "Context", name: str, start: int, count: int) -> int:
    """Where the parameter's value lies on its axis; where that begins at 0, negative values count from the end."""
    from_end = start == 0 and (context.page.parameter(name).low or 0) < 0
    value = int(context.control(name, -count if from_end else start, start + count - 1))
    return value + count if start == 0 and value < 0 else value - start


def _choose(context: "Context", grid: Grid, key: str) -> None:
    """A cell was clicked: its row and column become the values of their parameters, before the page runs again."""
    points = st.session_state[key].selection.points
    place = points[0].get("customdata") if points else None
    if place is not None:
        address.assign(context.page, grid.row, int(place[0]) + grid.row_start)
        address.assign(context.page, grid.column, int(place[1]) + grid.column_start)


# ---------------------------------------------------------------------------------------------------------- drawing


def figure(grid: Grid, drawn: Drawn, chosen: tuple[int, int] | None, *, of: str) -> "Figure":
    """The map for the theme `of`, its markers, and a frame around the chosen cell."""
    import pandas  # noqa: F401  plotly reads of it whatever is loaded, and fails while a job's thread loads it
    from plotly.graph_objects import Figure

    small = drawn.values.size <= MOST_TEXTS and drawn.block == (1, 1)
    small_maps = grid.pictures if drawn.block == (1, 1) else None
    cells = _cells(grid, drawn, of, small) if small_maps is None else pictures.trace(grid, small_maps, of)
    made = Figure([cells, _markers(grid, drawn)])
    down, across = drawn.values.shape
    made.update_layout(
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        height=110 + grid.row_pixels * min(max(down, 6), 44),
        hovermode="closest",
        hoverdistance=-1,
        dragmode=False,
        clickmode="event+select",
        showlegend=False,
        plot_bgcolor="rgba(0,0,0,0)",
    )
    high, wide = drawn.block
    made.update_xaxes(**_ticks(grid.columns, wide, across), title_text=grid.column_title, tickangle=-45)
    made.update_yaxes(**_ticks(grid.rows, high, down), title_text=grid.row_title)
    made.update_xaxes(range=[-0.5, across - 0.5])
    made.update_yaxes(range=[-0.5, down - 0.5] if grid.upwards else [down - 0.5, -0.5])
    if small_maps is not None or grid.bands:
        pictures.part(made, down, across, grid.bands, of)
    if chosen is not None:
        made.add_shape(**_frame(chosen[0] // high, chosen[1] // wide, look.OUTLINE[of]))
    return made


def _frame(row: int, column: int, colour: str) -> dict[str, Any]:
    edges = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", **edges, "line": {"color": colour, "width": 2}}


def _ticks(labels: Sequence[str], step: int, count: int) -> dict[str, Any]:
    from interp.plots import visible

    every = max(1, -(-count // MOST_TICKS))
    places = list(range(0, count, every))
    texts = [visible(str(labels[place * step]), 14) for place in places]
    return {"tickmode": "array", "tickvals": places, "ticktext": texts, "automargin": True, "showgrid": False,
            "zeroline": False}  # fmt: skip


def _cells(grid: Grid, drawn: Drawn, of: str, with_texts: bool) -> Any:
    from plotly.graph_objects import Heatmap

    from interp.plots import visible

    texts = None
    if with_texts and grid.texts is not None:
        texts = [[visible(str(word), 9) for word in line] for line in grid.texts]
    shown = np.log10(np.maximum(drawn.values, 1)) if grid.log else drawn.values
    return Heatmap(
        z=shown,
        text=texts,
        texttemplate="%{text}" if texts else None,
        textfont={"size": 10},
        hoverinfo="skip",
        xgap=1 if with_texts else 0,
        ygap=1 if with_texts else 0,
        colorscale=look.scale(grid.signed, of),
        colorbar=_bar(grid, shown),
        **_range(grid, shown),
    )


def _range(grid: Grid, shown: np.ndarray) -> dict[str, float]:
    finite = shown[np.isfinite(shown)]
    if grid.signed:
        reach = float(np.abs(finite if grid.bounds is None else grid.bounds).max(initial=0.0)) or 1.0
        return {"zmin": -reach, "zmax": reach, "zmid": 0.0}
    low, high = grid.bounds or (0.0, float(finite.max(initial=0.0)) or 1.0)
    return {"zmin": low, "zmax": high}


def _bar(grid: Grid, shown: np.ndarray) -> dict[str, Any]:
    bar: dict[str, Any] = {"title": {"text": grid.metric, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    if grid.log:
        powers = list(range(int(np.nanmax(shown, initial=0)) + 1))
        bar |= {"tickvals": powers, "ticktext": [f"{10**power:,}" for power in powers]}
    return bar


def _markers(grid: Grid, drawn: Drawn) -> Any:
    """Transparent squares over the cells, so that there is something to hover over and to click."""
    from plotly.graph_objects import Scatter

    down, across = drawn.values.shape
    places = [(row, column) for row in range(down) for column in range(across)]
    sources = [(int(drawn.source_rows[place]), int(drawn.source_columns[place])) for place in places]
    return Scatter(
        x=[column for _, column in places],
        y=[row for row, _ in places],
        mode="markers",
        marker={"symbol": "square", "size": 14, "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=sources,
        text=[_words(grid, source) for source in sources],
        hovertemplate="%{text}<extra></extra>",
    )


def _words(grid: Grid, cell: tuple[int, int]) -> str:
    from interp.plots import visible

    row, column = cell
    lines = [f"{grid.row_title} {visible(str(grid.rows[row]))}, {visible(str(grid.columns[column]))}"]
    value = float(grid.values[cell])
    lines.append(f"{grid.metric} {'has no value' if value != value else format(value, grid.form)}")
    if grid.details is not None:
        lines.append(visible(str(grid.details[cell])))
    return "<br>".join(lines)
