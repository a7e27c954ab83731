"""How much each neuron of a prompt adds to the probability of an answer: integrated gradients, layer by layer.

With w̄ the coefficients (`mlp.hook_post`) of one layer at one token, and P(w) the answer's probability were they w,

    Attr(neuron i) = w̄_i / m · Σ_{k=1}^m ∂P/∂w_i at w = k/m · w̄

All neurons of a layer are scaled together, from nothing to what they are, the other layers left to follow. The sum is a
quadrature of an integral, so that over a layer's neurons

    Σ_i Attr(i) ≈ P(w̄) − P(0)

and what is missing, the completeness error, goes to nought as m grows. In a mixture of experts the coefficients are
those of the chosen experts, all slots together, and of the shared expert; which are chosen, their weights and the
shared one's gate stay as they are in that layer. Where a later layer chooses other experts on the way, P jumps, and the
error keeps what the jump is worth.

Nothing is computed twice: the runs of all layers and steps begin where their coefficients are scaled, from the residual
stream of one run, at that token, and earlier tokens are read from its keys and values.

Papers: Sundararajan et al. 2017, Axiomatic Attribution (arXiv 1703.01365); Dai et al. 2022, Knowledge Neurons in
Pretrained Transformers (arXiv 2104.08696), for scaling the FFN of one layer.

What it does NOT tell: what happens without one neuron, since all were scaled at once; edit it and see.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import edits, metrics
from interp.analyses.neurons import DENSE, SHARED, post_point, post_points
from interp.analyses.reference_values import chosen_experts
from interp.errors import BudgetError, UsageError
from interp.hooks import HookPoint, active_edits
from interp.models.checks import check_tokens
from interp.models.replay_plan import shortened
from interp.models.walk import Base, Cell, Walk
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

CELLS_AT_ONCE = 1024
"""Runs side by side; more make products no faster."""


@dataclass(frozen=True)
class Integrated:
    """Attributions of one prompt by layer, at each of its points: of each neuron, or of each slot's in a mixture.

    `coefficient` holds w̄, `expert` the chosen experts of layers that have some; `probability` is P(w̄), `without` P(0).
    """

    attribution: Mapping[int, Mapping[str, Float[Tensor, "*slot neuron"]]]
    coefficient: Mapping[int, Mapping[str, Float[Tensor, "*slot neuron"]]]
    expert: Mapping[int, Int[Tensor, "slot"]]
    probability: float
    without: Mapping[int, float]

    def ffns(self, layer: int) -> Iterator[tuple[int, Float[Tensor, "neuron"], Float[Tensor, "neuron"]]]:
        """Every FFN of a layer that wrote, by number, with attributions and coefficients; experts by slot."""
        for name, own in self.attribution[layer].items():
            coefficient = self.coefficient[layer][name]
            if own.dim() == 2:
                yield from zip(self.expert[layer].tolist(), own, coefficient, strict=True)
            else:
                yield SHARED if name == post_point(layer, SHARED) else DENSE, own, coefficient

    def layer_sum(self, layer: int) -> float:
        """Σ Attr over the neurons of a layer."""
        return sum(float(own.double().sum()) for own in self.attribution[layer].values())

    def completeness_error(self, layer: int) -> float:
        """Σ Attr − (P(w̄) − P(0)) of a layer."""
        return self.layer_sum(layer) - (self.probability - self.without[layer])


def integrated_gradients(
    model: "Transformer",
    tokens: Int[Tensor, "1 pos"],
    answer: int,
    *,
    position: int = -1,
    steps: int = 20,
    layers: Index | None = None,
    budget: int = 2**30,
    progress: Callable[[int, int], None] | None = None,
) -> Integrated:
    """What the neurons at one position of a prompt add to the probability of `answer` behind its last token.

    `budget`: bytes beside the model, which decide how many runs go side by side. `progress` counts runs. Hooks of an
    active `model.hooks` context act. Raises `UsageError` for several prompts, no steps, and places that the prompt or
    the model does not have; `BudgetError` where not even one run fits.
    """
    check_tokens(tokens, None, model.config)
    if len(tokens) != 1 or type(steps) is not int or steps < 1:
        raise UsageError(f"Expected one prompt and at least one step; came {len(tokens)} prompts, steps={steps!r}.")
    (column,) = indices(position, tokens.shape[1], "the position")
    which = indices(slice(None) if layers is None else layers, model.config.n_layers, "the layers")
    measure = metrics.probability(answer)
    with torch.inference_mode(False), torch.enable_grad():
        names = {layer: post_points(model.config, layer) for layer in which}
        routed = [name for layer in which if (name := chosen_experts(layer)) in model.points()]
        read = [*(name for own in names.values() for name in own), *routed]
        logits, cache = model.run_with_cache(tokens, read, positions=[column], budget=budget)
        coefficient = {layer: {name: cache[name][0, 0].clone() for name in own} for layer, own in names.items()}
        runs = _Runs(model, tokens, column, coefficient, steps, budget)
        summed, without = runs.walked(measure, progress)
    probability = float(measure(logits))
    return Integrated(
        attribution={
            layer: {name: _attribution(each, summed.get(layer, {}).get(name), steps) for name, each in own.items()}
            for layer, own in coefficient.items()
        },
        coefficient=coefficient,
        expert={layer: cache[chosen_experts(layer)][0, 0] for layer in which if chosen_experts(layer) in routed},
        probability=probability,
        without={layer: without.get(layer, probability) for layer in which},
    )


def _attribution(coefficient: Tensor, summed: Tensor | None, steps: int) -> Tensor:
    """w̄ times the mean gradient; nought where nothing reads these neurons any more."""
    return torch.zeros_like(coefficient) if summed is None else coefficient * summed / steps


class _Runs:
    """Runs with the coefficients of a layer scaled by 0, 1/m, … 1; of all layers where that could change anything."""

    def __init__(
        self,
        model: "Transformer",
        tokens: Tensor,
        column: int,
        coefficient: Mapping[int, Mapping[str, Tensor]],
        steps: int,
        budget: int,
    ) -> None:
        self.model, self.column, self.coefficient, self.steps = model, column, coefficient, steps
        self.read, points = [tokens.shape[1] - 1], model.points()
        outer = {name: each for name, each in active_edits().items() if name in points}
        silent = [{name: (edits.zero(positions=[column]),) for name in own} for own in coefficient.values()]
        plan = shortened(model, tokens.to(model.device).long(), None, outer, silent, self.read, budget)
        self.base = plan.base
        # where only the tokens that are read are computed, nothing later reads this one
        self.starts = [cell for cell in plan.cells if cell.join < model.config.n_layers - 1 or cell.kept <= column]
        first = min((cell.start for cell in self.starts), default=column)
        self.at_once = _runs_that_fit(model, plan.base, tokens.shape[1] - first, budget)

    def walked(
        self, measure: metrics.MetricFn, progress: Callable[[int, int], None] | None
    ) -> tuple[dict[int, dict[str, Tensor]], dict[int, float]]:
        """By layer: the gradients of P at its points, summed over the steps from 1 on, and P at step 0."""
        runs = [(cell, step) for cell in self.starts for step in range(self.steps + 1)]
        summed: dict[int, dict[str, Tensor]] = {cell.join: {} for cell in self.starts}
        without: dict[int, float] = {}
        for first in range(0, len(runs), self.at_once):
            some = runs[first : first + self.at_once]
            values, gradients = self._differentiated(some, measure)
            for (cell, step), value, own in zip(some, values.tolist(), gradients, strict=True):
                if step == 0:
                    without[cell.join] = value
                    continue
                total = summed[cell.join]
                for name, gradient in own.items():
                    total[name] = total.get(name, 0) + gradient
            if progress is not None:
                progress(first + len(some), len(runs))
        return summed, without

    def _differentiated(
        self, runs: Sequence[tuple[Cell, int]], measure: metrics.MetricFn
    ) -> tuple[Float[Tensor, "run"], list[dict[str, Tensor]]]:
        """P of each run, and its gradients with respect to the coefficients that were put in, by point."""
        put = [
            {name: (own * (step / self.steps)).requires_grad_() for name, own in self.coefficient[cell.join].items()}
            for cell, step in runs
        ]
        cells = [
            replace(cell, index=index, edits={name: (partial(_put, new, self.column),) for name, new in own.items()})
            for index, ((cell, _), own) in enumerate(zip(runs, put, strict=True))
        ]
        found: dict[int, Tensor] = {}

        def keep(cell: Cell, logits: Tensor) -> None:
            found[cell.index] = measure(logits)

        Walk(self.model, self.base, cells, differentiable=True).run(self.read, len(cells), keep)
        values = torch.cat([found[index] for index in range(len(cells))])
        gradients = iter(torch.autograd.grad(values.sum(), [new for own in put for new in own.values()]))
        return values.detach(), [{name: next(gradients) for name in own} for own in put]


def _put(new: Tensor, column: int, value: Tensor, point: HookPoint) -> Tensor:
    """The value with one column of the whole text replaced, of which a run may hold the end alone."""
    value[:, column - point.rows.start] = new
    return value


def _runs_that_fit(model: "Transformer", base: Base, columns: int, budget: int) -> int:
    """How many runs may lie side by side with what their gradient needs. Raises `BudgetError` where not even one."""
    c = model.config
    queries, shared = c.n_heads * c.d_head, 2 * c.n_kv_heads * c.d_head
    ffn = 2 * max(c.ffn_width(layer) for layer in range(c.n_layers))
    token = 12 * c.d_model + 6 * (queries + shared) + ffn
    run = c.n_layers * (columns * token + 2 * base.stop * shared) + 4 * c.d_vocab
    held = sum(tensor.nbytes for kind in (base.boundaries, base.keys, base.values) for tensor in kind.values())
    needed = run * model.embed.element_size()
    if held + needed > budget:
        raise BudgetError(
            f"The gradient of one run over {columns} tokens needs {held + needed:,} bytes; the budget is {budget:,}. "
            "Allow more, or take a shorter prompt."
        )
    return min(CELLS_AT_ONCE, (budget - held) // needed)
