"""The spread of subjects' embeddings: the standard deviation of every number in them, each subject tokenized alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from published import small_tokenizer
from tiny import CONFIGS, tiny

from interp.analyses.fact_data import bundled_facts
from interp.analyses.subjects import bundled_subjects, embedding_spread
from interp.errors import UsageError
from interp.models.tokenizer import Tokenizer
from interp.models.transformer import Transformer


def by_a_loop(model: "Transformer", subjects: Sequence[str]) -> float:
    numbers = []
    for subject in subjects:
        for token in model.tokenizer.encode(subject):
            numbers += model.W_E[token].tolist()
    mean = sum(numbers) / len(numbers)
    return (sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)) ** 0.5


def test_the_bundled_subjects_are_those_of_every_fact() -> None:
    subjects = bundled_subjects()
    assert len(subjects) == len(bundled_facts())
    assert subjects.count("France") > 1, "as often as facts are about it"


def test_the_spread_is_that_of_every_number(smollm2: "Transformer") -> None:
    subjects = ["Paris", "Megan", "Lake Titicaca"]
    assert embedding_spread(smollm2, subjects) == pytest.approx(by_a_loop(smollm2, subjects), rel=1e-6)


def test_a_token_counts_as_often_as_it_comes_up(smollm2: "Transformer") -> None:
    once, twice = ["Paris", "Megan"], ["Paris", "Megan", "Megan"]
    assert embedding_spread(smollm2, twice) == pytest.approx(by_a_loop(smollm2, twice), rel=1e-6)
    assert embedding_spread(smollm2, twice) != pytest.approx(embedding_spread(smollm2, once), rel=1e-4)


def test_three_spreads_of_the_default_model_are_the_noise_of_causal_tracing(smollm2: "Transformer") -> None:
    """About 0.35, and below 3 times the 0.136 of the whole vocabulary, which is mostly rare tokens."""
    assert 3 * embedding_spread(smollm2, bundled_subjects()) == pytest.approx(0.35, abs=0.03)
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
        embedding_spread(tiny(), ["Paris"])


def test_the_spread_is_that_of_what_noise_is_added_to() -> None:
    """In models that scale and norm their embeddings it is measured behind that."""
    model = reader("embed_norm_and_scale")
    _, cache = model.run_with_cache(model.to_tokens("the tower", prefix="none"), "hook_embed")
    assert embedding_spread(model, ["the tower"]) == pytest.approx(cache["hook_embed"].std().item(), rel=1e-5)
    assert embedding_spread(model, ["the tower"]) != pytest.approx(by_a_loop(model, ["the tower"]), rel=1e-2)


def test_low_precision_changes_the_spread_by_its_rounding_only() -> None:
    full, rounded = (
        embedding_spread(reader("grouped_query", dtype=dtype), ["the tower"])
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert rounded == pytest.approx(full, rel=3e-3)
    assert rounded != full


def reader(name: str, dtype: torch.dtype = torch.float32) -> "Transformer":
    """A tiny model of a mechanism, with a tokenizer."""
    config = replace(CONFIGS[name], d_vocab=300)
    model = Transformer(config, tokenizer=Tokenizer(small_tokenizer()), dtype=dtype)
    for part, weight in tiny(config, dtype=dtype).weights().items():
        model.weights()[part].copy_(weight)
    return model
