"""Activation patching: exact invariants, sources, metrics, hand-written models, published numbers, bad input."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from published import small_tokenizer
from tiny import CONFIGS, random_tokens, reference, tiny
from torch import Tensor

from interp import edits, metrics
from interp.analyses import patching
from interp.analyses.patching import Patching, plan_sweep, sweep
from interp.errors import BudgetError, PointError, UsageError
from interp.models.circuits import Head, InductionCircuit, OneFact
from interp.models.constructed import induction_circuit, one_fact_memory
from interp.models.loading import from_transformers
from interp.pair_builders import ioi
from interp.pairs import Pairs, PromptPair, align, of_texts
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

CLEAN, CORRUPTED = "of the tower of the city of", "of the city of the city of"
"""They differ at one token: position 3 behind the separator and " the"."""
ANSWER, FOIL = " tower", " city"
PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "patching_mary_john.json").read_text())


@functools.cache
def reads_text(name: str = "grouped_query") -> "Transformer":
    """A tiny model with a tokenizer of 300 tokens."""
    model = tiny(replace(CONFIGS[name], d_vocab=300))
    return from_transformers(reference(model), small_tokenizer(), device="cpu")


@functools.cache
def one_pair() -> Pairs:
    return of_texts(reads_text().tokenizer, CLEAN, CORRUPTED, ANSWER, FOIL)


def several(texts: Sequence[tuple[str, str]]) -> Pairs:
    return align(reads_text().tokenizer, [PromptPair(clean, corrupted, ANSWER, FOIL) for clean, corrupted in texts])


THREE = [
    (CLEAN, CORRUPTED),
    ("the the tower of of city of", "the of city of of tower of"),
    ("a store of the the city of", "the city of the the city a"),
]
ALIKE = (CLEAN, CLEAN)
SHORT = ("the tower of the", "the city of the")


# ------------------------------------------------------------------------------------------------ exact invariants


@pytest.mark.parametrize("direction", ["denoise", "noise"])
@pytest.mark.parametrize("shortcuts", [True, False])
def test_patching_everything_brings_everything_back(direction: str, shortcuts: bool) -> None:
    """The first layer's input at all positions or at those that differ, or what is read at the end: the other run."""
    asked = {"direction": direction, "shortcuts": shortcuts, "metric": ["logit_difference", "log_probability"]}
    pairs = several(THREE)
    differ = (pairs.clean != pairs.corrupted).any(0).nonzero()[:, 0].tolist()
    for given in (
        {"site": "resid_pre", "by": ("layer",)},
        {"site": "resid_pre", "by": ("layer",), "layers": 0, "positions": differ},
        {"site": "resid_post", "layers": -1, "positions": -1},
    ):
        found = sweep(reads_text(), pairs, **given, **asked)
        for name in asked["metric"]:
            np.testing.assert_allclose(found[f"{name}_recovered"], 1, atol=1e-4)
            np.testing.assert_allclose(found[f"{name}_recovered_each"], 1, atol=1e-3)


@pytest.mark.parametrize("shortcuts", [True, False])
def test_patching_what_does_not_differ_brings_nothing_back(shortcuts: bool) -> None:
    """Before the first token that differs, and behind the last layer anywhere but at the end."""
    found = sweep(reads_text(), one_pair(), site=["resid_pre"], positions=[0, 1, 2], shortcuts=shortcuts)
    np.testing.assert_allclose(found["logit_difference_recovered"], 0, atol=0 if shortcuts else 1e-5)
    last = sweep(reads_text(), one_pair(), site="resid_post", layers=-1, positions=slice(-1), shortcuts=shortcuts)
    np.testing.assert_allclose(last["logit_difference_recovered"], 0, atol=0 if shortcuts else 1e-5)


@pytest.mark.parametrize("site", ["resid_pre", "z", "k", "v", "pattern", "neuron", "v_by_head"])
def test_patching_a_run_with_itself_changes_no_bit(site: str) -> None:
    """Functions that look at other points are computed again, within rounding. What is recovered is no number then."""
    given = {"neurons": [1, 5]} if site == "neuron" else {}
    names = ["logit_difference", "kl_divergence"]
    found = sweep(reads_text(), several([ALIKE]), site=site, metric=names, **given)
    for name in names:
        moved = found[name] - found[f"{name}_corrupted"]
        np.testing.assert_allclose(moved, 0, atol=1e-5 if site == "v_by_head" else 0)
        for end in ("recovered", "low", "high"):
            assert np.isnan(found[f"{name}_{end}"]).all()
        assert np.isnan(found[f"{name}_recovered_each"]).all()
    assert "in 1 of them the two runs hardly differ" in "\n".join(found.summary())


# ------------------------------------------------------------------------------------------- directions and numbers


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_raw_values_are_kept_and_shares_are_ratios_of_means(direction: str) -> None:
    """All three runs by pair; the share is of the way from the base to the source, over the means of all pairs."""
    found = sweep(reads_text(), several(THREE), site="attn_out", direction=direction)
    raw, clean, corrupted = (found[f"logit_difference{end}"] for end in ("", "_clean", "_corrupted"))
    model, pairs = reads_text(), several(THREE)
    metric = metrics.logit_difference(list(pairs.answers), list(pairs.foils))
    np.testing.assert_allclose(clean, metric(model(pairs.clean)).numpy(), atol=1e-5)
    np.testing.assert_allclose(corrupted, metric(model(pairs.corrupted)).numpy(), atol=1e-5)
    base, source = (corrupted, clean) if direction == "denoise" else (clean, corrupted)
    share = (raw.mean(-1) - base.mean()) / (source.mean() - base.mean())
    np.testing.assert_allclose(found["logit_difference_recovered"], share, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        found["logit_difference_recovered_each"], (raw - base) / (source - base), rtol=1e-3, atol=1e-5
    )
    assert (share < 0).any(), "shares are not clipped"


def test_a_share_by_hand() -> None:
    """Pairs that go 3 of 4 and 0 of 2: (3 + 0) / (4 + 2), not the mean of 3/4 and 0; a third that goes nowhere."""
    base, other, patched = (np.array(each, float) for each in ([10, 5, 7], [14, 7, 7.0001], [13, 5, 8]))
    found = patching._effects("m", patched[None, :2], base[:2], other[:2], ("layer",), "denoise", 0)
    assert found["m_recovered"][0] == pytest.approx([0.5])
    assert found["m_recovered_each"][0] == pytest.approx(np.array([[0.75, 0]]))
    third = patching._effects("m", patched[None, 2:], base[2:], other[2:], ("layer",), "denoise", 0)
    assert np.isnan(third["m_recovered"][0]).all()
    assert np.isnan(third["m_recovered_each"][0]).all()
    noised = patching._effects("m", patched[None, :2], base[:2], other[:2], ("layer",), "noise", 0)
    assert noised["m_clean"][0].tolist() == [10, 5]
    assert noised["m_recovered"][0] == pytest.approx([0.5])


def test_one_pair_that_does_not_differ_leaves_the_others_their_share() -> None:
    found = sweep(reads_text(), several([*THREE, ALIKE]), site="attn_out")
    alone = sweep(reads_text(), several(THREE), site="attn_out")
    each = found["logit_difference_recovered_each"]
    assert np.isnan(each[..., 3]).all()
    np.testing.assert_allclose(each[..., :3], alone["logit_difference_recovered_each"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        found["logit_difference_recovered"], alone["logit_difference_recovered"], rtol=1e-3, atol=1e-5
    )
    assert "in 1 of them the two runs hardly differ" in "\n".join(found.summary())


@pytest.mark.parametrize("site", ["resid_pre", "z", "v_by_head"])
def test_neither_order_nor_company_nor_budget_changes_a_pair(site: str) -> None:
    pairs = several(THREE)
    whole = sweep(reads_text(), pairs, site=site)["logit_difference"]
    turned = sweep(reads_text(), pairs.select([2, 0, 1]), site=site)["logit_difference"]
    alone = [sweep(reads_text(), pairs.select([each]), site=site)["logit_difference"] for each in range(3)]
    planned = plan_sweep(reads_text(), pairs, site=site, budget=200_000)
    assert len(planned.replay.walks) > 1
    np.testing.assert_allclose(turned[..., [1, 2, 0]], whole, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(alone, -1), whole, atol=1e-5)
    np.testing.assert_allclose(planned.run()["logit_difference"], whole, atol=1e-5)


@pytest.mark.parametrize("source", ["pair", "zero"])
@pytest.mark.parametrize("site", ["resid_mid", "z", "k", "pattern", "k_by_head", "v_by_head", "neuron"])
def test_padding_changes_nothing(site: str, source: str) -> None:
    """Pairs of different lengths, side by side and alone."""
    pairs = several([SHORT, *THREE])
    assert pairs.mask is not None
    given = {"by": ("layer",)} if site == "resid_mid" else {"neurons": [1, 5]} if site == "neuron" else {}
    whole = sweep(reads_text(), pairs, site=site, source=source, **given)
    for number in range(len(pairs)):
        alone = sweep(reads_text(), pairs.select([number]), site=site, source=source, **given)
        for name in ("logit_difference", "logit_difference_recovered_each"):
            np.testing.assert_allclose(whole[name][..., number], alone[name][..., 0], rtol=1e-4, atol=2e-5)


def test_the_last_position_of_pairs_of_different_lengths_can_be_patched() -> None:
    found = sweep(reads_text(), several([SHORT, *THREE]), site="resid_post", by=("layer",), positions=-1)
    assert found["logit_difference_recovered"][-1] == pytest.approx(1, abs=1e-5)
    assert found.settings["at"]["pos"] == (7,)


# ---------------------------------------------------------------------------------------------------------- sources


def slowly(model: "Transformer", tokens: Tensor, cells: Sequence[object], mask: Tensor | None = None) -> np.ndarray:
    """The logit difference of every cell, [cell, pair], by a forward pass each."""
    answer, foil = model.to_single_token(ANSWER), model.to_single_token(FOIL)
    metric = metrics.logit_difference(answer, foil)
    return np.stack([metric(model.run_with_hooks(tokens, hooks, mask=mask)).numpy() for hooks in cells])


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_zero_takes_a_component_away(direction: str) -> None:
    model, pairs = reads_text(), several(THREE)
    found = sweep(model, pairs, site="z", source="zero", direction=direction)
    cells = [[(f"blocks.{layer}.attn.hook_z", edits.zero(heads=head))] for layer in range(3) for head in range(6)]
    slow = slowly(model, pairs.corrupted if direction == "denoise" else pairs.clean, cells)
    np.testing.assert_allclose(found["logit_difference"].reshape(18, 3), slow, atol=1e-4)


@pytest.mark.parametrize("reference", ["own", "as long", "longer"])
def test_a_mean_is_by_position_where_positions_are_the_same(reference: str) -> None:
    """Over the base run's own texts, over others of that length, and over all positions of longer ones."""
    model, pairs = reads_text(), several(THREE)
    texts = {"own": None, "as long": random_tokens(model.config, 5, 8), "longer": random_tokens(model.config, 5, 11)}
    given = texts[reference]
    _, cache = model.run_with_cache(pairs.corrupted if given is None else given, "blocks.*.attn.hook_z")
    dims = [0, 1] if reference == "longer" else [0]
    cells = [
        [(f"blocks.{layer}.attn.hook_z", edits.replace(cache["z", layer].mean(dims, True)[:, :, [head]], heads=head))]
        for layer in range(3)
        for head in range(6)
    ]
    found = sweep(model, pairs, site="z", source="mean", reference=given)
    np.testing.assert_allclose(
        found["logit_difference"].reshape(18, 3), slowly(model, pairs.corrupted, cells), atol=1e-4
    )
    assert found.settings["reference"] == (None if given is None else tuple(given.shape))


def test_padding_has_no_part_in_a_mean() -> None:
    """Over the real tokens of pairs of different lengths."""
    model, pairs = reads_text(), several([SHORT, *THREE])
    assert pairs.mask is not None
    _, cache = model.run_with_cache(pairs.corrupted, "blocks.*.hook_mlp_out", mask=pairs.mask)
    means = [cache["mlp_out", layer][pairs.mask].mean(0) for layer in range(3)]
    cells = [[(f"blocks.{layer}.hook_mlp_out", edits.replace(mean))] for layer, mean in enumerate(means)]
    found = sweep(model, pairs, site="mlp_out", by=("layer",), source="mean")
    slow = slowly(model, pairs.corrupted, cells, pairs.mask)
    np.testing.assert_allclose(found["logit_difference"], slow, atol=1e-4)


def test_resampling_takes_another_text_for_every_pair_and_never_its_own() -> None:
    model, pairs = reads_text(), several(THREE)
    _, cache = model.run_with_cache(pairs.corrupted, "blocks.*.hook_mlp_out")
    found = sweep(model, pairs, site="mlp_out", by=("layer",), source="resample", seed=4)["logit_difference"]
    by_other = {}
    for rows in ([1, 2, 0], [2, 0, 1]):
        cells = [[(f"blocks.{layer}.hook_mlp_out", edits.replace(cache["mlp_out", layer][rows]))] for layer in range(3)]
        by_other[tuple(rows)] = np.abs(slowly(model, pairs.corrupted, cells) - found).max()
    assert min(by_other.values()) < 1e-4 < max(by_other.values())
    again = sweep(model, pairs, site="mlp_out", by=("layer",), source="resample", seed=4)["logit_difference"]
    np.testing.assert_array_equal(again, found)


def test_resampling_from_a_reference() -> None:
    """A single other text takes the place of all."""
    model, pairs = reads_text(), several(THREE)
    other = random_tokens(model.config, 1, 8)
    _, cache = model.run_with_cache(other, "blocks.*.hook_mlp_out")
    found = sweep(model, pairs, site="mlp_out", by=("layer",), source="resample", reference=other)
    cells = [[(f"blocks.{layer}.hook_mlp_out", edits.replace(cache["mlp_out", layer]))] for layer in range(3)]
    np.testing.assert_allclose(found["logit_difference"], slowly(model, pairs.corrupted, cells), atol=1e-4)


@pytest.mark.parametrize("source", ["zero", "mean"])
def test_an_expert_is_taken_away_where_it_was_chosen(source: str) -> None:
    """By its mean over the tokens that chose it, or nought; what other experts write there stays."""
    config = CONFIGS["moe_top2"]
    model, clean, corrupted = tiny(config), *(random_tokens(config, 2, 6, seed=seed) for seed in (1, 5))
    out, chosen = "blocks.1.mlp.hook_expert_out", "blocks.1.mlp.hook_expert_indices"
    _, cache = model.run_with_cache(corrupted, [out, chosen])
    found = sweep(model, clean, corrupted, site="expert", metric=metrics.logit(3), source=source, layers=1)
    for expert in range(7):
        here = cache[chosen] == expert
        new = cache[out].clone()
        if here.any():
            new[here] = 0 if source == "zero" else cache[out][here].mean(0)
        slow = metrics.logit(3)(model.run_with_hooks(corrupted, [(out, edits.replace(new))]))
        np.testing.assert_allclose(found.at("logit", layer=1, expert=expert), slow.numpy(), atol=1e-4)
    assert np.abs(found["logit"] - found["logit_corrupted"]).max() > 1e-2


def test_an_expert_that_the_reference_never_chose_stays_as_it_is() -> None:
    """A reference of two tokens chooses at most four experts of seven: only those have a mean."""
    config = CONFIGS["moe_top2"]
    model, clean, corrupted = tiny(config), *(random_tokens(config, 2, 6, seed=seed) for seed in (1, 5))
    reference = corrupted[:1, :2]
    _, cache = model.run_with_cache(reference, "blocks.1.mlp.hook_expert_indices")
    asked = {"site": "expert", "metric": metrics.logit(3), "source": "mean", "reference": reference, "layers": 1}
    found = sweep(model, clean, corrupted, **asked)
    moved = np.abs(found["logit"][0] - found["logit_corrupted"]).max(-1) > 1e-4
    assert moved.any()
    assert set(np.flatnonzero(moved)) <= set(cache["expert_indices", 1].flatten().tolist())


def test_what_has_no_mean_is_refused() -> None:
    model, pairs = reads_text(), several(THREE)
    longer = random_tokens(model.config, 5, 11)
    for site in ("pattern", "scores", "k_by_head"):
        with pytest.raises(UsageError, match="is by position: give texts of the pairs' length"):
            plan_sweep(model, pairs, site=site, source="mean", reference=longer)


# ---------------------------------------------------------------------------------------------------------- metrics


def test_named_metrics_take_the_pairs_own_answers() -> None:
    """All of them in one sweep; the divergence is from the clean run, whichever run is edited."""
    model, pairs = reads_text(), several(THREE)
    answers, foils = list(pairs.answers), list(pairs.foils)
    clean = model(pairs.clean)
    expected = {
        "logit_difference": metrics.logit_difference(answers, foils),
        "logit": metrics.logit(answers),
        "probability": metrics.probability(answers),
        "log_probability": metrics.log_probability(answers),
        "rank": metrics.rank(answers),
        "loss": metrics.loss(torch.tensor(answers)[:, None]),
        "kl_divergence": metrics.kl_divergence(clean[:, -1]),
    }
    for direction in ("denoise", "noise"):
        found = sweep(model, pairs, site="attn_out", by=("layer",), metric=list(expected), direction=direction)
        assert tuple(found.settings["metrics"]) == tuple(expected)
        for name, metric in expected.items():
            np.testing.assert_allclose(found[f"{name}_clean"], metric(clean[:, -1:]).numpy(), atol=1e-4)
            np.testing.assert_allclose(found[f"{name}_corrupted"], metric(model(pairs.corrupted)[:, -1:]), atol=1e-4)
            assert found[name].shape == (3, 3)
        np.testing.assert_allclose(found["loss"], -found["log_probability"], atol=1e-5)


def test_a_function_of_ones_own_is_a_metric() -> None:
    def spread(logits: Tensor) -> Tensor:
        return logits[:, -1].std(-1)

    found = sweep(reads_text(), one_pair(), site="attn_out", metric=spread)
    named = sweep(reads_text(), one_pair(), site="attn_out", metric={"wide": spread})
    np.testing.assert_array_equal(found["spread"], named["wide"])


# ---------------------------------------------------------------------------------------------- hand-written models


def test_the_written_heads_and_no_others_are_found_in_an_induction_circuit() -> None:
    """`previous` writes at the position behind the first A, `induction` at the end: nothing else brings B back."""
    circuit = InductionCircuit()
    model = induction_circuit(circuit)
    pairs = of_texts(model.tokenizer, "a b c a", "d b c a", " b", " c")
    position = circuit.keys(pairs.clean[0].tolist())[0]
    found = sweep(model, pairs, site="z", by=("layer", "head", "pos"))
    expected = np.zeros((2, 4, 5))
    expected[*circuit.previous, position] = 1
    expected[*circuit.induction, -1] = 1
    np.testing.assert_array_equal(found["logit_difference_recovered"], expected)
    stream = sweep(model, pairs, site="resid_pre")["logit_difference_recovered"]
    assert [tuple(cell) for cell in np.argwhere(stream == 1)] == [(0, position - 1), (1, position)]
    assert (stream[stream != 1] == 0).all()


def test_a_head_that_lowers_the_answer_shows_as_negative() -> None:
    """16 written, 4 taken away: of the way of 12 the one head goes 16/12 and the other −4/12. No share is clipped."""
    circuit = InductionCircuit(suppressor=Head(1, 3))
    model = induction_circuit(circuit)
    pairs = of_texts(model.tokenizer, "a b c a", "d b c a", " b", " c")
    found = sweep(model, pairs, site="z")["logit_difference_recovered"]
    assert found[1, 2] == pytest.approx(16 / 12)
    assert found[1, 3] == pytest.approx(-4 / 12)
    assert np.count_nonzero(found) == 3


def test_the_written_neuron_and_its_reader_are_found_in_a_memory_of_one_fact() -> None:
    """Another subject: its neuron at the subject's end, then the extractor at the relation."""
    circuit = OneFact()
    model = one_fact_memory(circuit)
    pairs = of_texts(model.tokenizer, "The Eiffel Tower is in", "The Space Needle is in", " Paris", " Seattle")
    [end] = circuit.subject_ends(pairs.clean[0].tolist())
    neurons = sweep(model, pairs, site="neuron", by=("layer", "neuron", "pos"))["logit_difference_recovered"]
    assert [tuple(cell) for cell in np.argwhere(neurons)] == [(*circuit.neuron, end)]
    assert neurons.max() == 1
    heads = sweep(model, pairs, site="z", by=("layer", "head", "pos"))["logit_difference_recovered"]
    assert [tuple(cell) for cell in np.argwhere(heads)] == [(*circuit.extractor, pairs.clean.shape[1] - 1)]


# ------------------------------------------------------------------------------------------------- the default model


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("site", ["resid_pre", "z"])
def test_sweeps_of_the_default_model_are_the_published_ones(smollm2: "Transformer", site: str) -> None:
    """Every cell of Mary and John, by `transformers`, within 1e-4; those of three layers by full forward passes too."""
    told = PUBLISHED
    texts = (told[name] for name in ("clean", "corrupted", "answer", "foil"))
    pair = of_texts(smollm2.tokenizer, *texts, prefix=told["prefix"])
    found = sweep(smollm2, pair, site=site)
    np.testing.assert_allclose(found["logit_difference"][..., 0], told[site], rtol=0, atol=1e-4)
    some = [0, 12, 23]
    slow = sweep(smollm2, pair, site=site, layers=some, shortcuts=False)
    np.testing.assert_allclose(slow["logit_difference"][..., 0], np.array(told[site])[some], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_names_are_told_apart_early_at_the_second_subject_and_late_at_the_end(smollm2: "Transformer") -> None:
    """Mean over 24 pairs of one template: what is known at S2 in early layers is at END in late ones."""
    made = [pair for pair in ioi(smollm2.tokenizer, n=500, seed=0) if pair.group == "ABB 0"][:24]
    pairs = align(smollm2.tokenizer, made)
    [second], [end] = ({*pairs.roles[role]} for role in ("S2", "END"))
    found = sweep(smollm2, pairs, site="resid_pre", positions=[second, end], layers=[0, 9, 18, 25, 29])
    low, share, high = (found[f"logit_difference_{name}"] for name in ("low", "recovered", "high"))
    at_second, at_end = share.T
    assert len(pairs) == 24
    assert found["logit_difference_clean"].mean() > 3
    assert found["logit_difference_corrupted"].mean() < -3
    assert (at_second[:3] > 0.95).all()
    assert (at_end[:3] < 0.05).all()
    assert (at_second[3:] < 0.05).all()
    assert (at_end[3:] > 0.85).all()
    assert (high - low).max() < 0.1


# ----------------------------------------------------------------------------------------------------------- results


@pytest.fixture(scope="module")
def found() -> Patching:
    """All positions and layers of three pairs, two metrics."""
    return sweep(reads_text(), several(THREE), site="resid_pre", metric=["logit_difference", "rank"], seed=2)


def test_the_saved_copy_is_the_same(found: Patching, tmp_path: Path) -> None:
    found.save(tmp_path / "found")
    loaded = Patching.load(tmp_path / "found")
    assert loaded.identical(found)
    assert loaded.summary() == found.summary()
    assert isinstance(Result.load(tmp_path / "found"), Patching)


def test_tables_have_a_row_for_every_cell_and_for_every_pair_of_it(found: Patching) -> None:
    frame = found.to_frame()
    assert len(frame) == 3 * 8
    for name in ("logit_difference", "rank"):
        assert {f"{name}_recovered", f"{name}_low", f"{name}_high"} <= set(frame.columns)
    by_pair = found.to_frame((*found.over, "pair"))
    assert len(by_pair) == 3 * 8 * 3
    assert {"logit_difference", "logit_difference_clean", "logit_difference_recovered_each"} <= set(by_pair.columns)
    moved = found.ranked(24)["logit_difference_recovered"].abs().to_numpy()
    assert (np.diff(moved) <= 0).all()


def test_intervals_surround_the_share(found: Patching) -> None:
    """Where all pairs agree exactly the interval is a point; elsewhere the share lies inside."""
    low, share, high = (found[f"logit_difference_{name}"] for name in ("low", "recovered", "high"))
    assert (low <= share + 1e-9).all()
    assert (share <= high + 1e-9).all()
    assert (low[:, 3] < high[:, 3]).any()
    again = sweep(reads_text(), several(THREE), site="resid_pre", seed=2)
    np.testing.assert_array_equal(again["logit_difference_low"], low)
    one = sweep(reads_text(), one_pair(), site="resid_pre")
    assert np.isnan(one["logit_difference_low"]).all(), "a single pair says nothing of the spread"


def test_every_choice_that_changes_what_is_found_is_told(found: Patching) -> None:
    told = found.settings
    assert (told["sites"], told["by"]) == (("resid_pre",), ("layer", "pos"))
    assert (told["direction"], told["source"], told["window"]) == ("denoise", "pair", 1)
    assert told["metrics"] == ("logit_difference", "rank")
    assert (told["answer"], told["foil"]) == ((ANSWER,) * 3, (FOIL,) * 3)
    assert (found.provenance["prefix"], found.provenance["seed"]) == ("doc", 2)
    narrow = sweep(reads_text(), one_pair(), site="z", positions=-1, layers=[2, 0], window=2)
    assert narrow.settings["at"]["pos"] == (7,)
    assert narrow.settings["window"] == 2
    assert narrow.axes["layer"] == (2, 0)


def test_tokens_stand_at_their_positions(found: Patching) -> None:
    model = reads_text()
    expected = model.tokenizer.str_tokens(several(THREE).corrupted[0].tolist())
    assert found["token"].tolist() == expected
    edges = sweep(model, one_pair(), site="pattern", by=("query_pos", "key_pos"), layers=1, positions=[5, 2])
    base = model.tokenizer.str_tokens(one_pair().corrupted[0].tolist())
    assert edges["query_token"].tolist() == [base[5], base[2]]
    assert edges["key_token"].tolist() == base


@pytest.mark.parametrize("by", [("layer", "pos"), ("layer",), ("pos", "layer")])
def test_figures_show_the_shares(by: tuple[str, ...]) -> None:
    found = sweep(reads_text(), one_pair(), site="attn_out", by=by)
    [heatmap] = found.figure().data
    np.testing.assert_array_equal(np.array(heatmap.z).ravel(), found["logit_difference_recovered"].ravel())


def test_a_sweep_says_what_it_will_cost_and_how_far_it_is() -> None:
    planned = plan_sweep(reads_text(), several(THREE), site="resid_pre")
    told: list[tuple[int, int]] = []
    planned.run(progress=lambda done, total: told.append((done, total)))
    cost = planned.cost()
    assert 0 < cost.flops < cost.full_flops
    assert told[-1] == (cost.rows, cost.rows)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"site": "resid"}, UsageError, "no site 'resid'.*resid_pre"),
        ({"site": []}, UsageError, "at least one"),
        ({"site": ["z", "z"]}, UsageError, "once each"),
        ({"site": "z", "by": ("layer", "pos", "layer")}, UsageError, "each once"),
        ({"site": "z", "by": ("layer", "kv_head")}, UsageError, r"some of \['layer', 'head', 'pos'\]"),
        ({"site": "k", "by": ("layer", "head")}, UsageError, r"some of \['layer', 'kv_head', 'pos'\]"),
        ({"site": "z", "by": ()}, UsageError, "runs over some of"),
        ({"site": "z", "layers": 3}, UsageError, "axis layer, 3 lies outside; there are 0 to 2"),
        ({"site": "z", "heads": 6}, UsageError, "axis head, 6 lies outside; there are 0 to 5"),
        ({"site": "k", "heads": 2}, UsageError, "axis kv_head, 2 lies outside; there are 0 to 1"),
        ({"site": "z", "positions": 8}, UsageError, "axis pos, 8 lies outside"),
        ({"site": "neuron", "neurons": [44]}, UsageError, "axis neuron, 44 lies outside; there are 0 to 43"),
        ({"site": "z", "neurons": [1]}, UsageError, "no axis for `neurons`"),
        ({"site": "resid_pre", "heads": 1}, UsageError, "no axis for `heads`"),
        ({"site": "z", "heads": [1, 1]}, UsageError, r"each place of the axis head once, not \[1, 1\]"),
        ({"site": "z", "heads": [-1, 5]}, UsageError, r"axis head once, not \[5, 5\]"),
        ({"site": "z", "heads": []}, UsageError, "nothing is selected"),
        ({"site": "router"}, PointError, "cannot exist here"),
        ({"site": "expert"}, PointError, "cannot exist here"),
        ({"site": "z", "window": 0}, UsageError, "window is 0"),
        ({"site": "z", "window": 2.0}, UsageError, "window is 2.0"),
        ({"site": "embed", "window": 2}, UsageError, "in a sweep over layers"),
        ({"site": "z", "source": "other"}, UsageError, "source is 'other'; expected one of pair, zero"),
        ({"site": "z", "direction": "up"}, UsageError, "direction is 'up'"),
        ({"site": "z", "source": "zero", "reference": torch.ones(1, 8).long()}, UsageError, "takes none"),
        ({"site": "z", "source": "resample"}, UsageError, "needs other texts than the pair's own; 1 came"),
        ({"site": "z", "renormalise": True}, UsageError, "where single edges of a pattern are patched"),
        ({"site": "pattern", "renormalise": True}, UsageError, "or name `keys`"),
        ({"site": "scores", "keys": 1, "renormalise": True}, UsageError, "choose the site pattern"),
        ({"site": "z", "metric": "logit_diference"}, UsageError, "Did you mean 'logit_difference'"),
        ({"site": "z", "metric": []}, UsageError, "no metric"),
        ({"site": "z", "metric": 3}, UsageError, "not 3"),
        ({"site": "z", "metric": {"mine": "probability"}}, UsageError, "'mine' is 'probability'; a function"),
        ({"site": "z", "metric": {"mine": lambda logits: logits}}, UsageError, r"'mine' gave \(1, 1, 300\)"),
        ({"site": "z", "metric": {"mine": lambda logits: 3.0}}, UsageError, "'mine' gave float"),
        ({"site": "z", "budget": 1000}, BudgetError, r"[\d,]+ bytes .*budget is 1,000"),
        ({"site": "z", "budget": 20_000}, BudgetError, "One cell of the sweep.*budget is 20,000"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_what_cannot_be_patched_is_refused(given: dict[str, object], error: type[UsageError], says: str) -> None:
    with pytest.raises(error, match=says):
        plan_sweep(reads_text(), one_pair(), **given)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("parallel", {"site": "resid_mid"}, "cannot exist here: .*parallel"),
        ("moe_top2", {"site": "neuron"}, "neurons of layer 0 belong to experts"),
        ("moe_mixed_layers", {"site": "neuron", "layers": [0, 1]}, "neurons of layer 1 belong to experts"),
        ("moe_mixed_layers", {"site": "router", "layers": [0]}, "blocks.0.mlp.hook_router' cannot exist here"),
        ("moe_top2", {"site": "expert", "experts": [7]}, "axis expert, 7 lies outside; there are 0 to 6"),
    ],
)
def test_a_site_that_the_model_lacks_is_refused_with_the_reason(name: str, given: dict[str, object], says: str) -> None:
    model = tiny(CONFIGS[name])
    clean, corrupted = (random_tokens(model.config, 1, 5, seed=seed) for seed in (1, 2))
    with pytest.raises(UsageError, match=says):
        plan_sweep(model, clean, corrupted, metric=metrics.logit(3), **given)


def test_layers_that_lack_a_site_are_left_out() -> None:
    """Only layer 1 of 3 has experts, and only the others have neurons of their own; a window keeps to them."""
    model = tiny(CONFIGS["moe_mixed_layers"])
    clean, corrupted = (random_tokens(model.config, 1, 5, seed=seed) for seed in (1, 2))
    for site, layers, given in (("router", (1,), {}), ("neuron", (0, 2), {"neurons": [3]})):
        found = sweep(model, clean, corrupted, site=site, metric=metrics.logit(3), window=3, **given)
        assert found.axes["layer"] == layers


@pytest.mark.usefixtures("shapes_unchecked")
def test_prompts_that_do_not_fit_each_other_are_refused() -> None:
    model, metric = reads_text(), metrics.logit(3)
    with pytest.raises(UsageError, match=r"from position 2 on they are \[' tower'\] and \[' city', ' of'\]"):
        plan_sweep(model, "of the tower", "of the city of", site="z", metric=metric, prefix="none")
    with pytest.raises(UsageError, match="from position 2 on they are"):
        of_texts(model.tokenizer, "of the tower", "of the city of", ANSWER, FOIL, prefix="none")
    two, one = (random_tokens(model.config, count, 5) for count in (2, 1))
    with pytest.raises(UsageError, match=r"shapes \(2, 5\) and \(1, 5\)"):
        plan_sweep(model, two, one, site="z", metric=metric)
    with pytest.raises(UsageError, match="give `corrupted` too"):
        plan_sweep(model, CLEAN, site="z", metric=metric)
    with pytest.raises(UsageError, match="leave `corrupted` out"):
        plan_sweep(model, one_pair(), CORRUPTED, site="z")
    with pytest.raises(UsageError, match="not list; several texts"):
        plan_sweep(model, [CLEAN], [CORRUPTED], site="z", metric=metric)


def test_answers_that_a_metric_needs_are_asked_for() -> None:
    model = reads_text()
    with pytest.raises(UsageError, match="needs answers: give pairs"):
        plan_sweep(model, CLEAN, CORRUPTED, site="z")
    without = of_texts(model.tokenizer, CLEAN, CORRUPTED, ANSWER)
    with pytest.raises(UsageError, match="needs a foil"):
        plan_sweep(model, without, site="z")
    assert sweep(model, without, site="z", metric="logit").settings["foil"] is None
    with pytest.raises(UsageError, match="' tower of' is 2 tokens"):
        of_texts(model.tokenizer, CLEAN, CORRUPTED, " tower of")


def test_positions_of_pairs_of_different_lengths_are_no_axis() -> None:
    with pytest.raises(UsageError, match="not one place in all of them"):
        plan_sweep(reads_text(), several([SHORT, *THREE]), site="resid_pre")
    with pytest.raises(UsageError, match="Position 1 is padding in some pair"):
        plan_sweep(reads_text(), several([SHORT, *THREE]), site="z", positions=[1, -1])


@pytest.mark.parametrize("name", ["token", "layer", "pair", "b"])
def test_a_metric_may_not_take_the_name_of_another_array(name: str) -> None:
    own = {name: metrics.logit(3), "b_clean": metrics.logit(4)}
    with pytest.raises(UsageError, match=f"name '{name}.*' would stand for two things"):
        plan_sweep(reads_text(), one_pair(), site="resid_pre", metric=own)
