"""`python -m benchmarks [name …] [--threads N]`: run the cases and print one table."""

import argparse
from functools import partial

import torch

from benchmarks.cases import CASES
from benchmarks.facts import many_facts
from benchmarks.measuring import sgemm_gflops


def main() -> None:
    """Run what was named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--facts", type=int, default=100, help="how many facts many_facts traces")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in CASES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(CASES)}")
    torch.set_num_threads(asked.threads)
    torch.set_grad_enabled(False)
    print(f"torch {torch.__version__}, {asked.threads} threads, sgemm {sgemm_gflops():.0f} GFLOP/s\n")
    print("| what | measured | value | mark | reached |\n|---|---|--:|--:|---|")
    cases = {**CASES, "many_facts": partial(many_facts, asked.facts)}
    for name in asked.names or cases:
        for row in cases[name]():
            verdict, mark = "yes" if row.reached else "no", f"≤ {row.mark:.2f} {row.unit}"
            print(f"| {row.what} | {row.measured} | {row.value:.2f} {row.unit} | {mark} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
