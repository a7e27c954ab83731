"""What takes the place of components that are taken away: nothing, a mean, or what they give in another text.

    taken = removal(model, tokens, components_of(model, ["18.6", "mlp 3"]), method="mean", reference=others)
    model.run_with_hooks(tokens, taken.hooks([Component("head", 18, 6)]))

Several sets can be taken away with one removal, in one sweep: it knows what replaces every component that it was made
for. What each method means stands in `analyses/ablation.py`.

Patterns are kept as they are by way of what they are computed from: queries and keys as they enter the scores. That
takes memory in proportion to the length of a text, where patterns take its square, and leaves attention to the fused
kernel. `held` does it, in the run that is compared with too, which it does not change:

    model.run_with_hooks(tokens, [*taken.held, *taken.hooks([Component("head", 18, 6)])])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import edits
from interp.analyses.components import Component, Kind
from interp.errors import BudgetError, UsageError
from interp.hooks import HookPoint, Hooks, active_edits, edits_replaced
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Method = Literal["mean", "resample", "zero", "pattern_preserving"]
MeanOver = Literal["texts", "tokens"]

TOKENS_AT_ONCE = 4096
"""Tokens of the reference that one forward pass reads: more would only take more memory."""


@dataclass(frozen=True)
class Removal:
    """How components are taken away from some texts: `hooks(components)` does it, in a run or a sweep over them."""

    new: Mapping[str, Float[Tensor, "text pos *cells"]]
    """What takes the place of each point's values; an axis of length 1 serves all texts or all positions."""
    new_experts: Mapping[Component, Float[Tensor, "text pos d_model"]]
    columns: Sequence[int]
    """The columns where they are taken away."""
    kept: Mapping[str, Float[Tensor, "batch length *values"]] = field(default_factory=dict)
    """Values that stay what they are without a removal, whatever is taken away."""

    @property
    def held(self) -> Hooks:
        """Edits that keep those values; they act in every run and change nothing in one without a removal."""
        return [(name, edits.replace(value)) for name, value in self.kept.items()]

    @property
    def nbytes(self) -> int:
        """Bytes of all that takes the place of something."""
        return sum(each.nbytes for kind in (self.new, self.new_experts, self.kept) for each in kind.values())

    def of_texts(self, which: slice) -> "Removal":
        """The removal for some of the texts alone."""

        def rows(value: Tensor) -> Tensor:
            return value[which] if len(value) > 1 else value

        new, kept = ({name: rows(value) for name, value in each.items()} for each in (self.new, self.kept))
        experts = {expert: rows(value) for expert, value in self.new_experts.items()}
        return replace(self, new=new, new_experts=experts, kept=kept)

    def hooks(self, components: Sequence[Component]) -> Hooks:
        """Edits that take these away together."""
        by_place: dict[tuple[Kind, int], list[Component]] = {}
        for each in components:
            by_place.setdefault((each.kind, each.layer), []).append(each)
        return [hook for (kind, _), group in by_place.items() for hook in self._hooks(kind, group)]

    def _hooks(self, kind: Kind, group: Sequence[Component]) -> Hooks:
        """Those of components of one kind and layer."""
        if kind == "expert":
            return _expert_hooks(group[0].layer, [(each.index, self.new_experts[each]) for each in group], self.columns)
        which = [each.index for each in group if each.index is not None]
        where: edits.Where = {"positions": self.columns}
        if kind in ("head", "kv_head"):
            where["heads"] = which
        elif kind == "neuron":
            where["neurons"] = which
        return [(name, edits.replace(self._cells(name, which), **where)) for name in group[0].points]

    def _cells(self, name: str, which: Sequence[int]) -> Tensor:
        """What takes the place of these cells of a point (all, if none is named) in the columns that are edited."""
        value = self.new[name]
        if value.shape[1] > 1:
            value = _chosen_of(value, 1, self.columns)
        return _chosen_of(value, 2, which) if which else value


def _chosen_of(value: Tensor, axis: int, places: Sequence[int]) -> Tensor:
    """Some places of one axis; where they follow each other, without copying them."""
    if list(places) == list(range(places[0], places[-1] + 1)):
        return value.narrow(axis, places[0], len(places))
    return value.index_select(axis, torch.tensor(list(places), device=value.device))


def removal(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    components: Sequence[Component],
    *,
    method: Method = "mean",
    reference: Int[Tensor, "text ref_pos"] | None = None,
    mean_over: MeanOver = "texts",
    mask: Bool[Tensor, "batch pos"] | None = None,
    reference_mask: Bool[Tensor, "text ref_pos"] | None = None,
    positions: Index | None = None,
    seed: int = 0,
    budget: int = 2**30,
) -> Removal:
    """What takes the place of these components in these texts; the settings are those of `ablate`.

    It takes one forward pass of the reference, or of the texts where patterns are kept, and none for zeros. Raises
    `UsageError` where the reference does not fit, `BudgetError` where its values take more than the budget.
    """
    if method not in get_args(Method) or mean_over not in get_args(MeanOver):
        raise UsageError(
            f"Components are taken away by {', '.join(get_args(Method))}, a mean over {' or '.join(get_args(MeanOver))}"
            f"; came method={method!r}, mean_over={mean_over!r}."
        )
    columns = indices(slice(None) if positions is None else positions, tokens.shape[1], "the positions to take away")
    plain = list(dict.fromkeys(name for each in components if each.kind != "expert" for name in each.points))
    experts = [each for each in components if each.kind == "expert"]
    if method in ("zero", "pattern_preserving"):
        sizes = {**model.points().sizes, "batch": 1, "pos": 1}
        zeros = {name: torch.zeros(model.points()[name].shape(sizes), device=model.device) for name in plain}
        kept = {} if method == "zero" else _patterns(model, tokens, mask, components, budget)
        return Removal(zeros, dict.fromkeys(experts, torch.zeros((1, 1, 1), device=model.device)), columns, kept)
    read = _Reference.of(tokens, mask, reference, reference_mask, method, mean_over, seed)
    names = dict.fromkeys([*plain, *(name for each in experts for name in (*each.points, _chosen(each.layer)))])
    cache = recorded(model, read.tokens, list(names), mask=read.mask, budget=budget)
    new = {name: read.typical(cache[name]) for name in plain}
    return Removal(new, {each: read.typical_expert(cache, each, tokens.shape) for each in experts}, columns)


def _patterns(
    model: "Transformer", tokens: Tensor, mask: Tensor | None, components: Sequence[Component], budget: int
) -> dict[str, Tensor]:
    """Queries and keys of these texts in every layer whose pattern the components could change."""
    layers = range(min(each.layer for each in components), model.config.n_layers)
    names = [f"blocks.{layer}.attn.hook_{name}" for layer in layers for name in ("rot_q", "rot_k")]
    return recorded(model, tokens, names, mask=mask, budget=budget)


def recorded(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    names: Sequence[str],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    budget: int = 2**30,
) -> dict[str, Tensor]:
    """Values at these points of layers, a few texts at a time; layers behind the last of them are not run.

    Texts are kept together where hooks are active, which may know them by their place. Raises `BudgetError` where the
    values take more than the budget.
    """
    count, length = tokens.shape
    needed = model.cache_bytes(count, length, names)
    if needed > budget:
        raise BudgetError(
            f"What {count} texts of {length} tokens give at {len(names)} points takes {needed:,} bytes "
            f"({needed / 2**20:.1f} MiB); the budget is {budget:,}. Allow more, or fewer texts at a time."
        )
    stop = 1 + max(int(name.split(".", 2)[1]) for name in names)
    hooks = active_edits()
    at_once = count if hooks else max(1, TOKENS_AT_ONCE // length)
    caches = []
    with edits_replaced(hooks):  # those behind the last layer that is run do not act
        for first in range(0, count, at_once):
            rows = slice(first, first + at_once)
            real = None if mask is None else mask[rows]
            caches.append(model.run_with_cache(tokens[rows], names, mask=real, stop_at_layer=stop)[1])
    if len(caches) == 1:
        return dict(caches[0])
    return {name: torch.cat([cache[name] for cache in caches]) for name in names}


@dataclass(frozen=True)
class _Reference:
    """The texts whose values take the place of others, and how."""

    tokens: Int[Tensor, "text pos"]
    mask: Bool[Tensor, "text pos"] | None
    mean_over: MeanOver
    partners: Int[Tensor, "batch"] | None
    """Which of them lends its values to each text, where texts are resampled; None for means."""
    seed: int

    @classmethod
    def of(
        cls,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"] | None,
        reference: Int[Tensor, "text ref_pos"] | None,
        reference_mask: Bool[Tensor, "text ref_pos"] | None,
        method: Method,
        mean_over: MeanOver,
        seed: int,
    ) -> "_Reference":
        """The reference, or the texts themselves; refused where values could not take each other's place."""
        source, real = (tokens, mask) if reference is None else (reference, reference_mask)
        aligned = method == "resample" or mean_over == "texts"
        if aligned and source.shape[1] != tokens.shape[1]:
            raise UsageError(
                f"Texts of {tokens.shape[1]} tokens came with a reference of {source.shape[1]}: position by position, "
                "lengths must be equal. Take mean_over='tokens', or a reference of that length."
            )
        if aligned and reference is None and len(tokens) < 2:
            raise UsageError(
                "One text alone has no other to be replaced from; give a `reference` of several texts, several texts, "
                "or mean_over='tokens'."
            )
        partners = None
        if method == "resample":
            partners = _partners(len(tokens), len(source), own=reference is None, seed=seed)
            _check_padding(mask, None if real is None else real[partners])
        return cls(source, real, mean_over, partners, seed)

    def typical(self, values: Float[Tensor, "text pos *cells"]) -> Float[Tensor, "some here *cells"]:
        """What takes the place of a point's values: a mean, padding left out, or those of each text's partner."""
        if self.partners is not None:
            return values[self.partners]
        dims = [0] if self.mean_over == "texts" else [0, 1]
        if self.mask is None:
            return values.mean(dims, keepdim=True)
        real = self.mask.to(values.device).view(*self.mask.shape, *[1] * (values.dim() - 2))
        return values.masked_fill(~real, 0).sum(dims, keepdim=True) / real.sum(dims, keepdim=True).clamp(min=1)

    def typical_expert(
        self, cache: Mapping[str, Tensor], expert: Component, shape: Sequence[int]
    ) -> Float[Tensor, "some here d_model"]:
        """The same of what an expert wrote where it was chosen: the mean, or at each place that of a random token."""
        chosen = torch.eq(cache[_chosen(expert.layer)], expert.index or 0)
        if self.mask is not None:
            chosen = chosen & self.mask.to(chosen.device)[..., None]
        written = cache[expert.points[0]][chosen]
        if len(written) == 0:
            return written.new_zeros(1, 1, 1)
        if self.partners is None:
            return written.mean(0)[None, None]
        drawn = np.random.default_rng([self.seed, expert.layer, expert.index or 0]).integers(len(written), size=shape)
        return written[torch.from_numpy(drawn).to(written.device)]


def _partners(count: int, available: int, *, own: bool, seed: int) -> Int[Tensor, "batch"]:
    """A reference text for each text, never itself where the texts are their own reference."""
    generator = np.random.default_rng(seed)
    if not own:
        return torch.from_numpy(generator.integers(available, size=count))
    order = generator.permutation(count)
    partners = np.empty(count, dtype=np.int64)
    partners[order] = np.roll(order, 1)
    return torch.from_numpy(partners)


def _check_padding(mask: Tensor | None, real: Tensor | None) -> None:
    """Raise `UsageError` where resampling would put padding in the place of tokens."""
    if real is not None and bool((~real if mask is None else mask & ~real).any()):
        raise UsageError("Resampling would put padding in the place of tokens; use texts of one length.")


def _chosen(layer: int) -> str:
    """The point where the chosen experts of a layer stand."""
    return f"blocks.{layer}.mlp.hook_expert_indices"


def _expert_hooks(layer: int, new: Sequence[tuple[int | None, Tensor]], columns: Sequence[int]) -> Hooks:
    """Edits that replace what some experts write, in whatever slot they are chosen."""
    seen: list[Tensor] = []

    def look(slots: Tensor, point: HookPoint) -> None:
        seen[:] = [slots.clone()]

    def replace(out: Tensor, point: HookPoint) -> Tensor:
        (slots,) = seen
        first = point.rows.start
        here = range(first, first + out.shape[1])
        edited = torch.tensor([column in columns for column in here], device=out.device)[:, None]
        for expert, value in new:
            own = value[:, list(here)] if value.shape[1] > 1 else value
            out = torch.where(((slots == expert) & edited)[..., None], own[:, :, None].to(out), out)
        return out

    return [(_chosen(layer), look), (f"blocks.{layer}.mlp.hook_expert_out", replace)]
