"""Rotary positions (Su et al. 2021): each pair of a query's or key's numbers turns by position · frequency.

Pairs are (i, i + d_head/2), the layout of Hugging Face checkpoints. Angles and tables are float32 whatever the model's
dtype: at position 4,000 a bfloat16 angle would be off by whole turns.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.models.config import RotaryConfig


@dataclass(frozen=True)
class Rotation:
    """Tables for one forward pass, for both halves of a head: the sines of the first are negated."""

    cos: Float[Tensor, "#batch pos 1 d_head"]
    sin: Float[Tensor, "#batch pos 1 d_head"]

    def __call__(self, x: Float[Tensor, "batch pos any_head d_head"]) -> Float[Tensor, "batch pos any_head d_head"]:
        """Turn queries or keys to their positions."""
        partners = x.roll(x.shape[-1] // 2, -1)
        # the tables make this float32 at least; what was just multiplied is ours to write to
        return (x * self.cos).addcmul_(partners, self.sin).type_as(x)


def rotation(config: RotaryConfig, d_head: int, positions: Int[Tensor, "batch pos"]) -> Rotation:
    """The tables for given absolute positions."""
    frequencies = rotary_frequencies(config, d_head, device=positions.device)
    angles = positions[:, :, None, None].float() * frequencies
    cos, sin = angles.cos(), angles.sin()
    return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))


def rotary_frequencies(
    config: RotaryConfig, d_head: int, *, device: torch.device | str | None = None
) -> Float[Tensor, "half"]:
    """Radians per position for each pair, after the configured scaling; made on the device, so that nothing waits."""
    steps = torch.arange(0, d_head, 2, dtype=torch.int64, device=device).float() / d_head
    frequencies = 1.0 / (config.theta**steps)
    if config.scaling == "linear":
        return frequencies / config.factor
    if config.scaling == "llama3":
        return _llama3(config, frequencies)
    return frequencies


def _llama3(config: RotaryConfig, frequencies: Float[Tensor, "half"]) -> Float[Tensor, "half"]:
    """Llama 3.1's rule: long waves are stretched, short ones kept, those between blended."""
    wavelengths = 2 * math.pi / frequencies
    turns = config.original_context / wavelengths
    blend = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / config.factor + blend * frequencies


def row_positions(
    batch: int, start: int, end: int, mask: Bool[Tensor, "batch end"] | None, device: torch.device
) -> Int[Tensor, "batch pos"]:
    """Absolute positions of columns `start` to `end`: real tokens are counted, padding is not.

    `mask` covers all columns from 0 on, those before `start` too.
    """
    if mask is None:
        return torch.arange(start, end, device=device).expand(batch, end - start)
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, start:]
