"""Root-mean-square normalisation (Zhang & Sennrich 2019): x / sqrt(mean(x²) + eps) · gain."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.hooks import HookPoint
from interp.models.point import hook_point


class RMSNorm(nn.Module):
    """Divides each row by its root mean square, then applies the gain. Statistics are float32 or wider in any dtype."""

    def __init__(self, d_model: int, eps: float, prefix: str) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(d_model), requires_grad=False)
        self.eps = eps
        self.hook_scale: HookPoint = hook_point(f"{prefix}.hook_scale")
        self.hook_normalized: HookPoint = hook_point(f"{prefix}.hook_normalized")

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalised input, with both hook points."""
        scale = self.hook_scale(self.scale(x))
        return self.hook_normalized(self.normalize(x, scale))

    def scale(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch 1"]:
        """The divisor, in float32 or wider."""
        # torch.linalg.vector_norm would save a pass, at twice the error: it sums naively.
        squares = _wide(x).square().sum(-1, keepdim=True)
        # eps + squares / d_model in one operation: with one row, operations cost more than numbers
        return torch.rsub(squares, self.eps, alpha=-1 / x.shape[-1]).sqrt_()

    def normalize(
        self, x: Float[Tensor, "*batch d_model"], scale: Float[Tensor, "*batch 1"] | None = None
    ) -> Float[Tensor, "*batch d_model"]:
        """The input over a divisor (its own, if none is given) times the gain, without hook points."""
        return (_wide(x) / (self.scale(x) if scale is None else scale)).type_as(x).mul_(self.w)  # a fresh tensor


def _wide(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    return x if x.dtype == torch.float64 else x.float()
