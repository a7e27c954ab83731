"""What an FFN writes at one token, taken apart: one sub-update for every neuron that had a say.

    mlp.hook_out = Σ_i  w_i · m_i · v_i   (+ b_out)

m_i is the neuron's coefficient (`mlp.hook_post`, signed), v_i its value (a row of W_out). In a dense FFN w_i = 1. In a
mixture the neurons are those of the chosen experts, w_i the mixing weight of the expert; those of the shared expert
come with the value of its gate, or 1 where it has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.ffn_values import stored_values
from interp.analyses.folded import wide
from interp.analyses.neurons import DENSE, SHARED
from interp.cache import ActivationCache
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

_READ = ("pre", "pre_linear", "post", "out", "expert_indices", "expert_weights")


@dataclass(frozen=True)
class SubUpdates:
    """All sub-updates of one layer at one token, experts one after the other, by number, `DENSE` or `SHARED`.

    `pre` and `pre_linear` are the key matches of gate and up projection; NaN is what an FFN without a gate has for the
    second. `bias` is what is written whatever was read, `out` what was recorded at `mlp.hook_out`.
    """

    expert: Int[Tensor, "update"]
    neuron: Int[Tensor, "update"]
    weight: Float[Tensor, "update"]
    coefficient: Float[Tensor, "update"]
    pre: Float[Tensor, "update"]
    pre_linear: Float[Tensor, "update"]
    value: Float[Tensor, "update d_model"]
    bias: Float[Tensor, "d_model"]
    out: Float[Tensor, "d_model"]

    @property
    def amount(self) -> Float[Tensor, "update"]:
        """How much of each value is written: w · m."""
        return self.weight * self.coefficient

    @property
    def sum(self) -> Float[Tensor, "d_model"]:
        """All sub-updates together, without the bias."""
        return self.amount @ self.value

    @property
    def completeness_error(self) -> float:
        """The largest difference between sub-updates with bias and what was recorded, over the largest recorded."""
        largest = self.out.abs().max().clamp(min=torch.finfo(self.out.dtype).tiny)
        return float((self.sum + self.bias - self.out).abs().max() / largest)


def points_read(model: "Transformer", layers: Sequence[int]) -> list[str]:
    """The points whose values `sub_updates` reads."""
    table, wanted = model.points(), []
    for layer in layers:
        mlp = f"blocks.{layer}.mlp."
        wanted += [mlp + part + name for part in ("hook_", "shared.hook_") for name in _READ]
        if has_shared_gate(model, layer):
            wanted.append(gate_input(model, layer))
    return [name for name in wanted if name in table]


def sub_updates(model: "Transformer", cache: ActivationCache, layer: int, *, row: int, column: int) -> SubUpdates:
    """The sub-updates of one layer at one recorded token: text `row` of the batch, place `column` among those kept.

    Raises `PointError` where the cache lacks a point of `points_read`, `UsageError` where it was recorded on another
    device than the model's weights.
    """
    at = {
        name: wide(cache[name][row, column])
        for name in points_read(model, [layer])
        if not name.endswith("hook_expert_indices")
    }
    mlp, weights = f"blocks.{layer}.mlp.", model.layers[layer].mlp.weights()
    out, values = at[mlp + "hook_out"], stored_values(model, layer)
    if out.device != values.device:
        raise UsageError(f"The cache lies on {out.device}, the model on {values.device}: move it by cache.to(device).")
    one, none = out.new_ones(()), torch.zeros_like(out)
    if values.dim() == 2:
        return _joined([_part(at, mlp + "hook_", DENSE, one, values)], _bias(weights, "b_out", none), out)
    parts = [
        _part(at, mlp + "hook_", expert, at[mlp + "hook_expert_weights"][slot], values[expert], slot)
        for slot, expert in enumerate(cache[mlp + "hook_expert_indices"][row, column].tolist())
    ]
    if "shared.W_out" not in weights:
        return _joined(parts, none, out)
    gate = shared_gate(model, layer, at[gate_input(model, layer)])[0] if has_shared_gate(model, layer) else one
    parts.append(_part(at, mlp + "shared.hook_", SHARED, gate, weights["shared.W_out"]))
    return _joined(parts, gate * _bias(weights, "shared.b_out", none), out)


def _part(
    at: dict[str, Tensor], where: str, expert: int, weight: Float[Tensor, ""], values: Tensor, slot: int | None = None
) -> dict[str, Tensor]:
    """What `SubUpdates` holds of one FFN."""

    def read(name: str) -> Tensor:
        return at[where + name] if slot is None else at[where + name][slot]

    post, count = read("post"), len(values)
    return {
        "expert": torch.full((count,), expert, device=post.device),
        "neuron": torch.arange(count, device=post.device),
        "weight": weight.expand(count),
        "coefficient": post,
        "pre": read("pre"),
        "pre_linear": read("pre_linear") if where + "pre_linear" in at else torch.full_like(post, torch.nan),
        "value": wide(values),
    }


def _joined(parts: list[dict[str, Tensor]], bias: Tensor, out: Tensor) -> SubUpdates:
    if len(parts) == 1:  # no copy of all values
        return SubUpdates(**parts[0], bias=bias, out=out)
    return SubUpdates(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]}, bias=bias, out=out)


def _bias(weights: dict[str, Tensor], name: str, none: Tensor) -> Tensor:
    return wide(weights[name]) if name in weights else none


def has_shared_gate(model: "Transformer", layer: int) -> bool:
    """Whether what a layer's shared expert writes is multiplied by a gate."""
    return "W_shared_gate" in model.layers[layer].mlp.weights()


def gate_input(model: "Transformer", layer: int) -> str:
    """The point that shows what the FFN reads, the gate of its shared expert too."""
    normed = "input_norm" in model.points().features
    return f"blocks.{layer}.{'ln2.hook_normalized' if normed else 'hook_mlp_in'}"


def shared_gate(model: "Transformer", layer: int, read: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch 1"]:
    """How much of what the shared expert writes is added, for what the FFN read."""
    return (read @ wide(model.layers[layer].mlp.weights()["W_shared_gate"])).sigmoid()
