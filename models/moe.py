"""A mixture of experts in place of the FFN (Shazeer et al. 2017; Switch Transformers, Mixtral).

    out = Σ over the chosen experts e of weight_e · FFN_e(x)   [+ the shared expert, weighted by its gate if it has one]

The router's logits choose `top_k` experts for each token, best first; their weights are the softmax over all experts
taken at the chosen ones, or the softmax over the chosen alone, divided by their sum if the model does that. Each expert
computes only the tokens that chose it. Values keep the token axes: [batch, pos, slot, …], slot 0 the first choice.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.errors import HookError
from interp.hooks import HookPoint
from interp.models.config import Activation, ModelConfig, MoEConfig
from interp.models.ffn import FFN, activate, frozen
from interp.models.linear import linear
from interp.models.point import hook_point


class MoE(nn.Module):
    """Router, experts, and the shared expert where there is one. Experts are gated FFNs without biases."""

    def __init__(self, config: ModelConfig, prefix: str) -> None:
        super().__init__()
        assert config.moe is not None
        self.moe: MoEConfig = config.moe
        self.activation: Activation = config.activation
        experts, width, d_model = self.moe.n_experts, self.moe.d_expert, config.d_model
        self.router = frozen(experts, d_model)
        # not by the FFN's names: where layers differ, each name is one tensor of all layers that have it
        self.gates, self.ups = frozen(experts, width, d_model), frozen(experts, width, d_model)
        self.downs = frozen(experts, d_model, width)
        shared = self.moe.d_shared
        self.shared = None if shared is None else FFN(config, f"{prefix}.shared", shared)
        self.shared_gate = frozen(1, d_model) if shared is not None and self.moe.shared_gate else None
        self.hook_router = hook_point(f"{prefix}.hook_router")
        self.hook_expert_indices = hook_point(f"{prefix}.hook_expert_indices")
        self.hook_expert_weights = hook_point(f"{prefix}.hook_expert_weights")
        names = ("hook_pre", "hook_pre_linear", "hook_post")
        self.hook_pre, self.hook_pre_linear, self.hook_post = (
            hook_point(f"{prefix}.{name}", "mixture_of_experts") for name in names
        )
        self.hook_expert_out, self.hook_out = hook_point(f"{prefix}.hook_expert_out"), hook_point(f"{prefix}.hook_out")

    def forward(self, normalized: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The sublayer's output."""
        indices, weights = self.choose(self.hook_router(linear(normalized, self.router)))
        indices = self.hook_expert_indices(indices)
        if self.hook_expert_indices.edited:
            self._check_edited(indices)
        out = self.mixed(normalized, indices, self.hook_expert_weights(weights))
        if self.shared is not None:
            common = self.shared.written(normalized)
            if self.shared_gate is not None:
                common = common * linear(normalized, self.shared_gate).sigmoid()
            out = out + self.shared.hook_out(common)
        return self.hook_out(out)

    def _check_edited(self, indices: Int[Tensor, "batch pos slot"]) -> None:
        outside = indices[(indices < 0) | (indices >= self.moe.n_experts)]
        if len(outside):
            raise HookError(
                f"The hook at {self.hook_expert_indices.name} chose expert {int(outside[0])}; there are 0 to "
                f"{self.moe.n_experts - 1}."
            )

    def choose(
        self, logits: Float[Tensor, "batch pos expert"]
    ) -> tuple[Int[Tensor, "batch pos slot"], Float[Tensor, "batch pos slot"]]:
        """The chosen experts, best first, and their mixing weights, in the dtype of the logits."""
        wide = logits if logits.dtype == torch.float64 else logits.float()
        if self.moe.routing == "softmax_then_top_k":
            weights, indices = wide.softmax(-1).topk(self.moe.top_k, -1)
        else:
            chosen, indices = wide.topk(self.moe.top_k, -1)
            weights = chosen.softmax(-1)
        if self.moe.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return indices, (weights * self.moe.scaling).to(logits.dtype)

    def mixed(
        self,
        normalized: Float[Tensor, "batch pos d_model"],
        indices: Int[Tensor, "batch pos slot"],
        weights: Float[Tensor, "batch pos slot"],
    ) -> Float[Tensor, "batch pos d_model"]:
        """The weighted sum of the chosen experts' outputs."""
        queue = Queue(indices, self.moe.n_experts)
        rows = normalized.flatten(0, 1)[queue.order // indices.shape[-1]]
        seen = self.hook_pre.listened or self.hook_pre_linear.listened or self.hook_post.listened
        written = self.watched(queue, rows) if seen else queue.each(rows, self.expert)
        outputs = self.hook_expert_out(queue.by_slot(written))
        return (outputs * weights[..., None]).sum(-2)

    def expert(self, rows: Float[Tensor, "pair d_model"], expert: int) -> Float[Tensor, "pair d_model"]:
        """What one expert writes. Its neurons' coefficients stay in the processor's cache: nobody else sees them."""
        gated = activate(self.activation, linear(rows, self.gates[expert]))
        pre_linear = linear(rows, self.ups[expert])
        differentiated = gated.requires_grad or pre_linear.requires_grad
        return linear(gated * pre_linear if differentiated else gated.mul_(pre_linear), self.downs[expert])

    def watched(self, queue: "Queue", rows: Float[Tensor, "pair d_model"]) -> Float[Tensor, "pair d_model"]:
        """The same by way of the hook points, each of which sees all experts together."""
        gated = activate(self.activation, queue.seen(self.hook_pre, queue.through(rows, self.gates)))
        post = queue.seen(self.hook_post, gated * queue.seen(self.hook_pre_linear, queue.through(rows, self.ups)))
        return queue.through(post, self.downs)

    def weights(self) -> dict[str, Tensor]:
        """Weights by name, input axis first, as views; those of experts begin with the expert axis."""
        named: dict[str, Tensor] = {"W_router": self.router.mT, "W_gate": self.gates.mT, "W_in": self.ups.mT}
        named["W_out"] = self.downs.mT
        if self.shared is not None:
            named |= {f"shared.{name}": weight for name, weight in self.shared.weights().items()}
        return named if self.shared_gate is None else {**named, "W_shared_gate": self.shared_gate.mT}


class Queue:
    """Pairs of a token and a slot, lined up by the expert that was chosen there."""

    def __init__(self, indices: Int[Tensor, "batch pos slot"], n_experts: int) -> None:
        self.shape = indices.shape
        flat = indices.flatten()
        self.order = flat.argsort(stable=True)
        self.back = self.order.argsort()
        self.counts: list[int] = torch.bincount(flat, minlength=n_experts).tolist()

    def each(
        self,
        rows: Float[Tensor, "pair d_in"],
        function: Callable[[Float[Tensor, "own d_in"], int], Float[Tensor, "own d_out"]],
    ) -> Float[Tensor, "pair d_out"]:
        """A function of the rows that chose an expert, and of that expert; for all who were chosen."""
        parts = torch.split(rows, self.counts)
        return torch.cat([function(part, expert) for expert, part in enumerate(parts) if len(part)])

    def through(
        self, rows: Float[Tensor, "pair d_in"], weights: Float[Tensor, "expert d_out d_in"]
    ) -> Float[Tensor, "pair d_out"]:
        """Each expert's linear map on the rows that chose it."""
        return self.each(rows, lambda part, expert: linear(part, weights[expert]))

    def by_slot(self, rows: Float[Tensor, "pair width"]) -> Float[Tensor, "batch pos slot width"]:
        """The rows where their tokens are."""
        return rows[self.back].view(*self.shape, -1)

    def seen(self, hook: HookPoint, rows: Float[Tensor, "pair width"]) -> Float[Tensor, "pair width"]:
        """The rows as a hook point leaves them, which sees them where their tokens are."""
        if not hook.listened:
            return rows
        return hook(self.by_slot(rows)).flatten(0, 2)[self.order]
