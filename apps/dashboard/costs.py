"""What work will take on this machine, from the planner's counts: roughly, before anything is measured."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from interp.apps.dashboard.page import Cost

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FLOPS_A_CORE = 4e10
"""Operations a second of one core on matrices of some hundred rows: what common machines reach, not a measurement."""
BYTES = 1.5e10
ACCELERATED = 50  # how much faster a device that is no CPU is taken to be, at least


def estimated(model: "Transformer", analysis: str, lengths: Sequence[int], settings: Mapping[str, object] = {}) -> Cost:
    """Seconds and bytes of an analysis of `ANALYSES` on texts of so many tokens. Raises `UsageError` as the planner."""
    from interp.analyses.costs import analysis_cost
    from interp.models.planner.speed import Speed

    times = 1 if model.device.type == "cpu" else ACCELERATED
    speed = Speed(FLOPS_A_CORE * (os.cpu_count() or 1) * times, BYTES * times)
    dtype = str(model.dtype).removeprefix("torch.")
    cost = analysis_cost(analysis, model.config, lengths, {"dtype": dtype, **settings}, speed=speed)
    return Cost(cost.seconds or 0.0, cost.bytes)
