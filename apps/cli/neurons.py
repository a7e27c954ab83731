"""`interp neurons`: which neurons carry a fact, and what becomes of it, and of others, when they are edited."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from interp.apps.cli.fact_options import Facts, Limit, Relations, about_facts, chosen_facts
from interp.apps.cli.options import Common, Occurrence, refuse, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.continuations import Continuations
    from interp.analyses.knowledge_neurons import KnowledgeNeurons
    from interp.apps.cli.neuron_edits import Edited
    from interp.facts import Fact
    from interp.models.transformer import Transformer

EPILOG = """\b
Examples:
  interp neurons "The capital of France is" --answer " Paris"
  interp neurons "The capital of France is" --paraphrase "The seat of government of France is the city of"
  interp neurons "The capital of France is" --change zero --change x3 --others 20
  interp neurons "The capital of France is" --neuron 24.1005 --change zero
  interp neurons --facts bundled --edited 20 --out results
"""


@with_common()
def neurons(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="A fact without its answer.", show_default=False)
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help='Its space included: " Paris".', show_default="what the model says"),
    ] = None,
    paraphrase: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="The same in other words; may be given again.", show_default=False),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at its last token, instead of the prompt's.", show_default=False),
    ] = None,
    occurrence: Occurrence = None,
    facts: Facts = None,
    relation: Relations = None,
    limit: Limit = None,
    position: Annotated[
        Literal["last", "subject"], typer.Option(help="With --facts: the token whose neurons are looked at.")
    ] = "last",
    edited: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="With --facts: how many of those that it knows, of relations in turn."),
    ] = 20,
    count: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many neurons are edited together, the strongest.")
    ] = 5,
    change: Annotated[
        list[str] | None,
        typer.Option(metavar="CHANGE", help="zero, mean, x2 or =1.5; may be given again.", show_default="zero mean x2"),
    ] = None,
    neuron: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Edit this one, instead of those that are found; may be given again.",
            show_default=False,
        ),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="How far the text of a PROMPT is written on.")
    ] = 8,
    others: Annotated[
        int, typer.Option(metavar="N", min=0, help="Other facts that the model knows, to see what else changes.")
    ] = 10,
    controls: Annotated[int, typer.Option(metavar="N", min=1, help="Sets of random neurons to compare with.")] = 5,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Steps of the integrated gradients.")] = 20,
    *,
    common: Common,
) -> None:
    """Find the neurons that carry a fact, edit them, and look at the answer.

    For PROMPT: its neurons, how the model goes on without them, and effects on the answer and on other facts. For
    --facts: effects over many facts, the last paraphrase of each held out when its neurons are found.
    """
    from interp.apps.cli.session import load_model

    if subject is None:
        refuse(context, "the --subject of a PROMPT", "occurrence")
    if neuron is not None:
        refuse(context, "neurons that are looked for", "subject", "paraphrase", "count", "steps")
    prompt_only = ("answer", "paraphrase", "subject", "neuron", "max_new_tokens")
    many = about_facts(context, prompt_only=prompt_only, facts_only=("position", "edited"))
    given = chosen_facts(facts, relation, limit) if many else ()
    from interp.analyses.neuron_changes import parse_change

    changes = change or ["zero", "mean", "x2"]
    for each in changes:
        parse_change(each)
    if many:
        _study(load_model(common), given, position, edited, count, changes, others, controls, steps, common)
        return
    model = load_model(common)
    from interp.apps.cli.neuron_edits import Edited

    how = Edited(tuple(changes), others, controls, max_new_tokens)
    if neuron is not None:
        _those(model, str(prompt), answer, neuron, how, common)
        return
    found = _found(model, str(prompt), answer, subject, occurrence, paraphrase or [], steps, common)
    _one(model, found, count, how, common)


def _study(
    model: "Transformer",
    facts: "tuple[Fact, ...]",
    position: Literal["last", "subject"],
    edited: int,
    count: int,
    changes: list[str],
    others: int,
    controls: int,
    steps: int,
    common: Common,
) -> None:
    """Many facts."""
    from interp.analyses.left_out import first_token_lines
    from interp.analyses.suppression import suppression_study
    from interp.apps.cli.neuron_edits import effects
    from interp.apps.cli.session import deliver, left_out_lines, working

    with working("Finding neurons, and editing them", common) as progress:
        result = suppression_study(
            model,
            facts,
            count=count,
            limit=edited,
            changes=changes,
            others=others,
            controls=controls,
            position=position,
            steps=steps,
            prefix=common.prefix,
            seed=common.seed,
            progress=progress,
        )
    notes = [*map(str.strip, first_token_lines(result)), *left_out_lines(result)]
    drawn = [effects(result), *notes, f"\n{result.caution}"]
    deliver(result, result.to_frame(), drawn, common, "neurons")


def _found(
    model: "Transformer",
    prompt: str,
    answer: str | None,
    subject: str | None,
    occurrence: int | None,
    paraphrases: list[str],
    steps: int,
    common: Common,
) -> "KnowledgeNeurons":
    from interp.analyses.knowledge_neurons import knowledge_neurons
    from interp.apps.cli.session import working

    with working("Scaling the neurons of each layer", common) as progress:
        return knowledge_neurons(
            model,
            prompt,
            answer=answer,
            paraphrases=paraphrases,
            subject=subject,
            occurrence=occurrence,
            position="last" if subject is None else "subject",
            steps=steps,
            prefix=common.prefix,
            progress=progress,
        )


def _one(
    model: "Transformer",
    found: "KnowledgeNeurons",
    count: int,
    how: "Edited",
    common: Common,
) -> None:
    """One fact: its neurons, the answer with and without them, and other facts."""
    from interp.apps.cli.neuron_edits import drawn_edits, edited
    from interp.apps.cli.session import deliver

    which = found.strongest(count)
    if not which:
        deliver(found, found.to_frame(), found.summary(), common, "neurons")
        return
    edits, texts = edited(model, found.question, which, how, common)
    head = [*found.summary()[:-1], f"\nThe strongest {len(which)}: {', '.join(map(str, which))}"]
    drawn: list[RenderableType] = [*head, *drawn_edits(edits, texts), f"\n{found.caution}"]
    others = {"edits": (edits, edits.to_frame()), "continuations": (texts, texts.to_frame())}
    deliver(found, found.to_frame(), drawn, common, "neurons", others, _notes(texts))


def _those(
    model: "Transformer", prompt: str, answer: str | None, named: list[str], how: "Edited", common: Common
) -> None:
    """Neurons that were named."""
    from interp.analyses.fact_texts import question_of
    from interp.analyses.neurons import neurons_of
    from interp.apps.cli.neuron_edits import drawn_edits, edited
    from interp.apps.cli.session import deliver

    which = neurons_of(model, named)
    edits, texts = edited(model, question_of(model, prompt, answer, prefix=common.prefix), which, how, common)
    drawn = [f"Changed: {', '.join(map(str, which))}", *drawn_edits(edits, texts), f"\n{edits.caution}"]
    others = {"continuations": (texts, texts.to_frame())}
    deliver(edits, edits.to_frame(), drawn, common, "edits", others, _notes(texts))


def _notes(texts: "Continuations") -> list[str]:
    return [f"{name}: {text}" for name, text in texts.texts.items()]
