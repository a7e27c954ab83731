"""Heads taken away: exact on a circuit written by hand, by the definition on a random model, causes on the real one."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, tiny

from interp.analyses import ablation_sweeps
from interp.analyses.components import Component
from interp.analyses.documents import Document, bundled
from interp.analyses.head_ablation import LENT, TOGETHER, HeadAblation, ablate_heads
from interp.analyses.in_context import documents_as_tokens
from interp.errors import BudgetError, UsageError
from interp.models.circuits import Head, InductionCircuit
from interp.models.constructed import induction_circuit
from interp.models.replay import Replay
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

MODEL = tiny()
HEADS = [(2, 1), (1, 4), (1, 5)]
SHORT = {"seq_len": 6, "repeats": 3, "n_seqs": 4, "controls": 2, "seed": 3, "prefix": "none"}
LETTERS = InductionCircuit().words
WORDS = len(LETTERS) + 2  # a separator and an unknown word
STRENGTH = InductionCircuit().strength


@pytest.fixture(scope="module")
def found() -> HeadAblation:
    return ablate_heads(MODEL, HEADS, **SHORT)


def loss_without(tokens: np.ndarray, heads: str, method: str = "mean") -> torch.Tensor:
    """Loss [repeat, text] from full logits, with heads and patterns edited by hooks of its own."""
    ids = torch.tensor(tokens)
    _, clean = MODEL.run_with_cache(ids)
    taken = [tuple(map(int, name.split("."))) for name in heads.split(", ") if name]

    def replace(z: torch.Tensor, layer: int) -> torch.Tensor:
        edited = z.clone()
        for head in [head for where, head in taken if where == layer]:
            edited[:, :, head] = clean["z", layer][:, :, head].mean(0) if method == "mean" else 0
        return edited

    hooks = [
        (f"blocks.{layer}.attn.hook_z", lambda z, _, layer=layer: replace(z, layer)) for layer in range(BASE.n_layers)
    ]
    if method == "pattern_preserving":
        hooks += [
            (f"blocks.{layer}.attn.hook_pattern", lambda _, __, layer=layer: clean["pattern", layer].clone())
            for layer in range(BASE.n_layers)
        ]
    losses = -MODEL.run_with_hooks(ids, hooks).log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return torch.stack([losses[:, start : start + 5].mean(1) for start in (0, 6, 12)])


class TestOnARandomModel:
    @pytest.mark.parametrize("method", ["mean", "zero", "pattern_preserving"])
    def test_every_loss_is_that_of_a_forward_pass(self, method: str) -> None:
        found = ablate_heads(MODEL, HEADS, **SHORT, method=method)
        tokens = found["tokens"]
        np.testing.assert_allclose(found["nll_base"], loss_without(tokens, ""), atol=1e-5)
        for place, heads in enumerate(found["components"]):
            np.testing.assert_allclose(found["nll"][place], loss_without(tokens, heads, method), atol=2e-5)
            for draw, others in enumerate(found["control_components"][place]):
                expected = loss_without(tokens, others, method)
                np.testing.assert_allclose(found["nll_control"][place, draw], expected, atol=2e-5)

    def test_effects_are_means_over_texts_less_those_with_all_heads(self, found: HeadAblation) -> None:
        effect = (found["nll"] - found["nll_base"]).mean(-1)
        np.testing.assert_allclose(found["nll_effect"], effect)
        controls = (found["nll_control"] - found["nll_base"]).mean(-1)
        np.testing.assert_allclose(found["nll_control_mean"], controls.mean(1))
        np.testing.assert_allclose(found["nll_control_std"], controls.std(1, ddof=1))
        np.testing.assert_allclose(found["nll_deviations"], (effect - controls.mean(1)) / controls.std(1, ddof=1))
        assert (found["nll_low"] < effect).all()
        assert (found["nll_high"] > effect).all()

    def test_heads_are_taken_away_one_by_one_and_together(self, found: HeadAblation) -> None:
        assert found.axes["removed"] == ("2.1", "1.4", "1.5", TOGETHER)
        assert list(found["components"]) == ["2.1", "1.4", "1.5", "2.1, 1.4, 1.5"]
        at_once = ablate_heads(MODEL, HEADS, **SHORT, alone=False)
        assert at_once.axes["removed"] == (TOGETHER,)
        np.testing.assert_allclose(at_once["nll"][0], found["nll"][3], atol=1e-5)

    def test_a_head_has_three_names(self) -> None:
        named = [Head(2, 1), "1.4", Component("head", 1, 5)]
        assert ablate_heads(MODEL, named, **SHORT).identical(ablate_heads(MODEL, HEADS, **SHORT))

    @pytest.mark.parametrize("method", ["mean", "resample", "zero", "pattern_preserving"])
    def test_batches_change_nothing(self, method: str, batches: list[int]) -> None:
        whole = ablate_heads(MODEL, HEADS, **SHORT, method=method)
        assert batches == [4]
        parts = ablate_heads(MODEL, HEADS, **SHORT, method=method, budget=170_000)
        assert batches == [4, 2, 2]
        np.testing.assert_allclose(parts["nll"], whole["nll"], atol=1e-5)
        np.testing.assert_allclose(parts["nll_control"], whole["nll_control"], atol=1e-5)

    def test_what_does_not_fit_text_by_text_is_refused_with_the_figure(self) -> None:
        with pytest.raises(BudgetError, match="the budget is"):
            ablate_heads(MODEL, HEADS, **SHORT, budget=20_000)

    def test_texts_leave_out_what_is_to_be_left_out(self) -> None:
        settings = {"seq_len": 6, "n_seqs": 2, "controls": 1, "prefix": "none"}
        found = ablate_heads(tiny(), ["1.4"], exclude_most=50, counts=-np.arange(67.0) + 67, **settings)
        assert found["tokens"].min() >= 50
        assert found.settings["exclude_most"] == 50

    def test_progress_counts_the_texts_of_all_runs(self) -> None:
        seen: list[tuple[int, int]] = []
        ablate_heads(MODEL, HEADS, **SHORT, budget=170_000, progress=lambda *at: seen.append(at))
        assert seen[-1] == (4 * 3 * 4, 4 * 3 * 4)
        assert seen == sorted(set(seen))

    def test_the_table_the_figure_and_the_saved_copy_hold(self, found: HeadAblation, tmp_path: Path) -> None:
        frame = found.to_frame()
        assert list(frame["repeat"][:4]) == [1, 2, 3, 1]
        assert {"components", "nll_effect", "nll_control_mean", "nll_low"} <= set(frame.columns)
        assert list(found.figure().data[0].x) == list(found["nll_effect"][:, -1])
        assert list(found.figure(repeat=1).data[1].x) == list(found["nll_control_mean"][:, 0])
        [line] = [line for line in found.summary() if line.split()[0] == "2.1"]
        assert f"{found['nll_effect'][0, -1]:+.3f} [" in line
        assert "(2 random sets)" in line
        found.save(tmp_path / "found")
        assert Result.load(tmp_path / "found").identical(found)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many texts each sweep had."""
    seen: list[int] = []

    class Watched(Replay):
        def run(self, **how: object) -> object:
            seen.append(self.base.batch)
            return super().run(**how)

    monkeypatch.setattr(ablation_sweeps, "Replay", Watched)
    return seen


class TestControls:
    def test_they_are_different_heads_of_the_same_layers_and_none_is_tested(self) -> None:
        found = ablate_heads(MODEL, ["1.0", "1.3", "2.5"], **{**SHORT, "controls": 20})
        tested = {"1.0", "1.3", "2.5"}
        for heads, controls, count in zip(
            found["components"], found["control_components"], found["controls"], strict=True
        ):
            drawn = [each.split(", ") for each in controls if each]
            assert len({frozenset(each) for each in drawn}) == len(drawn) == count
            for each in drawn:
                assert not set(each) & tested
                assert sorted(name[0] for name in each) == sorted(name[0] for name in heads.split(", "))

    def test_where_fewer_exist_there_are_all_and_the_number_is_stated(self) -> None:
        found = ablate_heads(MODEL, ["1.0", "1.3"], **{**SHORT, "controls": 20})
        assert list(found["controls"]) == [4, 4, 6]  # of six heads two are tested: 4, and 4 over 2
        assert found["controls_are_all"].all()
        assert "(all 4 that exist)" in found.summary()[2]
        assert "(all 6 that exist)" in found.summary()[4]
        some = ablate_heads(MODEL, ["1.0", "1.3"], **{**SHORT, "controls": 5})
        assert list(some["controls_are_all"]) == [True, True, False]
        assert "(5 random sets)" in some.summary()[4]

    def test_a_layer_whose_heads_are_all_tested_has_none(self) -> None:
        found = ablate_heads(MODEL, [(0, head) for head in range(6)], **{**SHORT, "controls": 3})
        assert not found["controls"].any()
        assert np.isnan(found["nll_control_mean"]).all()
        assert "controls none (all 0 that exist)" in found.summary()[2]


def by_hand(method: str, tokens: np.ndarray, columns: slice) -> np.ndarray:
    """What the second repeat costs without the induction head, from what two texts say next, [text]."""
    following = tokens[:, columns.start + 1 : columns.stop + 1]
    same = following[0] == following[1]
    certain = math.log1p((WORDS - 1) * math.exp(-STRENGTH))
    if method in ("zero", "pattern_preserving"):
        losses = np.full(following.shape, math.log(WORDS))
    elif method == "mean":  # each text's word gets half of the strength
        half = math.exp(STRENGTH / 2)
        losses = np.where(same, certain, math.log(2 * half + WORDS - 2) - STRENGTH / 2)[None].repeat(2, 0)
    else:  # the other text's word is said
        losses = np.where(same, certain, certain + STRENGTH)[None].repeat(2, 0)
    return losses.mean(1) - certain


class TestOnACircuitWrittenByHand:
    @pytest.mark.parametrize("method", ["mean", "resample", "zero", "pattern_preserving"])
    def test_the_second_repeat_costs_what_is_known_beforehand_and_the_first_nothing(self, method: str) -> None:
        found = ablate_heads(induction_circuit(), ["1.2"], seq_len=12, n_seqs=2, method=method)
        expected = by_hand(method, found["tokens"], slice(1 + 12, 1 + 24 - 1))
        np.testing.assert_allclose(found["nll"][0, 1] - found["nll_base"][1], expected, atol=1e-4)
        np.testing.assert_array_equal(found["nll"][0, 0], found["nll_base"][0])
        np.testing.assert_array_equal(found["nll_control_effect"], 0)
        assert found["controls"][0] == 3

    def test_a_head_that_only_makes_others_look_costs_nothing_where_patterns_are_preserved(self) -> None:
        lost, kept = (
            ablate_heads(induction_circuit(), ["0.1"], seq_len=12, n_seqs=2, controls=0, method=method)
            for method in ("zero", "pattern_preserving")
        )
        assert lost["nll_effect"][0, 1] == pytest.approx(math.log(WORDS), abs=1e-4)
        np.testing.assert_array_equal(kept["nll_effect"], 0)

    def test_the_in_context_score_is_lost_with_the_head_that_looks_back(self) -> None:
        model, generator = induction_circuit(InductionCircuit(n_ctx=520)), np.random.default_rng(0)
        texts = [" ".join(generator.choice(LETTERS, 515)) for _ in range(3)]
        documents = [Document(str(number), text) for number, text in enumerate(texts)]
        found = ablate_heads(model, ["1.2"], seq_len=4, n_seqs=2, controls=1, method="zero", documents=documents)
        tokens = model.to_tokens(texts, prefix="doc")
        losses = -model(tokens).log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
        score = losses[:, 499] - losses[:, 49]  # behind the separator, tokens are counted from 1
        assert found.axes["document"] == ("0", "1", "2")
        np.testing.assert_allclose(found["in_context_base"], score, atol=1e-4)
        assert score.abs().min() > 0.01
        np.testing.assert_allclose(found["in_context"][0], 0, atol=1e-6)  # all words are as likely then
        np.testing.assert_array_equal(found["in_context_control_effect"], 0)
        stated = f"in-context score, 3 documents: {float(score.mean()):+.3f} with all heads"
        assert any(stated in line for line in found.summary())
        assert list(found.figure("in_context").data[0].x) == list(found["in_context_effect"])
        asked = {"controls": 1, "method": "zero", "documents": documents}
        alone = ablate_heads(model, ["1.2"], **asked, random_texts=False)
        np.testing.assert_array_equal(alone["in_context"], found["in_context"])
        assert "nll" not in alone
        assert len(alone.to_frame()) == 1
        assert set(alone.summary()) < {"Heads taken away (zero): effects in nats a token", *found.summary()}
        assert list(alone.figure().data[0].x) == list(found["in_context_effect"])

    @pytest.mark.parametrize("method", ["mean", "resample"])
    def test_bundled_documents_lend_a_single_one_what_takes_a_heads_place(self, method: str) -> None:
        model = induction_circuit(InductionCircuit(n_ctx=520))
        mine = Document("mine", " ".join(np.random.default_rng(1).choice(LETTERS, 515)))
        asked = {"seq_len": 4, "n_seqs": 2, "controls": 1, "method": method}
        found = ablate_heads(model, ["1.2"], documents=[mine], **asked)
        others = documents_as_tokens(model, bundled()[:LENT], length=500, prefix="doc")
        lent = model.run_with_cache(others, ["blocks.1.attn.hook_z"])[1]["z", 1][:, :, 2]
        ids = documents_as_tokens(model, [mine], length=500, prefix="doc")

        def score(new: torch.Tensor) -> float:
            def replace(z: torch.Tensor, _: object) -> torch.Tensor:
                return torch.cat([z[:, :, :2], new.expand(1, -1, -1)[:, :, None], z[:, :, 3:]], 2)

            logits = model.run_with_hooks(ids, [("blocks.1.attn.hook_z", replace)])
            losses = -logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
            return float(losses[499] - losses[49])

        possible = [score(lent.mean(0))] if method == "mean" else [score(each) for each in lent]
        assert min(abs(found["in_context"][0, 0] - each) for each in possible) < 1e-4
        assert found.settings["lenders"] == tuple(each.name for each in bundled()[:LENT])
        assert "1 document (heads replaced from 8 bundled ones)" in "".join(found.summary())


@pytest.mark.parametrize(
    ("heads", "settings", "message"),
    [
        ([(3, 0)], {}, "layers go from 0 to 2"),
        (["0.6"], {}, "an index from 0 to 5"),
        ([(0, -1)], {}, "an index from 0 to 5"),
        ([(0, 1, 2)], {}, "a layer and an index"),
        ([(1.7, 0)], {}, "a layer and an index"),
        ([("a", "b")], {}, "a layer and an index"),
        (["0.1"], {"n_seqs": 4.0}, "n_seqs is 4.0; expected a whole number"),
        (["0.1", (0, 1)], {}, "each once"),
        ([], {}, "each once"),
        ("0.1", {}, "A list of components"),
        (["mlp 1"], {}, "'mlp 1' is none"),
        (["0.1"], {"controls": -1}, "controls=-1"),
        (["0.1"], {"n_seqs": 1}, "n_seqs ≥ 2"),
        (["0.1"], {"method": "median"}, "method='median'"),
        (["0.1"], {"random_texts": False}, "nothing to read"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_what_cannot_be_taken_away_is_refused(heads: object, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ablate_heads(MODEL, heads, **{**SHORT, **settings})


def test_one_text_is_enough_where_no_other_takes_the_heads_place() -> None:
    found = ablate_heads(MODEL, ["0.1"], **{**SHORT, "n_seqs": 1}, method="zero")
    assert np.isnan(found["nll_low"]).all()
    assert " [" not in found.summary()[2]


def test_a_document_that_is_too_short_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'note' has 3 tokens, 512 are needed"):
        ablate_heads(
            induction_circuit(InductionCircuit(n_ctx=520)), ["1.2"], seq_len=4, documents=[Document("note", "a b c")]
        )


def test_the_best_induction_heads_of_the_real_model_are_causes_and_others_are_not(smollm2: "Transformer") -> None:
    best = ["18.6", "17.3", "17.4", "17.5", "18.7"]
    found = ablate_heads(smollm2, best, alone=False, n_seqs=4, seq_len=20)
    assert found["controls"][0] == 20
    later, first = float(found["nll_effect"][0, 1]), float(found["nll_effect"][0, 0])
    assert later > 2  # 3.2 nats
    assert later > 20 * found["nll_control_mean"][0, 1]  # 76 times
    assert abs(first) < 0.1
