"""Single neurons by name, also those of experts, and edits that change how much of their values is written.

`12.345` is neuron 345 of the FFN of layer 12; `3.5.17` neuron 17 of expert 5 of a mixture in layer 3, which is computed
only where its expert is chosen. What is edited is a neuron's coefficient, `mlp.hook_post`:

    zero    nothing is written               x2    times 2, or any other number
    mean    what it is on average            =1.5  set to 1.5, or any other number

Zero takes a neuron out of its usual range, and part of what follows is that shock; the mean over other texts keeps it
there (Zhang & Nanda 2024, arXiv 2309.16042). Neurons of shared experts have no names here.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp import edits
from interp.analyses.reference_values import chosen_experts
from interp.errors import UsageError
from interp.hooks import HookFn, HookPoint, Hooks
from interp.points import Names

if TYPE_CHECKING:
    from interp.models.config import ModelConfig
    from interp.models.transformer import Transformer


@dataclass(frozen=True)
class Neuron:
    """One neuron of a layer's FFN, or of one of its experts."""

    layer: int
    index: int
    expert: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Neuron":
        """The neuron of that name. Raises `UsageError` where it is none."""
        found = re.fullmatch(r"(\d+)\.(?:(\d+)\.)?(\d+)", text.strip())
        if found is None:
            raise UsageError(f"{text!r} names no neuron; expected 12.345, or 3.5.17 for neuron 17 of expert 5.")
        layer, expert, index = found.groups()
        return cls(int(layer), int(index), None if expert is None else int(expert))

    def __str__(self) -> str:
        return f"{self.layer}.{self.index}" if self.expert is None else f"{self.layer}.{self.expert}.{self.index}"

    @property
    def point(self) -> str:
        """Where its coefficient stands."""
        return f"blocks.{self.layer}.mlp.hook_post"


def neurons_of(model: "Transformer", named: Iterable[Neuron | str]) -> tuple[Neuron, ...]:
    """The neurons as they were given or named. Raises `UsageError` for none, one twice, one that the model lacks."""
    if isinstance(named, str):
        raise UsageError(f"A list of neurons was expected, not the text {named!r}; write [{named!r}].")
    found = tuple(Neuron.parse(each) if isinstance(each, str) else each for each in named)
    if not found or len(set(found)) < len(found):
        raise UsageError(f"Expected neurons, each once; came {list(map(str, found))}.")
    for neuron in found:
        _check(model.config, neuron)
    return found


def widths(config: "ModelConfig", layer: int) -> tuple[int, int]:
    """How many experts a layer has, 1 for a dense FFN, and how many neurons each of them."""
    if config.moe is not None and config.layer(layer).moe:
        return config.moe.n_experts, config.moe.d_expert
    return 1, config.d_mlp


def _check(config: "ModelConfig", neuron: Neuron) -> None:
    if not 0 <= neuron.layer < config.n_layers:
        raise UsageError(f"There is no neuron {neuron}: layers go from 0 to {config.n_layers - 1}.")
    mixture = config.moe is not None and config.layer(neuron.layer).moe
    if mixture != (neuron.expert is not None):
        what, name = ("a mixture of experts", "3.5.17") if mixture else ("one dense FFN", "12.345")
        raise UsageError(f"There is no neuron {neuron}: layer {neuron.layer} has {what}; name neurons as in {name}.")
    experts, width = widths(config, neuron.layer)
    if not (0 <= (neuron.expert or 0) < experts and 0 <= neuron.index < width):
        has = f"{experts} experts of {width} neurons" if mixture else f"{width} neurons"
        raise UsageError(f"There is no neuron {neuron}: layer {neuron.layer} has {has}, counted from 0.")


def control_neurons(
    config: "ModelConfig", tested: Sequence[Neuron], count: int, *, seed: Sequence[int]
) -> list[tuple[Neuron, ...]]:
    """Sets of other neurons, as many of each layer and expert as are tested; fewer where a layer has no more."""
    generator = np.random.default_rng([*seed])
    return [
        tuple(each for group in _by_place(tested).values() for each in _peers(config, group, generator))
        for _ in range(count)
    ]


def _peers(config: "ModelConfig", group: Sequence[Neuron], generator: np.random.Generator) -> list[Neuron]:
    """As many other neurons of one layer and expert."""
    others = np.setdiff1d(np.arange(widths(config, group[0].layer)[1]), [each.index for each in group])
    drawn = generator.choice(others, min(len(group), len(others)), replace=False)
    return [Neuron(group[0].layer, int(index), group[0].expert) for index in sorted(drawn)]


def _by_place(neurons: Iterable[Neuron]) -> dict[tuple[int, int], list[Neuron]]:
    """Neurons by layer and expert (−1 for a dense FFN)."""

    def place(neuron: Neuron) -> tuple[int, int]:
        return neuron.layer, -1 if neuron.expert is None else neuron.expert

    return {key: list(group) for key, group in groupby(sorted(neurons, key=place), place)}


# ------------------------------------------------------------------------------------------------------- edits


def parse_change(change: str) -> tuple[str, float]:
    """`x` and a factor, `=` and a number, or `mean` and nought. Raises `UsageError` where a text is no change."""
    if change in ("zero", "mean"):
        return ("x" if change == "zero" else change), 0.0
    try:
        number = float(change[1:])
        if change[:1] in ("x", "=") and math.isfinite(number):
            return change[0], number
    except ValueError:
        pass
    raise UsageError(f"{change!r} is no change of a neuron; expected zero, mean, x2 (times 2) or =1.5 (set to 1.5).")


def neuron_edits(
    neurons: Sequence[Neuron], change: str, *, means: Mapping[Neuron, float] | None = None, last: bool = False
) -> Hooks:
    """Edits that make this change to all these neurons together, in all tokens or in the last alone.

    `means` are what `mean` puts in their place, as `mean_coefficients` finds them.
    """
    (kind, number), hooks = parse_change(change), list[tuple[Names, HookFn]]()
    for (_, expert), group in _by_place(neurons).items():
        which = [each.index for each in group]
        values = [(means or {})[each] if kind == "mean" else number for each in group]
        new = None if kind == "x" else torch.tensor(values)
        if expert >= 0:
            hooks += _expert_edits(group[0], which, number, new, last=last)
            continue
        where: edits.Where = {"neurons": which, **({"positions": -1} if last else {})}
        hooks.append((group[0].point, edits.scale(number, **where) if new is None else edits.replace(new, **where)))
    return hooks


def _expert_edits(one: Neuron, which: list[int], factor: float, new: Tensor | None, *, last: bool) -> Hooks:
    """The same for neurons of an expert, in whatever slot it is chosen: times a factor, or set to new values."""
    seen: list[Tensor] = []

    def look(slots: Tensor, point: HookPoint) -> None:
        seen[:] = [slots.clone()]

    def change(post: Tensor, point: HookPoint) -> Tensor:
        here = seen[0].eq(one.expert or 0)
        if last:
            here[:, :-1] = False
        cells = post[..., which]
        changed = cells * factor if new is None else new.to(cells).expand_as(cells)
        post[..., which] = torch.where(here[..., None], changed, cells)
        return post

    return [(chosen_experts(one.layer), look), (one.point, change)]


@torch.no_grad()
def mean_coefficients(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    neurons: Sequence[Neuron],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    texts: int = 16,
) -> dict[Neuron, float]:
    """The mean coefficient of each neuron over all real tokens; of an expert's, over those that chose it, or 0.

    `texts` are read at a time, which bounds the memory.
    """
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    groups = _by_place(neurons)
    names = {name for layer, _ in groups for name in (Neuron(layer, 0).point, chosen_experts(layer))}
    read = [name for name in names if name in model.points()]
    sums = {place: np.zeros(len(group)) for place, group in groups.items()}
    counts = dict.fromkeys(groups, 0)
    stop = 1 + max(layer for layer, _ in groups)
    for first in range(0, len(tokens), texts):
        rows = slice(first, first + texts)
        _, cache = model.run_with_cache(tokens[rows], read, mask=real[rows], stop_at_layer=stop)
        for (layer, expert), group in groups.items():
            chosen = real[rows].to(model.device)
            if expert >= 0:
                chosen = chosen[..., None] & (cache[chosen_experts(layer)] == expert)
            values = cache[group[0].point][chosen][:, [each.index for each in group]]
            sums[layer, expert] += values.double().sum(0).cpu().numpy()
            counts[layer, expert] += len(values)
    return {
        neuron: float(total / max(counts[place], 1))
        for place, group in groups.items()
        for neuron, total in zip(group, sums[place], strict=True)
    }
