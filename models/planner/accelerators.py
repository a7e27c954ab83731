"""Accelerators by their published figures: peak operations without sparsity, bytes a second, bytes of memory.

No program reaches the peak. `accelerator` takes a share of it, 0.4 unless told otherwise: an ASSUMPTION, about what
training and prefilling of large models report (PaLM, Chowdhery et al. 2022, reached 0.46), and far above what a
few hundred tokens at a time will see. Memory is taken at its published speed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from interp.errors import UsageError, nearest
from interp.models.planner.speed import Speed

EFFICIENCY = 0.4


@dataclass(frozen=True)
class Accelerator:
    """One accelerator. `bfloat16` and `float32` are peak operations a second, dense; float32 without TF32."""

    name: str
    bfloat16: float
    float32: float
    memory: int
    bandwidth: float
    source: str

    def peak(self, dtype: str) -> float:
        """Peak operations a second in a number format; float16 is as fast as bfloat16 on all of these."""
        if dtype not in ("bfloat16", "float16", "float32"):
            raise UsageError(f"No peak of {self.name} is known for {dtype}; expected bfloat16, float16 or float32.")
        return self.float32 if dtype == "float32" else self.bfloat16

    def ridge(self, dtype: str) -> float:
        """Operations a byte at which computing at the peak takes as long as moving."""
        return self.peak(dtype) / self.bandwidth


_GB, _T = 10**9, 1e12  # data sheets count in powers of ten

_ALL = (
    Accelerator("h200", 989.5 * _T, 67 * _T, 141 * _GB, 4.8 * _T, "NVIDIA H200 Tensor Core GPU, data sheet (SXM)"),
    Accelerator("h100-sxm", 989.5 * _T, 67 * _T, 80 * _GB, 3.35 * _T, "NVIDIA H100 Tensor Core GPU, data sheet (SXM)"),
    Accelerator("a100-80gb", 312 * _T, 19.5 * _T, 80 * _GB, 2.039 * _T, "NVIDIA A100 80GB, data sheet (SXM)"),
    Accelerator("a100-40gb", 312 * _T, 19.5 * _T, 40 * _GB, 1.555 * _T, "NVIDIA A100 40GB, data sheet (SXM)"),
    Accelerator("l40s", 362 * _T, 91.6 * _T, 48 * _GB, 0.864 * _T, "NVIDIA L40S, data sheet"),
    Accelerator("l4", 121 * _T, 30.3 * _T, 24 * _GB, 0.3 * _T, "NVIDIA L4 Tensor Core GPU, data sheet"),
    Accelerator("a10", 125 * _T, 31.2 * _T, 24 * _GB, 0.6 * _T, "NVIDIA A10 Tensor Core GPU, data sheet"),
    Accelerator("rtx-4090", 165.2 * _T, 82.6 * _T, 24 * _GB, 1.008 * _T, "NVIDIA Ada GPU architecture, white paper"),
    Accelerator("rtx-3090", 71 * _T, 35.6 * _T, 24 * _GB, 0.936 * _T, "NVIDIA Ampere GA102 architecture, white paper"),
    Accelerator("mi300x", 1307.4 * _T, 163.4 * _T, 192 * _GB, 5.3 * _T, "AMD Instinct MI300X, data sheet"),
)

ACCELERATORS: Mapping[str, Accelerator] = {each.name: each for each in _ALL}


def known_accelerator(name: str) -> Accelerator:
    """The accelerator of that name; `UsageError` with the nearest where there is none."""
    if name not in ACCELERATORS:
        known = ", ".join(ACCELERATORS)
        raise UsageError(f"No accelerator is called {name!r}.{nearest(name, ACCELERATORS)} Known: {known}.")
    return ACCELERATORS[name]


def accelerator(name: str, *, dtype: str = "float32", efficiency: float = EFFICIENCY) -> Speed:
    """What an accelerator is taken to reach: a share of its peak, and the published speed of its memory."""
    if not 0 < efficiency <= 1:
        raise UsageError(f"The efficiency is {efficiency!r}; expected a share of the peak, above 0 and at most 1.")
    known = known_accelerator(name)
    return Speed(efficiency * known.peak(dtype), known.bandwidth, f"{name}, {dtype}, {efficiency:.0%} of the peak")
