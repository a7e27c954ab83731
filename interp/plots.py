"""One function, one plotly figure. Values in, figure out: nothing here knows an analysis or a model.

Signed values get a diverging scale around 0, probabilities a sequential one from 0 to 1. Tokens are labelled by
position, so that a token that occurs twice stays in two places, and their text is escaped, so that markers such as
`<|im_end|>` are shown and not taken for markup.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import UsageError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Heatmap

SIGNED = "RdBu_r"
SEQUENTIAL = "Blues"
SERIES_COLOURS = ("#1f5fa8", "#d9822b", "#3a9a5b", "#9a4fb0", "#7a7a7a", "#c23b4e", "#2aa5a0", "#8a6d3b")
MOST_CELL_TEXTS = 1_500
MOST_TICKS = 60
LETTERS = 16  # of a label of a row or column
PANEL_GAP = 42  # pixels between stacked panels: the name of the next one

Labels = Sequence[str | int]
Numbers = np.ndarray | Sequence[float]


def visible(token: str, width: int | None = None) -> str:
    """A token as a label: leading space and line breaks made visible, cut to `width` characters, escaped for plotly."""
    shown = token.replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")
    shown = f"·{shown[1:]}" if shown.startswith(" ") else shown
    if width is not None and len(shown) > width:
        shown = shown[: width - 1] + "…"
    return escape(shown, quote=False) or "∅"


def _matrix(values: object, what: str) -> np.ndarray:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise UsageError(
            f"{what} needs a table of two axes with at least one cell, and got shape {list(matrix.shape)}."
        )
    return matrix


def _colours(matrix: np.ndarray, signed: bool | None, bounds: tuple[float, float] | None) -> dict[str, Any]:
    """Scale and range. `signed=None`: diverging if any value is negative."""
    finite = matrix[np.isfinite(matrix)]
    if signed or (signed is None and finite.size and finite.min() < 0):
        reach = max(abs(bound) for bound in bounds) if bounds else float(np.abs(finite).max(initial=0.0))
        reach = reach or 1.0
        return {"colorscale": SIGNED, "zmin": -reach, "zmax": reach, "zmid": 0.0}
    low, high = bounds or (0.0, float(finite.max(initial=0.0)) or 1.0)
    return {"colorscale": SEQUENTIAL, "zmin": low, "zmax": high}


def _ticks(labels: Labels) -> dict[str, Any]:
    step = max(1, -(-len(labels) // MOST_TICKS))
    places = list(range(0, len(labels), step))
    return {"tickmode": "array", "tickvals": places, "ticktext": [str(labels[place]) for place in places]}


def _titled(figure: "Figure", title: str, x: str, y: str, **layout: object) -> "Figure":
    figure.update_layout(
        title={"text": title, "x": 0.02, "xanchor": "left"},
        template="plotly_white",
        margin={"l": 90, "r": 30, "t": 70, "b": 80},
        **layout,
    )
    figure.update_xaxes(title_text=x, showgrid=False, zeroline=False)
    figure.update_yaxes(title_text=y, showgrid=False, zeroline=False)
    return figure


def head_heatmap(
    values: Numbers,
    *,
    title: str,
    metric: str,
    layers: Labels | None = None,
    signed: bool | None = None,
    bounds: tuple[float, float] | None = None,
) -> "Figure":
    """A [layer, head] table as colours, layer 0 at the bottom; hovering names the head as layer.head."""
    from plotly.graph_objects import Figure, Heatmap

    matrix = _matrix(values, "A heat map of heads")
    names = list(range(matrix.shape[0])) if layers is None else list(layers)
    heads = [[f"{name}.{head}" for head in range(matrix.shape[1])] for name in names]
    heatmap = Heatmap(
        z=matrix,
        customdata=heads,
        hovertemplate=f"head %{{customdata}}<br>{metric} %{{z:.4f}}<extra></extra>",
        colorbar={"title": {"text": metric}},
        xgap=1,
        ygap=1,
        **_colours(matrix, signed, bounds),
    )
    size = {"height": 190 + 16 * matrix.shape[0], "width": 260 + 40 * matrix.shape[1]}
    figure = _titled(Figure(heatmap), title, "head", "layer", **size)
    return figure.update_xaxes(**_ticks(range(matrix.shape[1]))).update_yaxes(**_ticks(names))


def lens_heatmap(
    values: Numbers,
    text: object,
    *,
    title: str,
    metric: str,
    layers: Labels,
    tokens: Sequence[str],
    bounds: tuple[float, float] | None = (0.0, 1.0),
    positions: Sequence[int] | None = None,
) -> "Figure":
    """A [layer, position] table as colours with a token in each cell; the residual stream flows upwards.

    `text` holds the token strings, [layer, position]. Big tables show them on hovering only.
    """
    from plotly.graph_objects import Figure, Heatmap

    matrix = _matrix(values, "A lens table")
    words = np.asarray(text, dtype=object).reshape(matrix.shape)
    where = range(matrix.shape[1]) if positions is None else positions
    hover = [
        [
            f"after {escape(str(layer))}, position {place} {visible(token)}<br>top {visible(word)}"
            for place, token, word in zip(where, tokens, row, strict=True)
        ]
        for layer, row in zip(layers, words, strict=True)
    ]
    heatmap = Heatmap(
        z=matrix,
        text=[[visible(word, 11) for word in row] for row in words],
        texttemplate="%{text}" if matrix.size <= MOST_CELL_TEXTS else None,
        textfont={"size": 10},
        customdata=hover,
        hovertemplate=f"%{{customdata}}<br>{metric} %{{z:.4f}}<extra></extra>",
        colorbar={"title": {"text": metric}},
        xgap=1,
        ygap=1,
        **_colours(matrix, None, bounds),
    )
    size = {"height": 190 + 19 * matrix.shape[0], "width": 240 + min(76 * matrix.shape[1], 1400)}
    figure = _titled(Figure(heatmap), title, "position (token read)", "layer", **size)
    labels = [f"{visible(token, 12)} {place}" for place, token in zip(where, tokens, strict=True)]
    return figure.update_xaxes(**_ticks(labels), tickangle=-45).update_yaxes(**_ticks(layers))


def ranked_bars(
    labels: Labels,
    series: Mapping[str, Numbers],
    *,
    title: str,
    metric: str,
    label: str = "head",
    errors: Mapping[str, Numbers] | None = None,
    baseline: tuple[str, float] | None = None,
) -> "Figure":
    """Horizontal bars in the order given, the first on top, one bar of a colour for each series of values.

    `errors` are standard errors by series name, or [2, label]: how far an interval reaches down and up; `baseline`
    draws a dotted line at a named value.
    """
    from plotly.graph_objects import Bar, Figure

    names = [str(name) for name in labels]
    figure = Figure()
    for index, (name, values) in enumerate(series.items()):
        spread = (errors or {}).get(name)
        bar = Bar(
            y=list(range(len(names))),
            x=np.asarray(values, dtype=np.float64),
            name=name,
            orientation="h",
            marker={"color": SERIES_COLOURS[index % len(SERIES_COLOURS)]},
            error_x=None if spread is None else _whiskers(spread),
            customdata=names,
            hovertemplate=f"{label} %{{customdata}}<br>{name} %{{x:.4f}}<extra></extra>",
        )
        figure.add_trace(bar)
    if baseline is not None:
        figure.add_vline(x=baseline[1], line_dash="dot", annotation_text=baseline[0], annotation_position="top")
    height = 170 + len(names) * (14 + 9 * len(series))
    _titled(figure, title, metric, label, barmode="group", height=height, width=820, showlegend=len(series) > 1)
    ticks = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names}
    return figure.update_yaxes(autorange="reversed", **ticks)


def _whiskers(spread: Numbers) -> dict[str, object]:
    """Error bars: the same to both sides, or two rows, downwards and upwards."""
    values = np.asarray(spread, dtype=np.float64)
    down, up = (values, values) if values.ndim == 1 else values
    return {"type": "data", "array": up, "arrayminus": down, "symmetric": values.ndim == 1}


def _along(x: Labels, series: Mapping[str, Numbers], x_title: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Colour, values, name and hover text of each series over labelled steps."""
    for index, (name, values) in enumerate(series.items()):
        yield (
            SERIES_COLOURS[index % len(SERIES_COLOURS)],
            {
                "x": list(range(len(x))),
                "y": np.asarray(values, dtype=np.float64),
                "name": visible(name),
                "customdata": [str(step) for step in x],
                "hovertemplate": f"{x_title} %{{customdata}}<br>{visible(name)} %{{y:.4f}}<extra></extra>",
            },
        )


def curves(
    x: Labels,
    series: Mapping[str, Numbers],
    *,
    title: str,
    x_title: str,
    y_title: str,
    bounds: tuple[float, float] | None = None,
) -> "Figure":
    """Lines over labelled steps (layers, positions), one for each series; NaNs leave gaps."""
    from plotly.graph_objects import Figure, Scatter

    mode = "lines+markers" if len(x) <= 60 else "lines"
    lines = [Scatter(mode=mode, line={"color": colour}, **told) for colour, told in _along(x, series, x_title)]
    figure = _titled(Figure(lines), title, x_title, y_title, height=420, width=860, showlegend=len(series) > 1)
    figure.update_xaxes(**_ticks(x))
    return figure.update_yaxes(range=list(bounds) if bounds else None, showgrid=True)


def grouped_bars(x: Labels, series: Mapping[str, Numbers], *, title: str, x_title: str, y_title: str) -> "Figure":
    """Bars side by side at labelled steps (layers), one colour for each series."""
    from plotly.graph_objects import Bar, Figure

    bars = [Bar(marker={"color": colour}, **told) for colour, told in _along(x, series, x_title)]
    figure = _titled(Figure(bars), title, x_title, y_title, height=420, width=860, showlegend=len(series) > 1)
    figure.update_layout(barmode="group", bargap=0.2, bargroupgap=0)
    figure.update_xaxes(**_ticks(x))
    return figure.update_yaxes(showgrid=True, zeroline=True)


def attention_pattern(pattern: Numbers, tokens: Sequence[str], *, title: str) -> "Figure":
    """One head's [query, key] pattern, queries downwards. Where a head looks is not yet what it does."""
    from plotly.graph_objects import Figure, Heatmap

    matrix = _matrix(pattern, "An attention pattern")
    if matrix.shape != (len(tokens), len(tokens)):
        raise UsageError(
            f"A pattern of shape {list(matrix.shape)} came with {len(tokens)} tokens: "
            "expected one row and one column a token."
        )
    labels = [f"{visible(token, 12)} {place}" for place, token in enumerate(tokens)]
    heatmap = Heatmap(
        z=matrix,
        customdata=[[f"{query} → {key}" for key in labels] for query in labels],
        hovertemplate="%{customdata}<br>attention %{z:.4f}<extra></extra>",
        colorbar={"title": {"text": "attention"}},
        **_colours(matrix, False, (0.0, 1.0)),
    )
    side = min(260 + 26 * len(tokens), 900)
    figure = _titled(Figure(heatmap), title, "key (looked at)", "query (looking)", height=side, width=side + 60)
    figure.update_xaxes(**_ticks(labels), tickangle=-45)
    return figure.update_yaxes(**_ticks(labels), autorange="reversed", scaleanchor="x")


def effect_heatmap(
    values: Numbers,
    *,
    title: str,
    metric: str,
    x: str,
    y: str,
    columns: Labels,
    rows: Labels,
    upwards: bool = True,
    letters: int = LETTERS,
) -> "Figure":
    """A table of signed effects as colours around 0; what has no value stays blank.

    `upwards`: the first row below. `letters`: how many are shown of a row's label.
    """
    from plotly.graph_objects import Figure, Heatmap

    matrix = _matrix(values, "A table of effects")
    down = [visible(str(label), letters) for label in rows]
    across = [visible(str(label), LETTERS) for label in columns]
    heatmap = Heatmap(
        z=matrix,
        customdata=[[f"{y} {row}, {x} {column}" for column in across] for row in down],
        hovertemplate=f"%{{customdata}}<br>{metric} %{{z:.4f}}<extra></extra>",
        colorbar={"title": {"text": metric}},
        xgap=1,
        ygap=1,
        **_colours(matrix, True, None),
    )
    size = {"height": 190 + 16 * min(len(down), MOST_TICKS), "width": 260 + 40 * min(max(len(across), 8), 30)}
    size["width"] += 6 * max(0, max(map(len, down)) - LETTERS)
    figure = _titled(Figure(heatmap), escape(title, quote=False), x, y, **size)
    figure.update_xaxes(**_ticks(across), tickangle=-45 if max(map(len, across)) > 3 else 0)
    return figure.update_yaxes(**_ticks(down), autorange=True if upwards else "reversed")


def beside_check(heatmap: "Figure", points: Mapping[str, tuple[Labels, Numbers, Numbers]]) -> "Figure":
    """A heat map, and to its right estimates over exact values: (names, exact, estimated) of each series.

    The dotted line is where an estimate is right.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(cols=2, column_widths=[0.6, 0.4], horizontal_spacing=0.2)
    figure.add_trace(heatmap.data[0].update(colorbar_x=0.5), row=1, col=1)
    figure.update_layout(title=heatmap.layout.title, template="plotly_white", margin=heatmap.layout.margin)
    figure.update_layout(height=max(heatmap.layout.height, 420), width=heatmap.layout.width + 480)
    figure.update_xaxes(heatmap.layout.xaxis.to_plotly_json(), row=1, col=1)
    figure.update_yaxes(heatmap.layout.yaxis.to_plotly_json(), row=1, col=1)
    for trace in estimates_over_exact(points).data:
        figure.add_trace(trace, row=1, col=2)
    figure.update_xaxes(title_text="exact effect", row=1, col=2)
    return figure.update_yaxes(title_text="estimated effect", row=1, col=2)


def estimates_over_exact(points: Mapping[str, tuple[Labels, Numbers, Numbers]]) -> "Figure":
    """Estimates over exact values, (names, exact, estimated) a series; on the dotted line an estimate is right."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for index, (name, (labels, exact, estimated)) in enumerate(points.items()):
        dots = Scatter(
            x=np.asarray(exact, dtype=np.float64),
            y=np.asarray(estimated, dtype=np.float64),
            name=name,
            mode="markers",
            marker={"color": SERIES_COLOURS[index % len(SERIES_COLOURS)]},
            customdata=[str(label) for label in labels],
            hovertemplate="%{customdata}<br>exact %{x:.4f}<br>estimated %{y:.4f}<extra></extra>",
        )
        figure.add_trace(dots)
    everything = np.concatenate(
        [np.asarray(values, dtype=np.float64) for _, *both in points.values() for values in both]
    )
    ends = [float(everything.min(initial=0.0)), float(everything.max(initial=0.0))]
    right = Scatter(x=ends, y=ends, mode="lines", line={"dash": "dot", "color": "#7a7a7a"}, showlegend=False)
    figure.add_trace(right)
    return _titled(figure, "", "exact effect", "estimated effect", height=420, showlegend=len(points) > 1)


def trace_heatmaps(
    panels: Mapping[str, Numbers],
    *,
    title: str,
    metric: str,
    tokens: Sequence[str],
    layers: Labels | None = None,
    roles: bool = False,
) -> "Figure":
    """[position, layer] tables stacked under their names, the first token on top; one scale of colours for all.

    With `roles`, rows are roles of tokens in place of tokens: their names stand whole, and they have no position. A
    negative value anywhere makes the scale part at zero. Raises `UsageError` where a table has not one row a token,
    and where there is none.
    """
    from plotly.subplots import make_subplots

    tables = _alike(panels, len(tokens))
    names = list(range(next(iter(tables.values())).shape[1])) if layers is None else list(layers)
    labels = [visible(token) if roles else _starred(token) for token in tokens]
    tall = 18 * min(len(tokens), MOST_TICKS) + 12
    figure = make_subplots(
        rows=len(tables),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=PANEL_GAP / (len(tables) * (tall + PANEL_GAP)),
        subplot_titles=[escape(name, quote=False) for name in tables],
    )
    rows = labels if roles else [f"{label} (position {place})" for place, label in enumerate(labels)]
    for row, heatmap in enumerate(_trace_panels(tables, metric, rows, names), start=1):
        figure.add_trace(heatmap, row=row, col=1)
    height = 130 + len(tables) * (tall + PANEL_GAP)
    _titled(figure, escape(title, quote=False), "", "", height=height, width=220 + 20 * max(len(names), 20))
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_xaxes(title_text="layer", row=len(tables)).update_xaxes(**_ticks(names), tickangle=0)
    return figure.update_yaxes(**_ticks(labels), autorange="reversed")


def _alike(panels: Mapping[str, Numbers], rows: int) -> dict[str, np.ndarray]:
    """The tables by name, all of one shape."""
    tables = {name: _matrix(values, f"The panel {name!r}") for name, values in panels.items()}
    shapes = {table.shape for table in tables.values()}
    if len(shapes) != 1 or next(iter(shapes))[0] != rows:
        raise UsageError(
            f"Panels of shapes {sorted(map(list, shapes))} came with {rows} tokens: expected at least one panel, "
            "all of one shape, with one row a token."
        )
    return tables


def _starred(token: str) -> str:
    """A token as a label; a star at its end, by which some are marked, survives the cut."""
    marked = len(token) > 1 and token.endswith("*")
    return visible(token.removesuffix("*"), 14) + "*" if marked else visible(token, 14)


def _trace_panels(
    tables: Mapping[str, np.ndarray], metric: str, rows: Sequence[str], layers: Labels
) -> "list[Heatmap]":
    """Heat maps that share their colours; the first one brings the scale."""
    from plotly.graph_objects import Heatmap

    colours = _colours(np.concatenate(list(tables.values())), None, None)
    cells = [[f"{row}, layer {layer}" for layer in layers] for row in rows]
    return [
        Heatmap(
            z=table,
            customdata=cells,
            name=escape(name, quote=False),
            hovertemplate=f"%{{customdata}}<br>{metric} %{{z:.4f}}<extra></extra>",
            colorbar={"title": {"text": metric}},
            showscale=place == 0,
            xgap=1,
            ygap=1,
            **colours,
        )
        for place, (name, table) in enumerate(tables.items())
    ]
