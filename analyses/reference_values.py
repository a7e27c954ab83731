"""Values that texts give at hook points, and how those of one text take the place of another's.

Means are over texts at each position, or over all tokens; where texts are resampled, each is given those of one other
text, never its own. Padding is no token: it is left out of means, and never put in the place of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.analyses.components import Component
from interp.errors import BudgetError, UsageError
from interp.hooks import active_edits, edits_replaced

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

MeanOver = Literal["texts", "tokens"]

TOKENS_AT_ONCE = 4096
"""Tokens that one forward pass reads: more would only take more memory."""


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
class Reference:
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
        resampled: bool,
        mean_over: MeanOver,
        seed: int,
    ) -> "Reference":
        """The reference, or the texts themselves; refused where values could not take each other's place."""
        source, real = (tokens, mask) if reference is None else (reference, reference_mask)
        aligned = resampled or mean_over == "texts"
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
        if resampled:
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
        chosen = torch.eq(cache[chosen_experts(expert.layer)], expert.index or 0)
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


def chosen_experts(layer: int) -> str:
    """The point where the chosen experts of a layer stand."""
    return f"blocks.{layer}.mlp.hook_expert_indices"
