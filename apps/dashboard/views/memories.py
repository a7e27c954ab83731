"""FFN memories: which neurons write most at a token, in which words; one of them closely, and what changing it does."""

import streamlit as st

from interp.apps.dashboard import address
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.page import Page, Work
from interp.apps.dashboard.parameters import Parameter
from interp.apps.dashboard.store import Results
from interp.apps.dashboard.views import memories_work as work
from interp.apps.dashboard.views.memories_repeat import changing, command, python, searching
from interp.apps.dashboard.views.memories_work import names_of

METRICS = {
    "dominance": "dominance |w·m|·‖v‖, signed as m",
    "coefficient": "coefficient m",
    "explained": "explained so far",
}
CHANGES = {"zero": "to nothing", "mean": "to its mean", "x0.5": "× 0.5", "x2": "× 2", "x3": "× 3", "x10": "× 10"}


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
    compute=work.compute,
    command=command,
    python=python,
    cost=work.cost,
    further=(
        Work("words", "Reading the value", work.compute_words, needs=("neuron",), automatic=True, recorded=False),
        Work("triggers", "Searching for triggers", work.compute_triggers, needs=("neuron", "documents", "prefix"),
             cost=work.cost_of_triggers, command=searching),
        Work("changes", "Changing neurons", work.compute_changes, cost=work.cost_of_changes, command=changing,
             needs=("text", "prefix", "neuron", "edited", "changes", "answer", "others", "controls", "seed",
                    "new_tokens")),
    ),
    empty="Type a prompt, or load the example, to see which neurons of each layer write most.",
)  # fmt: skip
