"""Rotary positions as GGUF files state them: in part as metadata, in part as tensors of divisors.

Linear stretching and YaRN are metadata. Llama 3's rule is written out, as a list of what divides each frequency;
LongRoPE's two lists are tensors as well. What `rope.scaling.attn_factor` says is multiplied into cosines and sines.
"""

import math
from dataclasses import replace

import torch

from interp.errors import LoadError
from interp.models.config import RotaryConfig
from interp.models.families.fields import Fields
from interp.models.rotary import attention_scaling
from interp.models.sources.checkpoint import Checkpoint

FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_KNOWN = ("none", "linear", "yarn", "longrope")


def rotary(fields: Fields, checkpoint: Checkpoint, rotated: int, d_head: int, n_ctx: int) -> RotaryConfig:
    """The rotation of the first `rotated` numbers of each head, stretched as stated."""
    theta = fields.number("rope.freq_base", 10_000.0)
    base = RotaryConfig(theta=theta, rotated=None if rotated == d_head else rotated)
    kind, factor = _kind(fields, checkpoint)
    original = fields.integer("rope.scaling.original_context_length", n_ctx)
    if kind == "longrope":
        return _longrope(base, fields, checkpoint, original, n_ctx)
    if kind == "yarn":
        return _yarn(base, fields, factor, original)
    fields.must_be("rope.scaling.attn_factor", 1.0)
    if FREQUENCIES in checkpoint.shapes:
        return _llama3(base, rotated, checkpoint)
    return replace(base, scaling="linear", factor=factor) if kind == "linear" else base


def _kind(fields: Fields, checkpoint: Checkpoint) -> tuple[str, float]:
    """The rule and its factor; stated once, as metadata or as tensors."""
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0))
    kind = fields.word("rope.scaling.type", "linear" if factor != 1.0 else "none")
    if kind not in _KNOWN:
        raise LoadError(f"{fields.source}: rope.scaling.type is {kind!r}; known are {', '.join(_KNOWN)}.")
    stretched = kind if factor != 1.0 and kind != "none" else "none"
    stored = [name for name in (FREQUENCIES, LONG, SHORT) if name in checkpoint.shapes]
    if (stored and stretched in ("linear", "yarn")) or (FREQUENCIES in stored and len(stored) > 1):
        raise LoadError(f"{fields.source} stretches rotary positions twice: {stretched}, and by {', '.join(stored)}.")
    return "longrope" if kind == "longrope" or LONG in stored or SHORT in stored else stretched, factor


def _yarn(base: RotaryConfig, fields: Fields, factor: float, original: int) -> RotaryConfig:
    """YaRN. A multiplier is the second of the weights that DeepSeek's configurations state, the first being 1.

    What `yarn_attn_factor` is multiplied with has changed from one reader of these files to the next: it stays unread.
    """
    fields.must_be("rope.scaling.yarn_ext_factor", 1.0)
    multiplier = fields.number("rope.scaling.yarn_log_multiplier", 0.0) or None  # 0 says: as in the paper
    found = replace(
        base,
        scaling="yarn",
        factor=factor,
        original_context=original,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        mscale=None if multiplier is None else 1.0,
        mscale_all_dim=multiplier,
    )
    weight = fields.number("rope.scaling.attn_factor", 1.0)
    return found if weight == 1.0 else replace(found, attention_factor=weight * attention_scaling(found))


def _longrope(base: RotaryConfig, fields: Fields, checkpoint: Checkpoint, original: int, n_ctx: int) -> RotaryConfig:
    """LongRoPE, whose factor on cosines and sines may be left to the paper's formula."""
    missing = [name for name in (LONG, SHORT) if name not in checkpoint.shapes]
    if missing:
        raise LoadError(
            f"{checkpoint.source} stretches positions by LongRoPE but does not hold {' and '.join(missing)}."
        )
    long, short = (tuple(checkpoint.read(name).flatten().tolist()) for name in (LONG, SHORT))
    return replace(
        base,
        scaling="longrope",
        factor=n_ctx / max(original, 1),
        original_context=original,
        short_factor=short,
        long_factor=long,
        attention_factor=fields.number(key) if (key := "rope.scaling.attn_factor") in fields else None,
    )


def _llama3(base: RotaryConfig, rotated: int, checkpoint: Checkpoint) -> RotaryConfig:
    """The llama3 rule behind a stored list of frequency divisors, checked value by value against that list."""
    stored = checkpoint.read(FREQUENCIES).double().flatten()
    factor = float(stored.max())
    if factor == 1.0 and float(stored.min()) == 1.0:
        return base
    if factor > 1.0 and len(stored) == rotated // 2:
        found = replace(  # the bounds and the context are those of every published Llama 3
            base, scaling="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
        )
        if torch.allclose(stored, _divisors(found, len(stored)), rtol=1e-5, atol=0.0):
            return found
    raise LoadError(
        f"{checkpoint.source} stretches rotary frequencies ({FREQUENCIES}) in a way that is not Llama 3's rule. "
        "Load the model's Hugging Face folder instead."
    )


def _divisors(rotary: RotaryConfig, n_pairs: int) -> torch.Tensor:
    """By how much the llama3 rule divides the frequency of each pair."""
    frequencies = rotary.theta ** (-torch.arange(n_pairs, dtype=torch.float64) / n_pairs)
    turns = rotary.original_context * frequencies / (2 * math.pi)
    smooth = (turns - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor)
    smooth = smooth.clamp(0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / rotary.factor + smooth)
