"""Editing the neuron that knows a fact does away with it and with nothing else; random neurons stand beside."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from spoken import with_words

from interp.analyses import edited_texts
from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_texts import GROUPS, Question, as_batch, fact_texts, members
from interp.analyses.group_effects import by_group
from interp.analyses.knowledge_neurons import knowledge_neurons
from interp.analyses.neuron_changes import mean_coefficients, neuron_edits
from interp.analyses.neuron_edits import NeuronEdits, edit_neurons
from interp.analyses.neurons import Neuron, neurons_of
from interp.analyses.suppression import in_turns, peers_of, suppression_study
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

CIRCUIT = OneFact(sharpness=8.0, prior=13.0)
WRITTEN = Neuron(*CIRCUIT.neuron)
EIFFEL = Fact("Eiffel Tower", "city", "The {} is in", "Paris", paraphrases=("{} in", "is The {} in"))
NEEDLE = Fact("Space Needle", "city", "The {} is in", "Seattle", paraphrases=("{} in",))
TOWER = Fact("Tower", "building", "The {} is in", "Seattle")
FACTS = (EIFFEL, NEEDLE, TOWER)


@pytest.fixture(scope="module")
def memory() -> "Transformer":
    """It knows where the Eiffel Tower is, with a probability that leaves room above; of all else it says Seattle."""
    return one_fact_memory(CIRCUIT)


@pytest.fixture(scope="module")
def edited(memory: "Transformer") -> NeuronEdits:
    return edit_neurons(memory, FACTS, {EIFFEL.id: [WRITTEN]}, controls=3, held_out=1)


def test_suppressing_the_neuron_forgets_the_fact(edited: NeuronEdits) -> None:
    for group in ("fact", "paraphrases", "held out"):
        assert float(edited.at("effect", change="zero", group=group)) < -0.8
        assert float(edited.at("lost", change="zero", group=group)) == 1
        assert float(edited.at("control_effect", change="zero", group=group)) == 0
        assert float(edited.at("excess", change="zero", group=group)) == edited.at("effect", change="zero", group=group)
    said = edited["said"][0, 0][edited["fact_id"] == EIFFEL.id]
    assert set(said) == {" Seattle"}


def test_and_nothing_else(memory: "Transformer", edited: NeuronEdits) -> None:
    """All logits of all other prompts are the same numbers."""
    for group in ("same relation", "other relations"):
        assert float(edited.at("effect", change="zero", group=group)) == 0
        assert float(edited.at("lost", change="zero", group=group)) == 0
    for text in ("The Space Needle is in", "The Tower is in", "Eiffel is in", "Paris Seattle"):
        tokens = memory.to_tokens(text)
        assert torch.equal(memory(tokens), memory.run_with_hooks(tokens, neuron_edits([WRITTEN], "zero")))


def test_amplifying_raises_the_fact_and_nothing_else(edited: NeuronEdits) -> None:
    assert float(edited.at("effect", change="x2", group="fact")) > 1e-3
    assert float(edited.at("relative", change="x2", group="fact")) > 0
    assert float(edited.at("effect", change="x2", group="same relation")) == 0


def test_the_mean_is_that_over_all_tokens_of_all_texts_but_the_prefix(memory: "Transformer") -> None:
    texts, _ = fact_texts(memory, map(Question.of, (EIFFEL, replace(NEEDLE, paraphrases=()), TOWER)))
    name = f"blocks.{WRITTEN.layer}.mlp.hook_post"
    each = [memory.run_with_cache(torch.tensor([text.ids]), [name])[1][name][0, 1:, WRITTEN.index] for text in texts]
    mean = float(torch.cat(each).mean())
    assert mean > 0.1
    found = edit_neurons(memory, FACTS, [WRITTEN], changes=("mean", f"={mean}"), controls=1)
    np.testing.assert_allclose(found["probability"][0], found["probability"][1], rtol=1e-4)
    assert not np.allclose(found["probability"][0], found["base_probability"])


def test_the_mean_stands_beside_nought_unless_something_else_is_asked_for(
    memory: "Transformer", edited: NeuronEdits
) -> None:
    """A coefficient of nought can be one that the model never has."""
    study = suppression_study(memory, FACTS, count=1, limit=1, position="subject", steps=1, controls=1)
    for found in (edited, study):
        assert found.axes["change"] == ("zero", "mean", "x2")
        assert {"  zero", "  mean", "  x2"} <= set(found.summary())


def test_edits_are_those_of_runs_with_hooks(memory: "Transformer", edited: NeuronEdits) -> None:
    """Text by text, without padding, for a control too."""
    control = [Neuron.parse(name) for name in str(edited["control_neurons"][0, 1]).split(", ")]
    texts, _ = fact_texts(memory, map(Question.of, FACTS))
    texts = [text for text in texts if text.group(Question.of(EIFFEL)) is not None]
    assert [text.text for text in texts] == edited["prompt"].tolist()
    for place, text in enumerate(texts):
        for change, name in enumerate(edited.axes["change"][:1]):
            for neurons, found in (
                ([WRITTEN], edited["probability"][change, 0]),
                (control, edited["control_probability"][change, 0, 1]),
            ):
                logits = memory.run_with_hooks(torch.tensor([text.ids]), neuron_edits(neurons, str(name)))[0, -1]
                assert float(found[place]) == pytest.approx(float(logits.softmax(-1)[text.answer]), rel=1e-4)


def test_how_many_texts_are_read_at_once_changes_nothing(
    memory: "Transformer", edited: NeuronEdits, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(edited_texts, "TEXTS_AT_ONCE", 2)
    again = edit_neurons(
        memory, FACTS, {EIFFEL.id: [WRITTEN]}, controls=3, held_out=1, progress=lambda *done: told.append(done)
    )
    np.testing.assert_allclose(again["probability"], edited["probability"], rtol=1e-5)
    assert again["said"].tolist() == edited["said"].tolist()
    assert told == [(24, 60), (48, 60), (60, 60)]  # 3 changes of 4 sets in 5 texts


@pytest.mark.parametrize("change", ["zero", "mean", "=1.5"])
def test_neurons_of_experts_and_of_the_shared_one_are_edited_as_in_runs_with_hooks(change: str) -> None:
    model = with_words("moe_shared_gated")
    tokens = model.to_tokens(EIFFEL.prompt)
    _, cache = model.run_with_cache(tokens, "blocks.1.mlp.hook_expert_indices", positions=[-1])
    neurons = neurons_of(model, ["1.shared.3", "1.shared.25", f"1.{int(cache['expert_indices', 1][0, 0, 0])}.7"])
    found = edit_neurons(model, FACTS, neurons, changes=[change], controls=2)
    assert {Neuron.parse(name).expert for name in str(found["control_neurons"][0, 0]).split(", ")} == {
        each.expert for each in neurons
    }
    texts, _ = fact_texts(model, map(Question.of, FACTS))
    batch, mask = as_batch(model.tokenizer, [text for text in texts if text.text in set(found["prompt"])])
    means = mean_coefficients(model, batch, neurons, mask=mask)
    hooks = neuron_edits(neurons, change, means=means)
    for place, prompt in enumerate(found["prompt"].tolist()):
        logits = model.run_with_hooks(model.to_tokens(prompt), hooks)[0, -1]
        answer = next(text.answer for text in texts if text.text == prompt)
        assert float(found["probability"][0, 0, place]) == pytest.approx(float(logits.softmax(-1)[answer]), rel=1e-4)
    assert not np.allclose(found["probability"][0, 0], found["base_probability"], rtol=1e-3)


def test_the_last_token_alone_can_be_edited(memory: "Transformer") -> None:
    """At the relation the neuron does not fire, so that nothing is lost."""
    found = edit_neurons(memory, [EIFFEL], [WRITTEN], changes=["zero"], controls=1, last=True)
    assert not found["effect"][0, GROUPS.index("fact")].any()


def test_texts_are_grouped_by_what_they_are_to_a_fact(memory: "Transformer") -> None:
    texts, skipped = fact_texts(memory, map(Question.of, FACTS), held_out=1)
    assert not skipped
    names = [[text.group(Question.of(fact)) for text in texts] for fact in (EIFFEL, TOWER)]
    same, other = "same relation", "other relations"
    assert names == [
        ["fact", "paraphrases", "held out", same, None, other],
        [other, None, None, other, None, "fact"],
    ]
    assert members(texts, [Question.of(EIFFEL)]).sum((1, 2)).tolist() == [1, 1, 1, 1, 1]


def test_of_an_object_of_several_tokens_the_first_is_measured(memory: "Transformer") -> None:
    longer = replace(EIFFEL, object="Paris is")
    answers = [{text.answer for text in fact_texts(memory, [Question.of(fact)])[0]} for fact in (EIFFEL, longer)]
    assert answers[0] == answers[1] == {memory.to_single_token(" Paris")}


def test_effects_are_means_over_facts_of_means_over_their_texts() -> None:
    """By hand: two edited facts, the first with two paraphrases, the second with one."""
    member = np.zeros((1, 2, 4), dtype=bool)
    member[0, 0, :2] = member[0, 1, 2] = True
    base = np.array([0.5, 0.7, 0.8, 0.9])
    own = np.array([[[0.1, 0.5, 0.0, 0.9], [0.5, 0.7, 0.6, 0.9]]])
    control = np.array([[[[0.5, 0.7, 0.8, 0.9]] * 2, [[0.5, 0.7, 0.8, 0.9], [0.5, 0.7, 0.6, 0.9]]]])
    found = by_group(
        member,
        ["a", "a", "b", "c"],
        {
            "base_probability": base,
            "probability": own,
            "control_probability": control,
            "base_rank": np.array([1, 1, 2, 1]),
            "rank": np.array([[[2, 1, 3, 1], [1, 1, 3, 1]]]),
            "control_rank": np.array([[[[1, 1, 2, 1], [2, 1, 2, 1]]] * 2]),
        },
        seed=0,
    )
    values = {name: np.asarray(each[0]).item() for name, each in found.items() if np.asarray(each[0]).size == 1}
    assert values["effect"] == pytest.approx((-0.3 - 0.2) / 2)
    assert values["control_effect"] == pytest.approx((0 - 0.1) / 2)
    assert values["excess"] == pytest.approx(-0.2)
    assert values["relative"] == pytest.approx((0.3 + 0.6) / (0.6 + 0.8) - 1)  # no mean of 0.3 / 0.6 and 0.6 / 0.8
    assert (values["effect_low"], values["effect_high"]) == pytest.approx((-0.3, -0.2))
    assert values["lost"] == 0.5  # of two texts that were answered rightly
    assert values["control_lost"] == 0.25
    assert values["units"] == 2


def test_where_one_fact_is_edited_intervals_are_over_those_that_are_measured(memory: "Transformer") -> None:
    more = [*FACTS, replace(TOWER, subject="Needle", id="")]
    found = edit_neurons(memory, more, [WRITTEN], changes=["=1"], controls=1)  # as if the neuron fired everywhere
    assert found["units"].tolist() == [1, 1, 0, 1, 2]
    low, effect, high = (float(found[name][0, 4]) for name in ("effect_low", "effect", "effect_high"))
    assert low <= effect <= high < 0
    assert np.isnan(found["effect_low"][0, 0])
    assert np.isnan(found["effect"][0, 2])


def test_a_text_that_cannot_be_measured_is_skipped_and_the_others_go_on(memory: "Transformer") -> None:
    """A paraphrase alone, longer than the context; a prompt with its paraphrases, as the answer begins in its word."""
    long = Question("long", "city", ("Tower is", "The " * memory.config.n_ctx + "is", "The"), " Paris")
    inside = Question("inside", "city", ("is Par", "The"), "is")
    texts, skipped = fact_texts(memory, [long, inside, Question.of(TOWER)])
    assert [text.text for text in texts] == ["Tower is", "The", TOWER.prompt]
    (too_long, no_answer) = skipped.items()
    assert too_long[0].startswith("long: The The")
    assert "the context holds 32" in too_long[1]
    assert no_answer[0] == "inside: is Par"
    assert "no token begins with the answer" in no_answer[1]
    with pytest.raises(UsageError, match="None of the 1 facts"):
        fact_texts(memory, [Question("none", "city", ("The",), "")])


@pytest.mark.parametrize(
    ("neurons", "settings", "message"),
    [
        ({"city/Atlantis": ["0.5"]}, {}, "'city/Atlantis'"),
        ({}, {}, "no neurons to edit"),
        (["0.5000"], {}, "no neuron 0.5000"),
        (["0.5"], {"changes": ["half"]}, "no change"),
        (["0.5"], {"changes": []}, "changes, each once"),
        (["0.5"], {"controls": 0}, "at least one control"),
    ],
)
def test_edits_of_what_is_not_there_are_refused(
    memory: "Transformer", neurons: dict[str, list[str]] | list[str], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        edit_neurons(memory, FACTS, neurons, **settings)  # type: ignore[arg-type]  # by name


def test_a_result_comes_back_as_it_was_saved(edited: NeuronEdits, tmp_path: Path) -> None:
    assert NeuronEdits.load(edited.save(tmp_path / "edits")).identical(edited)
    text = "\n".join(edited.summary())
    assert "held out" in text
    assert "100% of right answers lost" in text
    assert [trace.name for trace in edited.figure().data] == ["these neurons", "random neurons of their layers"]


def test_a_study_finds_the_neurons_of_known_facts_without_what_it_holds_out(memory: "Transformer") -> None:
    unknown = replace(NEEDLE, object="Paris", id="unknown")
    found = suppression_study(
        memory, [unknown, *FACTS], count=1, limit=2, position="subject", steps=2, changes=["zero"], controls=1
    )
    assert found.axes["edited"] == (EIFFEL.id,)  # to the answer of the other no neuron adds
    assert found["neurons"].tolist() == [str(WRITTEN)]
    assert set(found["fact_id"]) == {EIFFEL.id, TOWER.id, NEEDLE.id}  # the last as another of its relation
    assert found["held_out"].tolist() == [False, False, True, False, False]
    assert found.settings["count"] == 1
    with pytest.raises(UsageError, match="knows none"):
        suppression_study(memory, [unknown])
    with pytest.raises(UsageError, match="adds to any of the 1 answers"):
        suppression_study(memory, [TOWER], steps=1)


def test_a_study_leaves_out_wordings_that_cannot_be_asked_and_goes_on(memory: "Transformer") -> None:
    glued, long = "is The{} in", f"{'The ' * memory.config.n_ctx}{{}} in"
    odd = replace(EIFFEL, paraphrases=("{} in", "{} in", glued, long, "is The {} in"), id="odd")
    found = suppression_study(
        memory, [odd, TOWER], count=1, position="subject", steps=2, changes=["zero"], controls=1, held_out=1
    )
    assert found["neurons"].tolist() == [str(WRITTEN)]
    assert found["prompt"].tolist() == [odd.prompt, "Eiffel Tower in", "is The Eiffel Tower in", TOWER.prompt]
    assert found["held_out"].tolist() == [False, False, True, False]
    reasons = dict(zip(found.axes["skipped"], found["skip_reason"], strict=True))
    assert "comes twice" in reasons["odd: Eiffel Tower in"]
    assert "shares a token" in reasons["odd: is TheEiffel Tower in"]
    assert "the context holds 32" in reasons[f"odd: {long.format(odd.subject)}"]
    assert len(reasons) == 3


def test_facts_are_taken_from_all_relations_in_turn_and_some_of_the_same_stand_beside() -> None:
    facts = [Fact(subject, relation, "{} is", "so") for relation, subject in ("ax", "ay", "az", "bx", "by", "cx")]
    assert [fact.id for fact in in_turns(facts, 5)] == ["a/x", "b/x", "c/x", "a/y", "b/y"]
    assert [fact.id for fact in peers_of(facts, facts[:1], 1)] == ["a/y"]
    assert [fact.id for fact in peers_of(facts, in_turns(facts, 3), 2)] == ["a/y", "a/z", "b/y"]


@pytest.mark.parametrize("prompt", ["My favourite fruit is the ban", "東京は日本の首"])
def test_what_is_measured_is_the_token_that_was_found_where_its_text_is_none(
    smollm2: "Transformer", prompt: str
) -> None:
    """The model goes on with the rest of a word, which melts into it as text, and with one byte of a letter."""
    probabilities = smollm2(smollm2.to_tokens(prompt))[0, -1].softmax(-1)
    found = knowledge_neurons(smollm2, prompt, steps=1, layers=[29])
    assert found["answer_id"].tolist() == [int(probabilities.argmax())]
    edits = edit_neurons(smollm2, [found.question], found.strongest(1), changes=["zero"], controls=1)
    assert edits["base_probability"][0] == pytest.approx(float(probabilities.max()), rel=1e-4)
    assert edits["base_rank"].tolist() == [1]
    assert edits["prompt"].tolist() == [prompt]


def test_a_question_has_as_many_answers_as_prompts() -> None:
    with pytest.raises(UsageError, match="1 answers to 2 prompts"):
        Question("odd", "city", ("The", "Tower is"), " Paris", (3,))


def test_of_other_relations_only_as_many_are_measured_as_were_asked_for(memory: "Transformer") -> None:
    more = [EIFFEL, NEEDLE, TOWER, *(replace(TOWER, subject=name, id="") for name in ("Needle", "Space", "The"))]
    found = edit_neurons(memory, more, [WRITTEN], changes=["zero"], controls=1, others=2)
    assert found["fact_id"].tolist()[:4] == [EIFFEL.id] * 3 + [NEEDLE.id]  # wordings, and the prompt of its relation
    assert len(found["fact_id"]) == 6
    assert found["units"].tolist()[3:] == [1, 2]


def test_suppressing_knowledge_neurons_of_smollm2_costs_more_than_random_neurons(smollm2: "Transformer") -> None:
    """Three facts, of one wording, few steps; the whole study is in the documentation."""
    wanted = ("capital/France", "city country/Paris", "currency/Japan")
    facts = [replace(fact, paraphrases=()) for fact in bundled_facts() if fact.id in wanted]
    neurons = {fact.id: knowledge_neurons(smollm2, fact, steps=4, layers=range(20, 30)).strongest(5) for fact in facts}
    found = edit_neurons(smollm2, facts, neurons, changes=["zero", "x2"], controls=2)
    zero, doubled = (found.at("fact_effect", change=change, group="fact") for change in ("zero", "x2"))
    beside = found.at("fact_control_effect", change="zero", group="fact")
    assert len(zero) == len(facts)
    assert (zero < beside - 0.05).all()
    assert doubled.mean() > 0.02
