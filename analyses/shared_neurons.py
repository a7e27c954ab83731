"""Attributions of single neurons in several prompts: which neurons the prompts share, and all of them as tables.

A neuron of an expert is the same neuron in whatever slot its expert is chosen; where it is not, it counts as nothing.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from interp.analyses.integrated_gradients import Integrated
from interp.analyses.neurons import DENSE, Neuron, ffn_widths
from interp.results import Arrays

if TYPE_CHECKING:
    from interp.models.config import ModelConfig


def coarse_set(found: Integrated, threshold: float) -> set[Neuron]:
    """The neurons above a share of the largest attribution."""
    every = [(layer, ffn, own) for layer in found.attribution for ffn, own, _ in found.ffns(layer)]
    largest = max(float(own.max()) for _, _, own in every)
    if largest <= 0:
        return set()
    return {
        Neuron.of(layer, ffn, index)
        for layer, ffn, own in every
        for index in (own > threshold * largest).nonzero()[:, 0].tolist()
    }


def refined(
    coarse: Sequence[Collection[Neuron]],
    strength: Mapping[Neuron, float],
    *,
    share: float,
    adapt: tuple[int, int] | None,
) -> tuple[int, list[Neuron]]:
    """In how many prompts a neuron had to be coarse, and those that are, the largest `strength` first."""
    prompts = len(coarse)
    counts = Counter(neuron for each in coarse for neuron in each)
    left = [sum(count >= wanted for count in counts.values()) for wanted in range(prompts + 1)]
    needed = asked = max(1, math.ceil(share * prompts - 1e-9))
    if adapt is not None:
        while left[needed] > adapt[1] and needed < prompts:
            needed += 1
        while left[needed] < adapt[0] and needed > 1:
            needed -= 1
        while needed < asked and left[needed + 1] == left[needed]:  # what brought nothing was not needed
            needed += 1
    kept = sorted(
        (neuron for neuron, count in counts.items() if count >= needed),
        key=lambda neuron: (-strength[neuron], neuron.layer, neuron.ffn, neuron.index),
    )
    return needed, kept if adapt is None else kept[: adapt[1]]


def across(found: Sequence[Integrated], neuron: Neuron, what: Literal["attribution", "coefficient"]) -> list[float]:
    """One neuron's attribution or coefficient in every prompt; 0 where its expert was not chosen."""
    return [
        sum(
            float((attribution if what == "attribution" else coefficient)[neuron.index])
            for ffn, attribution, coefficient in each.ffns(neuron.layer)
            if ffn == neuron.ffn
        )
        for each in found
    ]


def of_neurons(kept: Sequence[Neuron], coarse: Sequence[Collection[Neuron]], found: Sequence[Integrated]) -> Arrays:
    """What is told of the neurons that were found."""
    shape = (len(kept), len(found))
    by_prompt, coefficient = (
        np.array([across(found, neuron, what) for neuron in kept], np.float64).reshape(shape)
        for what in ("attribution", "coefficient")
    )
    columns = {
        "strength": by_prompt.mean(1),
        "shared_by": np.array([sum(neuron in each for each in coarse) for neuron in kept], np.int64),
        "coefficient": coefficient.mean(1),
        "in_layer": np.array([neuron.layer for neuron in kept], np.int64),
        "in_expert": np.array([neuron.ffn for neuron in kept], np.int64),
        "index": np.array([neuron.index for neuron in kept], np.int64),
    }
    return {
        **{name: (values, ("neuron",)) for name, values in columns.items()},
        "prompt_strength": (by_prompt, ("neuron", "prompt")),
    }


def of_layers(config: "ModelConfig", found: Sequence[Integrated], layers: Sequence[int]) -> Arrays:
    """What is told of all neurons, prompts and layers."""
    slots = 1 if config.moe is None else config.moe.top_k + (config.moe.d_shared is not None)
    shape = (len(found), len(layers), slots, max(max(ffn_widths(config, layer).values()) for layer in layers))
    attribution, coefficient = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    expert = np.full(shape[:3], DENSE, np.int64)
    for row, each in enumerate(found):
        for column, layer in enumerate(layers):
            for slot, (ffn, *values) in enumerate(each.ffns(layer)):
                expert[row, column, slot] = ffn
                for table, own in zip((attribution, coefficient), values, strict=True):
                    table[row, column, slot, : len(own)] = own.float().cpu().numpy()
    cells: tuple[str, ...] = ("prompt", "layer", "slot", "unit")
    if config.moe is None:
        attribution, coefficient, cells = attribution[:, :, 0], coefficient[:, :, 0], ("prompt", "layer", "unit")
    by_layer = {
        "layer_sum": [[each.layer_sum(layer) for layer in layers] for each in found],
        "without": [[each.without[layer] for layer in layers] for each in found],
        "completeness_error": [[each.completeness_error(layer) for layer in layers] for each in found],
    }
    return {
        "attribution": (attribution, cells),
        "coefficients": (coefficient, cells),
        **({} if config.moe is None else {"expert": (expert, cells[:3])}),
        **{name: (np.array(values), ("prompt", "layer")) for name, values in by_layer.items()},
        "probability": (np.array([each.probability for each in found]), ("prompt",)),
        "largest": (np.nanmax(attribution.reshape(len(found), -1), 1), ("prompt",)),
    }


def mean_attribution(attribution: np.ndarray, expert: np.ndarray | None) -> np.ndarray:
    """The mean attribution over prompts, [layer, ffn, unit], nought where there is no such neuron.

    `ffn` is an FFN's number as an index: experts from the front, `SHARED` and `DENSE` from the end.
    """
    if expert is None:
        attribution, expert = attribution[:, :, None], np.full((*attribution.shape[:2], 1), DENSE)
    prompts, layers, slots, units = attribution.shape
    total = np.zeros((layers, 1 + max(int(expert.max()), -1) + 2, units))
    for prompt, layer, slot in np.ndindex(prompts, layers, slots):
        total[layer, expert[prompt, layer, slot]] += np.nan_to_num(attribution[prompt, layer, slot])
    return total / prompts


def ffn_at(table: np.ndarray, row: int) -> int:
    """The number of the FFN in a row of `mean_attribution`."""
    return row if row < table.shape[1] - 2 else row - table.shape[1]
