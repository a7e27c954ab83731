"""Tiny studies for tests: a saved model with a tokenizer, study files, and runs compared byte by byte."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import tree
from published import write_folder, write_tokenizer
from tiny import BASE

CONFIG = replace(BASE, d_vocab=300, n_ctx=64, tied_embeddings=False)
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "two", "3", "birds")

STUDY = """
name = "tiny"

[[models]]
name = "{model}"
device = "cpu"

[[data]]
name = "texts"
kind = "prompts"
source = {texts}

[[data]]
name = "sequences"
kind = "repeated"
count = {sequences}

[[analyses]]
analysis = "lens"
settings = {{ positions = "all" }}

[[analyses]]
analysis = "induction"
settings = {{ seq_len = 5 }}

[run]
batch_size = {batch_size}
"""


def tiny_folder(folder: Path) -> Path:
    """A saved model with random weights and a tokenizer of 300 tokens."""
    write_folder(folder, CONFIG)
    write_tokenizer(folder)
    return folder


def texts(count: int) -> list[str]:
    """Texts of different lengths, all different."""
    return [f"{number} {' '.join(WORDS[: 1 + number % len(WORDS)])}" for number in range(count)]


def write_study(path: Path, model: Path, *, items: int = 60, batch_size: int | str = "auto") -> Path:
    """A study of the lens on half of the items, and of induction on the other half."""
    size = f'"{batch_size}"' if isinstance(batch_size, str) else batch_size
    prompts = json.dumps(texts(items // 2))
    path.write_text(STUDY.format(model=model, texts=prompts, sequences=items - items // 2, batch_size=size))
    return path


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run by its path; of the manifest all but its date, and not the log."""
    found = {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    found.pop("log.txt", None)
    manifest = json.loads(found["manifest.json"])
    dated = ("created", "head_sha256", "sha256")
    kept = {name: value for name, value in manifest.items() if name not in dated}
    return {**found, "manifest.json": json.dumps(kept, sort_keys=True).encode()}


RUN = """
import sys
from interp.analyses.study import load_study, run_study
run_study(load_study(sys.argv[1]), sys.argv[2], workers=int(sys.argv[3]))
"""


def start(study: Path, out: Path, workers: int = 1) -> subprocess.Popen[bytes]:
    """A process that runs the study; what it says goes into a file beside the run."""
    command = [sys.executable, "-c", RUN, str(study), str(out), str(workers)]
    with said_by(out).open("ab") as file:
        return subprocess.Popen(command, cwd=tree.ROOT, stdout=file, stderr=subprocess.STDOUT)


def said_by(out: Path) -> Path:
    """Where the processes that run a study leave their words."""
    return out.with_name(f"{out.name}.txt")


def stop_after(process: subprocess.Popen[bytes], out: Path, lines: int, signal: int, pause: float = 0.0) -> bool:
    """Send the signal once the ledger has so many lines, and a moment later; whether the process was still running."""
    ledger = out / "items.jsonl"
    while process.poll() is None:
        if ledger.exists() and ledger.read_bytes().count(b"\n") >= lines:
            time.sleep(pause)
            process.send_signal(signal)
            process.wait()
            return process.returncode != 0
        time.sleep(0.002)
    return False


def lines_of(run: Path) -> int:
    """How many lines the ledger has."""
    ledger = run / "items.jsonl"
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def done_twice(run: Path) -> Iterable[tuple[str, str]]:
    """(job, item) of items that the ledger has more than once."""
    seen: set[tuple[str, str]] = set()
    for line in (run / "items.jsonl").read_text().splitlines():
        entry = json.loads(line)
        key = entry["job"], entry["item"]
        if key in seen:
            yield key
        seen.add(key)


def killed(study: Path, undisturbed: Path, run: Path, *, kills: int, seed: int) -> list[str]:
    """Kill the study so often at random moments, resumed each time; what differs from the undisturbed run."""
    rng, total, complaints = random.Random(seed), lines_of(undisturbed), []
    moments = sorted(rng.randrange(total - 2) for _ in range(kills))
    for moment in moments:
        process = start(study, run)
        wanted = max(moment, lines_of(run))
        if not stop_after(process, run, wanted, signal.SIGKILL, rng.uniform(0, 0.02)):
            complaints.append(f"the run ended before it could be killed at {wanted} lines")
    process = start(study, run)
    if process.wait():
        complaints.append(said_by(run).read_text())
    complaints += [f"{item} of {job} was done twice" for job, item in done_twice(run)]
    ours, theirs = content(run), content(undisturbed)
    return complaints + [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
