"""Single neurons by name, in dense layers and in mixtures of experts.

    12.345         neuron 345 of the FFN of layer 12
    3.5.17         neuron 17 of expert 5 of a mixture in layer 3, computed only where that expert is chosen
    3.shared.25    neuron 25 of the expert that every token of layer 3 goes through

This is the only place where such names are read and written. A layer's FFNs have numbers: those of its experts, and
`DENSE` and `SHARED` for what is no numbered expert. Within a layer neurons also have a number of their own, the
*memory*: FFN by FFN in the order of `ffn_widths`, expert · d_expert + neuron, those of the shared expert behind the
others.

Nothing here says what a neuron does; edits stand in `interp.analyses.neuron_changes`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np

from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.config import ModelConfig
    from interp.models.transformer import Transformer

DENSE, SHARED = -1, -2
"""What stands for an expert's number in a layer without experts, and for the shared expert."""

Expert = int | Literal["shared"] | None
"""An expert by its number, the shared one, or none in a dense layer."""


@dataclass(frozen=True)
class Neuron:
    """One neuron of a layer's FFN, or of one of its experts."""

    layer: int
    index: int
    expert: Expert = None

    @classmethod
    def of(cls, layer: int, ffn: int, index: int) -> "Neuron":
        """The neuron of an FFN by number: that of an expert, `DENSE` or `SHARED`."""
        expert: Expert = None if ffn == DENSE else "shared" if ffn == SHARED else ffn
        return cls(layer, index, expert)

    @classmethod
    def parse(cls, text: str) -> "Neuron":
        """The neuron of that name. Raises `UsageError` where it is none."""
        found = re.fullmatch(r"(?:neuron )?(\d+)\.(?:(\d+|shared)\.)?(\d+)", text.strip(), re.ASCII)
        if found is None:
            raise UsageError(
                f"{text!r} names no neuron; expected layer.neuron such as 12.345, layer.expert.neuron such as 3.5.17, "
                "or layer.shared.neuron such as 3.shared.25."
            )
        layer, expert, index = found.groups()
        return cls(int(layer), int(index), "shared" if expert == "shared" else None if expert is None else int(expert))

    def __str__(self) -> str:
        return f"{self.layer}.{self.within}"

    @property
    def within(self) -> str:
        """Its name within its layer: `345`, `5.17` or `shared.25`."""
        return str(self.index) if self.expert is None else f"{self.expert}.{self.index}"

    @property
    def ffn(self) -> int:
        """The number of its FFN."""
        return DENSE if self.expert is None else SHARED if isinstance(self.expert, str) else self.expert

    @property
    def point(self) -> str:
        """Where its coefficient stands."""
        return post_point(self.layer, self.ffn)


def post_point(layer: int, ffn: int) -> str:
    """The point at which the coefficients of an FFN stand; those of experts by slot, all together."""
    return f"blocks.{layer}.mlp.{'shared.' * (ffn == SHARED)}hook_post"


def post_points(config: "ModelConfig", layer: int) -> list[str]:
    """All points at which coefficients of a layer stand."""
    return list(dict.fromkeys(post_point(layer, ffn) for ffn in ffn_widths(config, layer)))


# -------------------------------------------------------------------------------------------- what a model has


def ffn_widths(config: "ModelConfig", layer: int) -> dict[int, int]:
    """How many neurons each FFN of a layer has: experts by number, the shared one last; or `DENSE` alone."""
    moe = config.moe
    if moe is None or not config.layer(layer).moe:
        return {DENSE: config.d_mlp}
    widths = dict.fromkeys(range(moe.n_experts), moe.d_expert)
    return widths if moe.d_shared is None else {**widths, SHARED: moe.d_shared}


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


def _check(config: "ModelConfig", neuron: Neuron) -> None:
    if not 0 <= neuron.layer < config.n_layers:
        raise UsageError(f"There is no neuron {neuron}: layers go from 0 to {config.n_layers - 1}.")
    widths = ffn_widths(config, neuron.layer)
    named = neuron.expert is None or isinstance(neuron.expert, str) or neuron.expert >= 0  # -1 would pass for DENSE
    if not (named and neuron.ffn in widths and 0 <= neuron.index < widths[neuron.ffn]):
        raise UsageError(f"There is no neuron {neuron}: layer {neuron.layer} has {_described(widths)}.")


def _described(widths: dict[int, int]) -> str:
    """What neurons a layer has, and how they are named."""
    if DENSE in widths:
        return f"one dense FFN of {widths[DENSE]} neurons, named layer.neuron from 0 on"
    shared = f", and a shared one of {widths[SHARED]}, named layer.shared.neuron" if SHARED in widths else ""
    count = len(widths) - (SHARED in widths)
    return f"a mixture of {count} experts of {widths[0]} neurons, named layer.expert.neuron from 0 on{shared}"


# ------------------------------------------------------------------------------------------- numbers in a layer


def memory_count(config: "ModelConfig", layer: int) -> int:
    """How many memories a layer has: the neurons of all its FFNs."""
    return sum(ffn_widths(config, layer).values())


def memory_of(config: "ModelConfig", neuron: Neuron) -> int:
    """The number of a neuron within its layer."""
    before = 0
    for ffn, width in ffn_widths(config, neuron.layer).items():
        if ffn == neuron.ffn:
            return before + neuron.index
        before += width
    raise UsageError(f"There is no neuron {neuron} in layer {neuron.layer}.")


def neurons_at(config: "ModelConfig", layer: int, memories: Sequence[int]) -> list[Neuron]:
    """The neurons that have these numbers within a layer."""
    widths = ffn_widths(config, layer)
    ffns, starts = list(widths), np.cumsum([0, *widths.values()])
    place = np.searchsorted(starts, np.asarray(memories, np.int64), side="right") - 1
    within = np.asarray(memories, np.int64) - starts[place]
    return [Neuron.of(layer, ffns[one], index) for one, index in zip(place.tolist(), within.tolist(), strict=True)]


def names_within(config: "ModelConfig", layer: int, memories: Sequence[int]) -> list[int] | list[str]:
    """What these neurons are called within their layer: their number, or `5.17` and `shared.25` in a mixture."""
    found = neurons_at(config, layer, memories)
    return [each.within for each in found] if DENSE not in ffn_widths(config, layer) else list(memories)


# ---------------------------------------------------------------------------------------------------- controls


def control_neurons(
    config: "ModelConfig", tested: Sequence[Neuron], count: int, *, seed: Sequence[int]
) -> list[tuple[Neuron, ...]]:
    """Sets of other neurons, as many of each layer and expert as are tested; fewer where a layer has no more."""
    generator = np.random.default_rng([*seed])
    return [
        tuple(each for group in by_ffn(tested).values() for each in _peers(config, group, generator))
        for _ in range(count)
    ]


def _peers(config: "ModelConfig", group: Sequence[Neuron], generator: np.random.Generator) -> list[Neuron]:
    """As many other neurons of one FFN."""
    layer, ffn = group[0].layer, group[0].ffn
    others = np.setdiff1d(np.arange(ffn_widths(config, layer)[ffn]), [each.index for each in group])
    drawn = generator.choice(others, min(len(group), len(others)), replace=False)
    return [Neuron.of(layer, ffn, int(index)) for index in sorted(drawn)]


def by_ffn(neurons: Iterable[Neuron]) -> dict[tuple[int, int], list[Neuron]]:
    """Neurons by layer and FFN."""

    def place(neuron: Neuron) -> tuple[int, int]:
        return neuron.layer, neuron.ffn

    return {key: list(group) for key, group in groupby(sorted(neurons, key=place), place)}
