"""Arithmetic intensity: operations for every byte that must move, beside what a machine can do with a byte.

A decoding step reads all weights once for everybody in the batch, and everybody's keys and values; a prefill reads the
weights once for a whole text. So decoding is bound by memory until the batch is large, and its keys and values stay so:
a token's own are read for it alone. What passes between the parts of a layer is not counted.
"""

from dataclasses import dataclass

from interp.models.config import ModelConfig
from interp.models.planner.flops import token_flops
from interp.models.planner.memory import kv_bytes, run_bytes, weight_bytes
from interp.models.planner.speed import Speed


@dataclass(frozen=True)
class Step:
    """One pass through the model."""

    flops: int
    moved: int

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.moved

    def bound(self, speed: Speed) -> str:
        """What this step waits for on a machine: memory below its ridge, computing above."""
        return "memory" if self.intensity < speed.ridge else "computing"

    def seconds(self, speed: Speed) -> float:
        """How long it takes at a speed."""
        return speed.seconds(self.flops, self.moved)


def decode_step(config: ModelConfig, context: int, *, batch: int = 1, itemsize: int = 4) -> Step:
    """One new token for each of `batch` texts that are `context` tokens long, the new one included."""
    moved = weight_bytes(config, batch, itemsize) + batch * kv_bytes(config, context, itemsize)
    return Step(batch * token_flops(config).decode(context), moved)


def prefill_step(config: ModelConfig, length: int, *, batch: int = 1, itemsize: int = 4) -> Step:
    """Reading `batch` texts of `length` tokens at once."""
    return Step(batch * token_flops(config).prefill(length), run_bytes(config, length, batch=batch, itemsize=itemsize))
