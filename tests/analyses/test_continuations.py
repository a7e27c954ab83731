"""How a text goes on without the neuron that knows the answer, on a memory written by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from interp.analyses.continuations import Continuations, continuations
from interp.analyses.fact_texts import question_of
from interp.analyses.neuron_changes import mean_coefficients, neuron_edits
from interp.analyses.neurons import Neuron
from interp.errors import UsageError
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory
from interp.models.transformer import Transformer

CIRCUIT = OneFact(sharpness=8.0, prior=13.0)
WRITTEN = Neuron(*CIRCUIT.neuron)
PROMPT = "The Eiffel Tower is in"


@pytest.fixture(scope="module")
def memory() -> Transformer:
    return one_fact_memory(CIRCUIT)


@pytest.fixture(scope="module")
def found(memory: Transformer) -> Continuations:
    return continuations(memory, PROMPT, [WRITTEN], changes=("zero", "x2"), max_new_tokens=3)


def test_the_answer_changes_before_the_eyes(found: Continuations) -> None:
    begins = {"unedited": "Paris", "zero": "Seattle", "x2": "Paris"}
    assert all(found.texts[change].startswith(word) for change, word in begins.items())
    assert found["same_tokens"].tolist()[:2] == [len(found["token"]), 0]


def test_probabilities_are_those_of_the_unedited_tokens_in_a_run_with_the_edit(
    memory: Transformer, found: Continuations
) -> None:
    tokens = memory.to_tokens(PROMPT)
    whole = memory.generate(tokens, 3)
    for change in ("unedited", "zero", "x2"):
        hooks = [] if change == "unedited" else neuron_edits([WRITTEN], change)
        chances = memory.run_with_hooks(whole, hooks)[0].softmax(-1)
        wanted = [chances[tokens.shape[1] - 1 + step, whole[0, tokens.shape[1] + step]].item() for step in range(3)]
        np.testing.assert_allclose(found.at("probability", change=change), wanted, atol=1e-6)


def test_progress_counts_changes(memory: Transformer) -> None:
    seen: list[tuple[int, int]] = []
    continuations(memory, PROMPT, ["0.5"], max_new_tokens=1, progress=lambda *at: seen.append(at))
    assert seen == [(1, 2), (2, 2)]


def test_what_cannot_be_written_on_is_refused(memory: Transformer) -> None:
    with pytest.raises(UsageError, match="give `means`"):
        continuations(memory, PROMPT, ["0.5"], changes=("mean",))
    with pytest.raises(UsageError, match="from 1 on"):
        continuations(memory, PROMPT, ["0.5"], max_new_tokens=0)


def test_the_mean_can_be_given(memory: Transformer) -> None:
    means = mean_coefficients(memory, memory.to_tokens("The Tower is in"), [WRITTEN])
    found = continuations(memory, PROMPT, [WRITTEN], changes=("mean",), means=means, max_new_tokens=1)
    assert found.texts["mean"].strip() == "Seattle", "the neuron is silent where its subject does not stand"


def test_a_result_comes_back_as_it_was_saved(found: Continuations, tmp_path: Path) -> None:
    assert Continuations.load(found.save(tmp_path / "texts")).identical(found)
    assert [trace.name for trace in found.figure().data] == ["unedited", "zero", "x2"]
    assert "zero (0 tokens as unedited): 'Seattle" in found.summary()[2]


def test_a_prompt_without_an_answer_asks_for_what_the_model_says(memory: Transformer) -> None:
    asked = question_of(memory, PROMPT)
    assert asked.answer.strip() == "Paris"
    assert asked.answer_ids == (int(memory(memory.to_tokens(PROMPT))[0, -1].argmax()),)
    assert question_of(memory, PROMPT, " Seattle").answer_ids is None
    assert torch.is_grad_enabled()
