"""What `interp neurons` does with neurons once they are found or named: edits them, and tells what that did."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.continuations import Continuations
    from interp.analyses.fact_texts import Question
    from interp.analyses.neuron_edits import NeuronEdits
    from interp.analyses.neurons import Neuron
    from interp.apps.cli.options import Common
    from interp.models.transformer import Transformer


@dataclass(frozen=True)
class Edited:
    """How neurons are edited: the changes, how many other facts and sets of random neurons, how far a text goes on."""

    changes: tuple[str, ...]
    others: int
    controls: int
    max_new_tokens: int


def edited(
    model: "Transformer", asked: "Question", which: "Sequence[Neuron]", how: Edited, common: "Common"
) -> "tuple[NeuronEdits, Continuations]":
    """Effects on the answer and on other facts, and how the prompt goes on."""
    from interp.analyses.continuations import continuations
    from interp.analyses.neuron_edits import edit_neurons
    from interp.analyses.suppression import known_others
    from interp.apps.cli.session import working

    with working("Editing them, and random neurons", common) as progress:
        edits = edit_neurons(
            model,
            [asked, *known_others(model, how.others, asked.answer, prefix=common.prefix)],
            which,
            changes=how.changes,
            controls=how.controls,
            prefix=common.prefix,
            seed=common.seed,
            progress=progress,
        )
        texts = continuations(
            model,
            asked.prompts[0],
            which,
            changes=[each for each in how.changes if each != "mean"],
            max_new_tokens=how.max_new_tokens,
            prefix=common.prefix,
        )
    return edits, texts


def drawn_edits(edits: "NeuronEdits", texts: "Continuations") -> "list[RenderableType]":
    """The texts, then the effects."""
    from interp.apps.cli.output import show_token

    return [*(f"  {name:>10}: {show_token(text)}" for name, text in texts.texts.items()), "", effects(edits)]


def effects(result: "NeuronEdits") -> "RenderableType":
    """One row a change and group."""
    from interp.apps.cli.output import table

    rows = [
        (
            row["change"],
            row["group"],
            *(result.interval(name, row["change"], row["group"]) for name in ("effect", "control_effect", "excess")),
            f"{row['relative']:+.0%}",
            f"{row['lost']:.0%}" if row["lost"] == row["lost"] else "–",
        )
        for row in result.to_frame().to_dict(orient="records")
        if row["units"]
    ]
    columns = ["change", "texts", "effect on p(answer)>", "random neurons>", "excess>", "relative>", "answers lost>"]
    return table(columns, rows, f"{len(result.axes['edited'])} edited, {len(result['prompt'])} texts; 95 % intervals")
