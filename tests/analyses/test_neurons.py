"""Neurons by name, of experts too, and edits of their coefficients."""

from dataclasses import replace

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.analyses.neurons import Neuron, control_neurons, mean_coefficients, neuron_edits, neurons_of, parse_change
from interp.errors import UsageError

MIXED = CONFIGS["moe_mixed_layers"]
TOKENS = random_tokens(BASE, 3, 6)
POST = "blocks.1.mlp.hook_post"
CHOSEN = "blocks.1.mlp.hook_expert_indices"


def test_names_are_read_as_they_are_written() -> None:
    for neuron in (Neuron(12, 345), Neuron(3, 17, expert=5)):
        assert Neuron.parse(str(neuron)) == neuron
    with pytest.raises(UsageError, match="names no neuron"):
        Neuron.parse("12-345")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("0.1", "A list of neurons"),
        ([], "each once"),
        (["0.1", "0.1"], "each once"),
        (["3.1"], "layers go from 0 to 2"),
        (["0.44"], "44 neurons"),
        (["0.2.1"], "one dense FFN"),
        (["1.1"], "a mixture of experts"),
        (["1.7.0"], "7 experts of 22"),
    ],
)
def test_neurons_that_do_not_exist_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        neurons_of(tiny(MIXED), names)


@pytest.mark.parametrize("change", ["", "half", "x", "=", "xnan", "*2"])
def test_a_text_that_is_no_change_is_refused(change: str) -> None:
    with pytest.raises(UsageError, match="no change of a neuron"):
        parse_change(change)


@pytest.mark.parametrize(
    ("change", "factor", "summand"), [("zero", 0, 0), ("x2", 2, 0), ("=1.5", 0, 1.5), ("mean", 0, -3)]
)
@pytest.mark.parametrize("last", [False, True])
def test_dense_neurons_are_changed_together_and_no_others(
    change: str, factor: float, summand: float, *, last: bool
) -> None:
    model, neurons = tiny(), (Neuron(1, 3), Neuron(1, 30))
    before = model.run_with_cache(TOKENS, [POST])[1][POST]
    with model.hooks(neuron_edits(neurons, change, means=dict.fromkeys(neurons, -3.0), last=last)):
        after = model.run_with_cache(TOKENS, [POST])[1][POST]
    expected, rows = before.clone(), slice(-1, None) if last else slice(None)
    expected[:, rows, [3, 30]] = before[:, rows, [3, 30]] * factor + summand
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("last", [False, True])
def test_neurons_of_an_expert_are_changed_where_it_is_chosen_in_whatever_slot(*, last: bool) -> None:
    model = tiny(MIXED)
    _, before = model.run_with_cache(TOKENS, [POST, CHOSEN])
    expert = int(before[CHOSEN][0, -1, 1])
    here = before[CHOSEN] == expert
    assert here.any((0, 1)).all()  # in both slots
    if last:
        here[:, :-1] = False
    with model.hooks(neuron_edits([Neuron(1, 4, expert), Neuron(1, 9, expert)], "x2", last=last)):
        after = model.run_with_cache(TOKENS, [POST])[1][POST]
    expected = before[POST].clone()
    for index in (4, 9):
        expected[..., index] *= 1 + here.float()
    torch.testing.assert_close(after, expected)


def test_means_are_over_real_tokens_and_for_experts_over_those_that_chose_them() -> None:
    model, mask = tiny(MIXED), torch.ones(3, 6, dtype=torch.bool)
    mask[0, :2] = False
    _, cache = model.run_with_cache(TOKENS, ["blocks.0.mlp.hook_post", POST, CHOSEN], mask=mask)
    expert = int(cache[CHOSEN][1, 3, 0])
    neurons = [Neuron(0, 7), Neuron(1, 5, expert)]
    for texts in (1, 2, 16):
        found = mean_coefficients(model, TOKENS, neurons, mask=mask, texts=texts)
        assert found[neurons[0]] == pytest.approx(float(cache["blocks.0.mlp.hook_post"][mask][:, 7].mean()), rel=1e-4)
        own = cache[POST][(cache[CHOSEN] == expert) & mask[..., None]]
        assert found[neurons[1]] == pytest.approx(float(own[:, 5].mean()), rel=1e-4)


def test_controls_are_other_neurons_of_the_same_layers_and_experts() -> None:
    tested = (Neuron(0, 3), Neuron(0, 5), Neuron(1, 2, expert=6))
    sets = control_neurons(MIXED, tested, 30, seed=(0, 1))
    for each in sets:
        assert [(neuron.layer, neuron.expert) for neuron in each] == [(0, None), (0, None), (1, 6)]
        assert len(set(each) | set(tested)) == 6
    assert len(set(sets)) == 30
    assert sets == control_neurons(MIXED, tested, 30, seed=(0, 1))
    assert sets != control_neurons(MIXED, tested, 30, seed=(0, 2))


def test_a_layer_without_other_neurons_gives_no_control() -> None:
    narrow = replace(BASE, d_mlp=3)
    tested = (Neuron(0, 0), Neuron(0, 1))
    assert control_neurons(narrow, tested, 2, seed=(0,)) == [(Neuron(0, 2),)] * 2
