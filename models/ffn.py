"""The feed-forward sublayer, gated (Shazeer 2020) or not, read as key-value memories (Geva et al. 2021).

Neuron f has one key (a column of W_in), or two (of W_gate and W_in), and one value (a row of W_out). Its coefficient is
act(x · key); gated, act(x · gate key) · (x · up key): signed, since the second factor is.
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


class FFN(nn.Module):
    """x → W_out · (act(W_gate x) · (W_in x)); without a gate, x → W_out · act(W_in x)."""

    def __init__(self, config: ModelConfig, prefix: str, width: int | None = None) -> None:
        super().__init__()
        self.activation: Activation = config.activation
        d_mlp, d_model = width or config.d_mlp, config.d_model
        self.gate = frozen(d_mlp, d_model) if config.gated else None
        self.up, self.down = frozen(d_mlp, d_model), frozen(d_model, d_mlp)
        self.gate_bias = frozen(d_mlp) if config.mlp_bias and config.gated else None
        self.up_bias = frozen(d_mlp) if config.mlp_bias else None
        self.down_bias = frozen(d_model) if config.mlp_bias else None
        self.hook_pre = hook_point(f"{prefix}.hook_pre")
        self.hook_pre_linear = hook_point(f"{prefix}.hook_pre_linear")
        self.hook_post = hook_point(f"{prefix}.hook_post")
        self.hook_out = hook_point(f"{prefix}.hook_out")

    def forward(self, normalized: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The sublayer's output."""
        return self.hook_out(self.written(normalized))

    def written(self, normalized: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What the neurons write, together."""
        return linear(self.hook_post(self.coefficients(normalized)), self.down, self.down_bias)

    def coefficients(self, normalized: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_mlp"]:
        """How much of each neuron's value is written."""
        if self.gate is None:
            return activate(self.activation, self.hook_pre(linear(normalized, self.up, self.up_bias)))
        gated = self.gated(normalized, self.gate)
        pre_linear = self.hook_pre_linear(linear(normalized, self.up, self.up_bias))
        differentiated = gated.requires_grad or pre_linear.requires_grad  # relu's gradient needs its own output
        return gated * pre_linear if differentiated else gated.mul_(pre_linear)

    def gated(
        self, normalized: Float[Tensor, "batch pos d_model"], gate: Float[Tensor, "d_mlp d_model"]
    ) -> Float[Tensor, "batch pos d_mlp"]:
        """The activated gate. Apart, so that `pre` is let go before `pre_linear` is made: no values are wider."""
        return activate(self.activation, self.hook_pre(linear(normalized, gate, self.gate_bias)))

    def weights(self) -> dict[str, Tensor]:
        """Weights by name, input axis first, as views."""
        named: dict[str, Tensor] = {} if self.gate is None else {"W_gate": self.gate.mT}
        named |= {"W_in": self.up.mT, "W_out": self.down.mT}
        biases = {"b_gate": self.gate_bias, "b_in": self.up_bias, "b_out": self.down_bias}
        return named | {name: bias for name, bias in biases.items() if bias is not None}


def frozen(*shape: int) -> nn.Parameter:
    """A parameter that is not trained, uninitialised."""
    return nn.Parameter(torch.empty(shape), requires_grad=False)
