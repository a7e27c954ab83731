"""`interp lens`: what the model would say if it stopped after each layer."""

from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from interp.analyses.lens import LensResult

EPILOG = """\b
Examples:
  interp lens "The Eiffel Tower is located in the city of" --answer " Paris"
  interp lens "2 + 2 =" --top-k 3 --prefix none --json
  interp lens "Mary had a little" --position 2 --out results
"""


@with_common()
def lens(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The prompt.", show_default=False)],
    answer: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help='One token to follow, its leading space included: " Paris".'),
    ] = None,
    top_k: Annotated[int, typer.Option(metavar="N", min=1, help="How many of the likeliest tokens to show.")] = 5,
    position: Annotated[int, typer.Option(metavar="N", help="Which position to read; negative from the end.")] = -1,
    *,
    common: Common,
) -> None:
    """Read every layer as if it were the last: the logit lens.

    Shows, layer by layer, the likeliest next tokens at one position of TEXT. With --out, all positions are saved.
    """
    from interp.apps.cli.session import check_text, deliver, load_model, working

    check_text(text)  # answers before torch is imported
    from interp.analyses.lens import logit_lens

    model = load_model(common)
    with working("Reading every layer", common):
        result = logit_lens(
            model,
            text,
            answers=[answer] if answer is not None else [],
            positions=None if common.out else [position],
            top_k=top_k,
            prefix=common.prefix,
        )
    where = _place(result, position)
    deliver(result, _table(result, where), [_drawn(result, where), f"\n{result.caution}"], common, "lens")


def _place(result: "LensResult", position: int) -> int:
    """The absolute position that was asked for."""
    from interp.errors import UsageError

    places = [int(place) for place in result.axes["position"]]
    if len(places) > 1 and not -len(places) <= position < len(places):
        raise UsageError(f"Position {position} is outside: the text has positions 0 to {len(places) - 1}.")
    return places[position] if len(places) > 1 else places[0]


def _table(result: "LensResult", where: int) -> "pd.DataFrame":
    """One row a layer: the likeliest tokens and the token that is followed."""
    import pandas as pd

    followed = "answer" if "answer" in result.axes else "final"
    one = {"answer": result.axes["answer"][0]} if followed == "answer" else {}
    return pd.DataFrame(
        {
            "layer": result.layer_names,
            "token": str(result.axes["answer"][0]) if one else str(result.at("final_token", position=where)),
            "probability": result.at(f"{followed}_probability", position=where, **one),
            "rank": result.at(f"{followed}_rank", position=where, **one),
            "top_tokens": result.at("top_token", position=where).tolist(),
            "top_probabilities": result.at("top_probability", position=where).tolist(),
        }
    )


def _drawn(result: "LensResult", where: int) -> "RenderableType":
    from interp.apps.cli.output import show_token, table

    frame = _table(result, where)
    read = show_token(str(result.at("token", position=where)))
    title = f"After {read} (position {where}), prefix {result.settings['prefix']}"
    rows = [
        (
            row.layer,
            f"{row.probability:.4f}",
            f"{row.rank:,}",
            "  ".join(
                f"{show_token(word)} {p:.3f}" for word, p in zip(row.top_tokens, row.top_probabilities, strict=True)
            ),
        )
        for row in frame.itertuples()
    ]
    return table(["layer>", f"p({show_token(frame.token[0])})>", "rank>", "likeliest tokens"], rows, title)
