"""Composition is what dense matrices give, exact for a circuit made by hand, and near chance between random heads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, tiny
from torch import Tensor

from interp.analyses.composition import KINDS, Composition, composition
from interp.errors import UsageError
from interp.models.circuits import Head, InductionCircuit
from interp.models.config import ModelConfig
from interp.models.constructed import induction_circuit
from interp.models.processing import process
from interp.models.transformer import Transformer
from interp.results import Result

DENSE = {name: CONFIGS[name] for name in ("grouped_query", "multi_query", "layer_norm", "norm_offset", "moe_top2")}
DENSE["wide_heads"] = replace(BASE, d_model=8)
DENSE["sandwich_norm"] = CONFIGS["sandwich_norm"]


def dense(model: Transformer, sender: tuple[int, int], receiver: tuple[int, int]) -> dict[str, float]:
    """The definition, with whole matrices of one model."""

    def matrices(layer: int, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        kv_head = head // model.config.queries_per_kv
        w = [model.W_Q[layer, head], model.W_K[layer, kv_head], model.W_V[layer, kv_head], model.W_O[layer, head]]
        return tuple(each.double() for each in w)

    def share(left: Tensor, right: Tensor) -> float:
        return float((left @ right).norm() / (left.norm() * right.norm()))

    *_, w_v, w_o = matrices(*sender)
    ov = w_v @ w_o
    q, k, v, o = matrices(*receiver)
    shares = share(ov, q @ k.T), share(ov, (q @ k.T).T), share(ov, v @ o), share(ov, k), share(ov, v)
    return dict(zip(KINDS, shares, strict=True))


def check_dense(found: Composition, model: Transformer) -> None:
    """A pair of every two layers, with the last head and the first of a group among them."""
    for earlier, sender, later, receiver in ((0, 0, 1, 5), (0, 5, 2, 3), (1, 4, 2, 0)):
        for kind, value in dense(model, (earlier, sender), (later, receiver)).items():
            head = receiver // model.config.queries_per_kv if kind.endswith("input") else receiver
            assert found[kind][earlier, sender, later, head] == pytest.approx(value, abs=1e-6), kind


class TestTheDefinition:
    @pytest.mark.parametrize("config", DENSE.values(), ids=DENSE)
    def test_values_are_those_of_dense_matrices_with_norms_folded(self, config: ModelConfig) -> None:
        model = tiny(replace(config, qk_norm="none"))
        folded, _ = process(model)
        if config.norms == "sandwich":  # which processing leaves as it is
            for layer in range(config.n_layers):
                folded.W_O[layer].mul_(model.weights()[f"blocks.{layer}.ln1_post.w"])
        if config.norm == "layer":  # what it takes off, a reader does not see
            for reads in (folded.W_Q, folded.W_K, folded.W_V):
                reads.sub_(reads.mean(-2, keepdim=True))
        check_dense(composition(model), folded)

    def test_values_are_those_of_the_weights_as_they_are(self) -> None:
        for name in ("grouped_query", "post_norm"):
            model = tiny(CONFIGS[name])
            check_dense(composition(model, fold=False), model)

    def test_only_later_layers_read(self) -> None:
        found = composition(tiny())
        for kind in KINDS:
            for layer in range(3):
                for to_layer in range(3):
                    block = found[kind][layer, :, to_layer]
                    assert np.isnan(block).all() if to_layer <= layer else np.isfinite(block).all()

    def test_chosen_layers_have_the_values_that_they_have_among_all(self) -> None:
        everything, some = composition(tiny()), composition(tiny(), layers=[2, 0])
        assert some.axes["to_layer"] == (0, 2)
        for kind in KINDS:
            value = some.at(kind, layer=0, to_layer=2)
            np.testing.assert_allclose(value, everything.at(kind, layer=0, to_layer=2), rtol=1e-5)

    def test_the_model_stays_as_it_is(self) -> None:
        model = tiny()
        before = {name: weight.clone() for name, weight in model.weights().items()}
        composition(model)
        assert all(torch.equal(weight, before[name]) for name, weight in model.weights().items())

    def test_half_precision_is_computed_in_float32(self, device: str) -> None:
        model = tiny(dtype=torch.bfloat16, device=device)
        check_dense(composition(model, fold=False), model)

    def test_progress_is_told_after_every_layer(self) -> None:
        told: list[tuple[int, int]] = []
        composition(tiny(), progress=lambda done, total: told.append((done, total)))
        assert told == [(1, 3), (2, 3), (3, 3)]


class TestTheBaseline:
    def test_random_weights_score_as_random_matrices_do(self) -> None:
        """Of 540 pairs of random heads, the mean excess is within 2 % of the baseline."""
        found = composition(tiny(replace(BASE, n_kv_heads=6)), fold=False, baseline_draws=40)
        for kind in KINDS:
            baseline = float(found["input_baseline" if kind.endswith("input") else "baseline"])
            assert abs(np.nanmean(found[f"{kind}_excess"])) < 0.02 * baseline
            np.testing.assert_allclose(found[f"{kind}_excess"], found[kind] - baseline, rtol=1e-4, atol=1e-6)

    def test_it_depends_on_the_seed_alone(self) -> None:
        first, again, other = (composition(tiny(), layers=[0, 1], seed=seed) for seed in (1, 1, 2))
        assert first.identical(again)
        assert first["baseline"] != other["baseline"]
        assert float(other["baseline"]) == pytest.approx(float(first["baseline"]), rel=0.05)
        assert float(first["baseline_sd"]) > 0


class TestTheCircuitMadeByHand:
    def test_the_previous_token_head_feeds_the_keys_of_the_induction_head_and_nothing_else(self) -> None:
        """OV copies n tokens, QK matches them, and sees the separator and position 0 as 0.75 and −0.25 of each."""
        circuit = InductionCircuit(
            n_layers=3, previous=Head(0, 1), induction=Head(2, 3), words=("x", "y", "z"), n_ctx=9
        )
        found = composition(induction_circuit(circuit))
        n = len(circuit.vocabulary)
        assert found["k"][0, 1, 2, 3] == pytest.approx(1 / np.sqrt(n * (1 + 0.75**2 + 0.25**2)), abs=1e-6)
        assert np.nansum(found["k"]) == found["k"][0, 1, 2, 3]
        assert np.nansum(found["q"]) == np.nansum(found["v"]) == 0
        best = found.pairs("k", 1)
        assert best.iloc[0][["layer", "head", "to_layer", "to_head"]].tolist() == [0, 1, 2, 3]


def test_the_best_previous_token_head_feeds_the_best_induction_heads_of_the_real_model(smollm2: Transformer) -> None:
    """16.0 into 17.3, 17.4 and 18.6: four times what random matrices score, where others reach one and a half times."""
    found = composition(smollm2, layers=[11, 15, 16, 17, 18])
    baseline = float(found["baseline"])
    for receiver, place in (((17, 3), 0), ((17, 4), 0), ((18, 6), 1)):
        partners = found.pairs("k", 4, to=receiver)
        assert (partners["layer"][place], partners["head"][place]) == (16, 0)
        assert partners["k"][place] > 3 * baseline
        assert partners["k"][place + 1] < 2 * baseline


class TestTheResult:
    def test_pairs_are_in_order_and_can_be_those_of_one_receiver(self) -> None:
        found = composition(tiny(), layers=[1, 2])
        everything = found.pairs("v", 1000)
        assert len(everything) == 6 * 6
        assert everything["v"].is_monotonic_decreasing
        inputs = found.pairs("k_input", 3, to=(2, 1))
        assert list(inputs.columns) == ["layer", "head", "to_layer", "to_kv_head", "k_input", "k_input_excess"]
        assert set(zip(inputs["to_layer"], inputs["to_kv_head"], strict=True)) == {(2, 1)}
        assert inputs["k_input"][0] == found["k_input"][0, :, 1, 1].max()

    def test_figures_and_summary_say_that_rotation_is_left_out(self, tmp_path: Path) -> None:
        found = composition(tiny())
        best = found.pairs("k", 1).iloc[0]
        name = f"{best['layer']:.0f}.{best['head']:.0f} → {best['to_layer']:.0f}.{best['to_head']:.0f}"
        heatmap, bars = found.figure(), found.ranked_figure("k", 4)
        assert "rotation left out" in heatmap.layout.title.text
        assert heatmap.data[0].z.shape == (3, 3)
        assert np.nanmax(heatmap.data[0].z) == pytest.approx(best["k_excess"])
        assert np.isnan(np.tril(heatmap.data[0].z)[np.tril_indices(3)]).all()
        assert bars.data[0].customdata[0] == name
        assert name in found.summary()[2]
        assert found.summary()[-1].endswith(found.caution)
        assert Result.load(found.save(tmp_path / "composition")).identical(found)
        assert "rotation" not in composition(tiny(CONFIGS["alibi"])).figure().layout.title.text


class TestWhatIsRefused:
    def test_a_single_layer(self) -> None:
        with pytest.raises(UsageError, match="there is only layer 0"):
            composition(tiny(CONFIGS["gelu_one_layer"]))
        with pytest.raises(UsageError, match="there is only layer 2"):
            composition(tiny(), layers=2)

    def test_a_layer_that_does_not_exist(self) -> None:
        with pytest.raises(UsageError, match="3 lies outside"):
            composition(tiny(), layers=[1, 3])

    def test_a_baseline_of_one_draw(self) -> None:
        with pytest.raises(UsageError, match="baseline_draws is 1"):
            composition(tiny(), baseline_draws=1)

    def test_folding_what_stands_in_the_residual_stream(self) -> None:
        with pytest.raises(UsageError, match="stand in the residual stream itself"):
            composition(tiny(CONFIGS["post_norm"]))
