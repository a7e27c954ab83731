"""What the model commands share: loading with progress, and handing over a result in the form that was asked for."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from interp.apps.cli.options import Common
from interp.apps.cli.output import check_folder, show, write_json, write_message
from interp.apps.cli.progress import Progress, step
from interp.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from interp.models.tokenizer import Tokenizer
    from interp.models.transformer import Transformer
    from interp.points import PointTable
    from interp.results import Result

MOST = 20  # facts left out that are shown; documents and saved results name all


def check_text(text: str) -> None:
    """Raises `UsageError` for an empty prompt: every model would refuse it, so none need be loaded."""
    if not text:
        raise UsageError("The text is empty: it has no tokens. Give at least one character of text.")


def load_model(common: Common) -> "Transformer":
    """The model that the options name, with its progress on stderr; an --out that cannot be used is refused before."""
    if common.out is not None:
        check_out(common.out)
    with working(f"Loading {common.model}", common) as progress:
        import interp

        return interp.load(
            common.model, device=common.device, dtype=common.dtype, revision=common.revision, progress=progress
        )


def check_out(out: Path) -> None:
    """Raises `UsageError` if no run can be written there: to be asked before work whose result would be lost."""
    from interp.runs import check_target

    check_folder(out)
    check_target(out)


def check_ablate_top(model: "Transformer", count: int) -> None:
    """Raises `UsageError` where a model has fewer heads than are to be taken away."""
    heads = model.config.n_layers * model.config.n_heads
    if count > heads:
        raise UsageError(f"--ablate-top is {count}; this model has {heads} heads.")


def points_of(common: Common) -> "PointTable":
    """The hook points of the model that the options name, from its configuration alone: no weights are read."""
    from interp.models.loading import read_config
    from interp.models.transformer import Transformer

    with working(f"Reading the configuration of {common.model}", common) as progress:
        config = read_config(common.model, revision=common.revision, progress=progress)
    return Transformer(config, device="meta").points()


def tokenizer_of(common: Common) -> "Tokenizer":
    """The tokenizer of the model that the options name; no weights are read. Raises `UsageError` where it has none."""
    from interp.models.loading import open_checkpoint

    with working(f"Reading the tokenizer of {common.model}", common) as progress:
        found = open_checkpoint(common.model, revision=common.revision, progress=progress).tokenizer()
    if found is None:
        raise UsageError(f"The model {common.model!r} has no tokenizer; name another.")
    return found


def working(label: str, common: Common) -> AbstractContextManager[Progress]:
    """A step of the work, shown unless --quiet."""
    return step(label, quiet=common.quiet)


def deliver(
    result: "Result",
    table: "pd.DataFrame",
    parts: "Sequence[RenderableType]",
    common: Common,
    name: str,
    others: "Mapping[str, tuple[Result, pd.DataFrame]] | None" = None,
    notes: Sequence[str] = (),
) -> None:
    """Save the result if --out was given, then print it: as one JSON document with --json, else as drawn `parts`.

    `others` are further results of the same command, by name, each with its table: they are saved beside the first, and
    told under `results` in its document, as are `notes` under their name; among the `parts` both stand already.
    """
    others = others or {}
    results = {name: result, **{other: further for other, (further, _) in others.items()}}
    if common.out is not None:
        save(results, common.out)
    if common.as_json:
        told = {other: _told(further, rows) for other, (further, rows) in others.items()}
        more = {"results": told, "notes": notes}
        saved = None if common.out is None else str(common.out)
        write_json({**_told(result, table), "saved": saved, **{name: part for name, part in more.items() if part}})
        return
    show(*parts)
    if common.out is not None and not common.quiet:
        write_message(f"Saved {common.out}; `interp report {shlex.quote(str(common.out))}` writes it as a page")


def save(results: "Mapping[str, Result]", out: Path) -> None:
    """Write a run directory: one job for each result, with the result itself, its table and its figure; all or nothing.

    An earlier run of single analyses in the same place is replaced.
    """
    from interp.runs import record

    record(
        out,
        results,
        analysis=next(iter(results)),
        settings={name: result.settings for name, result in results.items()},
    )


def left_out_lines(result: "Result") -> list[str]:
    """What stands below a table over facts: which were left out, and why."""
    from interp.analyses.left_out import left_out

    lines = [f"Left out {name}: {reason}" for name, reason in left_out(result).items()]
    more = len(lines) - MOST
    return [*lines[:MOST], *([f"… and {more} more; --json and --out name all"] if more > 0 else [])]


def _told(result: "Result", table: "pd.DataFrame") -> dict[str, object]:
    """A result in words and rows."""
    from interp.analyses.left_out import first_token_only, left_out

    only = {"left_out": left_out(result), "first_token_only": first_token_only(result)}
    return {
        "kind": result.kind,
        "settings": result.settings,
        "provenance": result.provenance,
        "summary": result.summary(),
        "caution": result.caution,
        "table": table.to_dict(orient="records"),
        **{name: found for name, found in only.items() if found},
    }
