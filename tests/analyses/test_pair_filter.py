"""Right is the answer above its foil, or above all; the share is that before filtering."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from tiny import BASE, random_tokens, tiny

from interp import pair_builders
from interp.analyses.pair_filter import known, logit_differences
from interp.errors import UsageError
from interp.pairs import Pairs, PromptPair, align

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

MODEL = tiny()
LEFT = torch.ones(12, 7, dtype=torch.bool)
LEFT[::3, :2] = False  # a third of the pairs is shorter


def some_pairs(*, foils: bool, answers: list[int] | None = None) -> Pairs:
    tokens = random_tokens(BASE, 12, 7)
    chosen = list(range(20, 32)) if answers is None else answers
    prompts = tuple(PromptPair(f"clean {row}", "corrupted", "answer") for row in range(12))
    wrong = tuple(range(40, 52)) if foils else None
    return Pairs(tokens, random_tokens(BASE, 12, 7, seed=2), tuple(chosen), wrong, LEFT, prompts, "none")


def alone(pairs: Pairs, row: int) -> torch.Tensor:
    """The last logits of one clean prompt, in a pass of its own and without padding."""
    return MODEL(pairs.clean[[row]][:, pairs.mask[row]])[0, -1]


@pytest.mark.parametrize("max_bytes", [1, 20_000, 2**28])
def test_differences_are_those_of_each_prompt_alone_in_batches_of_any_size(max_bytes: int) -> None:
    pairs = some_pairs(foils=True)
    expected = [
        alone(pairs, row)[right] - alone(pairs, row)[wrong]
        for row, (right, wrong) in enumerate(zip(pairs.answers, pairs.foils, strict=True))
    ]
    torch.testing.assert_close(logit_differences(MODEL, pairs, max_bytes=max_bytes), torch.stack(expected))


def test_the_pairs_that_are_kept_are_the_right_ones() -> None:
    pairs = some_pairs(foils=True)
    found = known(MODEL, pairs)
    right = [row for row, difference in enumerate(logit_differences(MODEL, pairs)) if difference > 0]
    assert 0 < len(right) < 12, "the weights make some right and some wrong"
    assert found.correct.nonzero()[:, 0].tolist() == right
    assert found.share == len(right) / 12
    assert [pair.clean for pair in found.pairs.prompts] == [f"clean {row}" for row in right]
    assert str(found).startswith(f"{len(right)} of 12 pairs right ({found.share:.1%})")


def test_without_foils_right_is_the_argmax() -> None:
    """Even rows are given the model's own answer, odd rows the second best."""
    pairs = some_pairs(foils=False)
    order = [alone(pairs, row).argsort(descending=True).tolist() for row in range(12)]
    pairs = some_pairs(foils=False, answers=[order[row][row % 2] for row in range(12)])
    found = known(MODEL, pairs)
    assert found.correct.tolist() == [row % 2 == 0 for row in range(12)]
    margins = [alone(pairs, row)[order[row][row % 2]] - alone(pairs, row)[order[row][1 - row % 2]] for row in range(12)]
    torch.testing.assert_close(found.differences, torch.stack(margins))


def test_a_model_that_gets_none_right_is_said() -> None:
    pairs = some_pairs(foils=False)
    worst = [int(alone(pairs, row).argmin()) for row in range(12)]
    with pytest.raises(UsageError, match="none of the 12 pairs right: the best falls short by"):
        known(MODEL, replace(pairs, answers=tuple(worst)))


def test_memory_stays_within_a_pair_where_little_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small `max_bytes` reads pair by pair, a large one all at once."""
    batches: list[int] = []
    run = type(MODEL).run_with_cache

    def counted(model: object, tokens: torch.Tensor, *rest: object, **more: object) -> object:
        batches.append(len(tokens))
        return run(model, tokens, *rest, **more)

    monkeypatch.setattr(type(MODEL), "run_with_cache", counted)
    for max_bytes, expected in ((1, [1] * 12), (2**28, [12])):
        batches.clear()
        logit_differences(MODEL, some_pairs(foils=True), max_bytes=max_bytes)
        assert batches == expected


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("ioi", 0.9),
        ("greater_than", 0.9),
        ("capitals", 0.95),
        ("country_swap", 0.8),
        ("agreement", 0.9),
        ("gender", 0.9),
    ],
)
def test_a_small_real_model_gets_most_generated_pairs_right(smollm2: "Transformer", name: str, least: float) -> None:
    """Of all generated pairs, before any filter."""
    pairs = align(smollm2.tokenizer, getattr(pair_builders, name)(smollm2.tokenizer, n=64))
    found = known(smollm2, pairs)
    assert found.share >= least
    assert len(found.pairs) == round(64 * found.share)
