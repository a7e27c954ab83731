"""What is read off attention patterns: exact on patterns made by hand, and nothing beyond the last one is computed."""

import numpy as np
import pytest
import torch
from tiny import BASE, tiny

from interp.analyses.pattern_scores import SCORES, pattern_scores, reduced_patterns, uniform_scores
from interp.errors import UsageError

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


HEADS = {
    "prefix_matching": lambda q, seq_len, prefix: [key + 1 for key in earlier_same(q, seq_len, prefix)],
    "duplicate_token": earlier_same,
    "previous_token": lambda q, seq_len, prefix: [q - 1] if q else [],
    "current_token": lambda q, seq_len, prefix: [q],
    "sink": lambda q, seq_len, prefix: [0],
}
"""Where a head looks that does one thing only; an empty row counts nowhere."""

ONE_CELL = ({"previous_token", "sink"}, {"duplicate_token", "sink"})
"""Without a prefix the first position is both the sink and a token that is looked back at."""


@pytest.mark.parametrize(("seq_len", "repeats", "prefix"), LAYOUTS)
class TestPatternsMadeByHand:
    @pytest.mark.parametrize("name", SCORES)
    def test_a_head_that_does_one_thing_scores_one_for_it_and_nought_for_all_others(
        self, name: str, seq_len: int, repeats: int, prefix: int
    ) -> None:
        keys = [HEADS[name](q, seq_len, prefix) for q in range(prefix + seq_len * repeats)]
        scores = scored(keys, seq_len, repeats, prefix)
        others = [other for other in SCORES if other != name and (prefix or {name, other} not in ONE_CELL)]
        assert scores[name] == pytest.approx(1, abs=1e-6)
        assert [scores[other] for other in others] == [0] * len(others)

    def test_sink_free_attention_is_that_of_later_repeats_off_the_first_position(
        self, seq_len: int, repeats: int, prefix: int
    ) -> None:
        rows = range(prefix + seq_len * repeats)
        assert scored([[0] for _ in rows], seq_len, repeats, prefix)["sink_free"] == 0
        assert scored([[q, 0] for q in rows], seq_len, repeats, prefix)["sink_free"] == pytest.approx(0.5)

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


class TestPatternsOfAModel:
    def test_each_layer_is_reduced_as_it_appears_and_nothing_runs_after_the_last(self) -> None:
        model, seen = tiny(), []
        watched = ["blocks.*.attn.hook_pattern", "blocks.*.attn.hook_z", "blocks.*.mlp.hook_out", "unembed.hook_out"]
        with model.hooks([(watched, lambda value, point: seen.append(point.name))]):
            found = reduced_patterns(model, torch.arange(8)[None], lambda pattern: pattern.amax(-1))
        assert len(found) == BASE.n_layers
        assert found[0].shape == (1, BASE.n_heads, 8)
        assert seen[-1] == f"blocks.{BASE.n_layers - 1}.attn.hook_pattern"
        assert "blocks.0.mlp.hook_out" in seen
        assert "unembed.hook_out" not in seen

    def test_nothing_of_the_run_stays_behind(self) -> None:
        model = tiny()
        tokens = torch.arange(8)[None]
        before = model(tokens)
        reduced_patterns(model, tokens, lambda pattern: pattern[..., 0])
        assert torch.equal(model(tokens), before)

    @pytest.mark.parametrize(("without", "said"), [([0, 1, 2], "No layer"), ([1], "Not every layer, such as 1,")])
    def test_layers_without_attention_are_refused(
        self, without: list[int], said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No architecture of the family lacks attention, so some points are hidden."""
        model = tiny()
        hidden = {f"blocks.{layer}.attn.hook_pattern" for layer in without}
        points = {name: point for name, point in model.points().items() if name not in hidden}
        monkeypatch.setattr(model, "points", lambda: points)
        with pytest.raises(UsageError, match=f"{said} of this model has attention heads"):
            reduced_patterns(model, torch.arange(8)[None], lambda pattern: pattern)
