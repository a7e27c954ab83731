"""`interp attribute`: which parts of the residual stream write an answer's logit."""

from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from interp.apps.cli.fact_options import Facts, Limit, Relations, about_facts, chosen_facts
from interp.apps.cli.options import Common, names_in, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.attribution import Attribution
    from interp.facts import Fact
    from interp.models.transformer import Transformer

By = Literal["sublayer", "head", "source", "head_source", "neuron", "expert"]  # those of the analysis
WAYS = get_args(By)
Foils = Literal["relation", "none"]

EPILOG = """\b
Examples:
  interp attribute "The Eiffel Tower is located in the city of" --answer " Paris" --foil " London"
  interp attribute "The capital of France is" --answer " Paris" --by neuron --top 20
  interp attribute "The capital of France is" --answer " Paris" --by sublayer,source --json
  interp attribute --facts bundled --relation capital --by head --out results
  interp attribute --facts my-facts.jsonl --foils none
"""


@with_common()
def attribute(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="The prompt.", show_default=False)] = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help='One token, its leading space included: " Paris".', show_default=False),
    ] = None,
    foil: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="A token whose logit is taken off: what the answer has over it.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="LIST", help=f"What the residual stream is taken apart into: {', '.join(WAYS)}.")
    ] = "head",
    position: Annotated[int, typer.Option(metavar="N", help="Which position to read; negative from the end.")] = -1,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="How many parts to show, the strongest first.")] = 12,
    facts: Facts = None,
    relation: Relations = None,
    limit: Limit = None,
    foils: Annotated[
        Foils,
        typer.Option(help="What is taken off the objects of facts: another object of the relation, or nothing."),
    ] = "relation",
    *,
    common: Common,
) -> None:
    """Take a logit, or a difference of two, apart into what every part of the model wrote: direct logit attribution.

    Of PROMPT and its answer; or on the mean over the facts that the model knows, against other objects of their
    relation. --json and --out hold all parts.
    """
    from interp.apps.cli.session import deliver, load_model
    from interp.errors import UsageError

    ways: list[By] = names_in("--by", by, WAYS)  # type: ignore[assignment]  # names of WAYS
    if about_facts(context, prompt_only=("answer", "foil", "position"), facts_only=("foils",)):
        chosen = chosen_facts(facts, relation, limit)  # answers before torch is imported
        model = load_model(common)
        found = {way: _of_facts(model, chosen, way, foils, common) for way in ways}
    elif answer is None:
        raise UsageError('Which logit? Give --answer one token, its leading space included, such as " Paris".')
    else:
        model = load_model(common)
        found = {way: _of_prompt(model, str(prompt), (answer, foil), way, position, common) for way in ways}
    first = found.pop(ways[0])
    others = {str(way): (result, result.to_frame()) for way, result in found.items()}
    parts = _drawn(first, top)
    for result in found.values():
        parts += ["", *_drawn(result, top)]
    deliver(first, first.to_frame(), parts, common, "attribution", others)


def _of_facts(model: "Transformer", facts: "tuple[Fact, ...]", by: By, foils: Foils, common: Common) -> "Attribution":
    from interp.analyses.attribution_facts import attribute_facts
    from interp.apps.cli.session import working

    with working("Taking logits apart", common) as progress:
        return attribute_facts(
            model, facts, by=by, foils=foils, prefix=common.prefix, seed=common.seed, progress=progress
        )


def _of_prompt(
    model: "Transformer", prompt: str, asked: tuple[str, str | None], by: By, position: int, common: Common
) -> "Attribution":
    """`asked`: the answer and its foil."""
    from interp.analyses.attribution import direct_logit_attribution
    from interp.apps.cli.session import working

    with working("Taking logits apart", common):
        return direct_logit_attribution(
            model, prompt, *asked, by=by, position=position, prefix=common.prefix, seed=common.seed
        )


def _drawn(result: "Attribution", top: int) -> "list[RenderableType]":
    """The strongest parts as a table, between what was asked and what it does not say."""
    from interp.apps.cli.output import table
    from interp.apps.cli.session import left_out_lines

    frame = result.to_frame()
    order = frame["mean"].abs().sort_values(ascending=False, kind="stable").index[:top]
    several = len(result["logit"]) > 1
    rows = [
        (row["part"], f"{row['mean']:+.3f}", *([f"{row['low']:+.3f} to {row['high']:+.3f}"] if several else []))
        for row in frame.loc[order].to_dict(orient="records")
    ]
    summary = result.summary()
    shown = min(top, len(frame))
    columns = ["part", "logits>", *(["95 % interval>"] if several else [])]
    closing = next(place for place, line in enumerate(summary) if "add up" in line)  # behind the strongest parts
    notes = [*map(str.strip, summary[closing:-1]), *left_out_lines(result)]
    return [summary[0], "", table(columns, rows), "", f"{shown} of {len(frame)} parts.", *notes, f"\n{result.caution}"]
