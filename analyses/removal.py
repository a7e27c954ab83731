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

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import edits
from interp.analyses.components import Component, Kind
from interp.analyses.reference_values import MeanOver, Reference, chosen_experts, recorded
from interp.errors import UsageError
from interp.hooks import HookPoint, Hooks
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Method = Literal["mean", "resample", "zero", "pattern_preserving"]


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
    read = Reference.of(tokens, mask, reference, reference_mask, method == "resample", mean_over, seed)
    names = dict.fromkeys([*plain, *(name for each in experts for name in (*each.points, chosen_experts(each.layer)))])
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

    return [(chosen_experts(layer), look), (f"blocks.{layer}.mlp.hook_expert_out", replace)]
