"""Overview: what the model is made of, what it takes, whether it was verified, and what was computed lately."""

from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard.context import Context
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.session import workshop
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    import pandas

    from interp.models.config import ModelConfig

RECENT = 6
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
DTYPES = {"4": "float32", "2": "bfloat16, float16", "1": "8 bits"}
GIB = 2**30

PARAMETERS = (
    Parameter(
        "beside", "line", "llama-3.1-8b,gemma-2-2b", "Shapes beside it",
        "Names of published shapes, parted by commas; `interp models list` names all.", view=True,
    ),
    Parameter("itemsize", "choice", "2", "Bytes a number", choices=tuple(DTYPES), labels=DTYPES, view=True),
    Parameter("users", "whole", 1, "Texts at once", low=1, high=100_000, view=True),
)  # fmt: skip


def show(context: Context, results: Results) -> None:
    """Facts, parameters by component, certificate; the planner; recent runs."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("What it is", anchor=False)
        _facts(context)
    with right:
        st.subheader("Where its parameters are", anchor=False)
        _parameters(context)
        st.subheader("Certificate", anchor=False)
        _certificate(context)
    st.subheader("What it takes to write on", anchor=False)
    _planner(context)
    st.subheader("Recent runs", anchor=False)
    _recent(context)


def _facts(context: Context) -> None:
    import pandas as pd

    from interp.apps.model_facts import origin_facts, shape_facts, tokenizer_facts

    model = context.model
    rows = [*origin_facts(model), *shape_facts(model), *tokenizer_facts(model.tokenizer)]
    lines = "".join(f"<tr><th scope='row'>{_html(name)}</th><td>{_html(value)}</td></tr>" for name, value in rows)
    st.html(f'<table class="interp-facts">{lines}</table>')
    context.export("facts", pd.DataFrame(rows, columns=["fact", "value"]))


def _html(text: str) -> str:
    from html import escape

    return escape(text)


def _parameters(context: Context) -> None:
    from interp.models.planner import parameters
    from interp.plots import ranked_bars

    counted = parameters(context.model.config)
    parts = {name: count for name, count in counted.stored.items() if count}
    order = sorted(parts, key=lambda name: -parts[name])
    figure = ranked_bars(order, {"parameters": [parts[name] for name in order]}, title="", metric="parameters",
                         label="component")  # fmt: skip
    figure.update_layout(height=70 + 34 * len(order), margin={"l": 90})
    said = ", ".join(f"{name} {parts[name]:,}" for name in order)
    context.plot("parameters", figure, f"Parameters by component: {said}; {counted.total:,} in all.")
    import pandas as pd

    context.export("parameters", pd.DataFrame({"component": order, "parameters": [parts[name] for name in order]}))


def _certificate(context: Context) -> None:
    """What verification found of these weights, if there was any."""
    found = context.model.provenance.get("verified")
    if not isinstance(found, dict) and not hasattr(found, "get"):
        st.markdown(
            "These weights were not verified on this machine. `interp models verify` compares what is recorded with "
            "the equations of the hook points, and with `transformers`."
        )
        return
    passed = found["passed"]  # type: ignore[index]
    count = len(found["compared"])  # type: ignore[index]
    failed = ", ".join(map(str, found["failed"]))  # type: ignore[index]
    line = f"{count} comparisons in {found['dtype']} on {found['device']}, {found['date']}."  # type: ignore[index]
    (st.success if passed else st.error)(f"Verified: {line}" if passed else f"Failed: {failed}. {line}")


# ---------------------------------------------------------------------------------------------------------- planner


def _planner(context: Context) -> None:
    from interp.models.planner import parameters

    with st.container(horizontal=True):
        context.control("beside")
        context.control("itemsize")
        context.control("users")
    configs = _configs(context)
    itemsize, users = int(context.values["itemsize"]), int(context.values["users"])
    frame = _side_by_side(configs, itemsize)
    context.export("shapes", frame)
    st.dataframe(_upright(frame), width="stretch")
    lengths = [length for length in CONTEXTS if length <= max(config.n_ctx for config in configs.values())]
    _kv_figure(context, configs, lengths or [CONTEXTS[0]], itemsize, users)
    whole = parameters(context.model.config).total * itemsize / GIB
    st.caption(
        f"Beside that stand the weights: {whole:.2f} GiB of {context.chosen.model} at {itemsize} bytes a number."
    )


def _configs(context: Context) -> "dict[str, ModelConfig]":
    """The chosen model, and the shapes beside it that are known."""
    from interp.errors import nearest
    from interp.models.presets import presets

    found = {context.chosen.model: context.model.config}
    for name in filter(None, (name.strip() for name in context.values["beside"].split(","))):
        if name in presets():
            found[name] = presets()[name].config
        else:
            st.warning(f"No published shape is called {name[:60]!r}.{nearest(name, presets())} It is left out.")
    return found


def _side_by_side(configs: "dict[str, ModelConfig]", itemsize: int) -> "pandas.DataFrame":
    import pandas as pd

    from interp.models.planner import kv_bytes_per_token, parameters

    def row(name: str, config: "ModelConfig") -> dict[str, Any]:
        counted = parameters(config)
        return {
            "model": name,
            "parameters": counted.total,
            "active": counted.total_active,
            "layers": config.n_layers,
            "width": config.d_model,
            "heads": config.n_heads,
            "KV heads": config.n_kv_heads,
            "head width": config.d_head,
            "context": config.n_ctx,
            "weights (GiB)": round(counted.total * itemsize / GIB, 3),
            "KV (KiB a token)": round(kv_bytes_per_token(config, itemsize) / 1024, 2),
        }

    return pd.DataFrame([row(name, config) for name, config in configs.items()])


def _upright(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """A column a model: so it is read on a narrow screen too."""
    named = frame.set_index("model")
    return named.map(lambda value: f"{value:,}").T


def _kv_figure(
    context: Context, configs: "dict[str, ModelConfig]", lengths: list[int], itemsize: int, users: int
) -> None:
    from interp.models.planner import kv_bytes
    from interp.plots import curves

    series = {
        name: [users * kv_bytes(config, length, itemsize) / GIB for length in lengths]
        for name, config in configs.items()
    }
    labels = [f"{length:,}" for length in lengths]
    figure = curves(labels, series, title="", x_title="context (tokens)", y_title="keys and values (GiB)")
    figure.update_layout(height=340, showlegend=True).update_yaxes(type="log")
    last = ", ".join(f"{name} {values[-1]:.2f}" for name, values in series.items())
    context.plot("kv", figure, f"Keys and values of {users:,} texts by context length; at {labels[-1]} tokens, in GiB: "
                               f"{last}.")  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- runs


def _recent(context: Context) -> None:
    """The newest run directories; each leads to the page of runs."""
    from interp.apps.dashboard.views.runs import listed

    found = listed(workshop().options.runs, RECENT)
    if not found:
        st.info("Nothing has been computed here yet. What a page computes is kept below the folder of runs.")
    for each in found:
        left, right = st.columns([4, 1], vertical_alignment="center")
        left.html(f"<code>{_html(each.folder.name)}</code> · {_html(each.said)}")
        with right:
            context.link("Open", "runs", {"run": each.folder.name, "job": ""}, mark=each.folder.name)


def command(values: Values, chosen: Chosen) -> list[str]:
    """The same facts on the command line."""
    return ["interp", "models", "show", chosen.model, "--dtype", chosen.dtype, "--json"]


def python(values: Values, chosen: Chosen) -> str:
    """Parameters by component, and bytes of keys and values."""
    return f"""
from interp.models.planner import kv_bytes, parameters

counted = parameters(model.config)
print(counted.total, counted.stored)
for context in {list(CONTEXTS[:5])!r}:
    print(context, {values["users"]} * kv_bytes(model.config, context, {values["itemsize"]}))
"""


PAGE = Page(
    key="overview",
    title="Overview",
    icon=":material/home:",
    question="What is this model made of, what does it take, and was it verified?",
    parameters=PARAMETERS,
    example={},
    show=show,
    command=command,
    python=python,
)
