"""`interp neurons` on a memory written by hand, whose one neuron is known: what it prints, saves and refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import interp
from interp.analyses import fact_data
from interp.analyses.continuations import Continuations
from interp.facts import Fact
from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory

Run = Callable[..., tuple[int, str, str]]
FACTS = (
    Fact("Eiffel Tower", "city", "The {} is in", "Paris", paraphrases=("{} in", "is The {} in")),
    Fact("Space Needle", "city", "The {} is in", "Seattle"),
)
PROMPT = ("neurons", "The Eiffel Tower is in", "--subject", "Eiffel Tower", "--controls", "1", "--steps", "4", "-q")


@pytest.fixture
def made_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets a model that knows one fact, and facts in its words."""
    memory = one_fact_memory(OneFact(sharpness=8.0))
    monkeypatch.setattr(interp, "load", lambda *_, **__: memory, raising=False)
    monkeypatch.setattr(fact_data, "bundled_facts", lambda: FACTS)


@pytest.mark.usefixtures("made_by_hand")
class TestNeurons:
    def test_the_neuron_is_named_and_the_answer_changes_without_it(self, run: Run) -> None:
        code, printed, _ = run(*PROMPT)
        assert code == 0
        assert "The strongest 1: 0.5" in printed
        text = " ".join(printed.split())
        assert 'unedited: "Paris' in text
        assert 'zero: "Seattle' in text
        effects = {tuple(line.split()[:2]): line for line in printed.splitlines() if line.startswith("zero ")}
        assert "-0.999" in effects["zero", "fact"]
        assert "+0.000" in effects["zero", "other"]  # other relations: the Space Needle stays where it is

    def test_everything_is_saved_and_told_as_json(self, run: Run, tmp_path: Path) -> None:
        code, printed, _ = run(*PROMPT, "--change", "zero", "--json", "--out", str(tmp_path / "out"))
        document = json.loads(printed)
        assert code == 0
        assert [row["neuron"] for row in document["table"]] == ["0.5"]
        edits = document["results"]["edits"]["table"]
        assert {row["change"] for row in edits} == {"zero"}
        assert document["notes"][0].startswith("unedited: Paris")
        assert interp.open_run(tmp_path / "out").result(job="neurons").axes["neuron"] == ("0.5",)
        assert interp.open_run(tmp_path / "out").result(job="edits").axes["edited"] == ("the prompt",)

    def test_neurons_that_are_named_are_edited_without_looking_for_others(self, run: Run, tmp_path: Path) -> None:
        words = ("neurons", "The Eiffel Tower is in", "--neuron", "0.5", "--change", "zero", "--controls", "1", "-q")
        code, printed, _ = run(*words, "--max-new-tokens", "1", "--out", str(tmp_path / "out"))
        assert code == 0
        assert "Changed: 0.5" in printed
        assert 'zero: "Seattle"' in printed
        saved = interp.open_run(tmp_path / "out")
        assert saved.result(job="edits")["neurons"].tolist() == ["0.5"]
        continued = saved.result(job="continuations")
        assert isinstance(continued, Continuations)
        assert continued.texts["unedited"] == "Paris"
        code, _, complaint = run(*words, "--count", "3")
        assert (code, "belongs to neurons that are looked for" in complaint) == (2, True)
        code, _, complaint = run(*words[:2], "--neuron", "9.5", "-q")
        assert (code, "There is no neuron 9.5" in complaint) == (2, True)

    def test_where_no_neuron_adds_anything_nothing_is_edited(self, run: Run) -> None:
        code, printed, _ = run("neurons", "The Eiffel Tower is in", "--answer", " Paris", "--steps", "2", "-q")
        assert code == 0
        assert "0 at the last token" in printed
        assert "unedited" not in printed

    def test_the_occurrence_says_which_subject_is_meant(self, run: Run) -> None:
        words = ("The Eiffel Tower is Eiffel Tower is in", *PROMPT[2:], "--answer", " Paris", "--json")
        code, _, complaint = run("neurons", *words)
        assert (code, "stands 2 times" in complaint) == (2, True)
        code, printed, _ = run("neurons", *words, "--occurrence", "-1")
        assert code == 0
        assert json.loads(printed)["settings"]["occurrence"] == -1

    def test_many_facts_at_their_subjects(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "facts.jsonl"
        lines = [{"subject": fact.subject, "relation": "city", "template": fact.template, "object": fact.object,
                  "paraphrases": list(fact.paraphrases)} for fact in FACTS]  # fmt: skip
        path.write_text("\n".join(map(json.dumps, lines)))
        words = ("--position", "subject", "--count", "1", "--steps", "2", "--controls", "1", "--others", "3", "--json")
        code, printed, _ = run("neurons", "--facts", str(path), *words, "-q")
        document = json.loads(printed)
        table = document["table"]
        assert code == 0
        assert document["settings"]["others"] == 3
        lost = {(row["change"], row["group"]): row["lost"] for row in table}
        assert lost["zero", "fact"] == lost["zero", "held out"] == 1
        assert lost["zero", "same relation"] == 0

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ((), "Give a PROMPT"),
            (("The Tower is in", "--facts", "bundled"), "Give a PROMPT"),
            (("--facts", "bundled", "--answer", " Paris"), "--answer belongs to a PROMPT"),
            (("",), "empty"),
            (("The Tower is in", "--position", "subject"), "--position belongs to --facts"),
            (("The Tower is in", "--limit", "3"), "--limit belongs to --facts"),
            (("The Tower is in", "--occurrence", "0"), "--occurrence belongs to the --subject"),
            (("--facts", "bundled", "--occurrence", "0"), "--occurrence belongs to the --subject"),
            (("The Tower is in", "--change", "half"), "no change of a neuron"),
        ],
    )
    def test_what_cannot_be_asked_is_refused(self, run: Run, words: tuple[str, ...], message: str) -> None:
        code, _, complaint = run("neurons", *words)
        assert code == 2
        assert message in complaint
