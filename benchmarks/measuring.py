"""Interleaved timing, peak memory, and the rows of the report."""

import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Row:
    """One line of the report: what was measured, and the mark that it should reach (at most)."""

    what: str
    measured: str
    value: float
    mark: float
    unit: str = "×"

    @property
    def reached(self) -> bool:
        """Whether the value is at or below the mark."""
        return self.value <= self.mark


def medians(candidates: Mapping[str, Callable[[], object]], repeats: int = 15) -> dict[str, float]:
    """Median seconds of each candidate; every round runs all of them once, after one warm-up round."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()
    for _ in range(repeats):
        for name, run in candidates.items():
            gc.collect()
            start = time.perf_counter()
            result = run()
            seconds[name].append(time.perf_counter() - start)
            del result
    return {name: statistics.median(values) for name, values in seconds.items()}


def ratio_row(what: str, ours: Callable[[], object], peer: Callable[[], object], mark: float, repeats: int = 15) -> Row:
    """Our median over the peer's."""
    found = medians({"ours": ours, "peer": peer}, repeats)
    measured = f"{found['ours'] * 1e3:.1f} ms against {found['peer'] * 1e3:.1f} ms"
    return Row(what, measured, found["ours"] / found["peer"], mark)


def peak_bytes(run: Callable[[], object]) -> int:
    """How far the resident memory of this process rises above its level before the call, at its highest (Linux)."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    result = run()
    peak = _status("VmHWM")
    del result
    return peak - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def in_fresh_process(code: str) -> float:
    """The number that a new interpreter prints last."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def fresh_medians(codes: Mapping[str, str], repeats: int = 7) -> dict[str, float]:
    """Medians of numbers printed by new interpreters, interleaved."""
    values: dict[str, list[float]] = {name: [] for name in codes}
    for code in codes.values():
        in_fresh_process(code)
    for _ in range(repeats):
        for name, code in codes.items():
            values[name].append(in_fresh_process(code))
    return {name: statistics.median(found) for name, found in values.items()}


def sgemm_gflops() -> float:
    """What the machine multiplies just now: says how far two reports can be compared."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    torch.mm(left, right)
    start = time.perf_counter()
    for _ in range(30):
        torch.mm(left, right)
    return 30 * 2 * 1024**3 / (time.perf_counter() - start) / 1e9
