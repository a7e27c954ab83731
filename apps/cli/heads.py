"""`interp heads`: the atlas of all attention heads, and what it costs to take the strongest away."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from interp.analyses.atlas import HeadAtlas
    from interp.analyses.composition import Composition
    from interp.analyses.head_ablation import HeadAblation
    from interp.models.transformer import Transformer
    from interp.results import Result

Method = Literal["mean", "zero", "resample", "pattern_preserving"]

COLUMNS = {
    "prefix": ("prefix_matching",),
    "previous": ("previous_token", "random_previous_token"),
    "current": ("current_token", "random_current_token"),
    "same": ("same_token", "duplicate_token"),
    "delimiter": ("delimiter",),
    "after it": ("after_delimiter",),
    "agreement": ("agreement",),
    "coreference": ("coreference",),
    "sink": ("sink", "random_sink"),
    "evenness": ("evenness",),
    "distance": ("distance",),
}
"""Headings, and the scores below them: the first that the model has."""
COPIED = {
    "OV copying": "ov_eigenvalue",
    "OV centred": "ov_eigenvalue_centred",
    "next logit": "behavioural",
    "IOI copy": "ioi_copy",
    "IOI suppressed": "ioi_copy_negative",
}
"""Headings of the table of what heads copy, and its scores."""

EPILOG = """\b
Examples:
  interp heads
  interp heads --role "previous token" --top 20
  interp heads --sort coreference --ablate-top 5 --controls 40
  interp heads --ablate 18.6,17.3 --method pattern_preserving --no-copying
  interp heads --sort prefix_matching --at-least 0.5 --composition
  interp heads --ablate-top 0 --json --out results
"""


@with_common()
def heads(
    sort: Annotated[
        str, typer.Option(metavar="SCORE", help="Highest first: strength, or a score such as agreement or ioi_copy.")
    ] = "strength",
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help='Only heads of this role: induction, "previous token", …')
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="VALUE", help="Only heads whose score (--sort) is as high.", show_default="all"),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Heads to show; --json and --out hold all.")] = 15,
    ablate_top: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many of the first to take away; 0 for none.")
    ] = 3,
    ablate: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Take these away instead: 18.6,17.3 (layer.head).", show_default=False),
    ] = None,
    method: Annotated[Method, typer.Option(help="What takes the place of a head that is taken away.")] = "mean",
    controls: Annotated[
        int, typer.Option(metavar="N", min=1, help="Sets of other heads of the same layers, to compare.")
    ] = 20,
    seq_len: Annotated[int, typer.Option(metavar="N", min=2, help="Random tokens in the repeated sequence.")] = 50,
    repeats: Annotated[int, typer.Option(metavar="N", min=2, help="How often the sequence stands.")] = 2,
    n_seqs: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences to average over.")] = 16,
    documents: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Texts to read instead of ours: a .txt file, or a folder.")
    ] = None,
    n_documents: Annotated[int, typer.Option(metavar="N", min=1, help="How many documents to read.")] = 8,
    doc_len: Annotated[int, typer.Option(metavar="N", min=2, help="How many tokens of each.")] = 256,
    threshold: Annotated[
        float, typer.Option(metavar="SHARE", help="How far above uniform attention a role begins, of 1.")
    ] = 0.1,
    copying: Annotated[bool, typer.Option(help="What heads copy, which takes half as long again.")] = True,
    composition: Annotated[
        bool, typer.Option("--composition", help="Which heads are made to read what earlier ones write.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Map every attention head by what it looks at: an atlas of roles.

    Scores come from random tokens, documents and marked sentences. A role says where a head looks; what the first of
    them do, on repeated random tokens, is seen by taking them away.
    """
    from interp.analyses.documents import read_documents
    from interp.analyses.head_roles import check_role
    from interp.analyses.role_scores import check_score
    from interp.apps.cli.session import check_ablate_top, deliver, load_model, working

    check_score(sort)
    chosen = None if role is None else check_role(role)
    texts = None if documents is None else read_documents(documents)
    model = load_model(common)
    check_ablate_top(model, ablate_top)
    from interp.analyses.components import heads_of

    named = () if ablate is None else heads_of(model, [word.strip() for word in ablate.split(",")])
    from interp.analyses.atlas import head_atlas
    from interp.apps.cli.induction_study import fewer_texts

    composed = _composition(model, common) if composition else None  # first: not every model allows it
    with working("Looking where heads look", common) as progress:
        atlas = head_atlas(
            model,
            seq_len=seq_len,
            repeats=repeats,
            n_seqs=n_seqs,
            documents=texts,
            n_documents=n_documents,
            doc_len=doc_len,
            threshold=threshold,
            copying=copying,
            seed=common.seed,
            prefix=common.prefix,
            progress=progress,
        )
    everything = atlas.ranked(atlas["role"].size, by=sort, role=chosen, least=at_least)
    drawn = [_drawn(atlas, everything.head(top), sort, chosen), *_copied(atlas, everything.head(top))]
    parts: list[RenderableType] = [*drawn, "", *atlas.summary()]
    others: dict[str, tuple[Result, pd.DataFrame]] = {}
    first = [f"{row.layer}.{row.head}" for row in everything.head(ablate_top).itertuples()]
    first = list(map(str, named)) if named else first
    if first:
        layout = {"repeats": repeats, **fewer_texts(seq_len, n_seqs)}
        without = _without(model, first, {**layout, "method": method, "controls": controls}, common)
        others["ablation"] = (without, without.to_frame())
        parts += ["", *without.summary()]
    if composed is not None:
        others["composition"] = (composed, composed.strongest())
        parts += ["", *composed.summary()]
    deliver(atlas, everything, parts, common, "heads", others)


def _without(model: "Transformer", first: list[str], asked: dict[str, Any], common: Common) -> "HeadAblation":
    """What it costs to take these heads away."""
    from interp.analyses.head_ablation import ablate_heads
    from interp.apps.cli.session import working

    with working("Taking heads away, and others to compare", common) as progress:
        how = {**asked, "seed": common.seed, "prefix": common.prefix}
        return ablate_heads(model, first, progress=progress, **how)


def _composition(model: "Transformer", common: Common) -> "Composition":
    """Every head with every head of later layers."""
    from interp.analyses.composition import composition
    from interp.apps.cli.session import working

    with working("Composing heads", common) as progress:
        return composition(model, seed=common.seed, progress=progress)


def _drawn(atlas: "HeadAtlas", heads: "pd.DataFrame", sort: str, role: str | None) -> "RenderableType":
    from interp.apps.cli.output import number, table

    shown = {head: next((name for name in names if name in atlas), None) for head, names in COLUMNS.items()}
    columns = {head: name for head, name in shown.items() if name is not None}
    if sort != "strength" and sort not in (*columns.values(), *COPIED.values()):
        columns = {sort.replace("_", " "): sort, **columns}
    rows = [
        (
            f"{row['layer']}.{row['head']}",
            str(row["kv_head"]),
            row["role"],
            number(row["strength"], 2),
            *(number(row[name], 1 if "distance" in name else 3) for name in columns.values()),
        )
        for row in heads.to_dict(orient="records")
    ]
    which = "All heads" if role is None else f"Heads of the role {role}"
    title = f"{which} by {sort.replace('_', ' ')}; attention where each score says, distance in tokens"
    return table(["head", "KV>", "role", "strength>", *(f"{head}>" for head in columns)], rows, title)


def _copied(atlas: "HeadAtlas", heads: "pd.DataFrame") -> "list[RenderableType]":
    """What the same heads copy, behind an empty line; nothing for a model without copying scores."""
    from interp.apps.cli.output import number, table

    if not all(name in atlas for name in COPIED.values()):
        return []
    rows = [
        (f"{row['layer']}.{row['head']}", *(number(row[name]) for name in COPIED.values()))
        for row in heads.to_dict(orient="records")
    ]
    title = "What they copy: eigenvalues from −1 to 1, a logit above the mean, shares of tokens"
    return ["", table(["head", *(f"{heading}>" for heading in COPIED)], rows, title)]
