"""Neurons by name, of experts too, and edits of their coefficients."""

from dataclasses import replace

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.analyses.neuron_changes import mean_coefficients, neuron_edits, parse_change
from interp.analyses.neurons import (
    DENSE,
    SHARED,
    Neuron,
    control_neurons,
    ffn_widths,
    memory_count,
    memory_of,
    names_within,
    neurons_at,
    neurons_of,
)
from interp.errors import UsageError
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory

MIXED, COMMON = CONFIGS["moe_mixed_layers"], CONFIGS["moe_shared_gated"]
TOKENS = random_tokens(BASE, 3, 6)
POST = "blocks.1.mlp.hook_post"
CHOSEN = "blocks.1.mlp.hook_expert_indices"
SHARED_POST = "blocks.1.mlp.shared.hook_post"


def test_names_are_read_as_they_are_written() -> None:
    for neuron in (Neuron(12, 345), Neuron(3, 17, expert=5), Neuron(3, 25, expert="shared")):
        assert Neuron.parse(str(neuron)) == Neuron.parse(f"neuron {neuron}") == neuron
        assert Neuron.of(neuron.layer, neuron.ffn, neuron.index) == neuron
        assert str(neuron) == f"{neuron.layer}.{neuron.within}"
    assert [Neuron.parse(text).ffn for text in ("1.2", "1.2.3", "1.shared.3")] == [DENSE, 2, SHARED]
    for text in ("12-345", "12", "1.2.3.4", "1.all.2", "1.-2.3", "1.٣", ""):
        with pytest.raises(UsageError, match="names no neuron"):
            Neuron.parse(text)


@pytest.mark.parametrize(("name", "layer"), [("grouped_query", 2), ("moe_mixed_layers", 1), ("moe_shared_gated", 0)])
def test_neurons_have_numbers_within_their_layer_that_count_ffn_by_ffn(name: str, layer: int) -> None:
    config = CONFIGS[name]
    count = memory_count(config, layer)
    every = neurons_at(config, layer, range(count))
    assert [memory_of(config, neuron) for neuron in every] == list(range(count))
    assert [each.ffn for each in every] == [
        ffn for ffn, width in ffn_widths(config, layer).items() for _ in range(width)
    ]
    assert neurons_of(tiny(config), every) == tuple(every)
    names = names_within(config, layer, [0, count - 1])
    assert (
        names
        == {"grouped_query": [0, 43], "moe_mixed_layers": ["0.0", "6.21"], "moe_shared_gated": ["0.0", "shared.25"]}[
            name
        ]
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("0.1", "A list of neurons"),
        ([], "each once"),
        (["0.1", "0.1"], "each once"),
        (["3.1"], "layers go from 0 to 2"),
        (["0.44"], "44 neurons"),
        (["0.2.1"], "one dense FFN of 44 neurons, named layer.neuron"),
        (["0.shared.1"], "one dense FFN"),
        (["1.1"], "named layer.expert.neuron"),
        (["1.7.0"], "a mixture of 7 experts of 22"),
        (["1.0.22"], "7 experts of 22"),
        (["1.shared.0"], "7 experts of 22 neurons, named layer.expert.neuron from 0 on\\.$"),
        ([Neuron(0, 1, expert=-1)], "one dense FFN"),
    ],
)
def test_neurons_that_do_not_exist_are_refused(names: list[str | Neuron], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        neurons_of(tiny(MIXED), names)


def test_a_shared_expert_that_is_there_is_told_where_its_neuron_is_not() -> None:
    assert neurons_of(tiny(COMMON), ["1.shared.25"]) == (Neuron(1, 25, "shared"),)
    for name in ("1.shared.26", "1.1"):
        with pytest.raises(UsageError, match=r"a shared one of 26, named layer\.shared\.neuron"):
            neurons_of(tiny(COMMON), [name])


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


@pytest.mark.parametrize(
    ("change", "factor", "summand"), [("zero", 0, 0), ("x2", 2, 0), ("=1.5", 0, 1.5), ("mean", 0, -3)]
)
@pytest.mark.parametrize("last", [False, True])
def test_neurons_of_a_shared_expert_are_changed_in_every_token_or_the_last(
    change: str, factor: float, summand: float, *, last: bool
) -> None:
    model, neurons, point = tiny(COMMON), (Neuron(1, 3, "shared"), Neuron(1, 25, "shared")), SHARED_POST
    before = model.run_with_cache(TOKENS, [point, POST])[1]
    with model.hooks(neuron_edits(neurons, change, means=dict.fromkeys(neurons, -3.0), last=last)):
        after = model.run_with_cache(TOKENS, [point, POST])[1]
    expected, rows = before[point].clone(), slice(-1, None) if last else slice(None)
    expected[:, rows, [3, 25]] = before[point][:, rows, [3, 25]] * factor + summand
    torch.testing.assert_close(after[point], expected)
    assert torch.equal(after[POST], before[POST])  # those of routed experts stay


def test_means_of_a_shared_expert_are_over_all_real_tokens() -> None:
    model, mask = tiny(COMMON), torch.ones(3, 6, dtype=torch.bool)
    mask[0, :2] = False
    _, cache = model.run_with_cache(TOKENS, [SHARED_POST], mask=mask)
    found = mean_coefficients(model, TOKENS, [Neuron(1, 25, "shared")], mask=mask, texts=2)
    assert found[Neuron(1, 25, "shared")] == pytest.approx(float(cache[SHARED_POST][mask][:, 25].mean()), rel=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_no_mean_is_over_the_prefix_at_which_neurons_are_far_out_of_their_range(side: str) -> None:
    """By hand: at the separator the neuron is 8, in the rest of the texts 1 at the end of the subject and else 0."""
    circuit = OneFact()
    model, neuron = one_fact_memory(circuit), Neuron(*circuit.neuron)
    model.weights()["blocks.0.mlp.W_in"][circuit.spaces["token"].start + 0, neuron.index] = 9
    tokens, mask = model.to_batch(["The Eiffel Tower is", "The Tower"], prefix="doc", side=side)
    post = model.run_with_cache(tokens, [neuron.point], mask=mask)[1][neuron.point][..., neuron.index]
    assert post[mask].max() == 8
    for texts in (1, 16):
        found = mean_coefficients(model, tokens, [neuron], mask=mask, texts=texts)
        assert found[neuron] == pytest.approx(1 / 6)
    with_it = mean_coefficients(model, tokens, [neuron], mask=mask, prefix="none")
    assert with_it[neuron] == pytest.approx(float(post[mask].mean()))
    bare, real = model.to_batch(["The Eiffel Tower is", "The Tower"], prefix="none", side=side)
    assert mean_coefficients(model, bare, [neuron], mask=real)[neuron] == pytest.approx(1 / 6)  # no text begins with it


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
    common = control_neurons(COMMON, (Neuron(1, 2, "shared"), Neuron(1, 3, 0)), 20, seed=(0, 1))
    assert {neuron.expert for each in common for neuron in each} == {"shared", 0}
    assert max(neuron.index for each in common for neuron in each if neuron.expert == "shared") > 21  # of all 26
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
