"""`interp induction`: heads that look at what followed the same token earlier."""

from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.induction import InductionScores

EPILOG = """\b
Examples:
  interp induction
  interp induction --seq-len 25 --repeats 4 --top 20
  interp induction --json --out results
"""


@with_common()
def induction(
    seq_len: Annotated[int, typer.Option(metavar="N", min=2, help="Random tokens in the repeated sequence.")] = 50,
    repeats: Annotated[int, typer.Option(metavar="N", min=2, help="How often the sequence stands.")] = 2,
    n_seqs: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences to average over.")] = 16,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Heads to show; --json and --out hold all.")] = 10,
    *,
    common: Common,
) -> None:
    """Score every attention head on repeated random tokens.

    Induction heads look at what came after the last occurrence of the current token; the strongest stand first.
    """
    from interp.analyses.induction import score_heads
    from interp.apps.cli.session import deliver, load_model, working

    model = load_model(common)
    with working("Scoring heads", common) as progress:
        result = score_heads(
            model,
            seq_len=seq_len,
            repeats=repeats,
            n_seqs=n_seqs,
            seed=common.seed,
            prefix=common.prefix,
            progress=progress,
        )
    everything = result.ranked(result["prefix_matching"].size)
    deliver(result, everything, [_drawn(result, top), f"\n{result.caution}"], common, "induction")


def _drawn(result: "InductionScores", top: int) -> "RenderableType":
    from interp.analyses.induction import SCORES
    from interp.apps.cli.output import table

    rows = [
        (
            f"{row['layer']}.{row['head']}",
            *(f"{row[score]:.3f}" for score in SCORES),
            f"{row['prefix_matching_se']:.3f}",
        )
        for row in result.ranked(top).to_dict(orient="records")
    ]
    asked = result.settings
    text = f"{asked['n_seqs']} texts of {asked['repeats']} × {asked['seq_len']} random tokens"
    title = f"Mean attention on {text}, prefix {asked['prefix']}, seed {asked['seed']}"
    return table(["head", *(f"{score.replace('_', ' ')}>" for score in SCORES), "± (prefix)>"], rows, title)
