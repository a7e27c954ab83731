"""What the page of FFN memories computes, and what that costs. Nothing here draws."""

from typing import TYPE_CHECKING, Any

from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost
from interp.apps.dashboard.parameters import Values
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    from interp.analyses.neurons import Neuron
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

TRIGGERS_KEPT = 10


def names_of(text: str) -> list[str]:
    """The neurons that a line names, by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


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
    asked["prefix"] = values["prefix"]
    return {"triggers": find_triggers(model, texts, **asked, progress=report, so_far=report.so_far("triggers"))}


def cost_of_triggers(model: "Transformer", values: Values) -> Cost:
    """Every document, up to the neuron's layer."""
    from interp.analyses.documents import bundled

    neuron, _ = _place(model, values)
    lengths = [len(model.tokenizer.encode(document.text)) for document in bundled()[: values["documents"]]]
    asked = {"layers": [neuron.layer], "prefix": values["prefix"]}
    return estimated(model, "triggers", lengths, asked)


def edited_in(values: Values) -> list[str]:
    """The neurons that are changed: those that are named, else the one that is looked at."""
    return names_of(values["edited"]) or names_of(values["neuron"])


def compute_changes(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """How the text goes on with the neurons changed; what that does to the answer, and to other facts."""
    from interp.analyses.continuations import continuations
    from interp.analyses.fact_texts import question_of
    from interp.analyses.neuron_edits import edit_neurons
    from interp.analyses.suppression import known_others

    prefix, which, changes = values["prefix"], edited_in(values), list(values["changes"])
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
    asked = {"changes": values["changes"], "controls": values["controls"], "neurons": edited_in(values)}
    return estimated(model, "neuron-edits", [length] * (1 + values["others"]), asked)
