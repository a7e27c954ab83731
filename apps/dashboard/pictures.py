"""Small pictures in the cells of a heat map: a map of maps, drawn as one.

Values are drawn by their square root, so that weak ones can be told from none beside strong ones, and sent as whole
numbers of one byte: the pictures of some hundred heads stay below 300 kB. The numbers themselves stand in tables.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.apps.dashboard import look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.apps.dashboard.heatmaps import Grid

LEVELS = 127
SHARES = (0.0, 0.05, 0.25, 0.5, 1.0)


def trace(grid: "Grid", pictures: np.ndarray, of: str) -> Any:
    """All pictures [row, column, down, across] as one heat map in which the cell (r, c) reaches from r − ½ to r + ½."""
    from plotly.graph_objects import Heatmap

    rows, columns, down, across = pictures.shape
    reach = float(np.abs(pictures).max(initial=0.0)) or 1.0
    levels = np.sign(pictures) * np.sqrt(np.abs(pictures) / reach) * LEVELS
    whole = levels.swapaxes(1, 2).reshape(rows * down, columns * across)
    return Heatmap(
        z=np.round(whole).astype(np.int8),
        x0=-0.5 + 0.5 / across,
        dx=1 / across,
        y0=-0.5 + 0.5 / down,
        dy=1 / down,
        hoverinfo="skip",
        colorscale=look.scale(grid.signed, of),
        zmin=-LEVELS if grid.signed else 0,
        zmax=LEVELS,
        colorbar=_bar(grid, reach),
    )


def _bar(grid: "Grid", reach: float) -> dict[str, Any]:
    """Ticks that say what the levels stand for."""
    shares = [*(-share for share in SHARES[:0:-1]), *SHARES] if grid.signed else list(SHARES)
    return {
        "title": {"text": grid.metric, "side": "right"},
        "thickness": 12,
        "outlinewidth": 0,
        "tickvals": [float(np.sign(share) * np.sqrt(abs(share)) * LEVELS) for share in shares],
        "ticktext": [f"{share * reach:.2g}" for share in shares],
    }


def part(figure: "Figure", rows: int, columns: int, bands: Sequence[tuple[int, int, str]], of: str) -> None:
    """Thin lines between the pictures, and a frame around each band of rows: (first, last, name)."""
    thin = {"color": "rgba(128,128,128,.45)", "width": 0.6}
    x, y = {"x0": -0.5, "x1": columns - 0.5}, {"y0": -0.5, "y1": rows - 0.5}
    across = [{"type": "line", **x, "y0": row - 0.5, "y1": row - 0.5, "line": thin} for row in range(1, rows)]
    down = [{"type": "line", **y, "x0": each - 0.5, "x1": each - 0.5, "line": thin} for each in range(1, columns)]
    edge = {"color": look.BAND[of], "width": 1.6}
    frames = [{"type": "rect", **x, "y0": low - 0.5, "y1": high + 0.5, "line": edge} for low, high, _ in bands]
    side = {"x": columns - 0.5, "textangle": 90, "showarrow": False, "xanchor": "left", "font": {"size": 11}}
    names = [{"y": (low + high) / 2, "text": name, **side} for low, high, name in bands]
    figure.update_layout(shapes=[*across, *down, *frames], annotations=names)
