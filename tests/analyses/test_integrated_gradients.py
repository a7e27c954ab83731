"""Integrated gradients of neurons are those of one run after the other, and add up to what the layer adds."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.analyses.integrated_gradients import integrated_gradients
from interp.analyses.neurons import DENSE, post_point, post_points
from interp.errors import BudgetError, UsageError
from interp.models.config import ModelConfig

if TYPE_CHECKING:
    from interp.hooks import HookPoint
    from interp.models.transformer import Transformer

ANSWER = 5
KINDS = {
    "grouped_query": 2, "biases": -1, "learned_positions": 2, "mixed_windows": 2, "score_cap": -1, "ungated": 2,
    "post_norm": -1, "parallel": 2, "moe_shared_gated": -1, "moe_mixed_layers": 2, "gelu_one_layer": -1,
}  # fmt: skip
"""Architectures, and the position at which each is asked."""


def one_by_one(
    model: "Transformer", tokens: torch.Tensor, position: int, steps: int, layer: int
) -> dict[str, torch.Tensor]:
    """The definition: a full forward pass and a backward pass for every step, all points of the layer together."""
    names = post_points(model.config, layer)
    _, cache = model.run_with_cache(tokens, names)
    coefficient = {name: cache[name][0, position] for name in names}
    total = {name: torch.zeros_like(own) for name, own in coefficient.items()}
    for step in range(1, steps + 1):
        scaled = {name: (own * step / steps).requires_grad_() for name, own in coefficient.items()}

        def put(value: torch.Tensor, point: "HookPoint", scaled: dict[str, torch.Tensor] = scaled) -> torch.Tensor:
            value[0, position] = scaled[point.name]
            return value

        with torch.enable_grad():
            probability = model.run_with_hooks(tokens, [(names, put)])[0, -1].softmax(-1)[ANSWER]
        for name, gradient in zip(names, torch.autograd.grad(probability, list(scaled.values())), strict=True):
            total[name] += gradient
    return {name: own * total[name] / steps for name, own in coefficient.items()}


@pytest.mark.parametrize(("kind", "position"), KINDS.items())
def test_attributions_are_those_of_one_pass_after_the_other(kind: str, position: int) -> None:
    model, tokens = tiny(CONFIGS[kind]), random_tokens(CONFIGS[kind], 1, 5)
    found = integrated_gradients(model, tokens, ANSWER, position=position, steps=3)
    for layer in range(model.config.n_layers):
        every = one_by_one(model, tokens, position, 3, layer)
        assert list(found.attribution[layer]) == list(every)
        for name, expected in every.items():
            scale = max(float(expected.abs().max()), 1e-6)
            assert float((found.attribution[layer][name] - expected).abs().max()) < 1e-4 * scale, name


DENSE_LAYER, MIXTURE, _ = CONFIGS["moe_mixed_layers"].layers
MIXTURE_FIRST = replace(CONFIGS["moe_shared_gated"], layers=(MIXTURE, DENSE_LAYER, DENSE_LAYER))
"""No later layer chooses other experts on the way, at which P would jump."""


@pytest.mark.parametrize("config", [CONFIGS["learned_positions"], MIXTURE_FIRST], ids=["dense", "mixture"])
def test_with_many_steps_a_layers_sum_is_what_it_adds(config: ModelConfig) -> None:
    """P with the neurons as they are, less P with all of them at nought at that token; and the error shrinks as 1/m."""
    model, tokens = tiny(config, dtype=torch.float64), random_tokens(config, 1, 6)
    errors = {}
    for steps in (20, 320):
        found = integrated_gradients(model, tokens, ANSWER, steps=steps)
        errors[steps] = [abs(found.completeness_error(layer)) for layer in range(config.n_layers)]
    for layer in range(config.n_layers):

        def nothing(value: torch.Tensor, _: "HookPoint") -> torch.Tensor:
            value[0, -1] = 0
            return value

        logits = model.run_with_hooks(tokens, [(post_points(config, layer), nothing)])
        assert found.without[layer] == pytest.approx(float(logits[0, -1].softmax(-1)[ANSWER]), rel=1e-9)
        assert errors[320][layer] < 2e-3 * sum(float(own.abs().sum()) for own in found.attribution[layer].values())
        assert errors[320][layer] < errors[20][layer] / 12


def test_how_many_runs_lie_side_by_side_changes_nothing() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 6)
    told: list[tuple[int, int]] = []
    wide = integrated_gradients(model, tokens, ANSWER, steps=5, progress=lambda *done: told.append(done))
    narrow = integrated_gradients(
        model, tokens, ANSWER, steps=5, budget=100_000, progress=lambda *done: told.append(done)
    )
    assert told[0] == (18, 18)
    assert len(told) > 4
    assert told[-1] == (18, 18)
    for layer in range(BASE.n_layers):
        name = post_point(layer, DENSE)
        own, other = wide.attribution[layer][name], narrow.attribution[layer][name]
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-9)


def test_a_token_that_nothing_reads_any_more_has_no_part_in_the_answer() -> None:
    """In the last layer an earlier token writes for nobody."""
    model, tokens = tiny(), random_tokens(BASE, 1, 6)
    found = integrated_gradients(model, tokens, ANSWER, position=2, layers=[-1])
    assert list(found.attribution) == [2]
    assert not found.attribution[2][post_point(2, DENSE)].any()
    assert found.without[2] == found.probability


def test_active_hooks_act_in_every_run() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 6)
    silent = [("blocks.1.hook_attn_out", lambda value, _: torch.zeros_like(value))]
    with model.hooks(silent):
        found, expected = (
            integrated_gradients(model, tokens, ANSWER, steps=3).attribution[0],
            one_by_one(model, tokens, -1, 3, 0),
        )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-8)


def test_gradients_come_in_inference_mode_too_and_weights_stay_as_they_are() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 6)
    before = {name: weight.clone() for name, weight in model.weights().items()}
    with torch.inference_mode():
        found = integrated_gradients(model, tokens, ANSWER, steps=3)
    assert found.attribution[0][post_point(0, DENSE)].any()
    assert all(torch.equal(weight, before[name]) for name, weight in model.weights().items())


def test_what_cannot_be_integrated_is_refused() -> None:
    model = tiny()
    with pytest.raises(UsageError, match="steps=0"):
        integrated_gradients(model, random_tokens(BASE, 1, 6), ANSWER, steps=0)
    with pytest.raises(UsageError, match="the layers, 3 lies outside"):
        integrated_gradients(model, random_tokens(BASE, 1, 6), ANSWER, layers=[3])
    with pytest.raises(BudgetError, match="shorter prompt"):
        integrated_gradients(model, random_tokens(BASE, 1, 6), ANSWER, budget=15_000)
