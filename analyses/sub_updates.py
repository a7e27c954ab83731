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
from interp.cache import ActivationCache
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

DENSE, SHARED = -1, -2
"""What stands for an expert's number in a layer without experts, and for the shared expert."""

_READ = ("pre", "pre_linear", "post", "out", "expert_indices", "expert_weights")


@dataclass(frozen=True)
class SubUpdates:
    """All sub-updates of one layer at one token, experts one after the other.

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
        if mlp + "W_shared_gate" in model.weights():
            wanted.append(_gate_input(model, layer))
    return [name for name in wanted if name in table]


def sub_updates(model: "Transformer", cache: ActivationCache, layer: int, *, row: int, column: int) -> SubUpdates:
    """The sub-updates of one layer at one recorded token: text `row` of the batch, place `column` among those kept.

    Raises `PointError` where the cache lacks a point of `points_read`, `UsageError` where it was recorded on another
    device than the model's weights.
    """
    at = {name: _wide(cache[name][row, column]) for name in points_read(model, [layer])}
    if cache.tokens.numel() and next(iter(at.values())).device != model.device:
        raise UsageError(f"The cache lies on {next(iter(at.values())).device}; move it first: cache.to(model.device).")
    mlp, weights = f"blocks.{layer}.mlp.", model.weights()
    values = stored_values(model, layer)
    none = at[mlp + "hook_out"].new_zeros(values.shape[-1])
    if values.dim() == 2:
        one = at[mlp + "hook_out"].new_ones(())
        return _joined([_part(at, mlp + "hook_", DENSE, one, values)], _bias(weights, mlp, none), at[mlp + "hook_out"])
    chosen = [int(expert) for expert in cache[mlp + "hook_expert_indices"][row, column]]
    parts = [
        _part(at, mlp + "hook_", expert, at[mlp + "hook_expert_weights"][slot], values[expert], slot)
        for slot, expert in enumerate(chosen)
    ]
    if mlp + "shared.W_out" in weights:
        gate = _shared_gate(model, at, layer)
        parts.append(_part(at, mlp + "shared.hook_", SHARED, gate, weights[mlp + "shared.W_out"]))
        none = gate * _bias(weights, mlp + "shared.", none)
    return _joined(parts, none, at[mlp + "hook_out"])


_Part = tuple[Tensor, ...]


def _part(
    at: dict[str, Tensor], where: str, expert: int, weight: Float[Tensor, ""], values: Tensor, slot: int | None = None
) -> _Part:
    """What `SubUpdates` holds of one FFN, in its order."""

    def read(name: str) -> Tensor:
        return at[where + name] if slot is None else at[where + name][slot]

    post, count = read("post"), len(values)
    linear = read("pre_linear") if where + "pre_linear" in at else torch.full_like(post, torch.nan)
    experts = torch.full((count,), expert, device=post.device)
    neurons = torch.arange(count, device=post.device)
    return experts, neurons, weight.expand(count), post, read("pre"), linear, _wide(values)


def _joined(parts: list[_Part], bias: Tensor, out: Tensor) -> SubUpdates:
    joined = parts[0] if len(parts) == 1 else [torch.cat(each) for each in zip(*parts, strict=True)]
    return SubUpdates(*joined, bias, out)


def _bias(weights: dict[str, Tensor], where: str, none: Tensor) -> Tensor:
    bias = weights.get(where + "b_out")
    return none if bias is None else _wide(bias)


def _gate_input(model: "Transformer", layer: int) -> str:
    """The point that shows what the FFN reads."""
    normed = "input_norm" in model.points().features
    return f"blocks.{layer}.{'ln2.hook_normalized' if normed else 'hook_mlp_in'}"


def _shared_gate(model: "Transformer", at: dict[str, Tensor], layer: int) -> Float[Tensor, ""]:
    """By how much the shared expert's output is multiplied."""
    gate = model.weights().get(f"blocks.{layer}.mlp.W_shared_gate")
    if gate is None:
        return at[f"blocks.{layer}.mlp.hook_out"].new_ones(())
    return (at[_gate_input(model, layer)] @ _wide(gate)).sigmoid()[0]


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 or not values.is_floating_point() else values.float()
