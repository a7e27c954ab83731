"""The lens over facts: each fact is read where it would be alone, known ones only are averaged."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from interp.analyses.lens import logit_lens
from interp.analyses.lens_facts import FactLens, lens_facts
from interp.errors import UsageError
from interp.facts import Fact, exact_span
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

CITY = "The {} is in"
KNOWN = Fact("Eiffel Tower", "city", CITY, "Paris")
FACTS = [KNOWN, Fact("Space Needle", "city", CITY, "Seattle"), Fact("Needle", "city", CITY, "Paris")]


@pytest.fixture(scope="module")
def memory() -> "Transformer":
    return one_fact_memory(OneFact(n_layers=3))


def test_each_fact_is_read_as_it_is_alone_at_either_position(smollm2: "Transformer") -> None:
    """Of several lengths, so that one is padded; the subject that ends later stands first."""
    facts = [
        Fact("France", "capital", "The capital of {} is", "Paris"),
        Fact("Eiffel Tower", "city", "The {} is located in the city of", "Paris"),
    ]
    for at in ("last", "subject"):
        found = lens_facts(smollm2, facts, at=at)
        for fact in facts:
            where = -1 if at == "last" else exact_span(smollm2.tokenizer, fact.template, fact.subject).last
            alone = logit_lens(smollm2, fact.prompt, answers=[fact.answer], positions=[where])
            expected = alone["answer_log_probability"][:, 0, 0]
            np.testing.assert_allclose(found.at("log_probability", fact=fact.id), expected, atol=1e-3)
            np.testing.assert_allclose(found.at("kl_to_final", fact=fact.id), alone["kl_to_final"][:, 0], atol=1e-3)
            np.testing.assert_allclose(found.at("rank", fact=fact.id), alone["answer_rank"][:, 0, 0], rtol=1e-2)


def test_the_object_is_on_top_from_the_layer_of_the_extractor_on(memory: "Transformer") -> None:
    found = lens_facts(memory, [KNOWN])
    assert found["top_share"].tolist() == [0, 0, 1, 1]  # embedding, and layers 0 to 2
    assert "nan" not in "\n".join(found.summary()), "one fact has no interval"
    assert found.at("rank", fact=KNOWN.id, layer=0) == 2  # behind the foil, which the relation by itself says
    assert "in at least half of them from 1 on" in found.summary()[1]


def test_batches_change_nothing(memory: "Transformer") -> None:
    assert lens_facts(memory, FACTS, max_bytes=1).identical(lens_facts(memory, FACTS))


def test_of_an_object_of_several_tokens_the_first_is_followed(memory: "Transformer") -> None:
    longer = replace(KNOWN, object="Paris is")
    np.testing.assert_array_equal(lens_facts(memory, [longer])["rank"], lens_facts(memory, [KNOWN])["rank"])


def test_means_are_over_known_facts_and_the_others_are_named(memory: "Transformer") -> None:
    found = lens_facts(memory, FACTS)
    assert found.excluded == {FACTS[2].id: "the model says ' Seattle'"}
    np.testing.assert_allclose(found["mean_probability"], found["probability"].mean(1))
    np.testing.assert_allclose(found["top_share"], (found["rank"] == 1).mean(1))
    np.testing.assert_allclose(found["median_rank"], np.median(found["rank"], axis=1))
    assert "1 of 3 facts are left out" in "\n".join(found.summary())


def test_without_a_known_fact_there_is_nothing_to_average(memory: "Transformer") -> None:
    with pytest.raises(UsageError, match="knows none of the 1 facts.*' Seattle'"):
        lens_facts(memory, FACTS[2:])


def test_the_figure_and_the_saved_copy_hold(memory: "Transformer", tmp_path: Path) -> None:
    found = lens_facts(memory, FACTS)
    curve = found.figure().data[1]
    assert curve.name == "share on top"
    assert curve.y[-1] == 1
    found.save(tmp_path / "lens")
    assert Result.load(tmp_path / "lens").identical(found)
    assert FactLens.load(tmp_path / "lens").summary() == found.summary()
