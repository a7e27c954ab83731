"""How a model knows where a token stands: rotary positions, fixed waves, distance penalties, and the count itself.

Rotary (Su et al. 2021): each pair of a query's or key's numbers turns by position · frequency. Angles and tables are
float32 whatever the model's dtype: at position 4,000 a bfloat16 angle would be off by whole turns.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.models.config import RotaryConfig, RotaryPairs
from interp.models.rotary import attention_scaling, needs_length, rotary_frequencies


@dataclass(frozen=True)
class Rotation:
    """Tables for one forward pass, one column per number of a head: the sines of each pair's first are negated.

    Pairs are `halves`, (i, i + rotated/2), or `adjacent`, (2i, 2i + 1). The numbers that do not turn come last in a
    head; their cosines are 1, and the sines end before them.
    """

    cos: Float[Tensor, "#batch pos 1 d_head"]
    sin: Float[Tensor, "#batch pos 1 rotated"]
    pairs: RotaryPairs = "halves"

    def __call__(self, x: Float[Tensor, "batch pos any_head d_head"]) -> Float[Tensor, "batch pos any_head d_head"]:
        """Turn queries or keys to their positions; the result has the dtype of `x`."""
        rotated = self.sin.shape[-1]
        turned = x * self.cos  # the tables make this float32 at least; what was just multiplied is ours to write to
        if rotated == x.shape[-1]:
            turned.addcmul_(self._partners(x), self.sin)
        else:
            turned[..., :rotated].addcmul_(self._partners(x[..., :rotated]), self.sin)
        return turned.type_as(x)

    def _partners(self, x: Float[Tensor, "batch pos any_head rotated"]) -> Float[Tensor, "batch pos any_head rotated"]:
        """The other number of each number's pair."""
        if self.pairs == "halves":
            return x.roll(x.shape[-1] // 2, -1)
        return rearrange(x, "... (pair both) -> ... pair both", both=2).flip(-1).flatten(-2)

    def at(self, rows: Int[Tensor, "chosen"]) -> "Rotation":
        """The same rotation for chosen rows of the tables, in that order; a row may come more than once."""
        return replace(self, cos=self.cos[:, rows], sin=self.sin[:, rows])


def rotation(
    config: RotaryConfig, d_head: int, positions: Int[Tensor, "batch pos"], *, length: int | None = None
) -> Rotation:
    """The tables for given absolute positions, for heads of size `d_head`.

    Under `dynamic` and `longrope` scaling the frequencies depend on `length`, how many positions the text has up to the
    last that is read; None takes it from the largest of `positions`. It is one number for the whole batch, so a short
    text beside a long one is turned as the long one is. It also belongs to this call alone: when a text is read piece
    by piece, keys that were cached while it was shorter keep the rotation they got then, as in `transformers`, so such
    a text read at once gives other values than the same read in pieces. The other scalings do not look at `length`.
    """
    reached = length if length is not None else positions.max() + 1 if needs_length(config) else 1
    frequencies = rotary_frequencies(config, d_head, length=reached, device=positions.device)
    angles = positions[:, :, None, None].float() * frequencies
    cos, sin, scaling = angles.cos(), angles.sin(), attention_scaling(config)
    if scaling != 1:
        cos, sin = cos * scaling, sin * scaling
    if config.pairs == "halves":
        cos, sin = torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
    else:
        cos, sin = torch.stack([cos, cos], -1).flatten(-2), torch.stack([-sin, sin], -1).flatten(-2)
    rest = d_head - cos.shape[-1]
    return Rotation(F.pad(cos, (0, rest), value=1.0) if rest else cos, sin, config.pairs)


def sinusoidal(positions: Int[Tensor, "batch pos"], d_model: int) -> Float[Tensor, "batch pos d_model"]:
    """The fixed waves of Vaswani et al. 2017, in float32: number 2i is sin(p / 10000^(2i/d_model)), 2i + 1 its cosine.

    Angles are float64 where the device has it: no checkpoint stores these, so none has a rounding to agree with.
    """
    if d_model < 2 or d_model % 2:
        raise UsageError(f"Sinusoidal positions are pairs of sine and cosine; give an even d_model, not {d_model}.")
    wide = torch.float32 if positions.device.type == "mps" else torch.float64
    steps = torch.arange(0, d_model, 2, dtype=wide, device=positions.device) / d_model
    angles = positions[..., None] / 10_000.0**steps
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).float()


def alibi_slopes(n_heads: int, *, device: torch.device | str | None = None) -> Float[Tensor, "head"]:
    """How much each head's scores fall per position of distance (ALiBi, Press et al. 2022), in float32.

    With p heads, p a power of two, head h has 2^(−8(h + 1)/p). Of any other number of heads the first p, the largest
    power of two among them, have that, and the rest every other slope of a model of 2p heads: the first, the third, ….
    """
    if n_heads < 1:
        raise UsageError(f"A model has at least one head; slopes were asked for {n_heads}.")
    power = 2 ** (n_heads.bit_length() - 1)
    heads = torch.arange(1, power + 1, device=device).float()
    # powers of one rounded ratio, as the published models were trained with, not each power rounded
    slopes, between = (2.0 ** (-8 / power)) ** heads, (2.0 ** (-4 / power)) ** (2 * heads[: n_heads - power] - 1)
    return torch.cat([slopes, between])


def alibi_bias(
    slopes: Float[Tensor, "head"], positions: Int[Tensor, "batch key_pos"]
) -> Float[Tensor, "batch head 1 key_pos"]:
    """What ALiBi adds to the scores of every query: slope · position of the key, real tokens counted, padding not.

    In the paper it is −slope · distance. Both differ by slope · position of the query, which is the same for all keys
    that a query reads, and a softmax does not see it; so one row serves all queries (as in BLOOM).
    """
    return slopes[None, :, None, None] * positions[:, None, None, :]


def row_positions(
    batch: int, start: int, end: int, mask: Bool[Tensor, "batch end"] | None, device: torch.device
) -> Int[Tensor, "batch pos"]:
    """Absolute positions of columns `start` to `end`: real tokens are counted, padding is not.

    `mask` covers all columns from 0 on, those before `start` too.
    """
    if mask is None:
        return torch.arange(start, end, device=device).expand(batch, end - start)
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, start:]
