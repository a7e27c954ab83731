"""What a run comes to: for every job the mean over its items in each cell, with a 95 % bootstrap interval.

Items are the sample, so that the intervals are about items like these. Within an item the values of one cell are
averaged first; items that lack a cell are in none of its means, and neither are items that were left out or failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.analyses.intervals import bracketed, mean_interval
from interp.analyses.study.registry import tasks
from interp.analyses.study.task import LEFT_OUT, Task
from interp.errors import LoadError
from interp.named import jsonable
from interp.runs import Job, Run

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

SHOWN = 5  # cells that a summary names
_ENDS = ("", "_low", "_high")


@dataclass(frozen=True)
class JobSummary:
    """A job in words, as a table (a row a cell: the mean, `…_low` and `…_high` of every value, `items`), and drawn."""

    lines: list[str]
    frame: "pandas.DataFrame"
    figure: "Figure | None"


def summarise(run: Run) -> dict[str, JobSummary]:
    """Every job of a study's run by name, as far as it is done.

    Raises `LoadError` for a run of a single analysis, whose whole results are kept instead.
    """
    manifest = run.manifest
    if manifest.kind != "study":
        raise LoadError(f"{run.folder} holds a single analysis, not a study: read it with run.result().")
    failed = run.errors()["job"].value_counts()
    return {job.name: _summary(run, job, int(failed.get(job.name, 0)), manifest.seed or 0) for job in manifest.jobs}


def figure_page(name: str, figure: "Figure") -> bytes:
    """The figure as a page of its own, with the same bytes each time."""
    config = {"displaylogo": False}
    return str(figure.to_html(include_plotlyjs=True, full_html=True, config=config, div_id=f"figure-{name}")).encode()


def _summary(run: Run, job: Job, failed: int, seed: int) -> JobSummary:
    task = tasks()[job.analysis]
    settings = task.settings.model_validate(jsonable(job.settings))
    whole = run.frame(job.name)
    missing = whole[LEFT_OUT].fillna("") != "" if LEFT_OUT in whole else np.zeros(len(whole), dtype=bool)
    rows = whole[~missing]
    counts = [f"{rows['item'].nunique()} of {len(job.items)} items"]
    counts += [f"{int(np.sum(missing))} left out"] if np.any(missing) else []
    counts += [f"{failed} failed"] if failed else []
    cells = [name for name in task.cells(settings) if name in rows]
    frame = _means(rows, cells, [name for name in task.values if name in rows], seed)
    head = f"{job.analysis} of {job.model}: {', '.join(counts)}"
    return JobSummary([head, *_strongest(frame, cells, task)], frame, _figure(frame, cells, task, head))


def _means(rows: "pandas.DataFrame", cells: list[str], values: list[str], seed: int) -> "pandas.DataFrame":
    """One row a cell, in the order in which they first appear."""
    import pandas as pd

    if rows.empty:
        return pd.DataFrame(columns=[*cells, *(f"{value}{end}" for value in values for end in _ENDS), "items"])
    own = rows[[*cells, "item", *values]].astype(dict.fromkeys(values, "float64"))
    each = own.groupby([*cells, "item"], sort=False, dropna=False)[values].mean()
    if not cells:
        each = each.assign(cell=0).set_index("cell", append=True).swaplevel()
    found: dict[str, Any] = {}
    for value in values:
        by_item = each[value].unstack("item", sort=False)
        for end, column in zip(_ENDS, _interval(by_item.to_numpy(), seed), strict=True):
            found[f"{value}{end}"] = column
        found["items"] = by_item.notna().sum(axis=1).to_numpy()
        index = by_item.index
    places = index.to_frame(index=False) if cells else pd.DataFrame(index=range(len(index)))
    return pd.concat([places.reset_index(drop=True), pd.DataFrame(found)], axis=1)


def _interval(values: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, low and high of each row [cell, item], over the items that have the cell; cells alike in that together."""
    mean, low, high = (np.full(len(values), np.nan) for _ in range(3))
    there = ~np.isnan(values)
    patterns: dict[bytes, list[int]] = {}
    for place, present in enumerate(there):
        patterns.setdefault(present.tobytes(), []).append(place)
    for places in patterns.values():
        own = values[places][:, there[places[0]]]
        if own.shape[1]:
            mean[places] = own.mean(-1)
            low[places], high[places] = mean_interval(own, seed=seed)
    return mean, low, high


def _strongest(frame: "pandas.DataFrame", cells: Sequence[str], task: Task) -> list[str]:
    """The cells whose first value is furthest from nought."""
    value = next((name for name in task.values if name in frame), None)
    if value is None or frame[value].isna().all():
        return []
    order = np.argsort(-frame[value].abs().fillna(-1).to_numpy(), kind="stable")[:SHOWN]
    if not cells:
        named = [name for name in task.values if name in frame]
        return [f"  {name.replace('_', ' ')} {_with_interval(frame.iloc[0], name)}" for name in named]
    words = value.replace("_", " ")
    return [
        f"  {', '.join(f'{cell} {row[cell]}' for cell in cells)}: {words} {_with_interval(row, value)}"
        for row in frame.iloc[order].to_dict(orient="records")
    ]


def _with_interval(row: Mapping[str, Any], value: str) -> str:
    return f"{row[value]:.4g}{bracketed(float(row[f'{value}_low']), float(row[f'{value}_high']), 4)}"


def _figure(frame: "pandas.DataFrame", cells: list[str], task: Task, title: str) -> "Figure | None":
    """Curves over one axis, a map over two, a curve for each pair of the first two over three."""
    from interp.plots import curves, effect_heatmap

    value = next((name for name in task.values if name in frame), None)
    if value is None or not cells or len(cells) > 3 or frame[value].isna().all():
        return None
    words, last = value.replace("_", " "), cells[-1]
    x = list(dict.fromkeys(frame[last]))
    if len(cells) == 2:
        table = frame.set_index(cells)[value].unstack(last)
        rows = list(dict.fromkeys(frame[cells[0]]))
        matrix = table.reindex(index=rows, columns=x).to_numpy()
        labels = {"x": last, "y": cells[0], "columns": x, "rows": rows}
        return effect_heatmap(matrix, title=title, metric=words, **labels)  # type: ignore[arg-type]
    groups = frame.groupby(cells[:-1], sort=False) if cells[:-1] else [(words, frame)]
    series = {_label(name): group.set_index(last)[value].reindex(x).to_numpy(dtype=float) for name, group in groups}
    return curves(x, series, title=title, x_title=last, y_title=words)


def _label(name: object) -> str:
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
