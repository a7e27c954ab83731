"""A fact is known where the model's most likely token is the first of its answer; what it says instead is told."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_filter import KnownFacts, filter_facts
from interp.analyses.last_logits import texts_within
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.constructed import one_fact_memory
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

FACTS = bundled_facts()[::4]
FRANCE = Fact("France", "capital", "The capital of {} is", "Paris")
WRONG = Fact("France", "capital", "The capital of {} is", "Ljubljana", id="wrong")
CUT = Fact("Fin", "style", "The {}land of the thousand lakes has the capital", "Helsinki")


@pytest.fixture(scope="module")
def asked(smollm2: "Transformer") -> KnownFacts:
    """A quarter of the facts that come along."""
    return filter_facts(smollm2, FACTS)


def test_a_known_and_an_unknown_fact_are_told_apart(smollm2: "Transformer") -> None:
    found = filter_facts(smollm2, [FRANCE, WRONG])
    assert found["known"].tolist() == [True, False]
    assert found["said"].tolist() == [" Paris", " Paris"]
    assert found.known([FRANCE, WRONG]) == (FRANCE,)
    assert (int(found["rank"][0]), found["rank"][1] > 1) == (1, True)
    assert found["probability"][0] == found["said_probability"][0] > found["probability"][1]
    assert (int(found["count"][0]), int(found["known_count"][0]), float(found["known_share"][0])) == (2, 1, 0.5)


def test_the_numbers_are_those_of_each_prompt_alone(smollm2: "Transformer", asked: KnownFacts) -> None:
    """In a pass of its own, without padding; the answer is the first token of a space and the object."""
    for place in range(0, len(FACTS), 30):
        fact = FACTS[place]
        logits = smollm2(smollm2.to_tokens(fact.prompt))[0, -1]
        answer = smollm2.tokenizer.encode(f" {fact.object}")[0]
        assert float(asked["probability"][place]) == pytest.approx(float(logits.softmax(-1)[answer]), rel=1e-3)
        assert int(asked["rank"][place]) == 1 + int((logits > logits[answer]).sum())
        assert asked["said"][place] == smollm2.tokenizer.str_tokens([int(logits.argmax())])[0]
        assert bool(asked["known"][place]) == (int(logits.argmax()) == answer)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_of_any_size_say_the_same(
    smollm2: "Transformer", asked: KnownFacts, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside prompts of other lengths, too, for which they are padded otherwise."""
    facts, read, told = FACTS[::15], [], []
    run = type(smollm2).run_with_cache

    def counted(model: object, tokens: torch.Tensor, *rest: object, **more: object) -> object:
        read.append(len(tokens))
        return run(model, tokens, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(smollm2), "run_with_cache", counted)
    longest = max(len(smollm2.tokenizer.prompt_ids(fact.prompt)) for fact in facts)
    bytes_of_one = 2**40 // texts_within(smollm2, longest, 2**40) + 1
    found = filter_facts(smollm2, facts, max_bytes=size * bytes_of_one, progress=lambda *done: told.append(done))
    assert max(read) == min(size, len(facts))
    assert told[-1] == (len(facts), len(facts))
    for name in ("known", "said", "rank", "subject_start", "subject_last"):
        assert found[name].tolist() == asked[name][::15].tolist(), name
    np.testing.assert_allclose(found["probability"], asked["probability"][::15], rtol=1e-3)


def test_where_the_subject_stands_is_told_with_its_tokens(smollm2: "Transformer", asked: KnownFacts) -> None:
    for place, fact in enumerate(FACTS):
        ids = smollm2.tokenizer.prompt_ids(fact.prompt)
        start, last = int(asked["subject_start"][place]), int(asked["subject_last"][place])
        assert smollm2.tokenizer.decode(ids[start : last + 1]).strip() == fact.subject
        assert int(asked["subject_tokens"][place]) == last + 1 - start == asked["subject_pieces"][place].count("|") + 1
    bare = filter_facts(smollm2, FACTS[:2], prefix="none")
    assert bare["subject_start"].tolist() == [start - 1 for start in asked["subject_start"][:2]]
    twice = replace(FRANCE, template="Unlike the king of France, the capital of {} is")
    read = smollm2.to_str_tokens(twice.prompt)
    places = [place for place, token in enumerate(read) if token == " France"]
    assert [len(places), int(filter_facts(smollm2, [twice])["subject_last"][0])] == [2, places[1]]


def test_answers_of_several_tokens_are_flagged_and_measured_at_the_first(smollm2: "Transformer") -> None:
    hamlet = Fact("Hamlet", "author", "The play {} was written by", "William Shakespeare")
    found = filter_facts(smollm2, [hamlet, FRANCE])
    assert found["answer_tokens"].tolist() == [2, 1]
    assert found["answer_token"].tolist() == [" William", " Paris"]
    first = smollm2.to_single_token(" William")
    probability = float(smollm2(smollm2.to_tokens(hamlet.prompt))[0, -1].softmax(-1)[first])
    assert float(found["probability"][0]) == pytest.approx(probability, rel=1e-3)


def test_relations_are_summed_up_over_their_own_facts(asked: KnownFacts) -> None:
    frame = asked.to_frame()
    for relation, part in frame.groupby("relation_name"):
        assert int(asked.at("count", relation=relation)) == len(part)
        assert int(asked.at("known_count", relation=relation)) == int(part.known.sum())
        assert float(asked.at("known_share", relation=relation)) == pytest.approx(part.known.mean())
        assert float(asked.at("mean_probability", relation=relation)) == pytest.approx(part.probability.mean())
        assert float(asked.at("mean_subject_tokens", relation=relation)) == pytest.approx(part.subject_tokens.mean())
        assert float(asked.at("mean_answer_tokens", relation=relation)) == pytest.approx(part.answer_tokens.mean())
        low, high = (float(asked.at(bound, relation=relation)) for bound in ("share_low", "share_high"))
        assert 0 <= low <= part.known.mean() <= high <= 1


def test_a_small_real_model_knows_most_of_them(asked: KnownFacts) -> None:
    """Of all 538 SmolLM2-135M knows 363, of which 223 have subjects of several tokens; a quarter is asked here."""
    assert 0.55 < asked["known"].mean() < 0.8
    assert (asked["known"] & (asked["subject_tokens"] > 1)).sum() >= 45
    assert (asked["known_count"] > 0).sum() >= 17


def test_a_fact_that_cannot_be_measured_is_skipped_with_the_reason_and_the_others_go_on(
    smollm2: "Transformer",
) -> None:
    half = replace(FRANCE, subject="\ud800", id="half")
    found = filter_facts(smollm2, [CUT, FRANCE, half])
    assert found.axes["fact"] == ("capital/France",)
    assert set(found.skipped) == {"style/Fin", "half"}
    assert "shares a token with its neighbours" in found.skipped["style/Fin"]
    assert "half of a surrogate pair" in found.skipped["half"]
    assert np.isnan(found.at("known_share", relation="style"))
    said = "\n".join(found.summary())
    assert "style: none could be measured" in said
    assert "skipped style/Fin: the subject 'Fin' shares" in said
    assert found.known([CUT, FRANCE]) == (FRANCE,)


def test_a_prompt_longer_than_the_context_is_skipped_and_the_others_go_on() -> None:
    memory = one_fact_memory()
    known = Fact("Eiffel Tower", "city", "The {} is in", "Paris")
    long = replace(known, template=f"{'The ' * memory.config.n_ctx}{{}} is in", id="long")
    found = filter_facts(memory, [long, known])
    assert found.axes["fact"] == (known.id,)
    assert re.search(r"has \d+ tokens, the context holds 32", found.skipped["long"])


@pytest.mark.parametrize(
    ("facts", "prefix", "says"),
    [
        ([], "doc", "no facts to ask the model about"),
        ([FRANCE, FRANCE], "doc", "Two facts have the id 'capital/France'"),
        ([FRANCE], "chat", "The prefix is 'chat'.*Use 'doc' or 'none'"),
        ([CUT], "doc", "None of the 1 facts can be measured; the first, 'style/Fin': the subject 'Fin' shares"),
    ],
)
def test_questions_without_an_answer_are_refused(
    smollm2: "Transformer", facts: list[Fact], prefix: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        filter_facts(smollm2, facts, prefix=prefix)  # type: ignore[arg-type]


def test_the_result_comes_back_from_its_folder_and_draws_its_relations(asked: KnownFacts, tmp_path: Path) -> None:
    loaded = Result.load(asked.save(tmp_path / "facts"))
    assert isinstance(loaded, KnownFacts)
    assert loaded.identical(asked)
    assert loaded.skipped == {}
    assert loaded.known(FACTS) == asked.known(FACTS)
    share = loaded.figure().data[0]
    assert list(share.x) == pytest.approx(asked["known_share"].tolist())
    assert list(share.x - share.error_x.arrayminus) == pytest.approx(asked["share_low"].tolist())
    assert list(share.x + share.error_x.array) == pytest.approx(asked["share_high"].tolist())
    assert f"{int(asked['known'].sum())} of {len(FACTS)}" in asked.summary()[0]
