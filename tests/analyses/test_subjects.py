"""The spread of subjects' embeddings: the standard deviation of every number in them, each subject tokenized alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
import torch
from tiny import tiny

from interp.analyses.subjects import SUBJECTS, embedding_spread
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def by_a_loop(model: "Transformer", subjects: Sequence[str]) -> float:
    numbers = []
    for subject in subjects:
        for token in model.tokenizer.encode(subject):
            numbers += model.W_E[token].tolist()
    mean = sum(numbers) / len(numbers)
    return (sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)) ** 0.5


def test_the_subjects_are_many_and_different() -> None:
    assert len(SUBJECTS) >= 24
    assert len({subject.casefold() for subject in SUBJECTS}) == len(SUBJECTS)
    assert all(subject == subject.strip() != "" for subject in SUBJECTS)


def test_the_subjects_are_short_and_long(smollm2: "Transformer") -> None:
    lengths = [len(smollm2.tokenizer.encode(subject)) for subject in SUBJECTS]
    assert lengths.count(1) >= 2
    assert {1, 2, 3, 4, 5} <= set(lengths)


def test_the_spread_is_that_of_every_number(smollm2: "Transformer") -> None:
    subjects = ["Paris", "Megan", "Lake Titicaca"]
    assert embedding_spread(smollm2, subjects) == pytest.approx(by_a_loop(smollm2, subjects), rel=1e-6)


def test_a_token_counts_as_often_as_it_comes_up(smollm2: "Transformer") -> None:
    once, twice = ["Paris", "Megan"], ["Paris", "Megan", "Megan"]
    assert embedding_spread(smollm2, twice) == pytest.approx(by_a_loop(smollm2, twice), rel=1e-6)
    assert embedding_spread(smollm2, twice) != pytest.approx(embedding_spread(smollm2, once), rel=1e-4)


def test_the_spread_of_the_default_model_is_that_of_its_embeddings_in_text(smollm2: "Transformer") -> None:
    """Below the 0.136 of the whole vocabulary, which is mostly rare tokens."""
    assert 0.10 < embedding_spread(smollm2) < 0.13
    assert smollm2.W_E.std().item() > 0.13


@pytest.mark.parametrize(
    ("subjects", "says"),
    [
        ([], "no subject"),
        (["Paris", ""], "not empty"),
        ([7], "each a text"),
        ("Paris", "list of subjects"),
    ],
)
def test_subjects_that_cannot_be_meant_are_refused(smollm2: "Transformer", subjects: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        embedding_spread(smollm2, subjects)


def test_a_model_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(UsageError, match="without a tokenizer"):
        embedding_spread(tiny())


def test_low_precision_changes_the_spread_by_its_rounding_only(smollm2: "Transformer") -> None:
    class Rounded:
        tokenizer = smollm2.tokenizer
        W_E = smollm2.W_E.to(torch.bfloat16)

    assert embedding_spread(Rounded()) == pytest.approx(embedding_spread(smollm2), rel=1e-3)
