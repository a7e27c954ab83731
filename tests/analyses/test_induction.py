"""Head scores on repeated random texts: exact on patterns and machines made by hand, plausible on the real model."""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from machines import induction_machine
from tiny import BASE, tiny

from interp.analyses.induction import (
    SCORES,
    InductionScores,
    pattern_scores,
    score_heads,
    score_text,
    uniform_scores,
)
from interp.analyses.repeat_loss import RepeatLoss, repeat_loss, token_losses
from interp.analyses.repeated import RepeatedText, ordinary_tokens, repeated_text, repeated_tokens
from interp.errors import UsageError
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

LAYOUTS = [(seq_len, repeats, prefix) for seq_len in (3, 50) for repeats in (2, 4) for prefix in (0, 1)]


def looking_at(keys: list[list[int]]) -> torch.Tensor:
    """A pattern [1, 1, query, key] in which each query looks evenly at its keys."""
    pattern = torch.zeros(1, 1, len(keys), len(keys))
    for query, chosen in enumerate(keys):
        for key in chosen:
            pattern[0, 0, query, key] += 1 / len(chosen)
    return pattern


def earlier_same(query: int, seq_len: int, prefix: int) -> list[int]:
    """Earlier positions of the token at `query`, written the slow way."""
    return [key for key in range(prefix, query) if (query - key) % seq_len == 0] if query >= prefix else []


def scored(keys: list[list[int]], seq_len: int, repeats: int, prefix: int) -> dict[str, float]:
    scores = pattern_scores(looking_at(keys), seq_len=seq_len, repeats=repeats, prefix_len=prefix)
    return {name: float(value) for name, value in scores.items()}


@pytest.mark.parametrize(("seq_len", "repeats", "prefix"), LAYOUTS)
class TestPatternsMadeByHand:
    def test_a_perfect_induction_head_scores_one(self, seq_len: int, repeats: int, prefix: int) -> None:
        rows = range(prefix + seq_len * repeats)
        keys = [[key + 1 for key in earlier_same(q, seq_len, prefix)] or [0] for q in rows]
        scores = scored(keys, seq_len, repeats, prefix)
        assert scores["prefix_matching"] == pytest.approx(1, abs=1e-6)
        assert scores["duplicate_token"] == 0
        assert scores["sink_free"] == pytest.approx(1, abs=1e-6)

    def test_a_duplicate_token_head_matches_no_prefix(self, seq_len: int, repeats: int, prefix: int) -> None:
        rows = range(prefix + seq_len * repeats)
        scores = scored([earlier_same(q, seq_len, prefix) or [q] for q in rows], seq_len, repeats, prefix)
        assert scores["prefix_matching"] == 0
        assert scores["duplicate_token"] == pytest.approx(1, abs=1e-6)

    def test_a_previous_token_head_matches_no_prefix(self, seq_len: int, repeats: int, prefix: int) -> None:
        scores = scored([[max(q - 1, 0)] for q in range(prefix + seq_len * repeats)], seq_len, repeats, prefix)
        assert scores["prefix_matching"] == 0
        assert scores["previous_token"] == 1

    def test_a_head_that_looks_at_the_first_position_matches_no_prefix(
        self, seq_len: int, repeats: int, prefix: int
    ) -> None:
        scores = scored([[0]] * (prefix + seq_len * repeats), seq_len, repeats, prefix)
        assert scores["prefix_matching"] == 0
        assert scores["sink"] == 1
        assert scores["sink_free"] == 0

    def test_a_head_that_looks_at_itself_matches_no_prefix(self, seq_len: int, repeats: int, prefix: int) -> None:
        scores = scored([[q] for q in range(prefix + seq_len * repeats)], seq_len, repeats, prefix)
        assert scores == {**dict.fromkeys(SCORES, 0.0), "current_token": 1.0, "sink_free": 1.0}

    def test_uniform_attention_scores_the_mean_of_repeats_before_over_positions_so_far(
        self, seq_len: int, repeats: int, prefix: int
    ) -> None:
        length = prefix + seq_len * repeats
        scores = scored([list(range(q + 1)) for q in range(length)], seq_len, repeats, prefix)
        expected = np.mean([len(earlier_same(q, seq_len, prefix)) / (q + 1) for q in range(prefix + seq_len, length)])
        uniform = uniform_scores(seq_len=seq_len, repeats=repeats, prefix_len=prefix)
        assert uniform["prefix_matching"] == pytest.approx(expected, rel=1e-12)
        assert {name: scores[name] for name in SCORES} == pytest.approx(uniform, rel=1e-5)


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("repeats", [2, 4])
def test_in_a_sequence_of_two_tokens_the_induction_key_is_the_previous_token(repeats: int, prefix: int) -> None:
    keys = [[max(q - 1, 0)] for q in range(prefix + 2 * repeats)]
    assert scored(keys, 2, repeats, prefix)["prefix_matching"] == 1


def test_the_last_row_of_the_first_repeat_does_not_count() -> None:
    """A whole diagonal would begin there, reading key 0 behind a prefix: 0.019 for a pure sink of 50 tokens."""
    keys = [[q] for q in range(101)]
    keys[49] = [0]
    assert scored(keys, 50, 2, 1)["prefix_matching"] == 0


def test_scoring_leaves_the_pattern_as_it_was() -> None:
    pattern = torch.rand(2, 3, 7, 7)
    before = pattern.clone()
    pattern_scores(pattern, seq_len=3, repeats=2, prefix_len=1)
    assert torch.equal(pattern, before)


def test_heads_and_texts_are_scored_one_by_one() -> None:
    pattern = torch.rand(2, 3, 7, 7).tril()
    together = pattern_scores(pattern, seq_len=3, repeats=2, prefix_len=1)
    alone = pattern_scores(pattern[1:, 2:], seq_len=3, repeats=2, prefix_len=1)
    assert all(together[name][1, 2] == alone[name][0, 0] for name in together)


@pytest.mark.parametrize("wrong", [{"seq_len": 1}, {"repeats": 1}, {"prefix_len": -1}, {"prefix_len": 0}])
def test_a_layout_that_does_not_fit_the_pattern_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"expected|needs"):
        pattern_scores(torch.rand(1, 1, 7, 7), **{"seq_len": 3, "repeats": 2, "prefix_len": 1, **wrong})


class TestRepeatedTexts:
    def test_a_text_is_a_prefix_and_the_same_different_tokens_again_and_again(self) -> None:
        tokens = repeated_tokens(range(10, 60), seq_len=20, repeats=3, n_seqs=4, seed=5, prefix=[7])
        assert (tokens[:, 0] == 7).all()
        first, second, third = tokens[:, 1:].unflatten(1, (3, 20)).unbind(1)
        assert torch.equal(first, second)
        assert torch.equal(first, third)
        assert all(len(set(row.tolist())) == 20 for row in first)
        assert first.min() >= 10

    def test_a_text_depends_on_its_own_number_and_the_seed_only(self) -> None:
        def drawn(n_seqs: int, seed: int) -> torch.Tensor:
            return repeated_tokens(range(500), seq_len=9, repeats=2, n_seqs=n_seqs, seed=seed)

        assert torch.equal(drawn(3, 0), drawn(8, 0)[:3])
        assert not torch.equal(drawn(3, 0), drawn(3, 1))

    def test_special_tokens_are_never_drawn(self, smollm2: "Transformer") -> None:
        ids = ordinary_tokens(smollm2)
        assert set(range(smollm2.config.d_vocab)) - set(ids.tolist()) == set(smollm2.tokenizer.special_ids)
        assert min(ids) == 17

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"seq_len": 1}, "seq_len"),
            ({"repeats": 1}, "repeats"),
            ({"n_seqs": 0}, "n_seqs"),
            ({"seed": -1}, "seed"),
            ({"seq_len": 68}, "too small to draw 68 tokens without replacement: 67 are left"),
            ({"repeats": 3000}, "context is 8192"),
        ],
    )
    def test_what_cannot_be_drawn_is_refused(self, wrong: dict[str, int], message: str) -> None:
        settings = {"seq_len": 5, "repeats": 2, "n_seqs": 2, "seed": 0, **wrong}
        with pytest.raises(UsageError, match=message):
            repeated_text(tiny(), prefix="none", **settings)

    def test_a_prefix_needs_a_tokenizer(self) -> None:
        with pytest.raises(UsageError, match="tokenizer"):
            score_heads(tiny(), seq_len=5, prefix="doc")


def machine_scores(seq_len: int, repeats: int) -> InductionScores:
    tokens = repeated_tokens(range(1, 20), seq_len=seq_len, repeats=repeats, n_seqs=3, seed=0, prefix=[0])
    return score_text(induction_machine(), RepeatedText(tokens, seq_len, repeats, 1))


@pytest.mark.parametrize(("seq_len", "repeats"), [(3, 2), (10, 2), (19, 5)])
class TestTheMachineMadeByHand:
    def test_its_second_layer_matches_prefixes_perfectly(self, seq_len: int, repeats: int) -> None:
        scores = machine_scores(seq_len, repeats)
        assert scores.at("prefix_matching", layer=1, head=0) == pytest.approx(1, abs=1e-6)
        assert scores.at("prefix_matching", layer=0, head=0) == pytest.approx(0, abs=1e-6)
        assert scores.at("prefix_matching_sink_free", layer=1, head=0) == pytest.approx(1, abs=1e-6)

    def test_its_first_layer_looks_at_the_previous_token(self, seq_len: int, repeats: int) -> None:
        assert machine_scores(seq_len, repeats).at("previous_token", layer=0, head=0) == pytest.approx(1, abs=1e-6)

    def test_its_idle_heads_score_as_uniform_attention(self, seq_len: int, repeats: int) -> None:
        scores = machine_scores(seq_len, repeats)
        for score, expected in zip(SCORES, scores["uniform"], strict=True):
            assert scores.at(score, head=1) == pytest.approx(expected, rel=1e-4)

    def test_it_is_certain_of_every_token_that_it_has_seen_before(self, seq_len: int, repeats: int) -> None:
        tokens = repeated_tokens(range(1, 20), seq_len=seq_len, repeats=repeats, n_seqs=3, seed=0, prefix=[0])
        losses = token_losses(induction_machine(), tokens)[:, 1:].unflatten(1, (repeats, seq_len))[:, :, 1:]
        assert losses[:, 0].mean() > 10
        assert losses[:, 1:].max() < 1e-4


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

    def test_batches_change_nothing(self) -> None:
        model = tiny()
        one = score_heads(model, seq_len=6, n_seqs=5, prefix="none", max_bytes=1)
        all_at_once = score_heads(model, seq_len=6, n_seqs=5, prefix="none")
        for score in SCORES:
            np.testing.assert_allclose(one[score], all_at_once[score], atol=1e-6)

    def test_progress_counts_texts(self) -> None:
        seen: list[tuple[int, int]] = []
        score_heads(tiny(), seq_len=6, n_seqs=3, prefix="none", max_bytes=1, progress=lambda *at: seen.append(at))
        assert seen == [(1, 3), (2, 3), (3, 3)]

    def test_the_sink_free_score_is_a_ratio_of_sums_over_texts(self) -> None:
        scores = score_heads(tiny(), seq_len=6, n_seqs=4, prefix="none")
        matched = scores["prefix_matching_by_text"].astype(float).sum(-1)
        _, cache = tiny().run_with_cache(torch.tensor(scores["tokens"]), "blocks.*.attn.hook_pattern")
        free = (1 - cache.stack("attn.pattern")[:, :, :, 6:, 0].double()).mean(-1).sum(1).numpy()
        np.testing.assert_allclose(scores["prefix_matching_sink_free"], matched / free, rtol=1e-5)

    def test_the_standard_error_is_the_spread_over_texts(self) -> None:
        scores = score_heads(tiny(), seq_len=6, n_seqs=4, prefix="none")
        by_text = scores["sink_by_text"].astype(float)
        np.testing.assert_allclose(scores["sink_se"], by_text.std(-1, ddof=1) / 2)
        assert np.isnan(score_heads(tiny(), seq_len=6, n_seqs=1, prefix="none")["sink_se"]).all()

    def test_nothing_runs_after_the_last_pattern(self) -> None:
        model, seen = tiny(), []
        watched = ["blocks.*.attn.hook_pattern", "blocks.*.attn.hook_z", "blocks.*.mlp.hook_out", "unembed.hook_out"]
        with model.hooks([(watched, lambda value, point: seen.append(point.name))]):
            score_heads(model, seq_len=6, n_seqs=2, prefix="none")
        assert seen[-1] == f"blocks.{BASE.n_layers - 1}.attn.hook_pattern"
        assert "blocks.0.mlp.hook_out" in seen
        assert "unembed.hook_out" not in seen

    def test_nothing_of_the_run_stays_behind(self) -> None:
        model = tiny()
        tokens = torch.arange(8)[None]
        before = model(tokens)
        score_heads(model, seq_len=6, n_seqs=2, prefix="none")
        assert torch.equal(model(tokens), before)

    def test_the_table_the_figures_and_the_saved_copy_hold(self, tmp_path: Path) -> None:
        scores = score_heads(tiny(), seq_len=6, n_seqs=3, seed=4, prefix="none")
        frame = scores.to_frame()
        assert len(frame) == BASE.n_layers * BASE.n_heads
        assert {"layer", "head", *SCORES, *(f"{score}_se" for score in SCORES)} <= set(frame.columns)
        ranked = scores.ranked(4)
        assert ranked["prefix_matching"].is_monotonic_decreasing
        best = f"{ranked['layer'][0]}.{ranked['head'][0]}"
        assert scores.ranked_figure(4).layout.yaxis.ticktext[0] == best
        assert scores.figure().data[0].z.shape == (BASE.n_layers, BASE.n_heads)
        assert best in scores.summary()[1]
        scores.save(tmp_path / "scores")
        assert Result.load(tmp_path / "scores").identical(scores)


class TestRepeatLoss:
    def test_it_is_the_loss_of_the_full_logits(self) -> None:
        model = tiny()
        loss = repeat_loss(model, seq_len=6, repeats=3, n_seqs=2, prefix="none")
        tokens = torch.tensor(loss["tokens"])
        expected = -model(tokens).log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
        found = loss["nll"].reshape(2, 18)
        assert np.isnan(found[:, 0]).all()
        np.testing.assert_allclose(found[:, 1:], expected.numpy(), atol=1e-5)
        means = loss["nll"][:, :, 1:].mean((0, 2))
        np.testing.assert_allclose(loss["mean"], means, rtol=1e-6)
        assert loss.drop == pytest.approx(means[0] - means[1])

    def test_blocks_change_nothing(self) -> None:
        whole, pieces = (repeat_loss(tiny(), seq_len=6, n_seqs=3, prefix="none", max_bytes=size) for size in (10**9, 1))
        np.testing.assert_allclose(whole["nll"], pieces["nll"], atol=1e-5)

    def test_the_saved_copy_and_the_figure_hold(self, tmp_path: Path) -> None:
        loss = repeat_loss(tiny(), seq_len=6, n_seqs=3, prefix="none")
        loss.save(tmp_path / "loss")
        assert RepeatLoss.load(tmp_path / "loss").identical(loss)
        assert [line.name for line in loss.figure().data] == ["repeat 1", "repeat 2"]
        assert f"{loss.drop:.2f}" in loss.summary()[2]


@pytest.fixture(scope="module")
def real(smollm2: "Transformer") -> InductionScores:
    return score_heads(smollm2)


def ranks(values: np.ndarray) -> np.ndarray:
    return values.ravel().argsort().argsort().astype(float)


class TestSmolLM2:
    def test_the_known_heads_rank_first(self, real: InductionScores) -> None:
        best = real.ranked(3)
        assert list(zip(best["layer"], best["head"], strict=True)) == [(18, 6), (17, 3), (17, 4)]
        assert best["prefix_matching"][0] == pytest.approx(0.85, abs=0.05)

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

    def test_the_second_time_is_much_better(self, smollm2: "Transformer") -> None:
        loss = repeat_loss(smollm2, n_seqs=4)
        assert loss.drop > 4
        assert all(earlier > later for earlier, later in pairwise(loss["mean"]))

    def test_the_run_is_described(self, real: InductionScores) -> None:
        assert real.provenance["weights_sha256"]
        assert real.provenance["prefix"] == "doc"
        assert (real["tokens"][:, 0] == 0).all()
        assert real.settings["prefix_len"] == 1
