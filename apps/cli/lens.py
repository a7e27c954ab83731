"""`interp lens`: what the model would say if it stopped after each layer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from interp.apps.cli.fact_options import Facts, Limit, Relations, about_facts, chosen_facts
from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from interp.analyses.lens import LensResult
    from interp.analyses.lens_facts import FactLens
    from interp.analyses.lens_parts import PartLens
    from interp.analyses.surprisal import Surprisal
    from interp.facts import Fact
    from interp.models.transformer import Transformer
    from interp.results import Result

HEADS = 15  # heads that are shown, those that rank the followed token highest

EPILOG = """\b
Examples:
  interp lens "The Eiffel Tower is located in the city of" --answer " Paris"
  interp lens "2 + 2 =" --top-k 3 --prefix none --json
  interp lens "Mary had a little" --position 2 --out results
  interp lens "When Mary and John went to the store, John gave a drink to" --tokens
  interp lens "The capital of France is" --answer " Paris" --heads
  interp lens --facts bundled --relation capital --at subject
"""

PROMPT_ONLY = ("answer", "top_k", "position", "tokens", "sublayers", "outputs", "heads")
At = Literal["last", "subject"]


@with_common()
def lens(
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The prompt.", show_default=False)] = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help='One token to follow, its leading space included: " Paris".'),
    ] = None,
    top_k: Annotated[int, typer.Option(metavar="N", min=1, help="How many of the likeliest tokens to show.")] = 5,
    position: Annotated[int, typer.Option(metavar="N", help="Which position to read; negative from the end.")] = -1,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="How surprising every token is, too; with --json, every layer at each.")
    ] = False,
    sublayers: Annotated[
        bool, typer.Option("--sublayers", help="Read the stream between attention and FFN too.")
    ] = False,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Read what each attention and FFN writes, by itself.")
    ] = False,
    heads: Annotated[bool, typer.Option("--heads", help="Read what each attention head writes, by itself.")] = False,
    facts: Facts = None,
    relation: Relations = None,
    limit: Limit = None,
    at: Annotated[At, typer.Option(help="Where facts are read: the prompt's last token or the subject's.")] = "last",
    *,
    common: Common,
) -> None:
    """Read every layer as if it were the last: the logit lens.

    Shows, layer by layer, the likeliest next tokens at one position of TEXT; with --out, all positions are saved. Or
    the same of single parts; or how well the objects of known facts can be read at each depth.
    """
    from interp.apps.cli.session import load_model
    from interp.errors import UsageError

    parts = [name for name, on in (("stream", sublayers), ("sublayer", outputs), ("head", heads)) if on]
    if len(parts) > 1:
        raise UsageError("Give one of --sublayers, --outputs and --heads.")
    if parts and tokens:
        raise UsageError("--tokens tells of whole layers; leave out --sublayers, --outputs and --heads.")
    if about_facts(context, prompt_only=PROMPT_ONLY, facts_only=("at",)):
        chosen = chosen_facts(facts, relation, limit)  # answers before torch is imported
        _over_facts(load_model(common), chosen, at, common)
        return
    model = load_model(common)
    answers = [] if answer is None else [answer]
    if parts:
        _of_parts(model, text or "", parts[0], answers, top_k, position, common)
    else:
        _of_layers(model, text or "", answers, top_k, (position, tokens), common)


def _of_layers(
    model: "Transformer", text: str, answers: list[str], top_k: int, where: tuple[int, bool], common: Common
) -> None:
    """`where`: the position that is shown, and whether every token is told of."""
    from interp.analyses.lens import logit_lens
    from interp.apps.cli.session import deliver, working

    position, tokens = where
    places = None if common.out or tokens else [position]
    with working("Reading every layer", common):
        result = logit_lens(model, text, answers=answers, positions=places, top_k=top_k, prefix=common.prefix)
    place = _place(result, position)
    frame = _table(result, place, "layer", result.layer_names)
    parts: list[RenderableType] = [_drawn(result, place, frame), f"\n{result.caution}"]
    others: dict[str, tuple[Result, pd.DataFrame]] = {}
    if tokens:
        from interp.analyses.surprisal import surprisal

        words = surprisal(model, text, top_k=top_k, prefix=common.prefix)
        others = {"surprisal": (words, words.to_frame()), "map": (result, result.to_frame())}
        parts = [_drawn_tokens(words), "", *parts]
    deliver(result, frame, parts, common, "lens", others)


def _drawn_tokens(words: "Surprisal") -> "RenderableType":
    """Every token, how much it surprises, and what was likeliest in its place."""
    from interp.apps.cli.output import show_token, table

    expected = ["", *(str(row[0]) for row in words["next_token"][:-1])]
    rows = [
        (
            str(place),
            show_token(str(token)),
            *((f"{nats:.2f}", f"{rank:,}", show_token(likeliest)) if place else ("–", "–", "–")),
        )
        for place, (token, nats, rank, likeliest) in enumerate(
            zip(words["token"], words["surprisal"], words["rank"], expected, strict=True)
        )
    ]
    title = f"Surprisal, {words.mean:.3f} nats a token"
    return table(["position>", "token", "nats>", "rank>", "likeliest in its place"], rows, title)


def _of_parts(
    model: "Transformer", text: str, of: str, answers: list[str], top_k: int, position: int, common: Common
) -> None:
    from interp.analyses.lens_parts import lens_parts
    from interp.apps.cli.session import deliver, working

    with working("Reading every part", common):
        result = lens_parts(
            model,
            text,
            of=of,  # type: ignore[arg-type]  # one of its words
            answers=answers,
            positions=[position],
            top_k=top_k,
            prefix=common.prefix,
        )
    where = int(result.axes["position"][0])
    frame = _table(result, where, "part", [str(part) for part in result.axes["part"]])
    shown = frame.sort_values("rank", kind="stable").head(HEADS) if of == "head" else frame
    rest = [f"\n{HEADS} of {len(frame)} heads; --json and --out hold all."] if len(shown) < len(frame) else []
    deliver(result, frame, [_drawn(result, where, shown), *rest, f"\n{result.caution}"], common, "lens")


def _over_facts(model: "Transformer", facts: "tuple[Fact, ...]", at: At, common: Common) -> None:
    from interp.analyses.lens_facts import lens_facts
    from interp.apps.cli.output import table
    from interp.apps.cli.session import deliver, left_out_lines, working

    with working("Reading every fact", common) as progress:
        result = lens_facts(model, facts, at=at, prefix=common.prefix, seed=common.seed, progress=progress)
    columns = ["layer>", "mean p>", "95 % interval>", "on top>", "95 % interval>", "median rank>"]
    shown = ["", table(columns, _fact_rows(result)), *left_out_lines(result), f"\n{result.caution}"]
    deliver(result, result.to_frame(), [*result.summary()[:-1], *shown], common, "lens")


def _fact_rows(result: "FactLens") -> list[tuple[str, ...]]:
    from interp.apps.cli.output import interval

    rows = zip(result.layer_names, result.to_frame().to_dict(orient="records"), strict=True)
    return [
        (
            name,
            f"{row['mean_probability']:.3f}",
            interval(row["low"], row["high"], ".3f"),
            f"{row['top_share']:.0%}",
            f"{row['top_low']:.0%} to {row['top_high']:.0%}",
            f"{row['median_rank']:,.0f}",
        )
        for name, row in rows
    ]


def _place(result: "LensResult", position: int) -> int:
    """The absolute position that was asked for."""
    from interp.errors import UsageError

    places = [int(place) for place in result.axes["position"]]
    if len(places) > 1 and not -len(places) <= position < len(places):
        raise UsageError(f"Position {position} is outside: the text has positions 0 to {len(places) - 1}.")
    return places[position] if len(places) > 1 else places[0]


def _table(result: "LensResult | PartLens", where: int, column: str, names: Sequence[str]) -> "pd.DataFrame":
    """One row a layer or part: the likeliest tokens and the token that is followed."""
    import pandas as pd

    followed = "answer" if "answer" in result.axes else "final"
    one = {"answer": result.axes["answer"][0]} if followed == "answer" else {}
    return pd.DataFrame(
        {
            column: names,
            "token": str(result.axes["answer"][0]) if one else str(result.at("final_token", position=where)),
            "probability": result.at(f"{followed}_probability", position=where, **one),
            "rank": result.at(f"{followed}_rank", position=where, **one),
            "top_tokens": result.at("top_token", position=where).tolist(),
            "top_probabilities": result.at("top_probability", position=where).tolist(),
        }
    )


def _drawn(result: "LensResult | PartLens", where: int, frame: "pd.DataFrame") -> "RenderableType":
    from interp.apps.cli.output import show_token, table

    read, column = show_token(str(result.at("token", position=where))), str(frame.columns[0])
    title = f"After {read} (position {where}), prefix {result.settings['prefix']}"
    rows = [
        (
            row[column],
            f"{row['probability']:.4f}",
            f"{row['rank']:,}",
            "  ".join(
                f"{show_token(word)} {p:.3f}"
                for word, p in zip(row["top_tokens"], row["top_probabilities"], strict=True)
            ),
        )
        for row in frame.to_dict(orient="records")
    ]
    followed = show_token(str(frame["token"].iloc[0]))
    return table([f"{column}>", f"p({followed})>", "rank>", "likeliest tokens"], rows, title)
