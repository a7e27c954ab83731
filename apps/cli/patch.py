"""`interp patch`: what happens if this one value were that of another run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from interp.apps.cli.options import Common, was_typed, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.attribution_patching import AttributionMap
    from interp.analyses.patching import Patching
    from interp.models.transformer import Transformer
    from interp.pairs import Pairs
    from interp.prompt_pairs import PromptPair

BUILT_IN = (
    "ioi",
    "greater-than",
    "capitals",
    "country-swap",
    "agreement",
    "gender",
)  # those of the builders, which bring numpy along

EPILOG = """\b
Examples:
  interp patch --pairs ioi --site z
  interp patch --pairs capitals --count 8 --site resid_pre --direction noise
  interp patch --clean "The capital of France is" --corrupted "The capital of Italy is" --answer " Paris" --foil " Rome"
  interp patch --pairs my-pairs.jsonl --site mlp_out --window 5 --known --out results
  interp patch --pairs ioi --site z --by layer,head,pos --method atp
  interp patch --pairs ioi --site resid_pre --estimate

\b
Built-in pairs: ioi, greater-than, capitals, country-swap, agreement, gender. A file (.jsonl, .csv, .parquet) has the
columns clean, corrupted, answer and, if you like, foil and group.
"""


@with_common()
def patch(
    context: typer.Context,
    pairs: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Built-in pairs, or a file of them.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="How many built-in pairs.")] = 16,
    known: Annotated[bool, typer.Option("--known", help="Only pairs that the model gets right.")] = False,
    clean: Annotated[
        str | None, typer.Option(metavar="TEXT", help="One pair: the prompt with the answer.", show_default=False)
    ] = None,
    corrupted: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The prompt without it, as many tokens.", show_default=False)
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help='One token, its leading space included: " Paris".', show_default=False),
    ] = None,
    foil: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="What the answer is held against.", show_default=False)
    ] = None,
    site: Annotated[
        str, typer.Option(metavar="LIST", help="What is patched: resid_pre, mlp_out, z, k, pattern, neuron …")
    ] = "resid_pre",
    by: Annotated[
        str | None, typer.Option(metavar="AXES", help="What the sweep runs over: layer,head,pos …", show_default=False)
    ] = None,
    direction: Annotated[
        Literal["denoise", "noise"], typer.Option(help="Clean values into the corrupted run, or the other way round.")
    ] = "denoise",
    metric: Annotated[
        str, typer.Option(metavar="LIST", help="logit_difference, probability, log_probability, rank, kl_divergence …")
    ] = "logit_difference",
    window: Annotated[int, typer.Option(metavar="N", min=1, help="Layers that are patched together.")] = 1,
    layers: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these layers: 3,5 or 10-20.", show_default=False)
    ] = None,
    method: Annotated[
        Literal["exact", "atp"], typer.Option(help="Patch every cell, or estimate all from one backward pass (AtP).")
    ] = "exact",
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Cells to show; --json and --out hold all.")] = 10,
    budget_mb: Annotated[int, typer.Option(metavar="MIB", min=1, help="Memory to use beside the model.")] = 1024,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what the sweep will cost, and stop.")] = False,
    *,
    common: Common,
) -> None:
    """Patch values of one run into another, one place after the other: activation patching.

    For each of many places (a layer and a position, a head, …) the two prompts' runs are swapped there alone; shown is
    how much of the way from one answer to the other that goes.
    """
    from interp.apps.cli.output import write_data, write_json
    from interp.apps.cli.session import deliver, load_model, working
    from interp.errors import UsageError

    _check(pairs, (clean, corrupted, answer), estimate and (was_typed(context, "out") or method == "atp"))
    if method == "atp" and window > 1:
        raise UsageError("--method atp estimates one layer a cell: leave --window out, or take --method exact.")
    metrics = _words(metric) if method == "exact" else [_one(metric)]
    wanted = None if layers is None else _numbers(layers)
    given = _given_pairs(pairs, clean, corrupted, answer, foil)
    model = load_model(common)
    if given is None:
        from interp.pair_builders import BUILDERS

        given = BUILDERS[str(pairs)](model.tokenizer, n=count, seed=common.seed)
    aligned, notes = _aligned(model, given, known, common)
    sites, axes = _words(site), None if by is None else _words(by)
    if len(aligned) > 1 and aligned.mask is not None and _positions_swept(sites, axes):
        every, aligned = len(aligned), aligned.of_one_length()
        tokens = aligned.clean.shape[1]
        notes.append(f"{len(aligned)} of {every} pairs have {tokens} tokens; the others are left out.")
    options: dict[str, Any] = {"site": sites, "direction": direction, "by": axes, "layers": wanted}
    options |= {"seed": common.seed, "budget": budget_mb * 2**20}
    if method == "atp":
        from interp.analyses.attribution_patching import attribution_patching

        with working("One backward pass, and its check", common) as progress:
            estimated = attribution_patching(model, aligned, metric=metrics[0], progress=progress, **options)
        deliver(estimated, estimated.to_frame(), _parts(estimated, top, notes), common, "patch")
        return
    from interp.analyses.patching import plan_sweep

    with working("Running both prompts", common):
        planned = plan_sweep(model, aligned, metric=metrics, window=window, **options)
    if estimate:
        cost = planned.cost()
        if common.as_json:
            write_json({"kind": "patching.cost", "settings": planned.settings, **asdict(cost)})
        else:
            write_data(str(cost))
        return
    with working("Patching one cell after the other", common) as progress:
        result = planned.run(progress=progress)
    deliver(result, result.to_frame(), _parts(result, top, notes), common, "patch")


def _check(pairs: str | None, single: tuple[str | None, ...], idle: bool) -> None:
    """Raises `UsageError` for what every model would refuse."""
    from interp.errors import UsageError

    here = [each is not None for each in single]
    if pairs is None and not all(here):
        raise UsageError(
            "Nothing to patch: give --pairs with a name or a file, or one pair as --clean, --corrupted and --answer."
        )
    if pairs is not None and any(here):
        raise UsageError("--pairs and --clean, --corrupted or --answer came together. Leave out one of the two.")
    if idle:
        raise UsageError("--estimate runs nothing: it takes no --out, and --method atp needs none. Leave one out.")


def _given_pairs(
    pairs: str | None, clean: str | None, corrupted: str | None, answer: str | None, foil: str | None
) -> "list[PromptPair] | None":
    """Pairs that are there before the model is: one from the options, or those of a file."""
    from interp.errors import UsageError, nearest
    from interp.prompt_pairs import PromptPair, read_pairs

    if pairs is None:
        return [PromptPair(clean or "", corrupted or "", answer or "", foil)]
    if foil is not None:
        raise UsageError("--foil belongs to --clean; pairs bring their own.")
    if pairs in BUILT_IN:
        return None
    if not Path(pairs).suffix and not Path(pairs).exists():
        raise UsageError(f"There are no pairs {pairs!r}.{nearest(pairs, BUILT_IN)} Built in: {', '.join(BUILT_IN)}.")
    return read_pairs(Path(pairs))


def _aligned(model: "Transformer", given: "list[PromptPair]", known: bool, common: Common) -> "tuple[Pairs, list[str]]":
    """The pairs as tokens, and what is to be said about how they were chosen."""
    from interp.pairs import align

    aligned = align(model.tokenizer, given, prefix=common.prefix)
    if not known:
        return aligned, []
    from interp.analyses.pair_filter import known as right

    found = right(model, aligned)
    return found.pairs, [str(found)]


def _positions_swept(sites: list[str], axes: list[str] | None) -> bool:
    from interp.analyses.sites import site_spec

    swept = site_spec(sites[0]).usual if axes is None else axes
    return bool({"pos", "query_pos", "key_pos"} & set(swept))


def _parts(result: "Patching | AttributionMap", top: int, notes: list[str]) -> "list[RenderableType]":
    """The notes, the summary's head, the strongest cells, and the caution."""
    from interp.apps.cli.output import table

    frame = result.ranked(top)
    columns = [name for name in frame.columns if not name.endswith("_each")]
    rows = [
        tuple(f"{row[name]:+.3f}" if isinstance(row[name], float) else str(row[name]) for name in columns)
        for row in frame.to_dict(orient="records")
    ]
    heads = [
        f"{name.replace('logit_difference_', '').replace('_', ' ')}{'>' if index else ''}"
        for index, name in enumerate(columns)
    ]
    return [*notes, *result.headline(), table(heads, rows, "\nThe cells that move it most"), f"\n{result.caution}"]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _one(text: str) -> str:
    from interp.errors import UsageError

    words = _words(text)
    if len(words) != 1:
        raise UsageError(f"--method atp differentiates one metric; {text!r} came.")
    return words[0]


def _numbers(text: str) -> list[int]:
    """`3,5` and `10-20` as whole numbers."""
    from interp.errors import UsageError

    found: list[int] = []
    for word in _words(text):
        first, _, last = word.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UsageError(f"--layers is {text!r}; expected numbers and ranges such as 3,5 or 10-20.")
        found += range(int(first), int(last or first) + 1)
    return found
