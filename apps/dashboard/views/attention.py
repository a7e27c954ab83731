"""Attention: where every head looks in a text, one of them token by token, and what taking it away does there."""

from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    from interp.analyses.attention_read import Source
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

READ = {"prompt": "the prompt", "repeated": "random tokens, said twice"}
WHAT = {"pattern": "pattern", "moved": "pattern × size of the value", "scores": "scores before the softmax"}
OF = {"prompt": "the prompt", "other": "the other prompt", "difference": "prompt less the other"}
METHODS = {"mean": "its mean over the text", "zero": "nothing", "pattern_preserving": "nothing, patterns kept"}
EFFECTS = {"loss": "loss of the text", "log_probability": "answer at the end", "kl": "all that is said at the end"}

PARAMETERS = (
    Parameter("text", "text", "", "Prompt", "The text that the model reads.", tokens=True,
              needed=lambda values: values["read"] == "prompt"),
    Parameter("other", "line", "", "Another prompt", "Of as many tokens: the difference can be shown.", tokens=True),
    Parameter("read", "choice", "prompt", "What is read", choices=tuple(READ), labels=READ),
    Parameter("seq_len", "whole", 25, "Random tokens", "How many, where those are read.", low=2, high=512),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before the text.", choices=("doc", "none", "chat")),
    Parameter("seed", "whole", 0, "Seed", "Of random tokens, and of which other heads are taken.", low=0, high=2**31),
    Parameter("what", "choice", "pattern", "Shown", choices=tuple(WHAT), labels=WHAT, view=True),
    Parameter("of", "choice", "prompt", "Of", choices=tuple(OF), labels=OF, view=True),
    Parameter("first", "flag", True, "First token", "Off: what rests on the first token is hidden.", view=True),
    Parameter("layer", "whole", 0, "Layer", low=0, high=999, view=True),
    Parameter("head", "whole", 0, "Head", low=0, high=999, view=True),
    Parameter("query", "whole", -1, "Looking (query)", "A position; negative: from the end.", low=-99_999, high=99_999,
              view=True),
    Parameter("key", "whole", 0, "Looked at (key)", "A position; negative: from the end.", low=-99_999, high=99_999,
              view=True),
    Parameter("effect", "choice", "loss", "Effect on", choices=tuple(EFFECTS), labels=EFFECTS, view=True),
    Parameter("answer", "line", "", "Answer", "One token with its leading space; empty: the model's own.", view=True),
    Parameter("method", "choice", "mean", "In its place", choices=tuple(METHODS), labels=METHODS, view=True),
    Parameter("controls", "whole", 8, "Other heads", "Of its layer, taken away to compare.", low=1, high=64, view=True),
)  # fmt: skip

READS = ("text", "read", "seq_len", "prefix", "seed")
PLACE = ("layer", "head")


def _source(model: "Transformer", values: Values) -> "tuple[Source, int]":
    """What is read, and from which position on its loss counts."""
    from interp.analyses.attention_read import said_twice
    from interp.errors import UsageError

    if values["read"] == "prompt":
        return values["text"], 1
    if values.get("other"):
        raise UsageError("Another prompt is compared with a prompt, not with random tokens. Empty one of the two.")
    return said_twice(model, values["seq_len"], values["seed"], values["prefix"])


def _head(values: Values) -> tuple[int, int]:
    return values["layer"], values["head"]


def _length(model: "Transformer", values: Values) -> int:
    source, _ = _source(model, values)
    prefix = values["prefix"]
    return len(model.tokenizer.prompt_ids(source, prefix)) if isinstance(source, str) else source.shape[1]


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """Small pictures and numbers of every head."""
    from interp.analyses.attention import attention_maps

    source, _ = _source(model, values)
    other = values["other"] or None
    return {"maps": attention_maps(model, source, other, prefix=values["prefix"], progress=report)}


def cost(model: "Transformer", values: Values) -> Cost:
    """That of one run with every pattern, or of two."""
    return estimated(model, "attention", [_length(model, values)], {"other": bool(values["other"])})


def compute_head(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The whole map of the chosen head."""
    from interp.analyses.head_attention import head_attention

    source, _ = _source(model, values)
    other = values["other"] or None
    return {"head": head_attention(model, source, _head(values), other, prefix=values["prefix"])}


def compute_ablation(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """What taking the chosen head away does to this text."""
    from interp.analyses.local_ablation import ablate_here

    source, since = _source(model, values)
    found = ablate_here(
        model,
        source,
        [_head(values)],
        answer=values["answer"] or None,
        since=since,
        method=values["method"],
        controls=values["controls"],
        seed=values["seed"],
        prefix=values["prefix"],
        progress=report,
    )
    return {"ablation": found}


def cost_of_ablation(model: "Transformer", values: Values) -> Cost:
    """The text without the head, and without each of the others."""
    layer, head = _head(values)
    asked = {"heads": [f"{layer}.{head}"], "controls": values["controls"]}
    return estimated(model, "local-ablation", [_length(model, values)], asked)


FURTHER = (
    Work("head", "Reading the head", compute_head, needs=(*READS, "other", *PLACE), automatic=True, recorded=False),
    Work("ablation", "Taking the head away", compute_ablation, needs=(*READS, *PLACE, "answer", "method", "controls"),
         automatic=True, cost=cost_of_ablation),
)  # fmt: skip


def show(context: Context, results: Results) -> None:
    """All heads; then one of them, and beside it, always, what taking it away does."""
    from interp.apps.dashboard.views import attention_maps as drawn

    maps = results["maps"]
    st.subheader("Every head", anchor=False)
    names = ["what", "first", *(["of"] if "other_token" in maps else [])]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name in names:
            context.control(name)
    shown = drawn.Shown.asked(context.values, maps)
    head, layer = context.heatmap("heads", drawn.every_head(maps, shown), drawn.every_head_said(maps, shown))
    left, right = st.columns([7, 5], gap="large")
    with left:
        st.subheader(f"Head {layer}.{head}: where it looks", anchor=False)
        found = context.further("head")
        if found is not None:
            drawn.one_head(context, found["head"], shown)
    with right:
        st.subheader(f"Head {layer}.{head}: what it does here", anchor=False)
        _without(context)
    st.caption(maps.caution)
    with st.expander("The numbers of every head"):
        context.table("every head", maps.to_frame())


def _without(context: Context) -> None:
    """The ablation of the chosen head on this text, with its controls."""
    from interp.apps.dashboard.views import beside

    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name in ("effect", "method", "controls", "answer"):
            context.control(name)
    found = context.further("ablation")
    if found is None:
        return
    without = found["ablation"]
    metric = context.values["effect"]
    beside.draw(context, without, metric, dict.fromkeys(EFFECTS, ()))
    said, loss = (float(without[f"{name}_base"][0]) for name in ("log_probability", "loss"))
    st.caption(
        f"With all heads, the answer {without.settings['answer']!r} has log-probability {said:.3f} at the end of the "
        f"text, whose loss is {loss:.3f} nats a token."
    )


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """Maps, the chosen head, and its ablation."""
    answer = ["--answer", values["answer"]] if values["answer"] else []
    other = ["--other", values["other"]] if values["other"] else []
    asked = ["--method", values["method"], "--controls", str(values["controls"]), "--prefix", values["prefix"]]
    read = ["--", values["text"]] if values["read"] == "prompt" else ["--repeated", str(values["seq_len"])]
    shared = [*answer, *other, *asked, "--seed", str(values["seed"]), *chosen.words(), "--json"]
    return ["interp", "attention", f"--head={values['layer']}.{values['head']}", *shared, *read]


def python(values: Values, chosen: Chosen) -> str:
    """The same three results."""
    asked = {name: values[name] for name in ("method", "controls", "seed", "prefix")}
    further = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    other, prefix = values["other"] or None, values["prefix"]
    if values["read"] == "prompt":
        source = f"source, since = {values['text']!r}, 1"
    else:
        source = f"source, since = said_twice(model, {values['seq_len']}, {values['seed']}, {prefix!r})"
    return f"""
from interp.analyses.attention import attention_maps
from interp.analyses.attention_read import said_twice
from interp.analyses.head_attention import head_attention
from interp.analyses.local_ablation import ablate_here

{source}
head = ({values["layer"]}, {values["head"]})
maps = attention_maps(model, source, {other!r}, prefix={prefix!r})
looked = head_attention(model, source, head, {other!r}, prefix={prefix!r})
without = ablate_here(model, source, [head], answer={values["answer"] or None!r}, since=since, {further})
print("\\n".join([*maps.summary(), *looked.summary(), *without.summary()]))
"""


def _example() -> dict[str, Any]:
    return {
        **{parameter.name: parameter.default for parameter in PARAMETERS},
        "text": "When Mary and John went to the store, John gave a drink to",
        "first": False,
        "layer": 16,
        "head": 0,
    }


PAGE = Page(
    key="attention",
    title="Attention",
    icon=":material/visibility:",
    question="Where does every head look in this text, and what does the one in focus do there?",
    parameters=PARAMETERS,
    example=_example(),
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    further=FURTHER,
    empty="Type a prompt, or load the example, to see where every head looks.",
)
