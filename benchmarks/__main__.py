"""`python -m benchmarks [name …] [--threads N]`: run the cases and print one table."""

import argparse

import torch

from benchmarks.cases import CASES
from benchmarks.measuring import sgemm_gflops


def main() -> None:
    """Run what was named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in CASES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(CASES)}")
    torch.set_num_threads(asked.threads)
    torch.set_grad_enabled(False)
    print(f"torch {torch.__version__}, {asked.threads} threads, sgemm {sgemm_gflops():.0f} GFLOP/s\n")
    print("| what | measured | value | mark | reached |\n|---|---|--:|--:|---|")
    for name in asked.names or CASES:
        for row in CASES[name]():
            verdict, mark = "yes" if row.reached else "no", f"≤ {row.mark:.2f} {row.unit}"
            print(f"| {row.what} | {row.measured} | {row.value:.2f} {row.unit} | {mark} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
