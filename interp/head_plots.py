"""The map of a model's heads by what they do. Values in, figure out, as in `interp.plots`.

A role is a colour, and how strong it is a shade of it. Most colours are those of Okabe and Ito (2008), which stay apart
for colour-blind eyes; the first letters of the role stand in the cell too. What is no activity is grey.
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from interp.errors import UsageError
from interp.plots import Labels, Numbers, head_heatmap

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Heatmap, Scatter

ROLE_COLOURS = ("#D55E00", "#0072B2", "#DDC20A", "#009E73", "#8C6D1F", "#56B4E9", "#CC79A7", "#5B3A9E")
GREYS = ("#C6C6C6", "#F2F2F2")
PALEST = 0.25  # how much of its colour a role of no strength has: a cell is never taken for an empty one
CELL = 44  # pixels: three letters and some room


def role_map(
    roles: np.ndarray,
    strength: Numbers,
    *,
    title: str,
    active: Sequence[str],
    idle: Sequence[str] = (),
    details: Mapping[tuple[int, int], Sequence[str]] | None = None,
    layers: Labels | None = None,
    groups: Sequence[int] | np.ndarray | None = None,
) -> "Figure":
    """A [layer, head] table of role names as colours, layer 0 at the bottom; hovering shows `details` of each cell.

    `active` roles get the colours, in their order whether they occur or not, `idle` ones greys and no letters.
    `groups` [head] says which heads belong together; lines part the groups. Raises `UsageError` for a role that is in
    neither list, and for more roles than there are colours.
    """
    colours = _role_colours(active, idle)
    if unknown := sorted(set(roles.flat) - set(colours)):
        raise UsageError(f"The role {unknown[0]!r} has no colour: expected one of {', '.join(colours)}.")
    figure = head_heatmap(strength, title=title, metric="strength", layers=layers, signed=False, bounds=(0.0, 1.0))
    texts = _hover(roles, figure.data[0].customdata, details or {})
    shown = [role for role in colours if (roles == role).any()]
    traces = [_cells(role, roles, np.asarray(strength), texts, colours[role], role in active) for role in shown]
    figure.data = []
    figure.add_traces([*traces, *(_key(role, colours[role]) for role in shown), _shades()])
    figure.update_layout(width=330 + CELL * roles.shape[1], height=230 + 16 * roles.shape[0], plot_bgcolor="white")
    figure.update_layout(legend={"x": 1.02, "y": 1.0, "title": {"text": "role"}}, margin={"t": 96, "r": 150})
    if groups is not None:
        _part_groups(figure, list(groups))
    return figure


def role_scatter(
    x: np.ndarray,
    y: np.ndarray,
    roles: np.ndarray,
    *,
    kept: np.ndarray,
    active: Sequence[str],
    idle: Sequence[str] = (),
    x_title: str,
    y_title: str,
) -> "Figure":
    """One [layer, head] score against another, a head a dot in the colour of its role; those not `kept` are faint.

    Dots carry (layer, head), and hovering names them.
    """
    from plotly.graph_objects import Figure, Scatter

    figure, colours = Figure(), _role_colours(active, idle)
    for role in (role for role in reversed(colours) if (roles == role).any()):
        layers, heads = np.nonzero(roles == role)
        dots = Scatter(
            x=x[layers, heads],
            y=y[layers, heads],
            mode="markers",
            name=role,
            marker={"color": colours[role], "size": 9, "opacity": np.where(kept[layers, heads], 0.95, 0.2)},
            customdata=np.stack([layers, heads], -1).tolist(),
            hovertemplate=f"head %{{customdata[0]}}.%{{customdata[1]}}: {escape(role)}<br>{x_title} %{{x:.3f}}"
            f"<br>{y_title} %{{y:.3f}}<extra></extra>",
        )
        figure.add_trace(dots)
    figure.update_layout(template="plotly_white", height=420, legend={"title": {"text": "role"}})
    return figure.update_xaxes(title_text=x_title).update_yaxes(title_text=y_title)


def _role_colours(active: Sequence[str], idle: Sequence[str]) -> dict[str, str]:
    if len(active) > len(ROLE_COLOURS) or len(idle) > len(GREYS):
        raise UsageError(
            f"{len(active)} roles and {len(idle)} idle ones came: there are colours for {len(ROLE_COLOURS)} and greys "
            f"for {len(GREYS)}."
        )
    return dict(zip((*active, *idle), (*ROLE_COLOURS[: len(active)], *GREYS), strict=False))


def _hover(
    roles: np.ndarray, names: Sequence[Sequence[str]], details: Mapping[tuple[int, int], Sequence[str]]
) -> list[list[str]]:
    """What hovering says of every head: its name, its role, and its details line by line."""
    return [
        [
            "<br>".join([f"<b>head {name}: {escape(str(roles[row, column]))}</b>", *details.get((row, column), ())])
            for column, name in enumerate(line)
        ]
        for row, line in enumerate(names)
    ]


def _cells(
    role: str, roles: np.ndarray, strength: np.ndarray, texts: list[list[str]], colour: str, lettered: bool
) -> "Heatmap":
    """The cells of one role; all others stay open."""
    from plotly.graph_objects import Heatmap

    return Heatmap(
        z=np.where(roles == role, np.clip(strength, 0, 1), np.nan),
        text=np.where(roles == role, role[:3], ""),
        texttemplate="%{text}" if lettered else None,
        textfont={"size": 10},
        customdata=texts,
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        name=role,
        colorscale=[[0, _mixed(colour)], [1, colour]] if lettered else [[0, colour], [1, colour]],
        zmin=0,
        zmax=1,
        showscale=False,
        xgap=1,
        ygap=1,
    )


def _mixed(colour: str) -> str:
    """The palest shade of a colour."""
    channels = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - PALEST * (255 - channel)):02x}" for channel in channels)


def _key(role: str, colour: str) -> "Scatter":
    """A square for the legend."""
    from plotly.graph_objects import Scatter

    square = {"symbol": "square", "size": 13, "color": colour}
    return Scatter(x=[None], y=[None], mode="markers", marker=square, name=role, showlegend=True)


def _shades() -> "Scatter":
    """The scale of shades, drawn in greys: it holds for every colour."""
    from plotly.graph_objects import Scatter

    bar = {"title": {"text": "strength"}, "len": 0.35, "y": 0.0, "yanchor": "bottom", "x": 1.03, "thickness": 14}
    scale = [[0, _mixed("#555555")], [1, "#555555"]]
    marker = {"color": [0], "cmin": 0, "cmax": 1, "colorscale": scale, "showscale": True, "colorbar": bar}
    return Scatter(x=[None], y=[None], mode="markers", marker=marker, showlegend=False, hoverinfo="skip")


def _part_groups(figure: "Figure", groups: Sequence[int]) -> None:
    """Lines between heads of different groups, and the groups' names above; none where every head has its own."""
    if len(set(groups)) == len(groups):
        return
    for head, (left, right) in enumerate(pairwise(groups)):
        if left != right:
            figure.add_vline(x=head + 0.5, line_width=1.5, line_color="#333")
    for group in dict.fromkeys(groups):
        heads = [head for head, of_head in enumerate(groups) if of_head == group]
        middle = (heads[0] + heads[-1]) / 2
        figure.add_annotation(x=middle, y=1.0, yref="paper", yanchor="bottom", text=f"KV {group}", showarrow=False)
