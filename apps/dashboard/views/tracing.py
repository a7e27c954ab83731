"""Fact tracing: at which token and layer does restoring one hidden state bring a forgotten fact back?"""

from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results
from interp.apps.dashboard.views import fact_inputs, trace_maps

if TYPE_CHECKING:
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

OF = {"one": "one fact", "set": "a set of facts, averaged"}
CORRUPTIONS = {"noise": "noise on the subject", "replace": "another subject"}
KINDS = {"resid": "residual stream", "mlp": "FFN outputs", "attn": "attention outputs"}
SUBLAYERS = ("mlp", "attn")

PARAMETERS = (
    Parameter("prompt", "text", "", "Fact", "Without its answer.", needed=fact_inputs.one, tokens=True),
    Parameter("subject", "line", "", "Subject", "What it is about, as the fact names it.", needed=fact_inputs.one),
    Parameter("answer", "line", "", "Answer", 'One token with its leading space, " Paris"; empty: the model\'s own.'),
    Parameter("occurrence", "whole", 0, "Occurrence", "Which, if named several times; -1: the last.", low=-99, high=99),
    Parameter("of", "choice", "one", "Trace", choices=tuple(OF), labels=OF),
    Parameter("relation", "choice", fact_inputs.ALL, "Facts of a set", choices=fact_inputs.RELATIONS),
    Parameter("limit", "whole", 10, "At most", "So many facts of the set, evenly spread.", low=1, high=10_000),
    Parameter("corruption", "choice", "noise", "Hidden by", choices=tuple(CORRUPTIONS), labels=CORRUPTIONS),
    Parameter(
        *("replacement", "line", "", "Other subject", "Of as many tokens, if it hides this one; sets bring theirs."),
        needed=fact_inputs.replacing,
    ),
    Parameter(
        "noise", "line", "s3", "Noise", "s3: 3 standard deviations of embeddings; or a level: 0.3; uniform: us3."
    ),
    Parameter("samples", "whole", 10, "Samples", "Draws of noise that are averaged.", low=1, high=1000),
    Parameter("window", "whole", 10, "Layers at once", "Of FFN and attention, restored together.", low=1, high=999),
    Parameter(
        *("kinds", "choices", tuple(KINDS), "Restored"),
        choices=tuple(KINDS),
        labels=KINDS,
        check=lambda value: None if value else "at least one is expected.",
    ),
    Parameter("severed", "choices", SUBLAYERS, "Severed", "Held while the stream is restored.", choices=SUBLAYERS),
    Parameter("seed", "whole", 0, "Seed", "Of the noise.", low=0, high=2**31),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before a fact.", choices=("doc", "none", "chat")),
    Parameter(
        *("measure", "choice", "effect", "Shown"),
        choices=tuple(trace_maps.MEASURES),
        labels=trace_maps.MEASURES,
        view=True,
    ),
    Parameter(
        "position", "whole", -1, "Position or role", "Negative: from the end.", low=-99_999, high=9_999, view=True
    ),
    Parameter("layer", "whole", 0, "Layer", low=0, high=999, view=True),
    Parameter("cut", "whole", 5, "Layers cut at once", "Around each layer.", low=1, high=999, view=True),
)
FACT = ("prompt", "subject", "answer", "occurrence", "of", "relation", "limit", "prefix", "seed")


def _options(values: Values) -> dict[str, Any]:
    """What traces of one fact and of many are told."""
    same = ("kinds", "severed", "samples", "window", "seed", "prefix")
    return {"noise": values["noise"].strip(), **{name: values[name] for name in same}}


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The trace of the fact, or those of the set."""
    if not fact_inputs.one(values):
        from interp.analyses.trace_facts import plan_fact_traces

        facts = fact_inputs.chosen(values)
        traces = plan_fact_traces(model, facts, corruption=values["corruption"], **_options(values))
        return {"traces": traces.run(progress=report, so_far=report.so_far("traces"))}
    from interp.analyses.tracing import plan_trace

    other = values["replacement"] if fact_inputs.replacing(values) else None
    planned = plan_trace(
        model,
        values["prompt"],
        values["subject"],
        answer=values["answer"] or None,
        occurrence=values["occurrence"],
        replacement=other,
        **_options(values),
    )
    return {"trace": planned.run(progress=report, so_far=report.so_far("trace"))}


def knockout(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """What the answer loses when the last token cannot read some others."""
    from interp.analyses.knockout import attention_knockout

    told: dict[str, Any] = {"window": values["cut"], "prefix": values["prefix"], "seed": values["seed"]}
    if fact_inputs.one(values):
        asked: Any = values["prompt"]
        told |= {name: values[name] or None for name in ("subject", "answer")} | {"occurrence": values["occurrence"]}
    else:
        asked = fact_inputs.chosen(values)
    return {"knockout": attention_knockout(model, asked, progress=report, **told)}


def cost(model: "Transformer", values: Values) -> Cost:
    """What the planner says of these facts; which tokens are hidden is known."""
    lengths, subjects = fact_inputs.lengths(model, values)
    told = {name: values[name] for name in ("kinds", "severed", "samples", "window", "corruption")}
    if fact_inputs.replacing(values):
        told["replacement"] = values["replacement"]
    name = "tracing" if fact_inputs.one(values) else "fact-tracing"
    return estimated(model, name, lengths, {**told, "changed": subjects})


def knockout_cost(model: "Transformer", values: Values) -> Cost:
    """Likewise for attention that is knocked out."""
    lengths, subjects = fact_inputs.lengths(model, values)
    return estimated(model, "knockout", lengths, {"window": values["cut"], "changed": subjects})


def preview(context: Context) -> None:
    """A fact to pick, its subject marked, and what the trace will take."""
    if fact_inputs.one(context.values):
        fact_inputs.pick(context)
        fact_inputs.confirm(context)
    if not context.page.missing(context.values) and (said := context.expected()):
        st.caption(f"Before it starts: {said}.")


def show(context: Context, results: Results) -> None:
    """The maps, the chosen cell, severed sublayers, and what knocking attention out takes away."""
    single = "trace" in results
    found = results["trace" if single else "traces"]
    row = trace_maps.draw(context, found)
    st.caption(found.caution)
    if any(str(kind).startswith("severed") for kind in found.axes["kind"]):
        trace_maps.severed(context, found, row)
    st.subheader("Keeping the last token from reading", anchor=False)
    st.caption("Attention edges into the last token are blocked around each layer: when does the answer need them?")
    context.control("cut")
    cut = context.further("knockout", button="Knock attention out")
    if cut is not None:
        trace_maps.knocked_out(context, cut["knockout"])
    with st.expander("The strongest cells"):
        context.table("strongest", found.top("effect", 20))
    if single:
        shown = context.shown_values
        same = {"text": shown["prompt"], "prefix": shown["prefix"], "layer": context.values["layer"]}
        context.link("This fact through the lens", "prompt", {**same, "answer": str(found.settings["answer"])})


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """`interp trace` of the same fact or facts."""
    noisy = values["corruption"] == "noise"
    words = ["--kinds", ",".join(values["kinds"]), "--severed", ",".join(values["severed"])]
    words += ["--window", str(values["window"]), "--seed", str(values["seed"]), "--prefix", values["prefix"]]
    words += ["--noise", values["noise"].strip(), "--samples", str(values["samples"])] if noisy else []
    if not fact_inputs.one(values):
        words += ["--corruption", values["corruption"]]
    elif not noisy:
        words += [f"--replacement={values['replacement']}"]
    return ["interp", "trace", *words, *chosen.words(), "--json", *_asked_of(values)]


def cutting(values: Values, chosen: Chosen) -> list[str]:
    """`interp knockout` of the same fact or facts."""
    asked = ["--window", str(values["cut"]), "--seed", str(values["seed"]), "--prefix", values["prefix"]]
    return ["interp", "knockout", *asked, *chosen.words(), "--json", *_asked_of(values)]


def _asked_of(values: Values) -> list[str]:
    """The fact, or the facts, in words that end a command."""
    if not fact_inputs.one(values):
        relation = [] if values["relation"] == fact_inputs.ALL else ["--relation", values["relation"]]
        return ["--facts", "bundled", *relation, "--limit", str(values["limit"])]
    answer = [f"--answer={values['answer']}"] if values["answer"] else []
    return [f"--subject={values['subject']}", f"--occurrence={values['occurrence']}", *answer, "--", values["prompt"]]


def python(values: Values, chosen: Chosen) -> str:
    """The same trace, and what knocking attention out takes away."""
    options = "".join(f"    {name}={value!r},\n" for name, value in _options(values).items())
    told = f"window={values['cut']}, prefix={values['prefix']!r}, seed={values['seed']}"
    if not fact_inputs.one(values):
        named = "" if values["relation"] == fact_inputs.ALL else f", [{values['relation']!r}]"
        facts = f"of_relations(bundled_facts(){named})" if named else "bundled_facts()"
        return f"""
from interp.analyses.fact_data import bundled_facts
from interp.analyses.knockout import attention_knockout
from interp.analyses.trace_facts import trace_facts
from interp.facts import spread, of_relations

facts = spread({facts}, {values["limit"]})
found = trace_facts(
    model,
    facts,
    corruption={values["corruption"]!r},
{options})
cut = attention_knockout(model, facts, {told})
print("\\n".join([*found.summary(), *cut.summary()]))
"""
    fact = f"    answer={values['answer'] or None!r},\n    occurrence={values['occurrence']},\n"
    other = f"    replacement={values['replacement']!r},\n" if fact_inputs.replacing(values) else ""
    return f"""
from interp.analyses.knockout import attention_knockout
from interp.analyses.tracing import causal_trace

prompt, subject = {values["prompt"]!r}, {values["subject"]!r}
found = causal_trace(
    model,
    prompt,
    subject,
{fact}{other}{options})
cut = attention_knockout(
    model,
    prompt,
    subject=subject,
{fact}    {told},
)
print("\\n".join([*found.summary(), *cut.summary()]))
"""


PAGE = Page(
    key="tracing",
    title="Fact tracing",
    icon=":material/travel_explore:",
    question="Where does restoring one hidden state bring a forgotten fact back?",
    parameters=PARAMETERS,
    example={
        "prompt": "The Eiffel Tower is located in the city of",
        "subject": "The Eiffel Tower",
        "answer": " Paris",
        "occurrence": 0,
        "of": "one",
        "corruption": "replace",
        "replacement": "The Brandenburg Gate",
        "window": 10,
        "kinds": ("resid", "mlp", "attn"),
        "severed": SUBLAYERS,
        "seed": 0,
        "prefix": "doc",
        "measure": "effect",
        "position": 3,
        "layer": 10,
        "cut": 5,
    },
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    preview=preview,
    further=(
        Work("knockout", "Attention knockout", knockout, needs=(*FACT, "cut"), cost=knockout_cost, command=cutting),
    ),
    empty="Type a fact and its subject, pick one, or load the example.",
)
