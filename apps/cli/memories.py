"""`interp memories`: the FFN's neurons at a prompt, one neuron over a corpus, or those of known facts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.fact_options import Facts, Limit, Relations, about_facts, chosen_facts
from interp.apps.cli.options import Common, refuse, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.fact_memories import FactMemories
    from interp.analyses.memories import Memories
    from interp.analyses.triggers import Triggers
    from interp.analyses.value_tokens import ValueTokens
    from interp.facts import Fact
    from interp.models.transformer import Transformer

EPILOG = """\b
Examples:
  interp memories "The capital of France is" --top 5
  interp memories "The Eiffel Tower is located in the city of" --layer 24
  interp memories --neuron 24.1005
  interp memories --neuron 24.1005 --documents notes/ --json
  interp memories --facts bundled --relation capital --out results
"""
WORDS = 5  # tokens of a neuron that a table shows


@with_common("seed")
def memories(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="The prompt.", show_default=False)] = None,
    layer: Annotated[
        int | None, typer.Option(metavar="N", help="Only this layer; negative from the end.", show_default="all")
    ] = None,
    position: Annotated[int, typer.Option(metavar="N", help="Which token of PROMPT; negative from the end.")] = -1,
    top: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many neurons a layer, or triggers.", show_default=False)
    ] = None,
    neuron: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One neuron: layer.neuron; layer.expert.neuron or layer.shared.neuron of a mixture.",
            show_default=False,
        ),
    ] = None,
    documents: Annotated[
        Path | None,
        typer.Option(help="Texts for the triggers: a .txt file or a folder.", show_default="those that come along"),
    ] = None,
    n_documents: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first N of these texts.", show_default="all")
    ] = None,
    facts: Facts = None,
    relation: Relations = None,
    limit: Limit = None,
    *,
    common: Common,
) -> None:
    """Read the FFN as key-value memories.

    PROMPT: the neurons that write most at one token, and the words they promote. --neuron: the words of its value, and
    the texts for which it fires most, with either sign. --facts: whether the dominant neurons of known facts speak for
    the answer.
    """
    from interp.analyses.neurons import Neuron
    from interp.apps.cli.session import load_model

    if about_facts(context, prompt_only=("position",), others=("neuron",)):
        refuse(context, "--neuron", "documents", "n_documents")
        chosen = chosen_facts(facts, relation, limit)  # answers before torch is imported
        _of_facts(load_model(common), chosen, layer, top or 5, common)
    elif neuron is not None:
        refuse(context, "a PROMPT", "position")
        refuse(context, "a PROMPT or --facts", "layer")
        Neuron.parse(neuron)  # answers before the model is loaded
        _of_neuron(load_model(common), neuron, (documents, n_documents), top or 10, common)
    else:
        refuse(context, "--neuron", "documents", "n_documents")
        _of_prompt(load_model(common), str(prompt), layer, position, top, common)


def _of_prompt(
    model: "Transformer", prompt: str, layer: int | None, position: int, top: int | None, common: Common
) -> None:
    from interp.analyses.memories import ffn_memories
    from interp.apps.cli.session import deliver, working

    count = top or (1 if layer is None else 10)
    with working("Reading the FFNs", common):
        result = ffn_memories(model, prompt, layer=layer, position=position, top_k=count, prefix=common.prefix)
    deliver(result, result.to_frame(), [_drawn_prompt(result), f"\n{result.caution}"], common, "memories")


def _drawn_prompt(result: "Memories") -> "RenderableType":
    from interp.apps.cli.output import show_token, table

    rows = [
        (
            str(row["name"]),
            f"{row['coefficient']:+.2f}",
            f"{row['dominance']:.2f}",
            f"{row['explained']:.1%}",
            *(
                _words(result.at(f"{end}_token", layer=row["layer"], rank=row["rank"]))
                for end in ("promoted", "suppressed")
            ),
        )
        for row in result.to_frame().to_dict(orient="records")
    ]
    title = f"At {show_token(str(result['token']))} (position {result.settings['position']})"
    columns = ["neuron", "coefficient>", "|m|·‖v‖>", "explained so far>", "promotes", "suppresses"]
    return table(columns, rows, title)


def _words(tokens: object) -> str:
    from interp.apps.cli.output import show_token

    return "  ".join(show_token(str(token)) for token in list(tokens)[:WORDS])  # type: ignore[call-overload]  # an array


def _of_neuron(
    model: "Transformer", neuron: str, asked: tuple[Path | None, int | None], top: int, common: Common
) -> None:
    """`asked`: where the texts are, and how many of them are read."""
    from interp.analyses.documents import bundled, read_documents
    from interp.analyses.neurons import memory_of, neurons_of
    from interp.analyses.triggers import find_triggers
    from interp.analyses.value_tokens import value_tokens
    from interp.apps.cli.session import deliver, working

    (which,) = neurons_of(model, [neuron])
    layer, memory = which.layer, memory_of(model.config, which)
    values = value_tokens(model, layer=layer, neurons=memory)
    documents, count = asked
    texts = (bundled() if documents is None else read_documents(documents))[:count]
    with working("Searching for triggers", common) as progress:
        found = find_triggers(
            model, texts, layers=layer, neurons=memory, top_k=top, prefix=common.prefix, progress=progress
        )
    table, others = found.examples(layer, found.axes["neuron"][0]), {"value-tokens": (values, values.to_frame())}
    deliver(found, table, _drawn_neuron(values, found), common, "triggers", others)


def _drawn_neuron(values: "ValueTokens", found: "Triggers") -> "list[RenderableType]":
    """The words of the value, then the triggers at both ends."""
    from interp.apps.cli.output import show_token, table

    layer, name = found.axes["layer"][0], found.axes["neuron"][0]
    words = [(end, _words(values[f"{end}_token"][0])) for end in ("top", "bottom")]
    rows = [
        (
            row["end"],
            f"{row['coefficient']:+.2f}",
            show_token(row["context"]),
            show_token(row["follows"]),
            row["document"],
        )
        for row in found.examples(int(layer), name).to_dict(orient="records")
    ]
    read = f"Triggers among {int(found['searched']):,} tokens"
    return [
        table(["value", "tokens"], words, f"Neuron {layer}.{name}"),
        "",
        table(["end", "coefficient>", "text up to the trigger", "follows", "document"], rows, read),
        f"\n{values.caution}\n{found.caution}",
    ]


def _of_facts(model: "Transformer", facts: "tuple[Fact, ...]", layer: int | None, top: int, common: Common) -> None:
    from interp.analyses.fact_memories import fact_memories
    from interp.apps.cli.session import deliver, left_out_lines, working

    with working("Reading the FFNs at every fact", common) as progress:
        result = fact_memories(model, facts, layer=layer, top_k=top, prefix=common.prefix, progress=progress)
    drawn = [*result.summary()[:-1], "", _drawn_facts(result), *left_out_lines(result), f"\n{result.caution}"]
    deliver(result, result.to_frame(), drawn, common, "fact-memories")


def _drawn_facts(result: "FactMemories") -> "RenderableType":
    """Of every fact and token the sub-update that speaks loudest for the answer."""
    from interp.apps.cli.output import show_token, table

    frame = result.to_frame()
    best = frame.loc[frame.groupby(["fact", "role"], sort=False)["answer_rank"].idxmin()]
    rows = [
        (
            row["prompt"],
            show_token(row["answer"]),
            row["role"].replace("_", " "),
            row["name"],
            f"{row['coefficient']:+.2f}",
            f"{row['answer_rank']:,}",
            show_token(row["promoted_token"]),
        )
        for row in best.to_dict(orient="records")
    ]
    columns = ["prompt", "answer", "token", "neuron", "coefficient>", "rank of the answer>", "promotes most"]
    return table(columns, rows, "The dominant neuron that ranks the answer highest")
