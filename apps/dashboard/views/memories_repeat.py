"""How to come back to the numbers of the page of FFN memories: three commands, and a program."""

from interp.apps.dashboard.parameters import Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.views.memories_work import TRIGGERS_KEPT, edited_in, names_of


def command(values: Values, chosen: Chosen) -> list[str]:
    """The map."""
    asked = [f"--position={values['position']}", "--top", str(values["top_k"]), "--prefix", values["prefix"]]
    return ["interp", "memories", *asked, *chosen.words(), "--json", "--", values["text"]]


def searching(values: Values, chosen: Chosen) -> list[str]:
    """The words of the neuron's value, and its triggers."""
    asked = ["--n-documents", str(values["documents"]), "--top", str(TRIGGERS_KEPT), "--prefix", values["prefix"]]
    return ["interp", "memories", "--neuron", values["neuron"].strip(), *asked, *chosen.words(), "--json"]


def changing(values: Values, chosen: Chosen) -> list[str]:
    """What changing neurons does."""
    named = [word for name in edited_in(values) for word in ("--neuron", name)]
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
