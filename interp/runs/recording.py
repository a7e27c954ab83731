"""A single analysis as a run: what a command writes where it is given a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.atomic import fresh_folder
from interp.errors import InterpError
from interp.runs.lock import holder
from interp.runs.manifest import Manifest
from interp.runs.parts import write_part
from interp.runs.plan import Job
from interp.runs.reader import Run, open_run
from interp.runs.writer import RunWriter

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.results import Result

ITEM = "result"
"""The one item of each job."""
_ABOUT_RUNS = ("prefix", "seed", "dtype", "device", "versions", "tokens_sha256", "tokens_shape")


def record(
    folder: str | Path,
    results: "Mapping[str, Result]",
    *,
    analysis: str,
    settings: Mapping[str, object] | None = None,
    figures: "Mapping[str, Figure] | None" = None,
) -> Run:
    """Write results, by name, as a finished run of kind "analysis": one job each, whole results and figures included.

    `figures` are by name too, those of the results by default. An earlier run of this kind in the folder is replaced;
    anything else there is refused with `UsageError`. All is written or nothing.
    """
    folder = Path(folder)
    manifest = _manifest(results, analysis, settings or {})
    drawn = {name: result.figure() for name, result in results.items()} if figures is None else figures
    with fresh_folder(folder, _replaceable) as fresh, RunWriter.open(fresh, manifest) as writer:
        for batch in writer.pending():
            result = results[batch.job]
            writer.save_result(batch.job, ITEM, result)
            writer.commit(batch, write_part(fresh, batch, {ITEM: result.to_frame()}))
        for name, figure in drawn.items():
            writer.write(f"figures/{name}.html", _page(name, figure))
        writer.finish({name: {"lines": result.summary()} for name, result in results.items()})
    return open_run(folder)


def _manifest(results: "Mapping[str, Result]", analysis: str, settings: Mapping[str, object]) -> Manifest:
    models: dict[str, Mapping[str, Any]] = {}
    jobs: list[Job] = []
    facts: dict[str, Any] = {}
    for name, result in results.items():
        model = {key: value for key, value in result.provenance.items() if key not in _ABOUT_RUNS}
        model = {"name": str(model.get("model", "unnamed")), **model}
        models.setdefault(str(model["name"]), model)
        jobs.append(Job(name, str(model["name"]), result.kind, "", result.settings, (ITEM,), (1,)))
        facts = facts or {key: result.provenance.get(key) for key in ("prefix", "seed", "dtype", "device")}
    return Manifest.new(analysis, jobs, kind="analysis", settings=settings, models=tuple(models.values()), **facts)


def _page(name: str, figure: "Figure") -> bytes:
    """The figure as a page of its own, with the same bytes each time."""
    config = {"displaylogo": False}
    page = figure.to_html(include_plotlyjs=True, full_html=True, config=config, div_id=f"figure-{name}")
    return str(page).encode()


def _replaceable(folder: Path) -> bool:
    """Whether the folder is a run of a single analysis, and nobody writes it: hours of a study are never replaced."""
    try:
        return open_run(folder).kind == "analysis" and holder(folder) is None
    except InterpError:
        return False
