"""`interp attention`: where every head looks in a text, one of them token by token, and what taking it away does."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.attention import AttentionMaps
    from interp.analyses.attention_read import Source
    from interp.analyses.head_attention import HeadAttention
    from interp.models.transformer import Transformer

Method = Literal["mean", "zero", "pattern_preserving"]

EPILOG = """\b
Examples:
  interp attention "The Eiffel Tower is located in the city of"
  interp attention "The Eiffel Tower is located in the city of" --head 23.4 --answer " Paris"
  interp attention "When Mary and John went out, John" --other "When Mary and John went out, Mary" --head 18.6
  interp attention --repeated 25 --head 18.6 --json --out results
"""


@with_common()
def attention(
    prompt: Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="The prompt.", show_default=False)] = None,
    head: Annotated[
        str | None, typer.Option(metavar="LAYER.HEAD", help="One head, such as 18.6, in full.", show_default=False)
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Another prompt of as many tokens, to compare with.", show_default=False),
    ] = None,
    repeated: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="N random tokens, said twice, instead of a prompt.", show_default=False),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="Token to follow at the end, instead of the model's own.", show_default=False
        ),
    ] = None,
    method: Annotated[Method, typer.Option(help="What takes the place of a head that is taken away.")] = "mean",
    controls: Annotated[
        int, typer.Option(metavar="N", min=1, help="Other heads of the layer to take away, to compare.")
    ] = 8,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Rows to show; --json and --out hold all.")] = 12,
    *,
    common: Common,
) -> None:
    """Where every attention head looks in a text; one of them in full, beside what taking it away does there.

    Where a head looks is not what it does: with --head, the loss of the text and the answer stand below without it, and
    without other heads of its layer.
    """
    _check(prompt, head, other, repeated)
    from interp.apps.cli.session import deliver, load_model, working

    model = load_model(common)
    from interp.analyses.attention import attention_maps

    source, since = _source(model, prompt, repeated, common)
    with working("Looking where heads look", common) as progress:
        maps = attention_maps(model, source, other, prefix=common.prefix, progress=progress)
    if head is None:
        deliver(maps, maps.to_frame(), [_heads(maps, top), "", *maps.summary()], common, "attention")
        return
    from interp.analyses.head_attention import head_attention
    from interp.analyses.local_ablation import ablate_here

    found = head_attention(model, source, head, other, prefix=common.prefix)
    with working("Taking the head away, and others to compare", common) as progress:
        without = ablate_here(
            model, source, [head], answer=answer, since=since, method=method, controls=controls, seed=common.seed,
            prefix=common.prefix, progress=progress,
        )  # fmt: skip
    frame = found.to_frame()
    others = {"maps": (maps, maps.to_frame()), "ablation": (without, without.to_frame())}
    parts: list[RenderableType] = [_cells(found, top), "", *found.summary(), "", *without.summary()]
    deliver(found, frame[frame["key"] <= frame["query"]], parts, common, "head", others)


def _check(prompt: str | None, head: str | None, other: str | None, repeated: int | None) -> None:
    """Raises `UsageError` for what no model could answer."""
    from interp.analyses.components import Component
    from interp.apps.cli.session import check_text
    from interp.errors import UsageError

    if (prompt is None) == (repeated is None):
        raise UsageError("Give a PROMPT, or --repeated with a number of random tokens: one of the two.")
    if prompt is not None:
        check_text(prompt)
    if other is not None and repeated is not None:
        raise UsageError("--other is compared with a PROMPT; leave --repeated out.")
    if head is not None:
        Component.parse(head)


def _source(model: "Transformer", prompt: str | None, repeated: int | None, common: Common) -> "tuple[Source, int]":
    """What is read, and from which position on its loss counts."""
    from interp.analyses.attention_read import said_twice

    if repeated is not None:
        return said_twice(model, repeated, common.seed, common.prefix)
    return prompt or "", 1


def _heads(maps: "AttentionMaps", top: int) -> "RenderableType":
    """The heads that look hardest at something else than the first token."""
    from interp.apps.cli.output import number, show_token, table

    changed = "changed" in maps
    rows = [
        (
            f"{row.layer}.{row.head}",
            number(row.strongest),
            f"{show_token(str(maps['token'][row.strongest_query]))} {row.strongest_query}",
            f"{show_token(str(maps['token'][row.strongest_key]))} {row.strongest_key}",
            number(row.sink),
            number(row.distance, 1),
            *([number(row.changed)] if changed else []),
        )
        for row in maps.top("changed" if changed else "strongest", top).itertuples()
    ]
    columns = ["head", "most>", "from", "to", "first token>", "distance>", *(["changed>"] if changed else [])]
    return table(columns, rows, "Strongest attention off the first token, by head")


def _cells(found: "HeadAttention", top: int) -> "RenderableType":
    """The strongest cells of one head."""
    from interp.apps.cli.output import number, show_token, table

    rows = [
        (
            f"{show_token(row.query_token)} {row.query}",
            f"{show_token(row.key_token)} {row.key}",
            number(row.pattern),
            number(row.scores, 2),
            number(row.moved, 2),
        )
        for row in found.strongest(top, sink=False).itertuples()
    ]
    columns = ["from (query)", "to (key)", "pattern>", "score>", "moved>"]
    return table(columns, rows, f"Head {found.settings['head']}: where it looks, the first token left out")
