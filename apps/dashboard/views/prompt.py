"""Prompt and lens: how surprising each token is, and what every layer would say next at every position."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.heatmaps import Grid
from interp.apps.dashboard.look import seen
from interp.apps.dashboard.page import Cost, Page
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    from interp.analyses.lens import LensResult
    from interp.analyses.surprisal import Surprisal
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

METRICS = {
    "probability": "probability of the likeliest token",
    "followed_probability": "probability of the followed token",
    "rank": "rank of the followed token",
    "entropy": "entropy (nats)",
    "kl": "KL from the model's output (nats)",
}
MOST_NATS = 10.0  # where the shade of a surprising token is darkest

PARAMETERS = (
    Parameter("text", "text", "", "Prompt", "The text that the model reads.", needed=True, tokens=True),
    Parameter("answer", "line", "", "Token to follow", 'One token with its leading space, such as " Paris".'),
    Parameter("top_k", "whole", 10, "Likeliest tokens", "How many are kept for each cell.", low=1, high=50),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before the prompt.", choices=("doc", "none", "chat")),
    Parameter("metric", "choice", "probability", "Colour", choices=tuple(METRICS), labels=METRICS, view=True),
    Parameter("layer", "whole", 0, "Layer", "-1 is the embedding.", low=-1, high=999, view=True),
    Parameter("position", "whole", -1, "Position", "Negative: from the end.", low=-99_999, high=99_999, view=True),
)


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The lens at every position, and the surprisal of every token."""
    from interp.analyses.lens import logit_lens
    from interp.analyses.surprisal import surprisal

    asked = {"top_k": values["top_k"], "prefix": values["prefix"]}
    report(0, 0)
    words = surprisal(model, values["text"], **asked)
    report.partial({"surprisal": words})
    answers = [values["answer"]] if values["answer"] else []
    lens = logit_lens(model, values["text"], answers=answers, progress=report, **asked)
    return {"lens": lens, "surprisal": words}


def cost(model: "Transformer", values: Values) -> Cost:
    """What the lens takes for a text of so many tokens."""
    length = len(model.tokenizer.prompt_ids(values["text"], values["prefix"]))
    return estimated(model, "lens", [length], {"top_k": values["top_k"]})


def show(context: Context, results: Results) -> None:
    """Tokens, the map, and what stands in the chosen cell."""
    words = results["surprisal"]
    _tokens(words, context.values["position"] % len(words["token"]))
    if "lens" in results:
        _layers(context, results["lens"])
    with st.expander("Every token, with what was expected"):
        context.table("tokens", _token_table(words))


def _layers(context: Context, lens: "LensResult") -> None:
    """The map, what stands in its chosen cell, and how the followed token fares."""
    st.subheader("What each layer would say next", anchor=False)
    row, column = context.heatmap("lens", _grid(lens, context.values["metric"]), _alt(lens), beside=("metric",))
    left, right = st.columns(2, gap="medium")
    with left:
        _cell(context, lens, row, column)
    with right:
        _followed(context, lens, column)
    st.caption(lens.caution)


# ---------------------------------------------------------------------------------------------------------- tokens


def _tokens(words: "Surprisal", chosen: int) -> None:
    """The text, each token shaded by its surprisal; hovering says the number."""
    shades, hints = [], []
    for place, nats in enumerate(words["surprisal"].tolist()):
        nothing = nats != nats
        said = "nothing predicts it" if nothing else f"{nats:.2f} nats, rank {int(words['rank'][place]):,}"
        hints.append(f"position {place}: {said}")
        shades.append(f"rgba(217,130,43,{0.0 if nothing else min(nats / MOST_NATS, 1.0) * 0.75:.2f})")
    look.strip(words["token"], hints, chosen=chosen, shades=shades)
    mean = words.mean
    more = "" if mean != mean else f" Mean surprisal {mean:.2f} nats; the darker, the more surprising."
    st.caption(f"{len(words['token'])} tokens.{more}")


def _token_table(words: "Surprisal") -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            "position": words.axes["position"],
            "token": [seen(token) for token in words["token"]],
            "surprisal": words["surprisal"],
            "rank": words["rank"],
            "entropy of what was expected": words["expected_entropy"],
            "likeliest next": [_listed(row, values) for row, values in _next(words)],
        }
    )


def _next(words: "Surprisal") -> Any:
    return zip(words["next_token"], words["next_probability"], strict=True)


def _listed(tokens: Sequence[object], probabilities: np.ndarray) -> str:
    return "  ".join(f"{seen(token)} {value:.3f}" for token, value in zip(tokens, probabilities, strict=True))


# ------------------------------------------------------------------------------------------------------------- map


def _followed_name(lens: "LensResult") -> str:
    return "answer" if "answer" in lens.axes else "final"


def _followed_values(lens: "LensResult", what: str) -> np.ndarray:
    """[layer, position] of the token that is followed: the answer asked for, else the model's own prediction."""
    values = lens[f"{_followed_name(lens)}_{what}"]
    return values[..., 0] if values.ndim == 3 else values


def _grid(lens: "LensResult", metric: str) -> Grid:
    settings: Mapping[str, tuple[np.ndarray, dict[str, Any]]] = {
        "probability": (lens["prediction_probability"], {"bounds": (0.0, 1.0)}),
        "followed_probability": (_followed_values(lens, "probability"), {"bounds": (0.0, 1.0)}),
        "rank": (_followed_values(lens, "rank"), {"log": True, "form": ",.0f"}),
        "entropy": (lens["entropy"], {}),
        "kl": (lens["kl_to_final"], {}),
    }
    values, more = settings[metric]
    tokens = [f"{token} {place}" for place, token in zip(lens.axes["position"], lens["token"], strict=True)]
    return Grid(
        values=values,
        row="layer",
        column="position",
        rows=lens.layer_names,
        columns=tokens,
        metric=METRICS[metric].removesuffix(" (nats)"),
        row_title="after layer",
        column_title="position (token read)",
        row_start=-1,
        texts=lens["prediction"],
        details=_details(lens),
        **more,
    )


def _details(lens: "LensResult") -> np.ndarray:
    """What hovering says of a cell beside its value."""
    pairs = zip(lens["prediction"].reshape(-1), lens["prediction_probability"].reshape(-1), strict=True)
    return np.array([f"top {token} {value:.3f}" for token, value in pairs], dtype=object).reshape(
        lens["prediction"].shape
    )


def _alt(lens: "LensResult") -> str:
    said = lens.summary()[1].strip()
    return (
        f"Map of {len(lens.layer_names)} layer boundaries by {len(lens.axes['position'])} positions; "
        f"{said[0].lower()}{said[1:]}."
    )


def _cell(context: Context, lens: "LensResult", row: int, column: int) -> None:
    """The likeliest tokens of the chosen cell."""
    import pandas as pd

    layer, token = lens.layer_names[row], look.chip(str(lens["token"][column]))
    st.html(f"<p style='margin:0'>After layer <b>{look.plain(layer)}</b>, having read {token} (position {column}):</p>")
    frame = pd.DataFrame(
        {
            "token": [seen(word) for word in lens["top_token"][row, column]],
            "probability": lens["top_probability"][row, column],
        }
    )
    st.dataframe(
        frame,
        hide_index=True,
        width="stretch",
        column_config={"probability": st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="%.4f")},
    )
    context.export("cell", frame)


def _followed(context: Context, lens: "LensResult", column: int) -> None:
    """The rank of the followed token through the layers."""
    from interp.plots import curves

    name = str(lens.axes["answer"][0]) if "answer" in lens.axes else str(lens["final_token"][column])
    ranks, probabilities = (_followed_values(lens, what)[:, column] for what in ("rank", "probability"))
    st.html(f"<p style='margin:0'>{look.chip(name)} through the layers:</p>")
    figure = curves(lens.layer_names, {name: ranks}, title="Rank by layer", x_title="after layer", y_title="rank")
    figure.update_yaxes(type="log", autorange="reversed").update_layout(height=300)
    led = np.flatnonzero(ranks == 1)
    first = f"on top first after {lens.layer_names[led[0]]}" if led.size else "on top after no layer"
    context.plot("rank", figure, f"Rank of {name!r} by layer: {first}; in the end {ranks[-1]:,}, "
                                 f"probability {probabilities[-1]:.3f}.")  # fmt: skip
    st.caption(f"{first.capitalize()}; in the end rank {ranks[-1]:,}, probability {probabilities[-1]:.3f}.")


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """Every token and every cell; as its table, the chosen position."""
    answer = ["--answer", values["answer"]] if values["answer"] else []
    asked = ["--top-k", str(values["top_k"]), "--prefix", values["prefix"], f"--position={values['position']}"]
    return ["interp", "lens", "--tokens", *answer, *asked, *chosen.words(), "--json", "--", values["text"]]


def python(values: Values, chosen: Chosen) -> str:
    """Both analyses, and the chosen cell."""
    answers = [values["answer"]] if values["answer"] else []
    asked = f"top_k={values['top_k']}, prefix={values['prefix']!r}"
    return f"""
from interp.analyses.lens import logit_lens
from interp.analyses.surprisal import surprisal

text = {values["text"]!r}
words = surprisal(model, text, {asked})
lens = logit_lens(model, text, answers={answers!r}, {asked})
print("\\n".join([*words.summary(), *lens.summary()]))
where = {{"layer": {values["layer"]}, "position": lens.axes["position"][{values["position"]}]}}
print(*zip(lens.at("top_token", **where), lens.at("top_probability", **where)), sep="\\n")
"""


PAGE = Page(
    key="prompt",
    title="Prompt and lens",
    icon=":material/layers:",
    question="How surprising is each token, and what would the model say if it stopped after each layer?",
    parameters=PARAMETERS,
    example={
        "text": "The Eiffel Tower is located in the city of",
        "answer": " Paris",
        "top_k": 10,
        "prefix": "doc",
        "metric": "probability",
        "layer": 20,
        "position": -1,
    },
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    empty="Type a prompt, or load the example, to read what each layer would say next.",
)
