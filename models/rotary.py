"""How fast each pair of a head turns, and the published ways to slow that down for texts longer than trained on.

Unscaled, pair i of r rotated numbers turns by theta^(−2i/r) radians per position (Su et al. 2021). All rules follow the
order of operations of `transformers.modeling_rope_utils`: at position 8,000 an angle is a thousand turns, where one
differing bit of a frequency is seen in the third decimal of its cosine.

Everything is made on the device and nothing is read back, so that an accelerator is never waited for.
"""

import functools
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.models.config import RotaryConfig


def needs_length(config: RotaryConfig) -> bool:
    """Whether the frequencies depend on how long the text is."""
    return config.scaling in ("dynamic", "longrope")


def rotary_frequencies(
    config: RotaryConfig,
    d_head: int,
    *,
    length: int | Int[Tensor, ""],
    device: torch.device | str | None = None,
) -> Float[Tensor, "pair"]:
    """Radians per position for each pair of the rotated numbers, after the configured scaling, in float32.

    `length`, the number of positions up to the last that is read, counts for `dynamic` and `longrope` alone.
    """
    if config.scaling == "yarn":
        return _yarn(config, d_head, device)
    if config.scaling == "longrope":
        return _longrope(config, d_head, _on(device, length))
    base = config.theta
    if config.scaling == "ntk":
        base *= config.factor ** _ntk_exponent(config, d_head)
    slowest = _dynamic_base(config, d_head, _on(device, length)) if config.scaling == "dynamic" else base
    frequencies = 1.0 / _growing(config, d_head, slowest, device)
    if config.scaling == "linear":
        return frequencies / config.factor
    return _llama3(config, frequencies) if config.scaling == "llama3" else frequencies


def attention_scaling(config: RotaryConfig) -> float:
    """What cosines and sines are multiplied with, so that scores over a stretched context keep their spread.

    1 for all but `yarn` and `longrope`; for these the stated `attention_factor`, or else what their papers advise.
    """
    if config.scaling not in ("yarn", "longrope"):
        return 1.0
    if config.attention_factor is not None:
        return config.attention_factor
    if config.scaling == "longrope":
        stretched = config.factor > 1
        return math.sqrt(1 + math.log(config.factor) / math.log(config.original_context)) if stretched else 1.0
    if config.mscale is not None and config.mscale_all_dim is not None:
        return _yarn_scale(config.factor, config.mscale) / _yarn_scale(config.factor, config.mscale_all_dim)
    return _yarn_scale(config.factor, 1.0)


def _rotated(config: RotaryConfig, d_head: int) -> int:
    return d_head if config.rotated is None else config.rotated


def _growing(
    config: RotaryConfig, d_head: int, base: float | Float[Tensor, ""], device: torch.device | str | None
) -> Float[Tensor, "pair"]:
    """base^(2i/r) for each pair i."""
    rotated = _rotated(config, d_head)
    return base ** (torch.arange(0, rotated, 2, dtype=torch.int64, device=device).float() / rotated)


def _on(device: torch.device | str | None, length: int | Int[Tensor, ""]) -> Int[Tensor, ""]:
    """A length as a number on the device: filled in there, because a copy would wait for all work before it."""
    return length if isinstance(length, Tensor) else torch.full((), length, dtype=torch.int64, device=device)


def _ntk_exponent(config: RotaryConfig, d_head: int) -> float:
    """r/(r − 2), with which the slowest of the pairs is slowed by just the factor; a single pair has no base."""
    rotated = _rotated(config, d_head)
    return rotated / max(rotated - 2, 1)


def _dynamic_base(config: RotaryConfig, d_head: int, length: Int[Tensor, ""]) -> Float[Tensor, ""]:
    """The NTK-aware base (bloc97 2023), raised as far as the text is longer than the original context."""
    beyond = (config.factor * length.float() / config.original_context) - (config.factor - 1)
    raised = config.theta * beyond ** _ntk_exponent(config, d_head)
    return torch.where(length > config.original_context, raised, config.theta)


def _llama3(config: RotaryConfig, frequencies: Float[Tensor, "pair"]) -> Float[Tensor, "pair"]:
    """Llama 3.1's rule: long waves are stretched, short ones kept, those between blended."""
    wavelengths = 2 * math.pi / frequencies
    turns = config.original_context / wavelengths
    blend = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / config.factor + blend * frequencies


def _yarn(config: RotaryConfig, d_head: int, device: torch.device | str | None) -> Float[Tensor, "pair"]:
    """YaRN (Peng et al. 2023): pairs that turn often within the original context are kept, rare turners stretched."""
    growing = _growing(config, d_head, config.theta, device)
    first, last = _yarn_range(config, d_head)
    pairs = torch.arange(len(growing), dtype=torch.float32, device=device)
    kept = 1 - ((pairs - first) / (last - first)).clamp(0, 1)
    return (1.0 / (config.factor * growing)) * (1 - kept) + (1.0 / growing) * kept


def _yarn_range(config: RotaryConfig, d_head: int) -> tuple[float, float]:
    """The pairs between which YaRN blends: those that turn `beta_fast` and `beta_slow` times in the context."""
    rotated = _rotated(config, d_head)

    def pair_that_turns(times: float) -> float:
        return (rotated * math.log(config.original_context / (times * 2 * math.pi))) / (2 * math.log(config.theta))

    first, last = pair_that_turns(config.beta_fast), pair_that_turns(config.beta_slow)
    if config.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotated - 1)
    return first, last + 0.001 if first == last else last  # never divide by zero


def _yarn_scale(stretch: float, weight: float) -> float:
    return 0.1 * weight * math.log(stretch) + 1.0 if stretch > 1 else 1.0


def _longrope(config: RotaryConfig, d_head: int, length: Int[Tensor, ""]) -> Float[Tensor, "pair"]:
    """LongRoPE (Ding et al. 2024): a searched factor for each pair, from one list for short texts, one for long."""
    pairs = _rotated(config, d_head) // 2
    for factors in (config.short_factor, config.long_factor):
        if len(factors) != pairs:
            raise UsageError(f"LongRoPE has {len(factors)} factors for {pairs} rotated pairs; give one for each pair.")
    short, long = _factors(config.short_factor, length.device), _factors(config.long_factor, length.device)
    factor = torch.where(length > config.original_context, long, short)
    return 1.0 / (factor * _growing(config, d_head, config.theta, length.device))


@functools.cache
def _factors(factors: tuple[float, ...], device: torch.device) -> Float[Tensor, "pair"]:
    """A list of factors, copied to a device once: every later pass would have to wait for its copy."""
    with torch.inference_mode(False):  # the tensor outlives the pass that first asked for it
        return torch.tensor(factors, dtype=torch.float32, device=device)
