"""The demo's figures: those of the analyses, and two that compare."""

from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.components import named
from interp.analyses.head_ablation import TOGETHER
from interp.apps.demo.questions import InductionFinding, LensFinding
from interp.plots import attention_pattern, curves, head_heatmap, lens_heatmap

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.analyses.tracing import CausalTrace

TOP_LEFT = {"x": 0.02, "y": 0.98, "yanchor": "top"}
TOP_RIGHT = {"x": 0.98, "xanchor": "right", "y": 0.98, "yanchor": "top"}


def few_ticks(labels: list[str]) -> dict[str, object]:
    """Ticks at both ends, and at every fifth number that is not too near to them."""
    last = len(labels) - 1
    inner = [place for place in range(2, last - 1) if labels[place].isdigit() and int(labels[place]) % 5 == 0]
    places = [0, *inner, last]
    return {"tickmode": "array", "tickvals": places, "ticktext": [labels[place] for place in places], "tickangle": 0}


def answer_curves(finding: LensFinding) -> "go.Figure":
    """Probability by layer of the answer, its rival, and the answer under the other prefix."""
    sentence, asked, other = finding.sentence, finding.result.settings["prefix"], finding.compared.settings["prefix"]
    series = {f"{sentence.answer}, prefix {asked}": finding.at_end("answer_probability", sentence.answer)}
    if sentence.rival is not None:
        series[f"{sentence.rival}, prefix {asked}"] = finding.at_end("answer_probability", sentence.rival)
    series[f"{sentence.answer}, prefix {other}"] = finding.compared_at_end("answer_probability", sentence.answer)
    figure = curves(finding.layers, series, title="", x_title="after layer", y_title="probability", bounds=(0.0, 1.02))
    figure.data[-1].line.dash = "dot"
    figure.update_xaxes(**few_ticks(finding.layers))
    return figure.update_layout(height=360, legend=TOP_LEFT, yaxis_tickformat=".0%")


def lens_cells(finding: LensFinding) -> "go.Figure":
    """The likeliest token of every cell."""
    result = finding.result
    figure = lens_heatmap(
        result["prediction_probability"],
        result["prediction"],
        title="",
        metric="probability",
        layers=finding.layers,
        tokens=list(result["token"]),
        positions=[int(place) for place in result.axes["position"]],
    )
    figure.update_traces(textfont_size=11)
    return figure.update_layout(xaxis_title=None, yaxis_title="after layer")


def score_map(induction: InductionFinding) -> "go.Figure":
    """Prefix matching of all heads; layers run to the right, so that the figure stays low."""
    scores = induction.scores["prefix_matching"]
    figure = head_heatmap(scores, title="", metric="prefix matching")
    layers, heads = scores.shape
    [trace] = figure.data
    names = [[named((layer, head)) for layer in range(layers)] for head in range(heads)]
    trace.update(z=np.asarray(scores).T, customdata=names)
    ticks = {"tickmode": "linear", "dtick": 1}
    figure.update_xaxes(title_text="layer", tickvals=None, ticktext=None, **ticks)
    figure.update_yaxes(title_text="head", tickvals=None, ticktext=None, **ticks)
    return figure.update_layout(height=320)


def loss_curves(induction: InductionFinding) -> "go.Figure":
    """Loss by place, first and second time."""
    figure = induction.loss.figure()
    figure.update_xaxes(**few_ticks([str(place) for place in induction.loss.axes["place"]]))
    return figure.update_layout(height=340, legend=TOP_RIGHT)


def word_pattern(induction: InductionFinding) -> "go.Figure":
    """The best head's attention on the list of words."""
    words = induction.words
    best = next(iter(words.patterns))
    figure = attention_pattern(words.patterns[best].numpy(), words.tokens, title="")
    figure.update_traces(showscale=False, xgap=1, ygap=1)
    return figure.update_layout(height=540).update_yaxes(scaleanchor=None)


def removal_bars(induction: InductionFinding) -> "go.Figure":
    """What each removal costs, beside its controls with their range."""
    from plotly.graph_objects import Bar, Figure

    costs = induction.costs
    names = [f"without {name}" if name != TOGETHER else f"without all {len(costs) - 1}" for name in costs["removed"]]
    mean = costs["control_mean"]
    spread = {
        "type": "data",
        "symmetric": False,
        "array": costs["control_highest"] - mean,
        "arrayminus": mean - costs["control_lowest"],
        "thickness": 1.5,
    }
    hover = "%{x}: %{y:+.3f} nats<extra></extra>"
    figure = Figure(
        [
            Bar(x=names, y=costs["increase"], name="the head", hovertemplate=hover),
            Bar(x=names, y=mean, name="controls of the same layers", error_y=spread, hovertemplate=hover),
        ]
    )
    figure.update_yaxes(title_text="increase of the loss (nats)")
    return figure.update_layout(barmode="group", height=340, legend=TOP_LEFT)


def trace_map(trace: "CausalTrace") -> "go.Figure":
    """What restoring each token's state brings back, layers to the right."""
    figure = trace.figure()
    figure.update_xaxes(tickmode="linear", dtick=5, tickvals=None, ticktext=None)
    # beside the first panel only: on a narrow screen the names of the others reach beyond their panels
    return figure.update_traces(colorbar={"len": 0.9 / len(figure.data), "y": 1, "yanchor": "top"})
