"""Attribution: which parts of the residual stream write an answer's logit: sublayers, heads, source tokens, neurons."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

BY = {
    "sublayer": "sublayers",
    "head": "heads",
    "source": "source tokens",
    "head_source": "heads and source tokens",
    "neuron": "neurons",
    "expert": "experts",
}
METHODS = {"mean": "its mean over the text", "zero": "nothing", "pattern_preserving": "nothing, patterns kept"}
AT_FIRST = ("sublayer", "head", "source")
ASKED = ("text", "answer", "foil", "position", "prefix")

PARAMETERS = (
    Parameter("text", "text", "", "Prompt", "The text that the model reads.", needed=True, tokens=True),
    Parameter("answer", "line", "", "Answer", 'One token with its leading space, such as " Paris".', needed=True),
    Parameter("foil", "line", "", "Foil", "A token whose logit is taken off; may be empty."),
    Parameter("position", "whole", -1, "Position", "Whose logits are explained; negative: from the end.",
              low=-99_999, high=99_999),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before the prompt.", choices=("doc", "none", "chat")),
    Parameter("by", "choice", "sublayer", "Parts", choices=tuple(BY), labels=BY, view=True),
    Parameter("layer", "whole", 0, "Layer", low=0, high=999, view=True),
    Parameter("head", "whole", 0, "Head", low=0, high=999, view=True),
    Parameter("method", "choice", "mean", "In its place", choices=tuple(METHODS), view=True,
              labels=METHODS),
    Parameter("controls", "whole", 8, "Other heads", "Of its layer, taken away to compare.", low=1, high=64, view=True),
    Parameter("source_layer", "whole", 0, "Layer read", low=0, high=999, view=True),
    Parameter("source", "whole", 0, "Source position", low=0, high=99_999, view=True),
)  # fmt: skip


def _attributed(model: "Transformer", values: Values, by: str) -> Any:
    from interp.analyses.attribution import direct_logit_attribution

    asked = {name: values[name] for name in ("position", "prefix")}
    return direct_logit_attribution(model, values["text"], values["answer"], values["foil"] or None, by=by, **asked)  # type: ignore[arg-type]  # one of BY


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The logit taken apart in three ways."""
    found: dict[str, Any] = {}
    for done, by in enumerate(AT_FIRST):
        report(done, len(AT_FIRST))
        found[by] = _attributed(model, values, by)
        report.partial(dict(found))
    return found


def _length(model: "Transformer", values: Values) -> int:
    return len(model.tokenizer.prompt_ids(values["text"], values["prefix"]))


def cost(model: "Transformer", values: Values) -> Cost:
    """Of the three, one after the other."""
    each = [estimated(model, "attribution", [_length(model, values)], {"by": by}) for by in AT_FIRST]
    return Cost(sum(one.seconds for one in each), max(one.bytes for one in each))


def compute_finer(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The parts that are not there from the start."""
    report(0, 1)
    return {values["by"]: _attributed(model, values, values["by"])}


def cost_of_finer(model: "Transformer", values: Values) -> Cost:
    """That of one attribution."""
    return estimated(model, "attribution", [_length(model, values)], {"by": values["by"]})


def compute_head_source(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """What every head brings from every token."""
    report(0, 1)
    return {"head_source": _attributed(model, values, "head_source")}


def cost_of_head_source(model: "Transformer", values: Values) -> Cost:
    """That of one attribution."""
    return estimated(model, "attribution", [_length(model, values)], {"by": "head_source"})


def compute_ablation(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """What taking the chosen head away does to the answer, beside others of its layer."""
    from interp.analyses.local_ablation import ablate_here

    asked = {name: values[name] for name in ("answer", "method", "controls", "prefix")}
    head = (values["layer"], values["head"])
    return {"ablation": ablate_here(model, values["text"], [head], **asked, progress=report)}


def cost_of_ablation(model: "Transformer", values: Values) -> Cost:
    """The text without the head, and without each of the others."""
    asked = {"heads": [f"{values['layer']}.{values['head']}"], "controls": values["controls"]}
    return estimated(model, "local-ablation", [_length(model, values)], asked)


def show(context: Context, results: Results) -> None:
    """The waterfall; the map of heads with what the chosen one does; the map of sources."""
    from interp.apps.dashboard.views import attribution_drawn as drawn

    drawn.explained(results)
    st.subheader("What adds up to it", anchor=False)
    by = context.control("by")
    found = results if by in results else context.further("finer") if by not in AT_FIRST else None
    if found is not None and by in found:
        drawn.waterfall(context, found[by])
    if "head" in results:
        _heads(context, results)
    if "source" in results:
        _sources(context, results)
    st.caption(results["sublayer"].caution)


def _heads(context: Context, results: Results) -> None:
    """Heads by layer; the chosen one, its sources, and its ablation."""
    from interp.apps.dashboard.views import attribution_drawn as drawn
    from interp.apps.dashboard.views import beside

    st.subheader("By head", anchor=False)
    grid, said = drawn.heads(results["head"])
    layer, head = context.heatmap("heads", grid, said)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"**Head {layer}.{head}: what it writes directly**")
        drawn.one_head(results["head"], layer, head)
        found = context.further("head_source", button="From which tokens?")
        if found is not None:
            drawn.sources_of_head(context, found["head_source"], layer, head)
        asked = {name: context.shown_values[name] for name in ("text", "prefix", "answer")}
        context.link(f"Where head {layer}.{head} looks", "attention", {**asked, "layer": layer, "head": head})
    with right:
        st.markdown(f"**Head {layer}.{head}: what taking it away does**")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            for name in ("method", "controls"):
                context.control(name)
        found = context.further("ablation")
        if found is not None:
            beside.draw(context, found["ablation"], "log_probability", {"log_probability": (), "kl": ()})
            st.caption("At the end of the text. " + drawn.apart(results["head"]))


def _sources(context: Context, results: Results) -> None:
    """What each layer's attention brings from each token."""
    from interp.apps.dashboard.views import attribution_drawn as drawn

    st.subheader("By source token", anchor=False)
    source = results["source"]
    drawn.tokens(source)
    grid, said = drawn.sources(source)
    layer, place = context.heatmap("sources", grid, said)
    drawn.one_source(source, layer, place)
    drawn.all_sources(context, source)


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """The parts that the waterfall shows, and those of the page's maps."""
    return _taken_apart(values, chosen, dict.fromkeys([values["by"], *AT_FIRST]))


def by_head_and_source(values: Values, chosen: Chosen) -> list[str]:
    """What every head brings from every token."""
    return _taken_apart(values, chosen, ["head_source"])


def _taken_apart(values: Values, chosen: Chosen, ways: Iterable[str]) -> list[str]:
    foil = [f"--foil={values['foil']}"] if values["foil"] else []
    asked = [f"--answer={values['answer']}", *foil, "--by", ",".join(ways)]
    asked += [f"--position={values['position']}", "--prefix", values["prefix"], *chosen.words(), "--json"]
    return ["interp", "attribute", *asked, "--", values["text"]]


def taking_away(values: Values, chosen: Chosen) -> list[str]:
    """The head's ablation stands beside where it looks."""
    asked = [f"--answer={values['answer']}", "--method", values["method"], "--controls", str(values["controls"])]
    asked += ["--prefix", values["prefix"], *chosen.words(), "--json"]
    return ["interp", "attention", "--head", f"{values['layer']}.{values['head']}", *asked, "--", values["text"]]


def python(values: Values, chosen: Chosen) -> str:
    """All parts, those of heads and tokens too, and the ablation of the chosen head."""
    asked = f"position={values['position']}, prefix={values['prefix']!r}"
    ways = list(dict.fromkeys([*AT_FIRST, values["by"], "head_source"]))
    return f"""
from interp.analyses.attribution import direct_logit_attribution
from interp.analyses.local_ablation import ablate_here

text, answer, foil = {values["text"]!r}, {values["answer"]!r}, {values["foil"] or None!r}
found = {{by: direct_logit_attribution(model, text, answer, foil, by=by, {asked}) for by in {ways!r}}}
without = ablate_here(
    model,
    text,
    [({values["layer"]}, {values["head"]})],
    answer=answer,
    method={values["method"]!r},
    controls={values["controls"]},
    prefix={values["prefix"]!r},
)
print("\\n".join(line for each in (*found.values(), without) for line in each.summary()))
"""


PAGE = Page(
    key="attribution",
    title="Attribution",
    icon=":material/stacked_bar_chart:",
    question="Which parts of the model write this answer's logit, and which against it?",
    parameters=PARAMETERS,
    example={
        **{parameter.name: parameter.default for parameter in PARAMETERS},
        "text": "The Eiffel Tower is located in the city of",
        "answer": " Paris",
        "foil": " London",
        "layer": 23,
        "head": 4,
        "source_layer": 23,
        "source": 3,
    },
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    further=(
        Work("finer", "Taking the logit apart", compute_finer, needs=(*ASKED, "by"), automatic=True,
             cost=cost_of_finer),
        Work("head_source", "Reading heads and tokens", compute_head_source, needs=ASKED, cost=cost_of_head_source,
             command=by_head_and_source),
        Work("ablation", "Taking the head away", compute_ablation, automatic=True, cost=cost_of_ablation,
             command=taking_away,
             needs=("text", "prefix", "answer", "layer", "head", "method", "controls")),
    ),
    empty="Type a prompt and an answer, or load the example, to see which parts write its logit.",
)  # fmt: skip
