"""`interp induction`: heads that look at what followed the same token earlier, and what it costs to take them away."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from interp.analyses.documents import Document

Method = Literal["mean", "zero", "resample", "pattern_preserving"]

EPILOG = """\b
Examples:
  interp induction
  interp induction --seq-len 25 --repeats 4 --top 20 --ablate-top 5
  interp induction --ablate 18.6,17.3 --method pattern_preserving --composition
  interp induction --in-context --documents my-texts --ablate-top 1
  interp induction --ablate-top 0 --json --out results
"""


@with_common()
def induction(
    seq_len: Annotated[int, typer.Option(metavar="N", min=2, help="Random tokens in the repeated sequence.")] = 50,
    repeats: Annotated[int, typer.Option(metavar="N", min=2, help="How often the sequence stands.")] = 2,
    n_seqs: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences to average over.")] = 16,
    exclude_most: Annotated[
        int, typer.Option(metavar="N", min=0, help="Never draw the N most frequent tokens of the vocabulary.")
    ] = 0,
    exclude_least: Annotated[int, typer.Option(metavar="N", min=0, help="Nor the N least frequent ones.")] = 0,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Heads to show; --json and --out hold all.")] = 10,
    ablate_top: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many of the best heads to take away; 0 for none.")
    ] = 3,
    ablate: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Take these away instead: 18.6,17.3 (layer.head).", show_default=False),
    ] = None,
    method: Annotated[Method, typer.Option(help="What takes the place of a head that is taken away.")] = "mean",
    controls: Annotated[
        int, typer.Option(metavar="N", min=1, help="Sets of other heads of the same layers, to compare.")
    ] = 20,
    composition: Annotated[
        bool, typer.Option("--composition", help="Which heads compose, and the links that feed the tested heads.")
    ] = False,
    in_context: Annotated[
        bool, typer.Option("--in-context", help="The in-context score of documents, and without the tested heads.")
    ] = False,
    documents: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Your documents for it: a .txt file or a folder.", show_default=False),
    ] = None,
    *,
    common: Common,
) -> None:
    """Score every attention head on repeated random tokens, and take the best away to see what that costs.

    Induction heads look at what came after the last occurrence of the current token; the strongest stand first. Where
    a head looks is not what it does: beside the scores stands the loss without the best heads, and without others.
    """
    from interp.apps.cli.session import deliver, load_model

    texts = _documents(documents) if in_context or documents is not None else None
    model = load_model(common)
    from interp.apps.cli.induction_study import Request, study
    from interp.apps.cli.induction_tables import everything, parts, with_tables

    asked = Request(
        seq_len=seq_len,
        repeats=repeats,
        n_seqs=n_seqs,
        exclude_most=exclude_most,
        exclude_least=exclude_least,
        ablate_top=ablate_top,
        ablate=ablate,
        method=method,
        controls=controls,
        composition=composition,
        documents=texts,
    )
    found = study(model, asked, common)
    shown = parts(found, top)
    deliver(found.scores, everything(found), shown, common, "induction", with_tables(found), found.notes)


def _documents(path: Path | None) -> "tuple[Document, ...]":
    """The documents to read: those of the user, or the bundled ones. A file that is none is refused before loading."""
    from interp.analyses.documents import bundled, read_documents

    return bundled() if path is None else read_documents(path)
