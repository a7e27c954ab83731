"""What the model commands share: loading with progress, and handing over a result in the form that was asked for."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from interp.apps.cli.options import Common
from interp.apps.cli.output import check_folder, show, staged, write_json, write_message
from interp.apps.cli.progress import Progress, step
from interp.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from interp.models.transformer import Transformer
    from interp.points import PointTable
    from interp.results import Result


def check_text(text: str) -> None:
    """Raises `UsageError` for an empty prompt: every model would refuse it, so none need be loaded."""
    if not text:
        raise UsageError("The text is empty: it has no tokens. Give at least one character of text.")


def load_model(common: Common) -> "Transformer":
    """The model that the options name, with its progress on stderr; an --out that cannot be used is refused before."""
    if common.out is not None:
        check_folder(common.out)
    with working(f"Loading {common.model}", common) as progress:
        import interp

        return interp.load(
            common.model, device=common.device, dtype=common.dtype, revision=common.revision, progress=progress
        )


def points_of(common: Common) -> "PointTable":
    """The hook points of the model that the options name, from its configuration alone: no weights are read."""
    from interp.models.loading import read_config
    from interp.models.transformer import Transformer

    with working(f"Reading the configuration of {common.model}", common) as progress:
        config = read_config(common.model, revision=common.revision, progress=progress)
    return Transformer(config, device="meta").points()


def working(label: str, common: Common) -> AbstractContextManager[Progress]:
    """A step of the work, shown unless --quiet."""
    return step(label, quiet=common.quiet)


def deliver(
    result: "Result", table: "pd.DataFrame", parts: "Sequence[RenderableType]", common: Common, name: str
) -> None:
    """Save the result if --out was given, then print it: as one JSON document with --json, else as drawn `parts`."""
    saved = save(result, common.out, name) if common.out is not None else []
    if common.as_json:
        write_json(document(result, table, saved))
        return
    show(*parts)
    if saved and not common.quiet:
        write_message(f"Saved {', '.join(str(path) for path in saved)}")


def save(result: "Result", out: Path, name: str) -> list[Path]:
    """Write `out/<name>/` (the result) and `out/<name>.html` (its figure), both or neither."""
    with staged(out) as stage:
        result.save(stage / name)
        result.figure().write_html(stage / f"{name}.html", include_plotlyjs=True, config={"displaylogo": False})
    return [out / name, out / f"{name}.html"]


def document(result: "Result", table: "pd.DataFrame", saved: Sequence[Path]) -> Mapping[str, object]:
    """A result as one JSON document."""
    return {
        "kind": result.kind,
        "settings": result.settings,
        "provenance": result.provenance,
        "summary": result.summary(),
        "caution": result.caution,
        "table": table.to_dict(orient="records"),
        "saved": saved,
    }
