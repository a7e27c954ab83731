"""A partner's subject takes a fact's place token for token, and leads to another answer."""

from words import Words

from interp.fact_partners import partners
from interp.facts import Fact, exact_span, fill


def capital(subject: str, city: str, **more: str) -> Fact:
    return Fact(subject, "capital", "The capital of {} is", city, **more)  # type: ignore[arg-type]


FRANCE, ITALY, SPAIN = capital("France", "Paris"), capital("Italy", "Rome"), capital("Spain", "Madrid")
SAN, COSTA = capital("San Marino", "San Marino"), capital("Costa Rica", "San Jose")


def test_partners_have_equally_many_tokens_in_the_same_place_and_another_answer() -> None:
    tokenizer = Words(letters=4)
    facts = [FRANCE, ITALY, SPAIN, capital("Kenya", "Nairobi"), capital("Chad", "Paris"), capital("Peru", "Lima")]
    found = partners(tokenizer, facts)
    assert found.without == {}
    for fact, partner in found.pairs:
        swapped = fill(fact.template, partner.subject)
        assert fact.counterfactual == partner.subject != fact.subject
        assert partner in facts
        assert partner.object != fact.object
        spans = [exact_span(tokenizer, fact.template, subject) for subject in (fact.subject, partner.subject)]
        assert (spans[0].start, spans[0].stop) == (spans[1].start, spans[1].stop)
        assert len(tokenizer.prompt_ids(swapped, "doc")) == len(tokenizer.prompt_ids(fact.prompt, "doc"))


def test_a_fact_without_a_partner_is_told_and_the_others_go_on() -> None:
    lonely = Fact("gold", "symbol", "The symbol of {} is", "Au")
    found = partners(Words(), [FRANCE, ITALY, SAN, lonely])
    assert [fact.subject for fact, _ in found.pairs] == ["France", "Italy"]
    assert found.without["symbol/gold"] == "the relation 'symbol' has no other fact with another object."
    assert "none of 2 other subjects fits where 'San Marino' has 2 tokens" in found.without["capital/San Marino"]


def test_an_answer_that_begins_with_the_same_token_is_no_other_answer() -> None:
    assert partners(Words(), [SAN, COSTA]).pairs == ()
    assert len(partners(Words(), [SAN, COSTA, capital("El Salvador", "Quito")]).pairs) == 3


def test_a_subject_that_cannot_be_placed_is_nobodys_partner_and_has_none() -> None:
    """Its own sentence glues other letters to it."""
    glued = Fact("Spain", "capital", "The {}ish capital is", "Madrid")
    found = partners(Words(), [FRANCE, ITALY, glued])
    assert "shares a token" in found.without["capital/Spain"]
    assert [fact.subject for fact, _ in found.pairs] == ["France", "Italy"]


def test_the_counterfactual_that_a_fact_names_is_its_partner_or_it_has_none() -> None:
    named, unknown = capital("Peru", "Lima", counterfactual="Spain"), capital("Chad", "X", counterfactual="Atlantis")
    found = partners(Words(), [FRANCE, ITALY, SPAIN, named, unknown])
    assert {fact.subject: partner.subject for fact, partner in found.pairs}["Peru"] == "Spain"
    assert "no other fact about 'Atlantis'" in found.without["capital/Chad"]


def test_partners_are_drawn_by_the_seed_and_do_not_depend_on_other_relations() -> None:
    facts = [capital(name, city) for name, city in zip("ABCDEFGH", "ijklmnop", strict=True)]
    chosen = [[partner.subject for _, partner in partners(Words(), facts, seed=seed).pairs] for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    others = [Fact("gold", "symbol", "{} is", "Au"), *facts, Fact("iron", "symbol", "{} is", "Fe")]
    again = [partner.subject for fact, partner in partners(Words(), others, seed=1).pairs if fact.relation == "capital"]
    assert again == chosen[0]
