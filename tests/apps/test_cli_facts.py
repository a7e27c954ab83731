"""`interp facts`: lists without a model, says which facts a model knows, and keeps going past bad ones."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_filter import KnownFacts

Run = Callable[..., tuple[int, str, str]]
FACTS = [
    {"subject": "France", "relation": "capital", "template": "The capital of {} is", "object": "Paris"},
    {"subject": "Italy", "relation": "capital", "template": "The capital of {} is", "object": "Ljubljana"},
    {"subject": "Fin", "relation": "odd", "template": "The {}land of the thousand lakes has", "object": "Helsinki"},
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return str(tmp_path / "facts.json")


def test_facts_are_listed_without_torch() -> None:
    code = "import sys; from interp.apps.cli import main; main(['facts', 'list']); print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "False"
    assert any(" ".join(line.split()) == "capital The capital of France is Paris" for line in lines)
    assert len(lines) == len(bundled_facts()) + 3


def test_facts_of_some_relations_are_listed_as_json(run: Run) -> None:
    code, printed, _ = run("facts", "list", "--relation", "currency", "--relation", "capital", "--json")
    listed = json.loads(printed)["facts"]
    assert code == 0
    assert {fact["relation"] for fact in listed} == {"capital", "currency"}
    assert listed[0]["paraphrases"]


@pytest.mark.usefixtures("loaded")
def test_filtering_shows_what_the_model_says_and_saves_every_fact(run: Run, file: str, tmp_path: Path) -> None:
    code, printed, logged = run("facts", "filter", "--facts", file, "--out", str(tmp_path / "out"))
    assert code == 0
    assert logged.splitlines()[:2] == ["Loading smollm2-135m …", "Asking the model …"]
    rows = [line for line in printed.splitlines() if "The capital of" in line]
    assert rows[0].split()[0] == "yes"
    assert rows[1].split()[0] == "no"
    assert '" Rome"' in rows[1]
    assert "1 of 2 (50%" in printed
    assert "Skipped odd/Fin: the subject 'Fin' shares a token" in printed
    assert KnownFacts.caution in printed
    assert KnownFacts.load(tmp_path / "out")["known"].tolist() == [True, False]
    assert "plotly" in (tmp_path / "out/figures/facts.html").read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("loaded")
def test_statistics_are_by_relation_and_a_relation_without_numbers_has_none_in_json(run: Run, file: str) -> None:
    code, printed, _ = run("facts", "stats", "--facts", file, "--json")
    document = json.loads(printed)
    assert code == 0
    assert document["kind"] == "facts.known"
    capital, odd = document["table"]
    assert (capital["relation"], capital["count"], capital["known_count"], capital["known_share"]) == (
        "capital",
        2,
        1,
        0.5,
    )
    assert (odd["count"], odd["known_share"]) == (0, None)


@pytest.mark.usefixtures("loaded")
def test_statistics_are_drawn_with_their_intervals(run: Run, file: str) -> None:
    code, printed, _ = run("facts", "stats", "--facts", file)
    assert code == 0
    rows = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert rows["capital"].split()[1:4] == ["2", "1", "50%"]
    assert "9% to 91%" in rows["capital"]
    assert rows["odd"].split()[1:] == ["0", "0", "–", "–", "–", "–", "–"]


@pytest.mark.usefixtures("unloadable")
def test_a_damaged_file_is_refused_before_the_model_is_loaded(run: Run, tmp_path: Path) -> None:
    (tmp_path / "facts.jsonl").write_text('{"subject": "France"}\n{broken\n')
    code, printed, complaint = run("facts", "filter", "--facts", str(tmp_path / "facts.jsonl"))
    assert (code, printed) == (4, "")
    assert "2 of 2 records" in complaint
    assert "Line 1: there is no 'relation'" in complaint
    assert "Line 2: is not JSON" in complaint
