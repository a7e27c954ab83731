"""`interp attribute`: which parts of the residual stream write an answer's logit."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from interp.apps.cli.facts import Relations, chosen_facts
from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.attribution import Attribution
    from interp.facts import Fact

By = Literal["sublayer", "head", "source", "head_source", "neuron", "expert"]  # those of the analysis

EPILOG = """\b
Examples:
  interp attribute "The Eiffel Tower is located in the city of" --answer " Paris" --foil " London"
  interp attribute "The capital of France is" --answer " Paris" --by neuron --top 20
  interp attribute "The capital of France is" --answer " Paris" --by source --json
  interp attribute --facts bundled --relation capital --by head --out results
"""


@with_common()
def attribute(
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
    by: Annotated[By, typer.Option(help="What the residual stream is taken apart into.")] = "head",
    position: Annotated[int, typer.Option(metavar="N", help="Which position to read; negative from the end.")] = -1,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="How many parts to show, the strongest first.")] = 12,
    facts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Facts in place of a prompt: a file, or bundled.", show_default=False),
    ] = None,
    relation: Relations = None,
    *,
    common: Common,
) -> None:
    """Take a logit, or a difference of two, apart into what every part of the model wrote: direct logit attribution.

    Of PROMPT and its answer; or on the mean over the facts that the model knows, against other objects of their
    relation. --json and --out hold all parts.
    """
    chosen = _checked(prompt, answer, foil, position, facts, relation)  # answers before torch is imported
    from interp.apps.cli.session import deliver, load_model, working

    model = load_model(common)
    from interp.analyses.attribution import direct_logit_attribution
    from interp.analyses.attribution_facts import attribute_facts

    result: Attribution
    with working("Taking logits apart", common) as progress:
        if chosen is not None:
            result = attribute_facts(model, chosen, by=by, prefix=common.prefix, seed=common.seed, progress=progress)
        else:
            assert prompt is not None
            assert answer is not None
            result = direct_logit_attribution(
                model, prompt, answer, foil, by=by, position=position, prefix=common.prefix, seed=common.seed
            )
    deliver(result, result.to_frame(), _drawn(result, top), common, "attribution")


def _checked(
    prompt: str | None,
    answer: str | None,
    foil: str | None,
    position: int,
    facts: str | None,
    relation: list[str] | None,
) -> "tuple[Fact, ...] | None":
    """The facts, if it is about facts; raises `UsageError` for what no model could answer."""
    from interp.apps.cli.session import check_text
    from interp.errors import UsageError

    if (prompt is None) == (facts is None):
        raise UsageError("Give a PROMPT with its --answer, or --facts with a file or the word bundled: one of the two.")
    if facts is not None:
        if answer is not None or foil is not None or position != -1:
            raise UsageError(
                "Facts bring their answers, and are read at their last token. Leave out the other options."
            )
        return chosen_facts(facts, relation)
    if relation:
        raise UsageError("--relation chooses among facts; give --facts too.")
    check_text(prompt or "")
    if answer is None:
        raise UsageError('Which logit? Give --answer one token, its leading space included, such as " Paris".')
    return None


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
    notes = [line.strip() for line in summary if "add up" in line or "left out" in line]
    notes += left_out_lines(result)
    return [summary[0], "", table(columns, rows), "", f"{shown} of {len(frame)} parts.", *notes, f"\n{result.caution}"]
