"""`interp knockout`: what a fact loses when its subject cannot be read, and which sublayer says the answer."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from interp.apps.cli.fact_options import FILES, Facts, Limit, Relations, about_facts, check_subject, chosen_facts
from interp.apps.cli.options import Common, Occurrence, names_in, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.extraction import Extraction
    from interp.analyses.recall_effects import RecallEffects
    from interp.facts import Fact

Sublayer = Literal["mlp", "attn"]  # those of the analysis, which brings torch along
BLOCKS = ("subject", "non_subject", "last", "random")
WINDOW = 5

EPILOG = """\b
Examples:
  interp knockout "The Louvre is located in the city of" --subject "The Louvre"
  interp knockout --facts bundled --relation capital --limit 10
  interp knockout --facts bundled --relation capital --sublayer mlp --window 10 --json
  interp knockout --facts bundled --extraction --out results
"""
EPILOG += FILES


@with_common()
def knockout(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="A fact without its answer.", show_default=False)
    ] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it is about, as PROMPT names it.", show_default=False)
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help='One token, its leading space included: " Paris". Without it, what the model says.',
            show_default=False,
        ),
    ] = None,
    occurrence: Occurrence = None,
    facts: Facts = None,
    relation: Relations = None,
    limit: Limit = None,
    blocks: Annotated[str, typer.Option(metavar="LIST", help="What the last token cannot read.")] = ",".join(BLOCKS),
    window: Annotated[int, typer.Option(metavar="N", min=1, help="Layers that are cut together.")] = WINDOW,
    sublayer: Annotated[
        Sublayer | None,
        typer.Option(help="Replace what it adds at the subject, in place of blocking.", show_default=False),
    ] = None,
    extraction: Annotated[
        bool, typer.Option("--extraction", help="Instead, which sublayers would say the answer at the last token.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Keep the last token from reading the subject, layer by layer, and see how far the answer's probability falls.

    After one PROMPT, or in those facts of a file that the model knows. Shown are changes of the probability in %, means
    over facts; --json and --out hold more of every layer.
    """
    from interp.apps.cli.session import deliver, left_out_lines, load_model, working

    wanted = _wanted(blocks, sublayer, extraction, window)  # these two answer before torch is imported
    asked: str | tuple[Fact, ...] = prompt or ""
    if about_facts(context, prompt_only=("subject", "answer", "occurrence")):
        asked = chosen_facts(facts, relation, limit)
    else:
        check_subject(subject)
    settings: dict[str, Any] = {
        "subject": subject,
        "answer": answer,
        "occurrence": occurrence,
        "prefix": common.prefix,
    }
    model = load_model(common)
    result: RecallEffects | Extraction
    with working("Cutting around every layer", common) as progress:
        settings["progress"] = progress
        if extraction:
            from interp.analyses.extraction import extraction as extracted

            result = extracted(model, asked, **settings)
        elif sublayer is not None:
            from interp.analyses.sublayer_knockout import sublayer_knockout

            result = sublayer_knockout(model, asked, sublayers=[sublayer], window=window, seed=common.seed, **settings)
        else:
            from interp.analyses.knockout import attention_knockout

            result = attention_knockout(
                model,
                asked,
                blocks=wanted,  # type: ignore[arg-type]  # checked against BLOCKS
                window=window,
                seed=common.seed,
                **settings,
            )
    drawn = [*result.summary()[:-1], *_drawn(result), *left_out_lines(result), f"\n{result.caution}"]
    deliver(result, result.to_frame(), drawn, common, "knockout")


def _wanted(blocks: str, sublayer: str | None, extraction: bool, window: int) -> list[str]:
    """The blocks; raises `UsageError` for those that do not exist, and for two questions at once."""
    from interp.errors import UsageError

    asked = [blocks != ",".join(BLOCKS), sublayer is not None, extraction]
    if sum(asked) > 1:
        raise UsageError("--blocks, --sublayer and --extraction ask for different things. Give one of them.")
    if extraction and window != WINDOW:
        raise UsageError("--extraction reads every layer by itself; leave out --window.")
    return names_in("--blocks", blocks, BLOCKS)


def _drawn(result: "RecallEffects | Extraction") -> "list[RenderableType]":
    """A table with a row for every layer, and what it shows."""
    from interp.analyses.recall_effects import RecallEffects

    if isinstance(result, RecallEffects):
        return _changes(result)
    return _said(result) if "prompt" in result.settings else _rates(result)


def _changes(result: "RecallEffects") -> "list[RenderableType]":
    """Layer by layer, the mean change of each cut in %."""
    from interp.apps.cli.output import table

    rows = [
        (_layers(result, place), *map(_percent, result["mean_change"][:, place]))
        for place in range(len(result.axes["layer"]))
    ]
    columns = ["layer", *(f"{cut} %>" for cut in result.axes["cut"])]
    return [f"\nMean change of P(answer), by the layer that is {result.window_said}", "", table(columns, rows)]


def _percent(change: float) -> str:
    """A change in %, of which there is none where a cut applies to none of the facts."""
    return f"{round(change):+d}" if change == change else "–"


def _layers(result: "RecallEffects", place: int) -> str:
    """A layer, and those that were cut together with it."""
    layer, first, last = result.axes["layer"][place], result["first_layer"][place], result["last_layer"][place]
    return str(layer) if first == last else f"{layer} ({first} to {last})"


def _rates(result: "Extraction") -> "list[RenderableType]":
    """Layer by layer, the share of facts whose answer each sublayer would say."""
    from interp.apps.cli.output import table

    rows = [(str(layer), *(f"{rate:.1%}" for rate in rates)) for layer, rates in enumerate(result["rate"].T)]
    return ["\nShare of facts", "", table(["layer", *(f"{name}>" for name in result.axes["sublayer"])], rows)]


def _said(result: "Extraction") -> "list[RenderableType]":
    """Layer by layer, what each sublayer would say after one prompt."""
    from interp.apps.cli.output import show_token, table

    rows = [
        (str(layer), *(show_token(str(text)) for text in texts)) for layer, texts in enumerate(result["said"][..., 0].T)
    ]
    return ["\nWhat each sublayer would say", "", table(["layer", *map(str, result.axes["sublayer"])], rows)]
