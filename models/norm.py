"""Normalisation of each row, by its root mean square (Zhang & Sennrich 2019) or its mean and variance (Ba et al. 2016).

rms:    x / sqrt(mean(x²) + eps) · gain
layer:  (x − mean(x)) / sqrt(var(x) + eps) · gain + bias
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.hooks import HookPoint
from interp.models.config import ModelConfig
from interp.models.point import hook_point


class PlainNorm(nn.Module):
    """Divides each row by a scale, then applies the gain. Statistics are float32 or wider in any dtype."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(config.d_model), requires_grad=False)
        self.b = nn.Parameter(torch.empty(config.d_model), requires_grad=False) if config.norm == "layer" else None
        self.eps = config.norm_eps
        self.offset = config.norm_offset

    def normalize(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised input, without hook points."""
        centred = self.centre(x)
        return self.gained(centred, self.divisor(centred), x)

    def centre(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The input in float32 or wider, its mean taken off if this norm does that."""
        wide = x if x.dtype == torch.float64 else x.float()
        return wide if self.b is None else wide - wide.mean(-1, keepdim=True)

    def divisor(self, centred: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch 1"]:
        """sqrt(mean of squares + eps)."""
        # torch.linalg.vector_norm would save a pass, at twice the error: it sums naively.
        squares = centred.square().sum(-1, keepdim=True)
        # eps + squares / width in one operation: with one row, operations cost more than numbers
        return torch.rsub(squares, self.eps, alpha=-1 / centred.shape[-1]).sqrt_()

    def gained(
        self, centred: Float[Tensor, "*batch d_model"], scale: Float[Tensor, "*batch 1"], like: Tensor
    ) -> Float[Tensor, "*batch d_model"]:
        """Divided by a scale, with gain and bias, in the dtype of the input."""
        divided = centred / scale  # a fresh tensor, as is what follows: both may be written to
        if self.offset:
            return divided.mul_(1 + self.w.to(divided.dtype)).type_as(like)
        if self.b is not None:
            return torch.addcmul(self.b.to(divided.dtype), divided, self.w.to(divided.dtype)).type_as(like)
        return divided.type_as(like).mul_(self.w)

    def weights(self) -> dict[str, Tensor]:
        """Gain, and bias where there is one."""
        return {"w": self.w} if self.b is None else {"w": self.w, "b": self.b}


class Norm(PlainNorm):
    """A norm whose divisor and result are hook points."""

    def __init__(self, config: ModelConfig, prefix: str) -> None:
        super().__init__(config)
        self.hook_scale: HookPoint = hook_point(f"{prefix}.hook_scale")
        self.hook_normalized: HookPoint = hook_point(f"{prefix}.hook_normalized")

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised input, with both hook points."""
        centred = self.centre(x)
        scale = self.hook_scale(self.divisor(centred))
        return self.hook_normalized(self.gained(centred, scale, x))


class HeadNorm(nn.Module):
    """The norm of queries or keys before rotation: of each head by itself, or of all heads as one row."""

    def __init__(self, config: ModelConfig, n_heads: int) -> None:
        super().__init__()
        self.whole = config.qk_norm == "width"
        self.w = nn.Parameter(
            torch.empty(n_heads * config.d_head if self.whole else config.d_head), requires_grad=False
        )
        self.eps, self.offset = config.norm_eps, config.norm_offset

    def forward(self, x: Float[Tensor, "batch pos any_head d_head"]) -> Float[Tensor, "batch pos any_head d_head"]:
        """Queries or keys, divided by their root mean square, times the gain."""
        rows = x.flatten(-2) if self.whole else x
        wide = rows if rows.dtype == torch.float64 else rows.float()
        divided = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        gain = 1 + self.w.to(divided.dtype) if self.offset else None
        normed = divided.type_as(x) * self.w if gain is None else (divided * gain).type_as(x)
        return normed.view(x.shape)
