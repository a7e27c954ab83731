"""Components of a model that can be taken away or compared: heads, KV heads, neurons, experts and whole sublayers.

Each has a name, `str(component)`, and `Component.parse` reads it: `18.6` is head 6 of layer 18, `kv_head 18.2`,
`neuron 12.345` and `expert 3.5` likewise, `attn 4` and `mlp 4` are whole sublayers.

What a component does can only be judged beside others of its kind, so that sets of controls are drawn here too.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from interp.errors import UsageError
from interp.models.config import ModelConfig
from interp.selection import is_whole

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Kind = Literal["head", "kv_head", "neuron", "expert", "attn", "mlp"]

POINTS: dict[Kind, tuple[str, ...]] = {
    "head": ("attn.hook_z",),
    "kv_head": ("attn.hook_k", "attn.hook_v"),
    "neuron": ("mlp.hook_post",),
    "expert": ("mlp.hook_expert_out",),
    "attn": ("hook_attn_out",),
    "mlp": ("hook_mlp_out",),
}
"""Where the values of each kind stand, after `blocks.{layer}.`: all that a component gives to the rest of the model."""


@dataclass(frozen=True)
class Component:
    """One component: `Component("head", 18, 6)`. Whole sublayers, `attn` and `mlp`, have no index."""

    kind: Kind
    layer: int
    index: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Component":
        """The component of that name. Raises `UsageError` where it is none."""
        kind, _, place = text.strip().rpartition(" ")
        layer, dot, index = place.partition(".")
        whole = kind in ("attn", "mlp")
        good = (not kind or kind in POINTS) and layer.isdecimal() and whole != (bool(dot) and index.isdecimal())
        if not good or (whole and dot):
            raise UsageError(
                f"{text!r} names no component; expected 18.6 (head 6 of layer 18), 'kv_head 18.2', 'neuron 12.345', "
                "'expert 3.5', 'attn 4' or 'mlp 4'."
            )
        return cls(kind or "head", int(layer), None if whole else int(index))  # type: ignore[arg-type]  # a Kind

    def __str__(self) -> str:
        place = str(self.layer) if self.index is None else f"{self.layer}.{self.index}"
        return place if self.kind == "head" else f"{self.kind} {place}"

    @property
    def points(self) -> tuple[str, ...]:
        """Full names of the hook points where its values stand."""
        return tuple(f"blocks.{self.layer}.{name}" for name in POINTS[self.kind])


Head = tuple[int, int]
"""(layer, head)."""
HeadName = Component | str | Head
"""An attention head by any of its names."""


def named(head: Head) -> str:
    """`18.6` for head 6 of layer 18."""
    return str(Component("head", *head))


def components_of(model: "Transformer", named: Iterable[Component | str]) -> tuple[Component, ...]:
    """The components as they were given or named, in order.

    Raises `UsageError` where there is none, where one is named twice, and where the model has no such component.
    """
    if isinstance(named, str):
        raise UsageError(f"A list of components was expected, not the text {named!r}; write [{named!r}].")
    found = tuple(Component.parse(each) if isinstance(each, str) else each for each in named)
    for component in found:
        _check(model, component)
    if not found or len(set(found)) < len(found):
        raise UsageError(f"Expected components, each once; came {list(map(str, found))}.")
    return found


def heads_of(model: "Transformer", named: Iterable[HeadName]) -> tuple[Component, ...]:
    """Attention heads as they were given: components, names such as `18.6`, or (layer, head).

    Raises `UsageError` as `components_of`, and for components of other kinds.
    """
    listed = named if isinstance(named, str) else [_head(each) for each in named]
    found = components_of(model, listed)
    other = next((each for each in found if each.kind != "head"), None)
    if other is not None:
        raise UsageError(f"Attention heads were expected, such as 18.6; {str(other)!r} is none.")
    return found


def _head(named: HeadName) -> Component | str:
    if not isinstance(named, tuple):
        return named
    if len(named) != 2 or not all(map(is_whole, named)):
        raise UsageError(f"A head is a layer and an index, such as (18, 6); came {named!r}.")
    return Component("head", int(named[0]), int(named[1]))


def _check(model: "Transformer", component: Component) -> None:
    if not isinstance(component, Component) or component.kind not in get_args(Kind):
        raise UsageError(f"{component!r} is no component: expected a Component of a kind among {', '.join(POINTS)}.")
    points, layers = model.points(), model.config.n_layers
    if not 0 <= component.layer < layers:
        raise UsageError(f"There is no component {component}: layers go from 0 to {layers - 1}.")
    for name in component.points:
        if name not in points:
            raise UsageError(f"There is no component {component}: {points.why_absent(name)}")
    if component.kind == "neuron" and "slot" in points[component.points[0]].axes:
        raise UsageError(
            f"There is no component {component}: its layer is a mixture of experts, whose neurons are computed only "
            f"where their expert is chosen. Name experts instead: 'expert {component.layer}.0'."
        )
    count = _count(model.config, component.kind)
    good = component.index is None if count is None else component.index is not None and 0 <= component.index < count
    if not good:
        wanted = "no index" if count is None else f"an index from 0 to {count - 1}"
        raise UsageError(f"There is no component {component}: a component of kind {component.kind!r} has {wanted}.")


def _count(config: ModelConfig, kind: Kind) -> int | None:
    """How many of a kind a layer has; None for whole sublayers."""
    sizes = {"head": config.n_heads, "kv_head": config.n_kv_heads, "neuron": config.d_mlp}
    if kind == "expert":
        return config.moe.n_experts if config.moe is not None else 0
    return sizes.get(kind)


def control_sets(
    config: ModelConfig,
    tested: Sequence[Component],
    count: int,
    *,
    seed: Sequence[int],
    without: Sequence[Component] = (),
) -> list[tuple[Component, ...]]:
    """Different sets of other components to compare with: of each kind and layer as many as are tested, none of those.

    Nor do they hold any of those `without`. Where no more than `count` sets exist, all of them, which may be none. A
    layer has one sublayer of a kind, so that those of other layers stand against whole sublayers.
    """
    pools = _pools(config, tested, without)
    if possible_controls(config, tested, without=without) <= count:
        every = itertools.product(*(itertools.combinations(pool, size) for pool, size in pools))
        return [tuple(itertools.chain(*parts)) for parts in every]
    generator, found = np.random.default_rng([*seed]), dict[tuple[Component, ...], None]()
    while len(found) < count:
        draws = [(pool, sorted(generator.choice(len(pool), size, replace=False))) for pool, size in pools]
        found[tuple(pool[place] for pool, places in draws for place in places)] = None
    return list(found)


def possible_controls(config: ModelConfig, tested: Sequence[Component], *, without: Sequence[Component] = ()) -> int:
    """How many such sets there are."""
    return math.prod(math.comb(len(pool), size) for pool, size in _pools(config, tested, without))


def _pools(
    config: ModelConfig, tested: Sequence[Component], without: Sequence[Component]
) -> list[tuple[list[Component], int]]:
    """What controls are drawn from, and how many of each pool: the untested peers of one kind and layer."""
    excluded = {*tested, *without}
    wanted: dict[tuple[Kind, int | None], int] = {}
    for each in tested:
        group = (each.kind, None if each.index is None else each.layer)
        wanted[group] = wanted.get(group, 0) + 1
    return [([peer for peer in _peers(config, *group) if peer not in excluded], size) for group, size in wanted.items()]


def _peers(config: ModelConfig, kind: Kind, layer: int | None) -> list[Component]:
    """All components of a kind in one layer; of whole sublayers, those of all layers."""
    if layer is None:
        return [Component(kind, each) for each in range(config.n_layers)]
    return [Component(kind, layer, index) for index in range(_count(config, kind) or 0)]
