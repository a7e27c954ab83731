"""FFN memories of facts: a fact written by hand, the same numbers as prompt by prompt, and what is left out."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from spoken import spoken_fact

from interp.analyses.fact_memories import FactMemories, fact_memories
from interp.analyses.memories import ffn_memories
from interp.analyses.projection import project
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.circuits import OneFact
from interp.results import Result

if TYPE_CHECKING:
    from pathlib import Path

FACT = OneFact()
KNOWN = Fact(subject="Eiffel Tower", relation="city", template="The {} is in", object="Paris")
UNKNOWN = Fact(subject="Space Needle", relation="city", template="The {} is in", object="Paris")
UNASKED = Fact(subject="The", relation="city", template="{}Eiffel is in", object="Paris")


@pytest.fixture(scope="module")
def found() -> FactMemories:
    return fact_memories(spoken_fact(FACT), [UNKNOWN, KNOWN, UNASKED], top_k=3, near=1)


def test_the_written_neuron_speaks_for_the_answer_at_the_end_of_the_subject_alone(found: FactMemories) -> None:
    layer, neuron = FACT.neuron
    assert found.axes["fact"] == (KNOWN.id,)
    assert found["answer"][0].strip() == "Paris"
    at = {"fact": KNOWN.id, "role": "subject_last", "layer": layer, "rank": 1}
    assert found.at("name", **at) == f"{layer}.{neuron}"
    assert (found.at("coefficient", **at), found.at("answer_rank", **at)) == (1, 1)
    assert found.at("dominance", fact=KNOWN.id, role="last").tolist() == [[0, 0, 0]] * FACT.n_layers


def test_facts_that_are_unknown_or_cannot_be_measured_are_named(found: FactMemories) -> None:
    assert set(found.excluded) == {UNKNOWN.id, UNASKED.id}
    assert "Seattle" in found.excluded[UNKNOWN.id]
    assert "2 of 3 facts are left out" in found.summary()[-2]


def test_the_numbers_are_those_of_each_prompt(found: FactMemories) -> None:
    model = spoken_fact(FACT)
    for role, position in (("subject_last", -3), ("last", -1)):
        one = ffn_memories(model, KNOWN.prompt, position=position, top_k=3, words=1)
        cell = {"fact": KNOWN.id, "role": role}
        assert found.at("name", **cell).tolist() == one["name"].tolist()
        assert np.array_equal(found.at("dominance", **cell), one["dominance"])
        assert found.at("promoted_token", **cell).tolist() == one["promoted_token"][..., 0].tolist()
    layer, neuron = FACT.neuron
    read = project(model, model.W_out[layer, neuron][None], tracked=[FACT.token("Paris")], top_k=1)
    at = {"fact": KNOWN.id, "role": "subject_last", "layer": layer, "rank": 1}
    assert float(found.at("answer_score", **at)) == float(read.tracked_score)


def test_of_an_object_of_several_tokens_the_first_is_looked_for(found: FactMemories) -> None:
    longer = fact_memories(spoken_fact(FACT), [replace(KNOWN, object="Paris is")], top_k=3, near=1)
    assert longer["answer"].tolist() == found["answer"].tolist()
    np.testing.assert_array_equal(longer["answer_rank"], found["answer_rank"])


def test_a_share_counts_facts_of_which_any_sub_update_is_near(found: FactMemories) -> None:
    near = (found["answer_rank"] <= 1).any(-1).mean(0)
    assert np.array_equal(found["share"], near)
    assert found.at("share", role="subject_last", layer=FACT.neuron.layer) == 1


def test_a_result_is_saved_and_shown(found: FactMemories, tmp_path: "Path") -> None:
    assert Result.load(found.save(tmp_path / "it")).identical(found)
    assert [line.name for line in found.figure().data] == ["subject last", "last"]


def test_a_model_that_knows_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="knows none of the 1 facts; the first"):
        fact_memories(spoken_fact(FACT), [UNKNOWN])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"top_k": 0}, "top_k is 0; expected 1 to"),
        ({"top_k": 5000}, "top_k is 5000; expected 1 to"),
        ({"near": 0}, "near is 0; expected at least 1"),
    ],
)
def test_counts_that_no_model_has_are_refused_before_facts_are_asked(settings: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fact_memories(spoken_fact(FACT), [UNKNOWN], **settings)  # type: ignore[arg-type]  # of several settings
