"""Severed sublayers, against two full passes with the same noise; several cases in one sweep, against each alone."""

from functools import cache

import numpy as np
import pytest
import torch
from traced_facts import speaker

from interp.analyses.corruption import Case, Noise, case_of, corrupted, noise_of
from interp.analyses.restoring import cases_at_once, plan_restoring, severing
from interp.analyses.trace_settings import TraceSettings
from interp.hooks import HookPoint
from interp.models.circuits import Head, Neuron, OneFact
from interp.models.constructed import one_fact_memory
from interp.models.replay import Replay, Sweep
from interp.prompts import find_subject

PROMPTS = (("of the tower of the city", "the tower"), ("of the city of the tower", "the city of"))
ASKED = TraceSettings(kinds=("resid", "mlp", "attn"), severed=("mlp", "attn"), samples=3, window=2, seed=5)


def cases(count: int = 2) -> list[Case]:
    tokenizer, chosen = speaker().tokenizer, PROMPTS[:count]
    return [case_of(tokenizer, text, find_subject(tokenizer, text, subject), "doc") for text, subject in chosen]


@cache
def noise(rule: str = "s3") -> Noise:
    return noise_of(speaker(), rule)


def severed_by_two_passes(sublayer: str, rule: str, place: int, layer: int) -> np.ndarray:
    """The reference's algorithm with one noise for both passes: row 0 stays clean, the others are corrupted."""
    model, (case,) = speaker(), cases(1)
    drawn = noise(rule).draw(ASKED.samples, len(case.span.positions), model.config.d_model, seed=ASKED.seed)
    names = [f"blocks.{each}.hook_{sublayer}_out" for each in range(model.config.n_layers)]
    kept: dict[str, torch.Tensor] = {}

    def corrupt(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        value[1:, case.span.positions] += drawn
        return value

    def keep(value: torch.Tensor, point: HookPoint) -> None:
        kept[point.name] = value.clone()

    def hold(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        value[1:, place] = kept[point.name][1:, place]
        return value

    def restore(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        value[1:, place] = value[0, place]
        return value

    tokens = torch.tensor([case.clean]).expand(1 + ASKED.samples, -1)
    model.run_with_hooks(tokens, [("hook_embed", corrupt), (names, keep)])
    hooks = [("hook_embed", corrupt), (names, hold), (f"blocks.{layer}.hook_resid_post", restore)]
    last = model.run_with_hooks(tokens, hooks)[:, -1].softmax(-1)
    return last[1:, last[0].argmax()].numpy()


@pytest.mark.parametrize("rule", ["s3", "u0.5"])
@pytest.mark.parametrize("sublayer", ["mlp", "attn"])
def test_every_severed_cell_is_that_of_two_passes_with_the_same_noise(sublayer: str, rule: str) -> None:
    cells = plan_restoring(speaker(), cases(1), ASKED, noise(rule)).run()["probability"].cells
    row = cells[ASKED.rows.index(f"severed_{sublayer}")][..., 0, :]
    for place, layer in np.ndindex(*row.shape[:2]):
        expected = severed_by_two_passes(sublayer, rule, place, layer)
        np.testing.assert_allclose(row[place, layer], expected, rtol=0, atol=1e-5, err_msg=f"{place} {layer}")
    whole = cells[ASKED.rows.index("resid")][..., 0, :]
    assert np.abs(row - whole).max() > 1e-4, "without the sublayer less or something else comes back"
    np.testing.assert_array_equal(row[:, -1], whole[:, -1], "behind the last layer nothing is left to sever")


@pytest.mark.parametrize("sublayer", ["mlp", "attn"])
def test_severing_without_restoring_is_the_corrupted_run_bit_for_bit(sublayer: str) -> None:
    model = speaker()
    tokens, hooks = corrupted(cases(), noise(), ASKED, model.config.d_model)
    with model.hooks(hooks):
        _, held = model.run_with_cache(tokens, f"blocks.*.hook_{sublayer}_out")
    plan = plan_restoring(model, cases(), ASKED, noise())
    for place in range(tokens.shape[1]):
        sweep = Sweep({"one": [0]}, lambda one, place=place: severing(held, place))
        swept = Replay(model, tokens, sweep, plan.replay.metrics, hooks=hooks, shortcuts=False).run()
        for name in swept.values:
            np.testing.assert_array_equal(swept[name].values[0], swept.base[name].values)


def test_cases_in_one_sweep_are_what_each_is_alone() -> None:
    together = plan_restoring(speaker(), cases(), ASKED, noise()).run()
    for place, case in enumerate(cases()):
        alone = plan_restoring(speaker(), [case], ASKED, noise()).run()
        for name, tolerance in (("probability", 1e-6), ("logit", 1e-5)):
            for part, axis in (("cells", -2), ("corrupted", 0), ("clean", 0)):
                both, one = getattr(together[name], part), getattr(alone[name], part)
                np.testing.assert_allclose(np.take(both, place, axis), np.take(one, 0, axis), rtol=0, atol=tolerance)


def test_a_neuron_behind_the_restored_state_needs_its_ffn_and_no_attention_there() -> None:
    """The subject is gathered in layer 0, recalled by the FFN of layer 2, and read from the relation in layer 3."""
    circuit = OneFact(n_layers=4, gatherers=(Head(0, 1),), neuron=Neuron(2, 5), extractor=Head(3, 2))
    model = one_fact_memory(circuit)
    text, other = "Eiffel Tower is in", "Space Needle is in"
    case = case_of(model.tokenizer, text, find_subject(model.tokenizer, text, "Eiffel Tower"), "doc", other)
    asked = TraceSettings(kinds=("resid",), severed=("mlp", "attn"))
    found = plan_restoring(model, [case], asked, None).run()["probability"]
    total = float(found.clean[0] - found.corrupted[0, 0])
    whole, without_ffn, without_attention = (found.cells - found.corrupted)[:, case.span.last, :, 0, 0]
    assert total > 0.9
    np.testing.assert_allclose(whole, [total, total, total, 0], atol=1e-6)
    np.testing.assert_allclose(without_ffn, [0, 0, total, 0], atol=1e-6)
    np.testing.assert_allclose(without_attention, whole, atol=1e-6)


def test_as_many_cases_share_a_sweep_as_fill_a_walk_and_half_the_budget() -> None:
    model = speaker()
    assert cases_at_once(model, 8, TraceSettings(), 10) == 2048 // 80
    assert cases_at_once(model, 3000, TraceSettings(), 10) == 1, "never none"
    small = cases_at_once(model, 8, TraceSettings(budget=2**20), 10)
    assert 1 <= small < 2048 // 80
    assert cases_at_once(model, 8, TraceSettings(budget=2**21), 10) > small
