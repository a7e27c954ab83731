"""Scores of ordinary text: exact on patterns made by hand, and untouched by neighbours and padding in any model."""

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import CONFIGS, tiny

from interp.analyses.scored_texts import scored_texts
from interp.analyses.text_scores import (
    SUMS,
    NaturalText,
    SentenceText,
    is_delimiter,
    natural_text,
    uniform_pattern,
    weighted_sums,
)

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

VALUES = (*SUMS, "entropy", "evenness")
WORDS = [5, 6, 7, 1, 8, 5, 9, 10, 1, 7, 6, 11, 12, 8, 1, 13, 5, 6]  # token 1 is the delimiter


def text(prefix: int, words: list[int] = WORDS) -> NaturalText:
    tokens = torch.tensor([0] * prefix + words)
    return NaturalText(tokens, tokens == 1, prefix)


def scored(pattern: torch.Tensor, of: NaturalText | SentenceText) -> dict[str, float]:
    values = weighted_sums(pattern[None, None], of.weights()[None], of.rows()[None])[0, :, 0]
    return dict(zip(VALUES, values.tolist(), strict=False))


def looking(keys: list[int]) -> torch.Tensor:
    """A pattern in which each query looks at one key."""
    return torch.nn.functional.one_hot(torch.tensor(keys), len(keys)).float()


@pytest.mark.parametrize("prefix", [0, 1, 3])
class TestPatternsMadeByHand:
    def test_a_previous_token_head_does_nothing_else(self, prefix: int) -> None:
        of = text(prefix)
        scores = scored(looking([max(q - 1, 0) for q in range(len(of.tokens))]), of)
        assert scores["previous_token"] == pytest.approx(1)
        assert [scores[name] for name in ("current_token", "same_token", "delimiter", "after_delimiter")] == [0] * 4
        assert scores["distance"] == pytest.approx(1)

    def test_a_current_token_head_does_nothing_else(self, prefix: int) -> None:
        of = text(prefix)
        scores = scored(looking(list(range(len(of.tokens)))), of)
        assert scores["current_token"] == pytest.approx(1)
        assert [scores[name] for name in SUMS if name != "current_token"] == [0] * 7

    def test_a_head_at_rest_looks_at_the_first_position_and_not_far_beyond_it(self, prefix: int) -> None:
        of = text(prefix)
        scores = scored(looking([0] * len(of.tokens)), of)
        assert scores["sink"] == pytest.approx(1)
        assert scores["distance"] == pytest.approx(np.mean(range(prefix + 1, len(of.tokens))))
        assert scores["reach"] == 0

    def test_a_same_token_head_scores_one_where_there_is_an_earlier_one(self, prefix: int) -> None:
        of = text(prefix)
        ids = of.tokens.tolist()
        keys = [max((k for k in range(prefix, q) if ids[k] == ids[q]), default=q) for q in range(len(ids))]
        scores = scored(looking(keys), of)
        assert scores["same_token"] == pytest.approx(1)
        assert scores["previous_token"] == 0

    def test_a_delimiter_head_scores_one_where_there_is_an_earlier_one(self, prefix: int) -> None:
        of = text(prefix)
        ids = of.tokens.tolist()
        keys = [max((k for k in range(prefix, q) if ids[k] == 1), default=q) for q in range(len(ids))]
        scores = scored(looking(keys), of)
        assert scores["delimiter"] == pytest.approx(1)
        assert scores["after_delimiter"] == 0

    def test_a_head_that_looks_behind_the_last_delimiter_does_not_look_at_it(self, prefix: int) -> None:
        of = text(prefix)
        ids = of.tokens.tolist()
        last = [max((k for k in range(prefix, q + 1) if ids[k] == 1), default=q) for q in range(len(ids))]
        keys = [min(k + 1, q) for q, k in enumerate(last)]
        scores = scored(looking(keys), of)
        assert scores["after_delimiter"] == pytest.approx(1)
        assert scores["delimiter"] == 0

    def test_uniform_attention_is_even_and_looks_half_way_back(self, prefix: int) -> None:
        of = text(prefix)
        rows = range(prefix + 1, len(of.tokens))
        scores = scored(uniform_pattern(len(of.tokens))[0, 0], of)
        assert scores["entropy"] == pytest.approx(np.mean([math.log(q + 1) for q in rows]), rel=1e-5)
        assert scores["evenness"] == pytest.approx(1, rel=1e-5)
        assert scores["distance"] == pytest.approx(np.mean([q / 2 for q in rows]), rel=1e-5)
        assert scores["previous_token"] == pytest.approx(np.mean([1 / (q + 1) for q in rows]), rel=1e-5)

    def test_a_head_that_looks_at_one_key_has_no_entropy(self, prefix: int) -> None:
        of = text(prefix)
        scores = scored(looking(list(range(len(of.tokens)))), of)
        assert (scores["entropy"], scores["evenness"]) == (0, 0)


def test_two_keys_of_equal_weight_are_the_logarithm_of_two() -> None:
    of = text(1)
    pattern = looking([0] * len(of.tokens)) / 2 + looking(list(range(len(of.tokens)))) / 2
    assert scored(pattern, of)["entropy"] == pytest.approx(math.log(2), rel=1e-6)


def test_a_score_without_a_row_is_no_number() -> None:
    scores = scored(uniform_pattern(4)[0, 0], text(1, [5, 6, 7]))
    assert [name for name, value in scores.items() if math.isnan(value)] == [
        "same_token", "delimiter", "after_delimiter",
    ]  # fmt: skip


def test_what_stands_in_the_prefix_is_no_delimiter_and_no_earlier_token() -> None:
    tokens = torch.tensor([1, 5, 5, 6, 7, 8])
    scores = scored(uniform_pattern(6)[0, 0], NaturalText(tokens, tokens == 1, 2))
    assert math.isnan(scores["delimiter"])
    assert math.isnan(scores["same_token"])


@pytest.mark.parametrize(
    ("piece", "expected"),
    [(".", True), (" .", True), ("\n\n", True), (",\n", True), ('."', True), ("—", True), (" (", True), (" ", False),
     ("", False), ("'s", False), ("-", False), ("a.", False), (" the", False), ("<|im_end|>", False)],
)  # fmt: skip
def test_a_delimiter_separates_and_is_nothing_else(piece: str, expected: bool) -> None:
    assert is_delimiter(piece) == expected


def test_a_head_may_find_the_target_by_any_of_its_tokens() -> None:
    of = SentenceText(torch.arange(6), queries=(5, 4), target=(1, 2), competitor=(3,))
    pattern = torch.zeros(6, 6)
    pattern[5, :4] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    pattern[4, 3] = 1
    values = weighted_sums(pattern[None, None], of.weights()[None], of.rows()[None])
    assert values.flatten().tolist() == pytest.approx([0.2 + 0.3 - 0.4, -1])


def test_reducing_leaves_the_pattern_as_it_was() -> None:
    of, pattern = text(1), torch.rand(1, 2, 19, 19)
    before = pattern.clone()
    weighted_sums(pattern, of.weights()[None], of.rows()[None])
    assert torch.equal(pattern, before)


MODELS = ("grouped_query", "learned_positions", "alibi", "mixed_windows", "score_cap", "moe_top2", "gelu_one_layer")


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_recorded_patterns_whatever_is_padded_or_read_together(name: str) -> None:
    model = tiny(CONFIGS[name])
    head = model.config.n_heads - 1
    texts = [text(1), text(1, WORDS[:7]), text(1, WORDS[3:]), text(1, WORDS[:5])]
    alone, _ = scored_texts(model, texts, max_bytes=1)
    together, uniform = scored_texts(model, texts, max_bytes=2**24)
    near = {"rtol": 1e-5, "atol": 2e-6}  # distances are of several tokens
    np.testing.assert_allclose(alone, together, **near)
    for place, each in enumerate(texts):
        _, cache = model.run_with_cache(each.tokens[None], "blocks.*.attn.hook_pattern")
        for layer in range(model.config.n_layers):
            expected = scored(cache["pattern", layer][0, head], each)
            np.testing.assert_allclose(together[layer, head, place], [expected[value] for value in VALUES], **near)
        even = scored(uniform_pattern(len(each.tokens))[0, 0], each)
        np.testing.assert_allclose(uniform[place], [even[value] for value in VALUES], **near)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_scores_of_other_precisions_are_near_those_of_float32(dtype: torch.dtype) -> None:
    expected, _ = scored_texts(tiny(), [text(1)], max_bytes=2**20)
    found, _ = scored_texts(tiny(dtype=dtype), [text(1)], max_bytes=2**20)
    relative = {torch.bfloat16: 0.05, torch.float64: 1e-5}[dtype]
    np.testing.assert_allclose(found, expected, rtol=relative, atol=relative)


def test_nothing_runs_after_the_last_pattern_and_each_text_is_read_once(device: str) -> None:
    model, seen = tiny(device=device), []
    with model.hooks([(["hook_embed", "blocks.2.attn.hook_z"], lambda value, point: seen.append(point.name))]):
        scored_texts(model, [text(1), text(1, WORDS[:7])], max_bytes=1)
    assert seen == ["hook_embed", "hook_embed"]


def test_the_delimiters_of_a_text_are_marked(smollm2: "Transformer") -> None:
    ids = [0, *smollm2.tokenizer.encode('He said: "Come in." She came in,\nat last.')]
    marks = natural_text(smollm2.tokenizer, ids, 1).delimiters.tolist()
    pieces = smollm2.tokenizer.str_tokens(ids)
    assert [piece for piece, mark in zip(pieces, marks, strict=True) if mark] == [":", ' "', '."', ",", "\n", "."]
