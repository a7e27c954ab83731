"""The facts that come along: enough of them, each once, their subjects and objects where they should be."""

from collections import Counter
from typing import TYPE_CHECKING

from interp.analyses.fact_data import bundled_facts
from interp.fact_partners import partners
from interp.facts import answer_ids, exact_span, fill

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FACTS = bundled_facts()


def test_there_are_many_facts_in_many_relations() -> None:
    counts = Counter(fact.relation for fact in FACTS)
    assert len(FACTS) >= 500
    assert len(counts) >= 18
    assert min(counts.values()) >= 20


def test_every_fact_stands_once_and_a_subject_has_one_object_in_a_relation() -> None:
    assert len({(fact.relation, fact.subject) for fact in FACTS}) == len(FACTS)
    assert len({fact.id for fact in FACTS}) == len(FACTS)


def test_no_prompt_gives_its_answer_away() -> None:
    sentences = [(fact, prompt) for fact in FACTS for prompt in (fact.prompt, *fact.paraphrase_prompts)]
    assert [prompt for fact, prompt in sentences if fact.object.lower() in prompt.lower().split()] == []
    assert [fact.id for fact in FACTS if fact.object in fact.subject] == []


def test_every_relation_has_a_template_and_three_other_ones_and_several_objects() -> None:
    for relation in {fact.relation for fact in FACTS}:
        members = [fact for fact in FACTS if fact.relation == relation]
        templates = {(fact.template, *fact.paraphrases) for fact in members}
        assert len(templates) == 1, relation
        assert len(set(templates.pop())) == 4, relation
        assert len({fact.object for fact in members}) >= 5, relation


def test_every_subject_is_found_exactly_in_every_sentence(smollm2: "Transformer") -> None:
    """`exact_span` refuses a token that holds more; the tokens spell the subject, and the answer has its own."""
    several, single = 0, 0
    for fact in FACTS:
        span = exact_span(smollm2.tokenizer, fact.template, fact.subject)
        for template in (fact.template, *fact.paraphrases):
            ids = smollm2.tokenizer.prompt_ids(fill(template, fact.subject))
            place = exact_span(smollm2.tokenizer, template, fact.subject)
            assert smollm2.tokenizer.decode(ids[place.start : place.stop]).strip() == fact.subject
        several += span.stop - span.start > 1
        single += len(answer_ids(smollm2.tokenizer, fact.prompt, fact.answer)) == 1
    assert several >= len(FACTS) / 2
    assert single >= 0.7 * len(FACTS)


def test_nearly_every_fact_has_a_partner_in_the_default_model(smollm2: "Transformer") -> None:
    """Those without one have subjects of a length of their own."""
    tokenizer = smollm2.tokenizer
    found = partners(tokenizer, FACTS, seed=0)
    assert len(found.pairs) + len(found.without) == len(FACTS)
    assert len(found.pairs) >= 0.95 * len(FACTS)
    for fact, partner in found.pairs:
        prompts = [tokenizer.prompt_ids(fill(fact.template, each.subject)) for each in (fact, partner)]
        spans = [exact_span(tokenizer, fact.template, each.subject) for each in (fact, partner)]
        assert len(prompts[0]) == len(prompts[1])
        assert (spans[0].start, spans[0].stop) == (spans[1].start, spans[1].stop)
        assert fact.relation == partner.relation
        assert fact.object != partner.object
