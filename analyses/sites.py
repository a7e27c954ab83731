"""What can be patched: by name, the hook point behind each site, and what one cell of a sweep over it is.

    SITES["z"].axes        # ("layer", "head", "pos"): a sweep may run over some of them
    SITES["k"].axes        # ("layer", "kv_head", "pos"): keys and values have KV heads, never padded to query heads

An axis that a sweep does not run over is patched whole: `z` over layer and head patches a head at all positions. A
`k` or `v` of a KV head is read by all query heads of its group; `k_by_head` and `v_by_head` change what ONE query head
reads of it, and leave the rest of the group alone: its scores, or its z, become those that it would have had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import edits
from interp.edits import Edit, Selected, Where
from interp.errors import PointError, UsageError, nearest
from interp.hooks import HookPoint, Hooks

if TYPE_CHECKING:
    from interp.models.attention import Attention
    from interp.models.transformer import Transformer

Site = Literal[
    "embed",
    "resid_pre",
    "resid_mid",
    "resid_post",
    "attn_out",
    "mlp_out",
    "q",
    "k",
    "v",
    "k_by_head",
    "v_by_head",
    "scores",
    "pattern",
    "z",
    "result",
    "neuron",
    "router",
    "expert",
]

Places = Mapping[str, int]
"""Where a cell lies on the axes that a sweep runs over."""


@dataclass(frozen=True)
class SiteSpec:
    """One kind of value: its hook point (of each layer, unless `layered` is False) and the axes of a sweep over it."""

    what: str
    point: str
    axes: tuple[str, ...]
    usual: tuple[str, ...]
    """What a sweep runs over unless it is told otherwise."""
    layered: bool = True
    also: tuple[str, ...] = ()
    """Other points whose values the edit needs."""

    def part_of(self, places: Mapping[str, object]) -> dict[str, object]:
        """The places on the axes that this site has inside a layer."""
        return {axis: place for axis, place in places.items() if axis in self.axes and axis != "layer"}

    def name(self, layer: int) -> str:
        """The full name of the hook point in a layer."""
        return f"blocks.{layer}.{self.point}" if self.layered else self.point

    def needed(self, layer: int) -> list[str]:
        """Full names of all points whose values are read to patch this layer."""
        return [self.name(layer), *(f"blocks.{layer}.{other}" for other in self.also)]


_STREAM, _HEADS, _GROUPS = ("layer", "pos"), ("layer", "head", "pos"), ("layer", "kv_head", "pos")
_EDGES = ("layer", "head", "query_pos", "key_pos")
_BY_HEAD = ("layer", "head")

SITES: dict[str, SiteSpec] = {
    "embed": SiteSpec("what the stream begins with", "hook_embed", ("pos",), ("pos",), layered=False),
    "resid_pre": SiteSpec("the residual stream before a layer", "hook_resid_pre", _STREAM, _STREAM),
    "resid_mid": SiteSpec("the residual stream between attention and FFN", "hook_resid_mid", _STREAM, _STREAM),
    "resid_post": SiteSpec("the residual stream after a layer", "hook_resid_post", _STREAM, _STREAM),
    "attn_out": SiteSpec("what attention adds", "hook_attn_out", _STREAM, _STREAM),
    "mlp_out": SiteSpec("what the FFN adds", "hook_mlp_out", _STREAM, _STREAM),
    "q": SiteSpec("queries before rotation", "attn.hook_q", _HEADS, _BY_HEAD),
    "k": SiteSpec("keys before rotation, of a KV head", "attn.hook_k", _GROUPS, ("layer", "kv_head")),
    "v": SiteSpec("values, of a KV head", "attn.hook_v", _GROUPS, ("layer", "kv_head")),
    "k_by_head": SiteSpec("keys as one query head sees them", "attn.hook_rot_k", _HEADS, _BY_HEAD),
    "v_by_head": SiteSpec("values as one query head sees them", "attn.hook_v", _HEADS, _BY_HEAD),
    "scores": SiteSpec("attention before the softmax", "attn.hook_attn_scores", _EDGES, _BY_HEAD),
    "pattern": SiteSpec("attention after the softmax", "attn.hook_pattern", _EDGES, _BY_HEAD),
    "z": SiteSpec("what a head read", "attn.hook_z", _HEADS, _BY_HEAD),
    "result": SiteSpec("what a head adds", "attn.hook_result", _HEADS, _BY_HEAD),
    "neuron": SiteSpec("coefficients of neurons", "mlp.hook_post", ("layer", "neuron", "pos"), ("layer", "neuron")),
    "router": SiteSpec("router logits", "mlp.hook_router", _STREAM, _STREAM),
    "expert": SiteSpec(
        "what an expert writes, where both runs chose it",
        "mlp.hook_expert_out",
        ("layer", "expert", "pos"),
        ("layer", "expert"),
        also=("mlp.hook_expert_indices",),
    ),
}
assert tuple(SITES) == get_args(Site)

_WHERE = {"pos": "positions", "query_pos": "positions", "head": "heads", "kv_head": "heads", "neuron": "neurons"}
_AXIS = {"neuron": "d_mlp"}
"""What an axis is called at the point itself, where that is something else."""


def site_spec(site: str) -> SiteSpec:
    """Raises `UsageError` with the nearest names for a site that does not exist."""
    if site not in SITES:
        raise UsageError(f"There is no site {site!r}.{nearest(str(site), SITES)} Sites are {', '.join(SITES)}.")
    return SITES[site]


def layer_window(layer: int, window: int, n_layers: int) -> range:
    """The layers that are patched together around one: [ℓ − w//2, ℓ + ⌈w/2⌉ − 1], clipped (Meng et al. 2022)."""
    return range(max(0, layer - window // 2), min(n_layers, layer - (-window // 2)))


def stands_in(model: "Transformer", site: Site, layer: int) -> bool:
    """Whether a layer has the site."""
    points, spec = model.points(), SITES[site]
    return all(name in points for name in spec.needed(layer)) and not _in_experts(model, site, layer)


def require(model: "Transformer", site: Site, layer: int) -> None:
    """Raises `PointError` saying why a layer has no such site, if it has none."""
    model.points().resolve(SITES[site].needed(layer))
    if _in_experts(model, site, layer):
        raise PointError(
            f"The neurons of layer {layer} belong to experts, which change from token to token: patch the site expert, "
            "or layers with an FFN of their own."
        )


def _in_experts(model: "Transformer", site: Site, layer: int) -> bool:
    return site == "neuron" and "d_mlp" not in model.points()[SITES[site].name(layer)].axes


@dataclass(frozen=True)
class Values:
    """Values to patch in, by the full name of their point: [pair, …], or as few as can be broadcast to that."""

    source: Mapping[str, Tensor]
    renormalise: bool = False


def patch(model: "Transformer", site: Site, layer: int, places: Mapping[str, object], values: Values) -> Hooks:
    """The edits of one cell in one layer.

    `places`: for axes of the site, an index or several; an axis that is not named is patched whole.
    """
    spec = SITES[site]
    name = spec.name(layer)
    if site == "expert":
        return _expert(values.source, spec.needed(layer), places)
    if site == "k_by_head":
        return _key_by_head(model, layer, values.source[name], places)
    if site == "v_by_head":
        return _value_by_head(model, layer, values.source[name], places)
    if "key_pos" in places:
        return [(name, _edges(model, values, name, places))]
    return [(name, edits.replace(_taken(model, name, values.source[name], places), **_where(places)))]


def _where(places: Mapping[str, object]) -> Where:
    return {_WHERE[axis]: place for axis, place in places.items() if axis in _WHERE}  # type: ignore[return-value]


def _taken(model: "Transformer", name: str, value: Tensor, places: Mapping[str, object]) -> Tensor:
    """The part of a value that lies at these places; no axis is lost."""
    axes = model.points()[name].axes
    for axis, place in places.items():
        at = axes.index(_AXIS.get(axis, axis))
        if value.shape[at] > 1:
            value = value.index_select(at, torch.tensor(_several(place), device=value.device))
    return value


def _edges(model: "Transformer", values: Values, name: str, places: Mapping[str, object]) -> Edit:
    """Single edges: query × key cells of a pattern or of scores. A row need not sum to 1 then, unless renormalised."""
    source = values.source[name]
    keys = torch.tensor(_several(places["key_pos"]), device=source.device)
    part = _taken(model, name, source, {axis: place for axis, place in places.items() if axis != "key_pos"})

    def change(chosen: Selected) -> Tensor:
        new, changed = chosen.fitted(part, "pattern"), chosen.cells.clone()
        changed[..., keys] = new[..., keys]
        return _renormalised(changed, chosen) if values.renormalise else changed

    return Edit(change, _where(places))


def _renormalised(rows: Tensor, chosen: Selected) -> Tensor:
    """Rows of a pattern that sum to 1 again; those of padding stay empty."""
    total = rows.sum(-1, keepdim=True)
    empty = total <= 0
    if bool((empty & (chosen.cells.sum(-1, keepdim=True) > 0)).any()):
        raise UsageError(
            f"At {chosen.point.name} nothing is left of a row that was to be renormalised; leave out queries that read "
            "nothing but what is patched."
        )
    return rows / total.masked_fill(empty, 1)


def _several(place: object) -> list[int]:
    return [place] if isinstance(place, int) else list(place)  # type: ignore[call-overload]


def _expert(source: Mapping[str, Tensor], needed: Sequence[str], places: Mapping[str, object]) -> Hooks:
    """Experts' outputs in the slots where they are chosen, taken from where the source chose them too, in any slot.

    What this run chooses is looked at in this run: an earlier patch may have changed it.
    """
    out, chosen = needed
    part = slice(None) if "pos" not in places else _several(places["pos"])
    outputs, choices = source[out][:, part], source[chosen][:, part]
    experts = None if "expert" not in places else torch.tensor(_several(places["expert"]), device=choices.device)
    shared: list[Bool[Tensor, "pair pos slot source_slot"]] = []

    def look(here: Selected) -> Tensor:
        same = here.cells[..., :, None] == here.fitted(choices, "choice")[..., None, :]
        shared[:] = [same if experts is None else same & torch.isin(here.cells, experts)[..., None]]
        return here.cells

    def write(here: Selected) -> Tensor:
        same = shared.pop()
        slot = same.to(torch.int8).argmax(-1, keepdim=True)
        moved = here.fitted(outputs, "value").gather(2, slot.expand_as(here.cells))
        return torch.where(same.any(-1, keepdim=True), moved, here.cells)

    return [(chosen, Edit(look, _where(places))), (out, Edit(write, _where(places)))]


def _value_by_head(model: "Transformer", layer: int, source: Tensor, places: Mapping[str, object]) -> Hooks:
    """z of a query head, had it read other values: z + Σ over keys of pattern · (source − value)."""
    heads, keys = _reader(model, places)
    group = model.config.n_heads // model.config.n_kv_heads
    kept: dict[str, Tensor] = {}

    def look_value(value: Tensor, point: HookPoint) -> None:
        kept["value"] = value

    def look_pattern(pattern: Tensor, point: HookPoint) -> None:
        kept["pattern"] = pattern

    def read(z: Tensor, point: HookPoint) -> Tensor:
        value, pattern = kept.pop("value"), kept.pop("pattern")
        for head in heads:
            moved = source[:, keys, head // group] - value[:, keys, head // group]
            z[:, :, head] += pattern[:, head][..., keys] @ moved
        return z

    block = f"blocks.{layer}.attn"
    return [(f"{block}.hook_v", look_value), (f"{block}.hook_pattern", look_pattern), (f"{block}.hook_z", read)]


def _key_by_head(model: "Transformer", layer: int, source: Tensor, places: Mapping[str, object]) -> Hooks:
    """Scores of a query head, had it met other keys; source keys are rotated, as they enter the scores."""
    heads, keys = _reader(model, places)
    attention: Attention = model.blocks[layer].attn  # type: ignore[assignment]
    group = model.config.n_heads // model.config.n_kv_heads
    kept: dict[str, Tensor] = {}

    def look_query(query: Tensor, point: HookPoint) -> None:
        kept["query"] = query

    def look_key(key: Tensor, point: HookPoint) -> None:
        kept["key"] = key

    def match(scores: Tensor, point: HookPoint) -> Tensor:
        queries, found = kept.pop("query") * attention.scale, kept.pop("key")
        for head in heads:
            query = queries[:, :, head]
            old = scores[:, head][..., keys]
            new = _scores(query, source[:, keys, head // group], attention.cap)
            before = _scores(query, found[:, keys, head // group], attention.cap)
            scores[:, head][..., keys] = old + new - before  # −inf stays what it is
        return scores

    block = f"blocks.{layer}.attn"
    looks = [(f"{block}.hook_rot_q", look_query), (f"{block}.hook_rot_k", look_key)]
    return [*looks, (f"{block}.hook_attn_scores", match)]


def _scores(
    query: Float[Tensor, "pair query_pos d_head"], key: Float[Tensor, "pair chosen d_head"], cap: float | None
) -> Float[Tensor, "pair query_pos chosen"]:
    scores = query @ key.mT
    return scores if cap is None else cap * torch.tanh(scores / cap)


def _reader(model: "Transformer", places: Mapping[str, object]) -> tuple[list[int], Int[Tensor, "chosen"] | slice]:
    """The query heads that see something else, and at which columns."""
    heads = _several(places.get("head", range(model.config.n_heads)))
    keys = slice(None) if "pos" not in places else torch.tensor(_several(places["pos"]))
    return heads, keys
