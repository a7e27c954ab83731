"""A fact is a sentence that stops before its object; its subject is found from its place in the template."""

import re
from typing import TYPE_CHECKING

import pytest
from words import Words

from interp.errors import UsageError
from interp.facts import Fact, answer_ids, exact_span, of_relations, spread

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FRANCE = Fact("France", "capital", "The capital of {} is", "Paris", paraphrases=("{} is governed from",))


def test_a_fact_reads_as_its_sentences_and_what_follows_them() -> None:
    assert FRANCE.prompt == "The capital of France is"
    assert FRANCE.answer == " Paris"
    assert FRANCE.paraphrase_prompts == ("France is governed from",)
    assert FRANCE.id == "capital/France"
    assert Fact("France", "capital", "In {},", "Paris", id="7").id == "7"


def test_other_braces_of_a_sentence_stay() -> None:
    assert Fact("x", "set", "{1, {}, {n}} holds", "n").prompt == "{1, x, {n}} holds"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"subject": ""}, "the subject is ''; expected words"),
        ({"subject": " France"}, "the subject is ' France'; expected words without spaces around them"),
        ({"object": " Paris"}, "the object is ' Paris'"),
        ({"relation": ""}, "the relation is ''"),
        ({"template": "The capital is"}, "the template 'The capital is' has no {}; expected one"),
        ({"template": "{} and {}"}, "has 2 {}; expected one"),
        ({"template": "The capital of {} is "}, "ends in a space; leave it out"),
        ({"paraphrases": ("{} is", "no slot")}, "the paraphrase 'no slot' has no {}"),
        ({"counterfactual": "France"}, "the counterfactual is the subject itself"),
        ({"counterfactual": ""}, "the counterfactual is ''"),
    ],
)
def test_a_fact_that_cannot_be_read_is_refused(changed: dict[str, object], says: str) -> None:
    whole = {"subject": "France", "relation": "capital", "template": "The capital of {} is", "object": "Paris"}
    with pytest.raises(UsageError, match=re.escape(says)):
        Fact(**(whole | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "subject", "start", "pieces"),
    [
        ("{} lies in", "Kenya", 0, ("Kenya",)),
        ("Once upon a time {} lay in", "Kenya", 4, (" Kenya",)),
        ("Kenya or {} is in", "Kenya", 2, (" Kenya",)),
        ("Kenya, Kenya and {} or Kenya", "Kenya", 4, (" Kenya",)),
        ("an {} and", "an", 1, (" an",)),
        ("aaa {} b", "aa", 1, (" aa",)),
        ("When '{}' rang", "Big Ben", 3, ("Big", " Ben")),
    ],
)
def test_the_subject_is_found_at_the_slot_wherever_else_its_letters_stand(
    template: str, subject: str, start: int, pieces: tuple[str, ...]
) -> None:
    for prefix, before in (("none", 0), ("doc", 1)):
        span = exact_span(Words(), template, subject, prefix=prefix)  # type: ignore[arg-type]
        assert (span.start, span.pieces) == (start + before, pieces)


def test_a_subject_that_shares_a_token_with_other_words_is_refused_with_the_token() -> None:
    with pytest.raises(UsageError, match=re.escape("the subject 'Paris' shares a token with its neighbours: [' Paris")):
        exact_span(Words(), "Old {}ian streets are", "Paris")


def test_an_answer_has_the_tokens_that_follow_the_prompt(smollm2: "Transformer") -> None:
    tokenizer = smollm2.tokenizer
    assert tokenizer.str_tokens(answer_ids(tokenizer, FRANCE.prompt, FRANCE.answer)) == [" Paris"]
    several = answer_ids(tokenizer, "The capital of Burkina Faso is", " Ouagadougou")
    assert len(several) > 1
    assert tokenizer.decode(several) == " Ouagadougou"


def test_an_answer_that_shares_its_first_token_with_the_prompt_is_refused() -> None:
    """Some vocabularies have tokens of several words."""
    tokenizer = Words()
    tokenizer.pattern = re.compile(r" is Paris| ?\w+|.")
    with pytest.raises(UsageError, match=re.escape("no token begins with the answer ' Paris'")):
        answer_ids(tokenizer, "The capital is", " Paris")


def test_relations_are_chosen_by_name_and_an_unknown_one_is_told() -> None:
    euro = Fact("France", "currency", "{} pays in", "euros")
    assert of_relations([FRANCE, euro, FRANCE], ["capital"]) == (FRANCE, FRANCE)
    assert of_relations([euro, FRANCE], ["capital", "currency"]) == (euro, FRANCE)
    with pytest.raises(UsageError, match="'capitol'. Did you mean 'capital'. There are capital, currency"):
        of_relations([FRANCE, euro], ["capital", "capitol"])


def test_facts_are_spread_evenly_over_all_of_them() -> None:
    facts = [Fact("France", "capital", "In {},", "Paris", id=str(place)) for place in range(7)]
    chosen = {limit: [fact.id for fact in spread(facts, limit)] for limit in (1, 2, 3, 7, 9, None)}
    assert chosen[1] == ["0"]
    assert chosen[2] == ["0", "3"]
    assert chosen[3] == ["0", "2", "4"]
    assert chosen[7] == chosen[9] == chosen[None] == [str(place) for place in range(7)]
