"""Shards of one study, put together into the run that one process would have made."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from interp.atomic import fresh_folder
from interp.errors import IntegrityError, UsageError
from interp.runs.differences import differences
from interp.runs.durable import write_file
from interp.runs.ledger import ERRORS, LEDGER
from interp.runs.manifest import MANIFEST
from interp.runs.parts import RESULTS
from interp.runs.reader import Run, open_run
from interp.runs.repair import SAVED
from interp.runs.writer import RunWriter


def merge_runs(folders: Sequence[str | Path], out: str | Path) -> Run:
    """One run from all shards of a study, in a new folder, with the bytes of the run that was never sharded.

    The summary is left to who knows the study: open the merged run with `RunWriter` and finish it. Raises `UsageError`
    where shards are missing, come twice, or are not done, and `IntegrityError` for shards of different studies.
    """
    runs = [open_run(folder) for folder in folders]
    _check_shards(runs)
    out = Path(out)
    with fresh_folder(out, lambda _: False) as fresh:
        _collect(runs, fresh)
    return open_run(out)


def _check_shards(runs: Sequence[Run]) -> None:
    if not runs:
        raise UsageError("No runs were given to merge: expected every shard of one study.")
    whole = [run.manifest.unsharded() for run in runs]
    for run, manifest in zip(runs[1:], whole[1:], strict=True):
        if found := differences(whole[0], manifest):
            lines = "".join(f"\n  {each}" for each in found[:12])
            raise IntegrityError(f"{runs[0].folder} and {run.folder} are not shards of one study:{lines}")
    shards = [run.manifest.shard for run in runs]
    expected = [(place, len(runs)) for place in range(1, len(runs) + 1)]
    if sorted(shard or (0, 0) for shard in shards) != expected:
        said = ", ".join(f"{shard[0]}/{shard[1]}" if shard else "no shard" for shard in shards)
        raise UsageError(f"Shards {said} were given: expected each of 1/{len(runs)} to {len(runs)}/{len(runs)}, once.")
    for run in runs:
        state = run.status()
        if state.locked_by or state.remaining:
            raise UsageError(
                f"{run.folder} is not done ({state.state}, {state.remaining} items left). Resume it first."
            )
        if damage := run.check():
            raise IntegrityError(f"{run.folder} is damaged: {damage[0]} Resume it first.")


def _collect(runs: Sequence[Run], fresh: Path) -> None:
    manifest = runs[0].manifest.unsharded()
    write_file(fresh / MANIFEST, manifest.to_json())
    (fresh / RESULTS).mkdir()
    for run in runs:
        for part in sorted((run.folder / RESULTS).glob("part-*.parquet")):
            shutil.copyfile(part, fresh / RESULTS / part.name)
        if (run.folder / SAVED).is_dir():
            shutil.copytree(run.folder / SAVED, fresh / SAVED, dirs_exist_ok=True)
    for name in (LEDGER, ERRORS):
        contents = [(run.folder / name).read_bytes() for run in runs if (run.folder / name).exists()]
        if contents:
            write_file(fresh / name, b"".join(contents))
    with RunWriter.open(fresh, manifest) as writer:
        writer.arrange()
