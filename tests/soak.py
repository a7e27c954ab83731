"""`make soak`: one model shared by threads that record, edit and fail, for minutes; no logit moves, no memory grows.

`python tests/soak.py SECONDS [MODEL]` ends with exit code 1, and says why, if a run without hooks no longer gives the
logits of the first one to the bit, or if the process grows after it has warmed up. `python tests/soak.py damaged COUNT
[FIRST]` loads so many damaged models instead (`fuzz.py`), and ends so if one of them does harm; `soak.py runs COUNT`
kills runs (`killed_runs.py`) and reads damaged ones (`fuzz_runs.py`); `soak.py studies COUNT KILLS` reads malformed
study files (`study_mutations.py`) and kills a study (`study_runs.py`).
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import torch
from torch import Tensor

import interp

THREADS = 4
ALLOWED_GROWTH = 64 * 2**20  # bytes: what an allocator may keep, far below one leaked cache a round


class Planned(Exception):
    """Raised by a hook on purpose."""


def fail(value: Tensor, point: interp.HookPoint) -> None:
    raise Planned(point.name)


def one_round(model: interp.Transformer, tokens: Tensor, number: int) -> bool:
    """Record, edit, fail; then whether edits differ from each other as they should."""
    model.run_with_cache(tokens)
    layer = number % model.config.n_layers
    edit = interp.edits.scale(1 + number % 3)  # a factor of 1 changes nothing
    edited = model.run_with_hooks(tokens, [(f"blocks.{layer}.hook_mlp_out", edit)])
    try:
        model.run_with_hooks(tokens, [(f"blocks.{layer}.attn.hook_pattern", fail)])
    except Planned:
        return torch.equal(edited, model(tokens)) == (number % 3 == 0)
    return False


def main(seconds: float = 120, name: str = "smollm2-135m") -> int:
    """Rounds until the time is up; the exit code."""
    model = interp.load(name, device="cpu")
    tokens = model.to_tokens("The Eiffel Tower is located in the city of")
    first, process = model(tokens), psutil.Process()
    started, rounds, warm = time.monotonic(), 0, 0
    with ThreadPoolExecutor(THREADS) as threads:
        while time.monotonic() - started < seconds:
            numbers = range(rounds, rounds + THREADS)
            if not all(threads.map(one_round, [model] * THREADS, [tokens] * THREADS, numbers)):
                return complain(f"a hook was lost, or heard by another thread, in rounds {numbers}")
            if not torch.equal(model(tokens), first):
                return complain(f"logits moved after round {rounds}")
            rounds += THREADS
            held = process.memory_info().rss
            warm = held if time.monotonic() - started < seconds / 4 else warm or held
            if held - warm > ALLOWED_GROWTH:
                return complain(f"the process grew by {(held - warm) / 2**20:.0f} MiB in {rounds} rounds")
    print(f"{rounds} rounds in {seconds:.0f} s on {THREADS} threads: every logit as at first, memory steady")
    return 0


def damaged(count: int = 300, first: int = 0) -> int:
    """Load so many damaged models, each in a child process; the exit code."""
    import fuzz

    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for mutation, outcome, complaints in fuzz.run(Path(folder), count, first):
            refused += outcome.kind == "refused"
            if complaints:
                return complain(f"{mutation}: {'; '.join(complaints)}")
    print(f"{count} damaged models: {refused} refused, {count - refused} as they were")
    return 0


def runs(count: int = 1000, first: int = 0) -> int:
    """Kill a run at every call of the system, then read and resume so many damaged ones; the exit code."""
    import fuzz_runs
    import killed_runs

    with tempfile.TemporaryDirectory() as folder:
        if killed_runs.main(Path(folder)) != 0:
            return complain("a run that was killed and resumed is not the undisturbed one")
        for damage, complaints in fuzz_runs.run(Path(folder), count, first):
            if complaints:
                return complain(f"{damage}: {'; '.join(complaints)}")
    print(f"{count} damaged runs: each was refused, mended, or as it was")
    return 0


def studies(count: int = 10_000, kills: int = 20) -> int:
    """Load so many malformed study files, then kill a study of 60 items so often; the exit code."""
    import study_mutations
    import study_runs

    from interp.analyses.study import load_study, run_study

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if complaints := study_mutations.run(folder, count):
            return complain(complaints[0])
        model = study_runs.tiny_folder(folder / "model")
        study = study_runs.write_study(folder / "study.toml", model, batch_size=1)
        undisturbed = run_study(load_study(study), folder / "undisturbed").folder
        if complaints := study_runs.killed(study, undisturbed, folder / "run", kills=kills, seed=0):
            return complain("; ".join(complaints))
    print(f"{count} malformed studies refused in words; a study killed {kills} times ends as if it had not been")
    return 0


def complain(why: str) -> int:
    """Say why, and the exit code of a failure."""
    print(f"soak: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["runs"]:
        sys.exit(runs(*map(int, sys.argv[2:4])))
    if sys.argv[1:2] == ["studies"]:
        sys.exit(studies(*map(int, sys.argv[2:4])))
    if sys.argv[1:2] == ["damaged"]:
        sys.exit(damaged(*map(int, sys.argv[2:4])))
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 120, *sys.argv[2:3]))
