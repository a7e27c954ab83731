"""FFN memories: which neurons write most at a token, in which words; one of them closely, and what changing it does."""

import shlex
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import address
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    from interp.analyses.neurons import Neuron
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

METRICS = {
    "dominance": "dominance |w·m|·‖v‖, signed as m",
    "coefficient": "coefficient m",
    "explained": "explained so far",
}
CHANGES = {
    "zero": "zero: nothing is written",
    "mean": "mean: its average over the texts",
    "x0.5": "halved",
    "x2": "twice",
    "x3": "three times",
    "x10": "ten times",
}


def _named(text: str) -> str | None:
    """What is wrong with the names of neurons, if anything is."""
    from interp.analyses.neurons import Neuron
    from interp.errors import UsageError

    try:
        for name in names_of(text):
            Neuron.parse(name)
    except UsageError as error:
        return str(error)
    return None


def names_of(text: str) -> list[str]:
    """The neurons that a line names, by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _one(text: str) -> str | None:
    return "One neuron is expected here." if len(names_of(text)) > 1 else _named(text)


PARAMETERS = (
    Parameter("text", "text", "", "Prompt", "The text that the model reads.", needed=True, tokens=True),
    Parameter("position", "whole", -1, "Position", "The token at which neurons write; negative: from the end.",
              low=-99_999, high=99_999),
    Parameter("top_k", "whole", 10, "Neurons a layer", "How many of each layer, the dominant ones.", low=1, high=20),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before the prompt.", choices=("doc", "none", "chat")),
    Parameter("metric", "choice", "dominance", "Colour", choices=tuple(METRICS), labels=METRICS, view=True),
    Parameter("layer", "whole", 0, "Layer", low=0, high=999, view=True),
    Parameter("rank", "whole", 1, "Rank in its layer", "1 writes most.", low=1, high=20, view=True),
    Parameter("neuron", "line", "", "Neuron", "By name, such as 24.1005. A click on the map names the one there.",
              check=_one, view=True),
    Parameter("documents", "whole", 6, "Documents", "How many of those that come along are searched.", low=1, high=99,
              view=True),
    Parameter("edited", "line", "", "Neurons to change", "By commas; empty: the one above.", check=_named, view=True),
    Parameter("changes", "choices", ("zero", "x3"), "Changes", choices=tuple(CHANGES), labels=CHANGES, view=True),
    Parameter("answer", "line", "", "Answer", 'Its leading space included, " Paris"; empty: the model\'s own.',
              view=True),
    Parameter("others", "whole", 6, "Other facts", "That the model knows: what else changes.", low=0, high=50,
              view=True),
    Parameter("controls", "whole", 5, "Random neurons", "How many sets of them, of the same layers.", low=1, high=50,
              view=True),
    Parameter("seed", "whole", 0, "Seed", "Of the random neurons.", low=0, high=2**31, view=True),
    Parameter("new_tokens", "whole", 12, "Tokens written", "How far the text is written on.", low=1, high=64,
              view=True),
)  # fmt: skip
TRIGGERS_KEPT = 10
PIECE = 512  # tokens of a document that are read together, at most


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The dominant neurons of every layer."""
    from interp.analyses.memories import ffn_memories

    report(0, 1)
    asked = {name: values[name] for name in ("position", "top_k", "prefix")}
    return {"memories": ffn_memories(model, values["text"], **asked)}


def cost(model: "Transformer", values: Values) -> Cost:
    """A run, and the vocabulary's scores of all that is kept."""
    length = len(model.tokenizer.prompt_ids(values["text"], values["prefix"]))
    return estimated(model, "memories", [length], {"top_k": values["top_k"]})


def _place(model: "Transformer", values: Values) -> "tuple[Neuron, int]":
    """The neuron, and its number in its layer."""
    from interp.analyses.neurons import memory_of, neurons_of

    (neuron,) = neurons_of(model, names_of(values["neuron"]))
    return neuron, memory_of(model.config, neuron)


def compute_words(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The words of one value vector."""
    from interp.analyses.value_tokens import value_tokens

    neuron, memory = _place(model, values)
    return {"words": value_tokens(model, layer=neuron.layer, neurons=memory)}


def compute_triggers(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """Where one neuron fires most, with either sign."""
    from interp.analyses.documents import bundled
    from interp.analyses.triggers import find_triggers

    neuron, memory = _place(model, values)
    texts = bundled()[: values["documents"]]
    asked: dict[str, Any] = {"layers": neuron.layer, "neurons": memory, "top_k": TRIGGERS_KEPT}
    asked |= {"length": _piece(model, values), "prefix": values["prefix"]}
    return {"triggers": find_triggers(model, texts, **asked, progress=report)}


def _piece(model: "Transformer", values: Values) -> int:
    return min(PIECE, model.config.n_ctx - len(model.tokenizer.prefix_ids(values["prefix"])))


def cost_of_triggers(model: "Transformer", values: Values) -> Cost:
    """Every document, up to the neuron's layer."""
    from interp.analyses.documents import bundled

    neuron, _ = _place(model, values)
    lengths = [len(model.tokenizer.encode(document.text)) for document in bundled()[: values["documents"]]]
    asked = {"layers": [neuron.layer], "prefix": values["prefix"], "length": _piece(model, values)}
    return estimated(model, "triggers", lengths, asked)


def _edited(values: Values) -> list[str]:
    return names_of(values["edited"]) or names_of(values["neuron"])


def compute_changes(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """How the text goes on with the neurons changed; what that does to the answer, and to other facts."""
    from interp.analyses.continuations import continuations
    from interp.analyses.fact_texts import question_of
    from interp.analyses.neuron_edits import edit_neurons
    from interp.analyses.suppression import known_others

    prefix, which, changes = values["prefix"], _edited(values), list(values["changes"])
    asked = question_of(model, values["text"], values["answer"] or None, prefix=prefix)
    written = [change for change in changes if change != "mean"]
    texts = continuations(
        model, values["text"], which, changes=written, max_new_tokens=values["new_tokens"], prefix=prefix,
        progress=report,
    )  # fmt: skip
    report.partial({"texts": texts})
    others = known_others(model, values["others"], asked.answer, prefix=prefix if prefix != "chat" else "doc")
    edits = edit_neurons(
        model, [asked, *others], which, changes=changes, controls=values["controls"], prefix=prefix,
        seed=values["seed"], progress=report, cancelled=report.cancelled,
    )  # fmt: skip
    return {"texts": texts, "edits": edits}


def cost_of_changes(model: "Transformer", values: Values) -> Cost:
    """The text and the others, with each change, of these neurons and of random ones."""
    length = len(model.tokenizer.prompt_ids(values["text"], values["prefix"]))
    asked = {"changes": values["changes"], "controls": values["controls"], "neurons": _edited(values)}
    return estimated(model, "neuron-edits", [length] * (1 + values["others"]), asked)


def show(context: Context, results: Results) -> None:
    """The map of all layers; one layer; one neuron; what changing neurons does."""
    from interp.apps.dashboard.views import memories_drawn as drawn

    found = results["memories"]
    drawn.where(found)
    st.subheader("The neurons that write most", anchor=False)
    layer, rank = context.heatmap("memories", drawn.grid(found, context.values["metric"]), drawn.alt(found),
                                  beside=("metric",))  # fmt: skip
    _follow(context, (layer, rank), str(found["name"][layer, rank]))
    st.markdown(f"**Layer {found.axes['layer'][layer]}**, the neurons that write most:")
    context.table("layer", drawn.layer_table(found, layer))
    st.caption(found.caution)
    st.subheader("One neuron", anchor=False)
    name = str(context.control("neuron")).strip()
    if (problem := _one(name) or drawn.refused(context.model, name)) is not None:
        st.warning(problem)
        return
    drawn.here(context, found, name)
    left, right = st.columns(2, gap="large")
    with left:
        _words(context, name)
    with right:
        _triggers(context, name)
    _changes(context, name)


def _follow(context: Context, cell: tuple[int, int], name: str) -> None:
    """Another cell was chosen, or other neurons stand in it: look at the one that is there now."""
    before = st.session_state.get("_memories.cell")
    now = str(context.values["neuron"]).strip()
    chosen = before is not None and before[0] != cell
    moved = before is not None and before[1] == now
    if not now or chosen or moved:
        context.put("neuron", name)
        for inputs in address.asked(context.page).values():
            if inputs.get("neuron") == "":  # asked for by a link that left it to the cell
                inputs["neuron"] = name
    st.session_state["_memories.cell"] = (cell, name)


def _words(context: Context, name: str) -> None:
    from interp.apps.dashboard.views import memories_drawn as drawn

    st.markdown(f"**The words of {name}**, whatever the text")
    found = context.further("words")
    if found is None:
        return
    words = found["words"]
    context.table("words", drawn.both_ends(words))
    st.caption(f"{words.caution} ‖v‖ is {float(words['value_norm'][0]):.2f}.")


def _triggers(context: Context, name: str) -> None:
    from interp.analyses.documents import bundled
    from interp.apps.dashboard.views import memories_drawn as drawn

    st.markdown(f"**The texts that {name} fires for**")
    context.control("documents", 1, len(bundled()))
    found = context.further("triggers", button="Search for its triggers")
    if found is not None:
        drawn.triggers(context, found["triggers"])


def _changes(context: Context, name: str) -> None:
    """What suppressing and amplifying does."""
    from interp.apps.dashboard.views import memories_drawn as drawn

    st.subheader("Suppress or amplify, and write again", anchor=False)
    for names in (("edited", "changes", "answer"), ("new_tokens", "others", "controls", "seed")):
        for column, each in zip(st.columns(len(names)), names, strict=True):
            with column:
                context.control(each)
    named = str(context.values["edited"]).strip()
    if (problem := drawn.refused(context.model, named)) is not None and named:
        st.warning(problem)
        return
    if not context.values["changes"]:
        st.warning("No change is chosen: choose one, such as zero.")
        return
    label = f"Change {named or name} and write again"
    found = context.further("changes", button=label)
    if found is not None:
        drawn.changes(context, found)
        st.caption("The same as a command:")
        st.code(shlex.join(changing(context.shown_values, context.chosen)), language="bash", wrap_lines=True)


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """The map."""
    asked = [f"--position={values['position']}", "--top", str(values["top_k"]), "--prefix", values["prefix"]]
    return ["interp", "memories", *asked, *chosen.words(), "--json", "--", values["text"]]


def changing(values: Values, chosen: Chosen) -> list[str]:
    """What changing neurons does."""
    named = [word for name in _edited(values) for word in ("--neuron", name)]
    changes = [word for change in values["changes"] for word in ("--change", change)]
    answer = ["--answer", values["answer"]] if values["answer"] else []
    numbers = {"others": "--others", "controls": "--controls", "seed": "--seed", "new_tokens": "--max-new-tokens"}
    counted = [word for name, option in numbers.items() for word in (option, str(values[name]))]
    said = [*answer, *named, *changes, *counted, "--prefix", values["prefix"], *chosen.words(), "--json"]
    return ["interp", "neurons", *said, "--", values["text"]]


def python(values: Values, chosen: Chosen) -> str:
    """The map, the neuron, and what changing neurons does."""
    asked = ", ".join(f"{name}={values[name]!r}" for name in ("position", "top_k", "prefix"))
    prefix, written = values["prefix"], [change for change in values["changes"] if change != "mean"]
    cell = f"str(found['name'][{values['layer']}, {values['rank'] - 1}])"
    neuron = f"{values['neuron']!r}" if values["neuron"] else cell
    return f"""
from interp.analyses.continuations import continuations
from interp.analyses.documents import bundled
from interp.analyses.fact_texts import question_of
from interp.analyses.memories import ffn_memories
from interp.analyses.neuron_edits import edit_neurons
from interp.analyses.neurons import memory_of, neurons_of
from interp.analyses.suppression import known_others
from interp.analyses.triggers import find_triggers
from interp.analyses.value_tokens import value_tokens

text = {values["text"]!r}
found = ffn_memories(model, text, {asked})
(neuron,) = neurons_of(model, [{neuron}])
memory = memory_of(model.config, neuron)
words = value_tokens(model, layer=neuron.layer, neurons=memory)
print("\\n".join([*found.summary(), *words.summary()]))


def triggers():  # takes a while
    return find_triggers(
        model,
        bundled()[:{values["documents"]}],
        layers=neuron.layer,
        neurons=memory,
        top_k={TRIGGERS_KEPT},
        length=min({PIECE}, model.config.n_ctx - len(model.tokenizer.prefix_ids({prefix!r}))),
        prefix={prefix!r},
    )


def changed(which={names_of(values["edited"]) or None!r}):
    which = which or [neuron]
    texts = continuations(
        model, text, which, changes={written!r}, max_new_tokens={values["new_tokens"]}, prefix={prefix!r}
    )
    asked = question_of(model, text, {values["answer"] or None!r}, prefix={prefix!r})
    others = known_others(model, {values["others"]}, asked.answer, prefix={prefix if prefix != "chat" else "doc"!r})
    edits = edit_neurons(
        model,
        [asked, *others],
        which,
        changes={list(values["changes"])!r},
        controls={values["controls"]},
        seed={values["seed"]},
        prefix={prefix!r},
    )
    return texts, edits


# print("\\n".join(triggers().summary()))
# print("\\n".join(line for each in changed() for line in each.summary()))
"""


PAGE = Page(
    key="memories",
    title="FFN memories",
    icon=":material/memory:",
    question="Which neurons write most at this token, in which words, and what becomes of the text without them?",
    parameters=PARAMETERS,
    example={
        **{parameter.name: parameter.default for parameter in PARAMETERS},
        "text": "The Eiffel Tower is located in the city of",
        "layer": 24,
        "answer": " Paris",
    },
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    further=(
        Work("words", "Reading the value", compute_words, needs=("neuron",), automatic=True, recorded=False),
        Work("triggers", "Searching for triggers", compute_triggers, needs=("neuron", "documents", "prefix"),
             cost=cost_of_triggers),
        Work("changes", "Changing neurons", compute_changes, cost=cost_of_changes,
             needs=("text", "prefix", "neuron", "edited", "changes", "answer", "others", "controls", "seed",
                    "new_tokens")),
    ),
    empty="Type a prompt, or load the example, to see which neurons of each layer write most.",
)  # fmt: skip
