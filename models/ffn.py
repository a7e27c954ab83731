"""The gated feed-forward sublayer (Shazeer 2020), read as key-value memories (Geva et al. 2021).

Neuron f has two keys (columns of W_gate and W_in) and one value (a row of W_out). Its coefficient is
act(x · gate key) · (x · up key): signed, since the second factor is.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from interp.models.config import Activation, ModelConfig
from interp.models.linear import linear
from interp.models.point import hook_point


def activate(name: Activation, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The activation function by its configured name."""
    match name:
        case "silu":
            return F.silu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)


class GatedFFN(nn.Module):
    """x → W_out · (act(W_gate x) · (W_in x)). Gate and up projection are stored as one matrix, gate first."""

    def __init__(self, config: ModelConfig, prefix: str) -> None:
        super().__init__()
        self.activation: Activation = config.activation
        self.gate_up = nn.Parameter(torch.empty(2 * config.d_mlp, config.d_model), requires_grad=False)
        self.down = nn.Parameter(torch.empty(config.d_model, config.d_mlp), requires_grad=False)
        self.gate_up_bias = _bias(2 * config.d_mlp) if config.mlp_bias else None
        self.down_bias = _bias(config.d_model) if config.mlp_bias else None
        self.hook_pre = hook_point(f"{prefix}.hook_pre")
        self.hook_pre_linear = hook_point(f"{prefix}.hook_pre_linear")
        self.hook_post = hook_point(f"{prefix}.hook_post")
        self.hook_out = hook_point(f"{prefix}.hook_out")

    def forward(self, normalized: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The sublayer's output."""
        gate, up = linear(normalized, self.gate_up, self.gate_up_bias).chunk(2, -1)
        pre, pre_linear = self.hook_pre(gate), self.hook_pre_linear(up)
        post = self.hook_post(activate(self.activation, pre) * pre_linear)
        return self.hook_out(linear(post, self.down, self.down_bias))

    def weights(self) -> dict[str, Tensor]:
        """Weights by name, input axis first, as views."""
        w_gate, w_in = self.gate_up.mT.chunk(2, -1)
        named = {"W_gate": w_gate, "W_in": w_in, "W_out": self.down.mT}
        if self.gate_up_bias is None or self.down_bias is None:
            return named
        b_gate, b_in = self.gate_up_bias.chunk(2)
        return {**named, "b_gate": b_gate, "b_in": b_in, "b_out": self.down_bias}


def _bias(size: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(size), requires_grad=False)
