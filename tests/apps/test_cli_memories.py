"""`interp memories`: a prompt, a neuron, facts; and what cannot be asked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import interp
from interp.analyses.fact_memories import FactMemories
from interp.analyses.memories import Memories

Run = Callable[..., tuple[int, str, str]]
PROMPT = "The capital of France is"


@pytest.fixture
def notes(tmp_path: Path) -> str:
    (tmp_path / "notes.txt").write_text("Paris is the capital of France. Rome is that of Italy, and Oslo of Norway.")
    return str(tmp_path / "notes.txt")


@pytest.mark.usefixtures("loaded")
def test_a_prompt_shows_the_first_neuron_of_every_layer_and_saves_them(run: Run, tmp_path: Path) -> None:
    code, printed, _ = run("memories", PROMPT, "--out", str(tmp_path / "out"))
    assert code == 0
    assert len([line for line in printed.splitlines() if line[:1].isdigit()]) == 30
    assert 'At " is" (position 5)' in printed
    assert Memories.caution in printed
    assert Memories.load(tmp_path / "out")["name"].shape == (30, 1)
    assert (tmp_path / "out/figures/memories.html").exists()


@pytest.mark.usefixtures("loaded")
def test_one_layer_shows_as_many_neurons_as_asked_for(run: Run) -> None:
    _, printed, _ = run("memories", PROMPT, "--layer", "-1", "--top", "3", "--position", "4", "--json")
    table = json.loads(printed)["table"]
    assert [(row["layer"], row["rank"]) for row in table] == [(29, 1), (29, 2), (29, 3)]


@pytest.mark.usefixtures("loaded")
def test_a_neuron_shows_its_words_and_the_texts_it_fires_for(run: Run, notes: str, tmp_path: Path) -> None:
    words = ("memories", "--neuron", "3.7", "--documents", notes, "--top", "2")
    code, printed, _ = run(*words, "--out", str(tmp_path / "out"))
    assert code == 0
    assert printed.startswith("Neuron 3.7")
    assert len([line for line in printed.splitlines() if line.endswith("notes")]) == 4
    assert interp.open_run(tmp_path / "out").result(job="triggers")["coefficient"].shape == (1, 1, 2, 2)
    assert interp.open_run(tmp_path / "out").result(job="value-tokens").axes["neuron"] == (7,)
    told = json.loads(run(*words, "--json")[1])
    assert [row["end"] for row in told["table"]] == ["largest", "largest", "smallest", "smallest"]
    assert len(told["results"]["value-tokens"]["table"]) == 10


@pytest.mark.usefixtures("mixture")
@pytest.mark.parametrize(("neuron", "within"), [("1.shared.25", "shared.25"), ("1.6.21", "6.21")])
def test_a_neuron_of_an_expert_or_of_the_shared_one_is_named_and_shown_as_it_was_asked_for(
    run: Run, tmp_path: Path, neuron: str, within: str
) -> None:
    (tmp_path / "notes.txt").write_text("The Eiffel Tower is in Paris The Space Needle is in Seattle")
    words = ("memories", "--neuron", neuron, "--documents", str(tmp_path / "notes.txt"), "--top", "2", "-q")
    code, printed, _ = run(*words, "--out", str(tmp_path / "out"))
    assert code == 0
    assert printed.startswith(f"Neuron {neuron}\n")
    saved = interp.open_run(tmp_path / "out")
    assert saved.result(job="triggers").axes["neuron"] == (within,)
    assert saved.result(job="value-tokens").axes["neuron"] == (within,)


@pytest.mark.usefixtures("mixture")
def test_a_neuron_that_a_prompt_shows_can_be_asked_for_by_that_name(run: Run) -> None:
    printed = run("memories", "The Eiffel Tower is in", "--layer", "1", "--top", "70", "--json", "-q")[1]
    names = [row["name"] for row in json.loads(printed)["table"]]
    shared = next(name for name in names if "shared" in name)
    for name in (shared, names[0]):
        assert run("memories", "--neuron", name, "--top", "1", "-q")[0] == 0


@pytest.mark.usefixtures("loaded")
def test_facts_are_read_at_both_tokens_and_the_unknown_ones_left_out(run: Run, tmp_path: Path) -> None:
    facts = [
        {"subject": "France", "relation": "capital", "template": "The capital of {} is", "object": "Paris"},
        {"subject": "Italy", "relation": "capital", "template": "The capital of {} is", "object": "Ljubljana"},
    ]
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    words = ("memories", "--facts", str(tmp_path / "facts.json"), "--layer", "24", "--top", "2")
    code, printed, _ = run(*words, "--out", str(tmp_path / "out"))
    assert code == 0
    assert len([line for line in printed.splitlines() if line.startswith(PROMPT)]) == 2
    assert "1 of 2 facts are left out" in printed
    found = FactMemories.load(tmp_path / "out")
    assert found["name"].shape == (1, 2, 1, 2)
    assert found.excluded == {"capital/Italy": "the model says ' Rome'"}


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "one of the three"),
        ((PROMPT, "--neuron", "1.2"), "one of the three"),
        (("",), "The text is empty"),
        (("--neuron", "12"), "expected layer.neuron"),
        (("--neuron", "a.b"), "expected layer.neuron"),
        (("--neuron", "1.common.2"), "layer.shared.neuron"),
        ((PROMPT, "--documents", "x.txt"), "--documents belongs to --neuron"),
        ((PROMPT, "--relation", "capital"), "--relation belongs to --facts"),
        (("--neuron", "1.2", "--layer", "0"), "--layer belongs to a PROMPT or --facts"),
        (("--neuron", "1.2", "--position", "0"), "--position belongs to a PROMPT"),
        (("--facts", "bundled", "--position", "0"), "--position belongs to a PROMPT"),
        (("--facts", "bundled", "--relation", "capitols"), "'capitols'"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_model_is_loaded(
    run: Run, words: tuple[str, ...], message: str
) -> None:
    code, _, complaint = run("memories", *words)
    assert code == 2
    assert message in complaint


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("30.1", "layers go from 0 to 29"),
        ("3.1536", "one dense FFN of 1536 neurons"),
        ("3.1.2", "named layer.neuron"),
        ("3.shared.2", "named layer.neuron"),
    ],
)
def test_a_neuron_that_does_not_exist_is_refused(run: Run, name: str, message: str) -> None:
    code, _, complaint = run("memories", "--neuron", name)
    assert code == 2
    assert message in complaint
