"""Pictures of weights: the spectra of a head's matrices. Values in, figure out, as in `plots`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from interp.plots import SERIES_COLOURS, Numbers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter


def spectra(singular: Mapping[str, Numbers], eigenvalues: tuple[Numbers, Numbers], *, title: str) -> "Figure":
    """Singular values of some matrices, the first on the left, and beside them eigenvalues in the complex plane.

    `eigenvalues` are real and imaginary parts. What lies right of the dotted line comes out as it went in, what lies
    left of it with the opposite sign.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(cols=2, horizontal_spacing=0.14)
    for index, (name, values) in enumerate(singular.items()):
        numbers = np.asarray(values, dtype=np.float64)
        line = _dots(np.arange(len(numbers)), numbers, name, index, mode="lines+markers")
        figure.add_trace(line, row=1, col=1)
    real, imaginary = (np.asarray(part, dtype=np.float64) for part in eigenvalues)
    figure.add_trace(_dots(real, imaginary, "eigenvalues", len(singular), mode="markers"), row=1, col=2)
    figure.add_vline(x=0, line_dash="dot", line_color="#7a7a7a", row=1, col=2)
    figure.update_xaxes(title_text="direction", row=1, col=1).update_yaxes(title_text="singular value", row=1, col=1)
    figure.update_xaxes(title_text="real part", row=1, col=2).update_yaxes(title_text="imaginary part", row=1, col=2)
    figure.update_layout(title={"text": title, "x": 0.02, "xanchor": "left"}, template="plotly_white")
    return figure.update_layout(height=420, width=960, margin={"l": 90, "r": 30, "t": 70, "b": 80})


def _dots(x: np.ndarray, y: np.ndarray, name: str, colour: int, mode: str) -> "Scatter":
    from plotly.graph_objects import Scatter

    marker = {"color": SERIES_COLOURS[colour % len(SERIES_COLOURS)], "size": 5}
    hover = f"{name}<br>%{{x:.4g}}, %{{y:.4g}}<extra></extra>"
    return Scatter(x=x, y=y, name=name, mode=mode, marker=marker, hovertemplate=hover)
