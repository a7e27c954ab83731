"""Run directories: work in batches that can be killed at any moment and started again, with the same outcome.

    manifest = Manifest.new("probe", [Job("lens", "m", "lens", "facts", items=("a", "b", "c"), packing=(2, 1))])
    with RunWriter.open("out/probe", manifest) as writer:      # makes the directory, or goes on with the one there
        for batch in writer.pending():
            part = write_part("out/probe", batch, {item: frame_of(item) for item in batch.items})
            writer.commit(batch, part)
        writer.finish({})
    run = interp.open_run("out/probe")
    run.status(), run.frame(), run.item("b")

What is planned stands in `manifest.json` before anything is computed. A batch counts once its rows are a whole Parquet
file and the ledger, `items.jsonl`, has a line for each of its items. Apart from the manifest's date, `log.txt` and
`lock`, every file follows from the work alone: a run that was killed and resumed ends with the same bytes as one that
was not. docs/runs.md describes the format.
"""

from interp.runs.differences import Difference, differences
from interp.runs.ledger import Failure
from interp.runs.lock import Holder
from interp.runs.manifest import Manifest
from interp.runs.merging import merge_runs
from interp.runs.parts import Part, write_part
from interp.runs.plan import Batch, Job
from interp.runs.reader import Run, is_run, open_run
from interp.runs.recording import record
from interp.runs.status import Counts, RunStatus
from interp.runs.writer import RunWriter

__all__ = [
    "Batch",
    "Counts",
    "Difference",
    "Failure",
    "Holder",
    "Job",
    "Manifest",
    "Part",
    "Run",
    "RunStatus",
    "RunWriter",
    "differences",
    "is_run",
    "merge_runs",
    "open_run",
    "record",
    "write_part",
]
