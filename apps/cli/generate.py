"""`interp generate`: a continuation, streamed to the terminal as it is written."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from torch import Tensor

    from interp.models.transformer import Transformer

EPILOG = """\b
Examples:
  interp generate "The Eiffel Tower is located in the city of" --max-new-tokens 20
  interp generate "Once upon a time" --temperature 0.8 --top-p 0.95 --seed 1
  interp generate "Where is the Louvre?" --prefix chat --stop "<|im_end|>"
"""


@with_common("out")
def generate(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The prompt.", show_default=False)],
    max_new_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="How many tokens to write at the most.")] = 64,
    temperature: Annotated[float, typer.Option(metavar="T", help="0 takes the likeliest token each time.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(metavar="K", help="Draw from the K likeliest tokens only.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Draw from the likeliest tokens that hold this probability.")
    ] = None,
    repetition_penalty: Annotated[float, typer.Option(metavar="F", help="Above 1: say less twice.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End behind this text; repeatable.")] = None,
    *,
    common: Common,
) -> None:
    """Continue TEXT, token by token.

    Prints the continuation alone as it is written; with --json, one document at the end.
    """
    from interp.apps.cli.output import write_json, write_part
    from interp.apps.cli.session import check_text, load_model

    check_text(text)
    model = load_model(common)
    tokens = model.to_tokens(text, prefix=common.prefix)
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty}
    asked = {**sampling, "seed": common.seed, "stop": stop or []}
    steps = model.stream(tokens, max_new_tokens, **asked)  # type: ignore[arg-type]
    if not common.as_json:
        for piece in pieces(model, steps):
            write_part(piece)
        write_part("\n")
        return
    ids = [int(step[0]) for step in steps]
    document = {"prompt": text, "continuation": model.tokenizer.decode(ids), "token_ids": ids}
    settings = {**asked, "max_new_tokens": max_new_tokens, "prefix": common.prefix}
    write_json({"kind": "generation", "settings": settings, "provenance": model.provenance, **document})


def pieces(model: "Transformer", steps: "Iterator[Tensor]") -> Iterator[str]:
    """The text as it grows. A character made of several tokens is held back until it is whole."""
    ids: list[int] = []
    shown = ""
    for step in steps:
        ids.append(int(step[0]))
        written = model.tokenizer.decode(ids)
        if written.startswith(shown) and not written.endswith("\N{REPLACEMENT CHARACTER}"):
            yield written[len(shown) :]
            shown = written
    rest = model.tokenizer.decode(ids)
    if rest.startswith(shown):
        yield rest[len(shown) :]
