"""Edits that change how much of the values of single neurons is written, and what neurons write on average.

What is edited is a neuron's coefficient, `mlp.hook_post`, or `mlp.shared.hook_post` of a shared expert:

    zero    nothing is written               x2    times 2, or any other number
    mean    what it is on average            =1.5  set to 1.5, or any other number

Zero takes a neuron out of its usual range, and part of what follows is that shock; the mean over other texts keeps it
there (Zhang & Nanda 2024, arXiv 2309.16042). No mean is over the prefix or padding: at the prefix, which all texts
share, many neurons are far out of the range that they have in a text.

What it does NOT tell: what an edit does; run the model with it (`interp.analyses.neuron_edits`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp import edits
from interp.analyses.neurons import Neuron, by_ffn
from interp.analyses.reference_values import chosen_experts
from interp.analyses.vocabulary import tokenizer_of
from interp.errors import UsageError
from interp.hooks import HookFn, HookPoint, Hooks
from interp.models.prompt_formats import PrefixPolicy
from interp.points import Names

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


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
    for (_, ffn), group in by_ffn(neurons).items():
        which = [each.index for each in group]
        values = [(means or {})[each] if kind == "mean" else number for each in group]
        new = None if kind == "x" else torch.tensor(values)
        if ffn >= 0:
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
        here = seen[0].eq(one.ffn)
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
    prefix: PrefixPolicy = "doc",
    texts: int = 16,
) -> dict[Neuron, float]:
    """The mean coefficient of each neuron over all tokens but padding and the prefix, where a text begins with it.

    Of a neuron of an expert it is over the tokens that chose it; 0 where none did. `texts` are read at a time, which
    bounds the memory.
    """
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    counted = real & ~prefix_tokens(model, tokens, real, prefix)
    groups = by_ffn(neurons)
    names = {name for group in groups.values() for name in (group[0].point, chosen_experts(group[0].layer))}
    read = [name for name in names if name in model.points()]
    sums = {place: np.zeros(len(group)) for place, group in groups.items()}
    counts = dict.fromkeys(groups, 0)
    stop = 1 + max(layer for layer, _ in groups)
    for first in range(0, len(tokens), texts):
        rows = slice(first, first + texts)
        _, cache = model.run_with_cache(tokens[rows], read, mask=real[rows], stop_at_layer=stop)
        for (layer, ffn), group in groups.items():
            chosen = counted[rows].to(model.device)
            if ffn >= 0:
                chosen = chosen[..., None] & (cache[chosen_experts(layer)] == ffn)
            values = cache[group[0].point][chosen][:, [each.index for each in group]]
            sums[layer, ffn] += values.double().sum(0).cpu().numpy()
            counts[layer, ffn] += len(values)
    return {
        neuron: float(total / max(counts[place], 1))
        for place, group in groups.items()
        for neuron, total in zip(group, sums[place], strict=True)
    }


def prefix_tokens(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"], prefix: PrefixPolicy
) -> Bool[Tensor, "batch pos"]:
    """Which tokens are the prefix, in those texts whose real tokens begin with it."""
    tokenizer = tokenizer_of(model)
    before = [] if tokenizer is None else tokenizer.prefix_ids(prefix)
    found = torch.zeros_like(real)
    rank = real.long().cumsum(1)  # 1 is the first real token, wherever the padding stands
    opens = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    for place, token in enumerate(before, 1):
        here = real & (rank == place)
        opens &= (here & (tokens == token)).any(1)
        found |= here
    return found & opens[:, None]
