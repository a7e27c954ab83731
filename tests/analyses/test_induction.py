"""Head scores on repeated texts: exact on a circuit made by hand, as the reference has them, plausible on SmolLM2."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, random_tokens, reference, tiny

from interp.analyses.induction import (
    SCORES,
    InductionScores,
    pattern_scores,
    score_heads,
    score_sequences,
    score_text,
)
from interp.analyses.intervals import mean_interval, ratio_interval
from interp.analyses.repeated import RepeatedText
from interp.errors import UsageError
from interp.models.batching import pad
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

CIRCUIT = InductionCircuit()


def assert_same_scores(found: InductionScores, expected: InductionScores) -> None:
    for score in (*SCORES, "prefix_matching_sink_free"):
        np.testing.assert_allclose(found[score], expected[score], atol=1e-6)


@pytest.mark.parametrize(("seq_len", "repeats"), [(3, 2), (10, 2), (25, 4)])
class TestTheCircuitMadeByHand:
    def test_its_induction_head_matches_prefixes_perfectly(self, seq_len: int, repeats: int) -> None:
        scores = score_heads(induction_circuit(CIRCUIT), seq_len=seq_len, repeats=repeats, n_seqs=3)
        layer, head = CIRCUIT.induction
        for score in ("prefix_matching", "prefix_matching_sink_free", "prefix_matching_low", "prefix_matching_high"):
            assert scores.at(score, layer=layer, head=head) == pytest.approx(1, abs=1e-6)
        for score in ("previous_token", "duplicate_token", "current_token"):
            assert scores.at(score, layer=layer, head=head) == 0

    def test_its_other_head_looks_at_the_previous_token(self, seq_len: int, repeats: int) -> None:
        scores = score_heads(induction_circuit(CIRCUIT), seq_len=seq_len, repeats=repeats, n_seqs=3)
        layer, head = CIRCUIT.previous
        found = {score: float(scores.at(score, layer=layer, head=head)) for score in SCORES}
        assert found == {**dict.fromkeys(SCORES, 0.0), "previous_token": pytest.approx(1)}

    def test_its_idle_heads_score_as_uniform_attention(self, seq_len: int, repeats: int) -> None:
        scores = score_heads(induction_circuit(CIRCUIT), seq_len=seq_len, repeats=repeats, n_seqs=3)
        for score, expected in zip(SCORES, scores["uniform"], strict=True):
            assert scores.at(score, head=0) == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def scores() -> InductionScores:
    return score_heads(tiny(), seq_len=6, n_seqs=4, seed=4, prefix="none")


class TestScoresOfARandomModel:
    def test_they_are_those_of_the_recorded_patterns(self) -> None:
        model = tiny()
        scores = score_heads(model, seq_len=6, repeats=3, n_seqs=4, prefix="none")
        _, cache = model.run_with_cache(torch.tensor(scores["tokens"]), "blocks.*.attn.hook_pattern")
        layout = {"seq_len": 6, "repeats": 3, "prefix_len": 0}
        for layer in range(BASE.n_layers):
            expected = pattern_scores(cache["pattern", layer], **layout)
            for score in SCORES:
                found = scores.at(f"{score}_by_text", layer=layer)
                np.testing.assert_allclose(found, expected[score].T.numpy(), atol=1e-7)
        assert scores["prefix_matching"].shape == (BASE.n_layers, BASE.n_heads)

    def test_batches_change_nothing(self, scores: InductionScores) -> None:
        assert_same_scores(score_heads(tiny(), seq_len=6, n_seqs=4, seed=4, prefix="none", max_bytes=1), scores)

    def test_progress_counts_texts(self) -> None:
        seen: list[tuple[int, int]] = []
        score_heads(tiny(), seq_len=6, n_seqs=3, prefix="none", max_bytes=1, progress=lambda *at: seen.append(at))
        assert seen == [(1, 3), (2, 3), (3, 3)]

    def test_the_sink_free_score_is_a_ratio_of_sums_over_texts(self, scores: InductionScores) -> None:
        matched = scores["prefix_matching_by_text"].astype(float)
        _, cache = tiny().run_with_cache(torch.tensor(scores["tokens"]), "blocks.*.attn.hook_pattern")
        free = (1 - cache.stack("attn.pattern")[:, :, :, 6:, 0].double()).mean(-1).movedim(1, -1).numpy()
        np.testing.assert_allclose(scores["prefix_matching_sink_free"], matched.sum(-1) / free.sum(-1), rtol=1e-5)
        bounds = [scores[f"prefix_matching_sink_free_{bound}"] for bound in ("low", "high")]
        np.testing.assert_allclose(bounds, ratio_interval(matched, free, seed=4), rtol=1e-5)

    def test_errors_and_intervals_are_the_spread_over_texts(self, scores: InductionScores) -> None:
        for score in SCORES:
            by_text = scores[f"{score}_by_text"].astype(float)
            np.testing.assert_allclose(scores[f"{score}_se"], by_text.std(-1, ddof=1) / 2)
            bounds = [scores[f"{score}_low"], scores[f"{score}_high"]]
            np.testing.assert_allclose(bounds, mean_interval(by_text, seed=4))

    def test_a_single_text_has_neither(self) -> None:
        alone = score_heads(tiny(), seq_len=6, n_seqs=1, prefix="none")
        assert np.isnan([alone["sink_se"], alone["sink_low"], alone["prefix_matching_sink_free_high"]]).all()
        assert "[" not in "".join(alone.summary())

    def test_the_table_the_figures_and_the_saved_copy_hold(self, scores: InductionScores, tmp_path: Path) -> None:
        frame = scores.to_frame()
        assert len(frame) == BASE.n_layers * BASE.n_heads
        assert {"layer", "head", *SCORES, *(f"{score}_{more}" for score in SCORES for more in ("se", "low"))} <= set(
            frame.columns
        )
        ranked = scores.ranked(4)
        assert ranked["prefix_matching"].is_monotonic_decreasing
        best = f"{ranked['layer'][0]}.{ranked['head'][0]}"
        assert scores.ranked_figure(4).layout.yaxis.ticktext[0] == best
        assert scores.figure().data[0].z.shape == (BASE.n_layers, BASE.n_heads)
        assert best in scores.summary()[1]
        assert f"[{ranked['prefix_matching_low'][0]:.3f}, " in scores.summary()[1]
        scores.save(tmp_path / "scores")
        assert Result.load(tmp_path / "scores").identical(scores)

    def test_one_layer_is_scored_with_a_note_that_it_cannot_compose(self, scores: InductionScores) -> None:
        alone = score_heads(tiny(replace(BASE, n_layers=1)), seq_len=6, n_seqs=2, prefix="none")
        assert alone["prefix_matching"].shape == (1, BASE.n_heads)
        assert "by composition" in "".join(alone.summary())
        assert "by composition" not in "".join(scores.summary())

    def test_a_model_without_attention_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = tiny()
        monkeypatch.setattr(model, "points", dict)
        with pytest.raises(UsageError, match="No layer of this model has attention heads"):
            score_heads(model, seq_len=6, prefix="none")


class TestSequencesOfYourOwn:
    ROWS = ([4, 9, 12, 33, 5], [7, 8], [20, 3, 44], [21, 22, 7])

    def test_each_is_scored_as_it_is_alone(self) -> None:
        together = score_sequences(tiny(), self.ROWS, repeats=3, prefix="none")
        for place, row in enumerate(self.ROWS):
            alone = score_sequences(tiny(), row, repeats=3, prefix="none")
            for score in SCORES:
                found = together.at(f"{score}_by_text", text=place)
                np.testing.assert_allclose(found, alone[score], atol=1e-6)
        assert together.settings["seq_len"] == (5, 2, 3, 3)
        assert together["tokens"][1].tolist() == [7, 8] * 3 + [-1] * 9
        assert "4 texts of 3 × 2–5 tokens" in together.summary()[0]

    def test_a_text_counts_as_much_as_any_other(self) -> None:
        together = score_sequences(tiny(), self.ROWS[:2], prefix="none")
        halves = [score_sequences(tiny(), row, prefix="none") for row in self.ROWS[:2]]
        for score in (*SCORES, "uniform"):
            np.testing.assert_allclose(together[score], (halves[0][score] + halves[1][score]) / 2, atol=1e-6)

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_padding_changes_nothing(self, side: str) -> None:
        tokens, mask = pad([list(row) for row in self.ROWS], 0, side)
        padded = score_sequences(tiny(), tokens, repeats=3, prefix="none", mask=mask)
        assert padded.identical(score_sequences(tiny(), self.ROWS, repeats=3, prefix="none"))

    def test_what_was_drawn_scores_as_if_it_were_given(self, scores: InductionScores) -> None:
        given = score_sequences(tiny(), torch.tensor(scores["tokens"][:, :6]), prefix="none", seed=4)
        laid_out = score_text(tiny(), RepeatedText(torch.tensor(scores["tokens"]), 6, 2, 0), seed=4)
        for other in (given, laid_out):
            assert_same_scores(other, scores)
            assert other.settings["text"] == "given"

    def test_a_layout_beyond_the_context_is_refused(self) -> None:
        with pytest.raises(UsageError, match="context is 8192"):
            score_text(tiny(), RepeatedText(random_tokens(BASE, 1, 9000), 4500, 2, 0))


@pytest.fixture(scope="module")
def real(smollm2: "Transformer") -> InductionScores:
    return score_heads(smollm2)


def ranks(values: np.ndarray) -> np.ndarray:
    return values.ravel().argsort().argsort().astype(float)


class TestSmolLM2:
    def test_scores_are_a_direct_reading_of_the_attentions_of_the_reference(
        self, real: InductionScores, smollm2: "Transformer"
    ) -> None:
        """50 tokens said twice, behind the prefix, row by row."""
        tokens = torch.tensor(real["tokens"][:1])
        with torch.no_grad():
            attentions = torch.stack(reference(smollm2)(tokens, output_attentions=True, use_cache=False).attentions)
        later, repeated = range(2, 101), range(51, 101)
        read = {
            "prefix_matching": [attentions[..., q, q - 49] for q in repeated],
            "duplicate_token": [attentions[..., q, q - 50] for q in repeated],
            "previous_token": [attentions[..., q, q - 1] for q in later],
            "current_token": [attentions[..., q, q] for q in later],
            "sink": [attentions[..., q, 0] for q in later],
        }
        for score, rows in read.items():
            expected = torch.stack(rows).mean(0).movedim(1, -1).numpy()
            np.testing.assert_allclose(real[f"{score}_by_text"][..., :1], expected, atol=1e-5)

    def test_the_known_heads_rank_first(self, real: InductionScores) -> None:
        best = real.ranked(3)
        assert list(zip(best["layer"], best["head"], strict=True)) == [(18, 6), (17, 3), (17, 4)]
        assert best["prefix_matching"][0] == pytest.approx(0.85, abs=0.05)
        assert best["prefix_matching_low"][0] > 0.7

    def test_a_few_heads_match_prefixes_and_most_do_not(self, real: InductionScores) -> None:
        matching = real["prefix_matching"]
        assert (matching > 0.4).sum() >= 3
        assert (matching > 0.2).mean() < 0.2

    def test_no_head_of_the_first_layer_does(self, real: InductionScores) -> None:
        assert real.at("prefix_matching", layer=0).max() < 0.1

    def test_a_previous_token_head_stands_below_the_best_induction_head(self, real: InductionScores) -> None:
        best = int(real.ranked(1)["layer"][0])
        assert real["previous_token"][:best].max() > 0.5

    def test_the_ranking_holds_on_other_texts(self, real: InductionScores, smollm2: "Transformer") -> None:
        other = score_heads(smollm2, seed=1)
        assert not np.array_equal(other["tokens"], real["tokens"])
        correlation = np.corrcoef(ranks(real["prefix_matching"]), ranks(other["prefix_matching"]))[0, 1]
        assert correlation > 0.95

    def test_the_run_is_described(self, real: InductionScores) -> None:
        assert real.provenance["weights_sha256"]
        assert real.provenance["prefix"] == "doc"
        assert (real["tokens"][:, 0] == 0).all()
        assert real.settings["prefix_len"] == 1
