"""Shards of a study put together, with the summary that the whole study would have had."""

from collections.abc import Sequence
from pathlib import Path

from interp.analyses.study.reading import study_of
from interp.analyses.study.running import write_summary
from interp.runs import Run, RunWriter, merge_runs, open_run


def merge_studies(folders: Sequence[str | Path], out: str | Path) -> Run:
    """All shards of a study as one finished run in a new folder. Raises as `merge_runs` does."""
    merged = merge_runs(folders, out)
    stated = {name: value for name, value in merged.manifest.settings.items() if name != "limit"}
    with RunWriter.open(out, merged.manifest) as writer:
        write_summary(writer, figures=study_of(stated).outputs.figures)
    return open_run(out)
