"""Attribution over facts: what is averaged, against which other objects, and what is left out and why."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from interp.analyses.attribution import direct_logit_attribution
from interp.analyses.attribution_facts import FactAttribution, attribute_facts
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

TEMPLATE = "The capital of {} is"
KNOWN = [
    Fact(name, "capital", TEMPLATE, city)
    for name, city in (("France", "Paris"), ("Italy", "Rome"), ("the United Kingdom", "London"))
]
UNKNOWN = Fact("Germany", "capital", TEMPLATE, "Rome")
LONELY = Fact("Eiffel Tower", "city", "The {} is located in the city of", "Paris")
CUT = Fact("Fin", "odd", "The {}land of the thousand lakes has", "Helsinki")


@pytest.fixture(scope="module")
def found(smollm2: "Transformer") -> FactAttribution:
    return attribute_facts(smollm2, [*KNOWN, UNKNOWN, LONELY, CUT], by="head")


def test_only_known_facts_are_averaged_and_the_others_are_named_with_the_reason(found: FactAttribution) -> None:
    assert list(found.axes["prompt"]) == [fact.id for fact in KNOWN]
    reasons = found.excluded
    assert reasons[UNKNOWN.id] == "the model says ' Berlin'"
    assert reasons[LONELY.id] == (
        "its relation 'city' has no other fact, so that there is no foil. Give more of its facts, "
        "or ask for no foils (foils='none', --foils none)."
    )
    assert "shares a token" in reasons[CUT.id]
    assert "3 of 6 facts are left out" in "\n".join(found.summary())


def test_each_fact_has_the_terms_that_it_has_alone(found: FactAttribution, smollm2: "Transformer") -> None:
    for row, fact in enumerate(KNOWN):
        alone = direct_logit_attribution(smollm2, fact.prompt, fact.answer, str(found["foil"][row]), by="head")
        np.testing.assert_allclose(found["contribution"][row], alone["contribution"][0], atol=1e-4)
    assert found.worst_error < 1e-4
    np.testing.assert_allclose(found["mean"], found.of_relation("capital"), atol=1e-6)


def test_foils_are_other_objects_of_the_relation_and_depend_on_the_fact_alone(
    found: FactAttribution, smollm2: "Transformer"
) -> None:
    objects = {fact.answer for fact in KNOWN}
    assert all(str(foil) in objects - {fact.answer} for foil, fact in zip(found["foil"], KNOWN, strict=True))
    turned = attribute_facts(smollm2, KNOWN[::-1], by="sublayer")
    assert turned["foil"].tolist() == found["foil"].tolist()[::-1]


def test_without_foils_the_object_alone_is_explained(smollm2: "Transformer") -> None:
    result = attribute_facts(smollm2, [LONELY], by="sublayer", foils="none")
    alone = direct_logit_attribution(smollm2, LONELY.prompt, LONELY.answer)
    np.testing.assert_allclose(result["mean"], alone["mean"], atol=1e-5)
    assert result.explained == "logit(object)"


def test_the_one_fact_of_a_model_made_by_hand_is_written_by_its_extractor() -> None:
    circuit = OneFact()
    facts = [
        Fact("Eiffel Tower", "city", "The {} is in", "Paris"),
        Fact("Space Needle", "city", "The {} is in", "Seattle"),
        Fact("Needle", "city", "The {} is in", "Paris"),
    ]
    result = attribute_facts(one_fact_memory(circuit), facts, by="head")
    assert list(result.axes["prompt"]) == [facts[0].id, facts[1].id]
    head = result.axes["part"].index(f"L{circuit.extractor.layer}.H{circuit.extractor.head}")
    assert result["contribution"][:, head].tolist() == [circuit.strength, 0]


def test_of_an_object_of_several_tokens_the_first_is_explained() -> None:
    short = Fact("Eiffel Tower", "city", "The {} is in", "Paris")
    found = [
        attribute_facts(one_fact_memory(), [fact], by="head", foils="none")["contribution"]
        for fact in (short, replace(short, object="Paris is"))
    ]
    np.testing.assert_array_equal(found[1], found[0])


def test_what_cannot_be_averaged_is_refused(found: FactAttribution, smollm2: "Transformer") -> None:
    with pytest.raises(UsageError, match="None of the 1 facts can be attributed"):
        attribute_facts(smollm2, [UNKNOWN])
    with pytest.raises(UsageError, match="do not correspond"):
        attribute_facts(smollm2, KNOWN, by="source")
    with pytest.raises(UsageError, match="there are capital"):
        found.of_relation("city")
