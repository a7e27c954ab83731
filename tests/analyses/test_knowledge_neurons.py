"""Knowledge neurons are the neuron that was written by hand, and those that paraphrases share."""

from pathlib import Path

import numpy as np
import pytest
from spoken import with_words

from interp.analyses.knowledge_neurons import KnowledgeNeurons, knowledge_neurons
from interp.analyses.neurons import Neuron, neurons_of
from interp.analyses.shared_neurons import refined
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory
from interp.models.transformer import Transformer

EIFFEL = Fact("Eiffel Tower", "city", "The {} is in", "Paris", paraphrases=("{} in", "is The {} in"))
CIRCUIT = OneFact(sharpness=8.0)
WRITTEN = Neuron(*CIRCUIT.neuron)


@pytest.fixture(scope="module")
def memory() -> Transformer:
    """It knows one fact, and lets gradients pass."""
    return one_fact_memory(CIRCUIT)


def test_the_neuron_that_was_written_is_found_and_no_other(memory: Transformer) -> None:
    found = knowledge_neurons(memory, EIFFEL, position="subject")
    assert found.neurons == (WRITTEN,)
    assert found.strongest(1) == (WRITTEN,)
    others = np.delete(found["attribution"].reshape(3, -1), WRITTEN.layer * CIRCUIT.d_mlp + WRITTEN.index, axis=1)
    assert not others.any()
    assert found["shared_by"].tolist() == [3]
    assert float(found["strength"][0]) == pytest.approx(
        float((found["probability"] - found["without"][:, 0]).mean()), abs=0.02
    )


def test_at_the_last_token_nothing_was_written(memory: Transformer) -> None:
    """The answer comes there by a head; no neuron of that token has a part in it."""
    found = knowledge_neurons(memory, EIFFEL, position="last")
    assert found.neurons == ()
    assert found.strongest(3) == ()
    assert not found["attribution"].any()
    assert "0 at the last token" in "\n".join(found.summary())


def test_a_prompt_is_asked_at_its_subject_if_that_is_named(memory: Transformer) -> None:
    found = knowledge_neurons(memory, "The Eiffel Tower is in", subject="Eiffel Tower", position="subject", steps=4)
    assert found.neurons == (WRITTEN,)


def test_a_subject_that_is_named_twice_is_asked_where_it_was_said(memory: Transformer) -> None:
    """The neuron fires for a Tower behind Eiffel alone."""
    asked = {"answer": " Paris", "subject": "Tower", "position": "subject", "steps": 4}
    first, last = (
        knowledge_neurons(memory, "The Tower in Eiffel Tower is in", occurrence=place, **asked) for place in (0, -1)
    )
    assert (len(first.neurons), last.neurons) == (0, (WRITTEN,))


def test_a_fact_is_asked_at_the_subject_in_its_slot_for_the_first_token_of_its_answer() -> None:
    """The subject's letters stand before the slot too; the answer has two tokens."""
    model, fact = with_words("grouped_query"), Fact("Tower", "city", "The Tower is in {} in", "Paris is")
    found = knowledge_neurons(model, fact, position="subject", steps=1)
    _, cache = model.run_with_cache(model.to_tokens(fact.prompt), "blocks.*.mlp.hook_post")
    for layer in range(model.config.n_layers):
        expected = cache["mlp.post", layer][0, 5]
        np.testing.assert_allclose(found["coefficients"][0, layer], expected, rtol=1e-4, atol=1e-7)
    assert found.settings["answer"] == " Paris"


def test_a_prompt_without_a_fact_takes_what_the_model_says_for_its_answer() -> None:
    model = with_words("grouped_query")
    prompt = "The Eiffel Tower is in"
    found = knowledge_neurons(model, prompt, steps=2, adapt=None)
    logits = model(model.to_tokens(prompt))[0, -1]
    assert found.settings["answer"] == model.tokenizer.str_tokens([int(logits.argmax())])[0]
    assert float(found["probability"][0]) == pytest.approx(float(logits.softmax(-1).max()), rel=1e-5)
    other = knowledge_neurons(model, prompt, answer=" Paris", steps=2)
    assert other.settings["answer"] == " Paris"
    assert float(other["probability"][0]) < float(found["probability"][0])


@pytest.mark.parametrize(
    ("share", "adapt", "needed", "kept"),
    [
        (0.7, None, 3, "a"),  # 3 of 4 prompts are 75 %
        (0.5, None, 2, "abc"),
        (0.7, (2, 5), 2, "abc"),  # one is too few: a prompt is given up
        (0.5, (1, 2), 3, "a"),  # three are too many: one more is asked for
        (0.25, (1, 5), 2, "abc"),
        (0.7, (3, 3), 2, "abc"),
        (0.7, (9, 9), 1, "abcdef"),  # there are no more
    ],
)
def test_neurons_are_kept_that_enough_prompts_share(
    share: float, adapt: tuple[int, int] | None, needed: int, kept: str
) -> None:
    """By hand: a is coarse in all four prompts, b and c in two, d, e and f in one."""
    neurons = {name: Neuron(0, place) for place, name in enumerate("abcdef")}
    coarse = [{neurons[name] for name in prompt} for prompt in ("abcd", "abce", "af", "a")]
    strength = {neuron: -float(neuron.index) for neuron in neurons.values()}
    found = refined(coarse, strength, share=share, adapt=adapt)
    assert found == (needed, [neurons[name] for name in kept])


def test_where_all_prompts_share_too_many_the_strongest_stay() -> None:
    every = {Neuron(1, index) for index in range(7)}
    strength = {neuron: float(neuron.index) for neuron in every}
    needed, kept = refined([every, every], strength, share=0.7, adapt=(2, 5))
    assert needed == 2
    assert [neuron.index for neuron in kept] == [6, 5, 4, 3, 2]


def test_asking_fewer_prompts_is_not_said_where_that_finds_no_more() -> None:
    assert refined([{Neuron(0, 1)}] * 3, {Neuron(0, 1): 1.0}, share=0.7, adapt=(2, 5)) == (3, [Neuron(0, 1)])


@pytest.mark.parametrize("kind", ["moe_top2", "moe_mixed_layers", "moe_shared_gated"])
def test_neurons_of_experts_are_told_by_expert_whatever_the_slot(kind: str) -> None:
    model = with_words(kind)
    found = knowledge_neurons(model, EIFFEL, steps=2, threshold=0.05, share=0.1, adapt=None)
    assert {neuron.expert is None for neuron in found.neurons} == ({True, False} if "mixed" in kind else {False})
    assert ("shared" in {neuron.expert for neuron in found.neurons}) == ("shared" in kind)
    assert np.all(np.diff(found["strength"]) <= 0)
    chosen = [
        model.run_with_cache(model.to_tokens(str(prompt)), ["blocks.*.mlp.hook_expert_indices"])[1]
        for prompt in found.axes["prompt"]
    ]
    for place, neuron in enumerate(found.neurons[:20]):
        name = f"blocks.{neuron.layer}.mlp.hook_expert_indices"
        for row, cache in enumerate(chosen):
            slots = {"shared": [2], None: [0]}.get(neuron.expert)
            if slots is None:
                slots = (cache[name][0, -1] == neuron.expert).nonzero().flatten().tolist()
            expected = sum(found["attribution"][row, neuron.layer, slot, neuron.index] for slot in slots)
            assert found["prompt_strength"][place, row] == pytest.approx(expected, abs=1e-8)
    assert found.strongest(len(found.neurons))[:3] == found.neurons[:3]
    assert neurons_of(model, found.strongest(99)) == found.strongest(99)  # the model has them all
    np.testing.assert_allclose(found["layer_sum"], np.nansum(found["attribution"], (2, 3)), atol=1e-6)


def test_a_result_comes_back_as_it_was_saved(memory: Transformer, tmp_path: Path) -> None:
    found = knowledge_neurons(memory, EIFFEL, position="subject", steps=2)
    again = KnowledgeNeurons.load(found.save(tmp_path / "found"))
    assert again.identical(found)
    assert again.neurons == found.neurons
    assert "0.5" in "\n".join(found.summary())
    drawn = found.figure()
    np.testing.assert_allclose(drawn.data[0].z, found["probability"][:, None] - found["without"])
    assert drawn.layout.yaxis.ticktext == ("The Eiffel Tower is in", "Eiffel Tower in", "is The Eiffel Tower in")
    assert found.to_frame()["index"].tolist() == [WRITTEN.index]


@pytest.mark.parametrize(
    ("fact", "settings", "message"),
    [
        (EIFFEL, {"threshold": 1.0}, "threshold < 1"),
        (EIFFEL, {"adapt": (3, 2)}, "adapt="),
        (EIFFEL, {"share": 0.0}, "share ≤ 1"),
        (EIFFEL, {"position": "first"}, "'last' or 'subject'"),
        (EIFFEL, {"prefix": "chat"}, "'chat'"),
        (EIFFEL, {"paraphrases": (EIFFEL.template,)}, "twice"),
        ("The Tower is in", {"position": "subject"}, "name the `subject`"),
        ("The Tower is in", {"position": "subject", "subject": "Tow"}, "begins or ends inside a token"),
        ("The Tower is in", {"subject": "Tower", "occurrence": 0}, "at position='subject'"),
        (EIFFEL, {"position": "subject", "occurrence": 0}, "of a prompt is meant"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_what_cannot_be_asked_is_refused(
    memory: Transformer, fact: Fact | str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        knowledge_neurons(memory, fact, **settings)  # type: ignore[arg-type]  # wrong on purpose


def test_progress_counts_prompts(memory: Transformer) -> None:
    told: list[tuple[int, int]] = []
    knowledge_neurons(memory, EIFFEL, steps=1, progress=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]
