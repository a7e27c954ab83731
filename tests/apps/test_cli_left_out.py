"""Commands on `--facts`: what a model does not know is named with its reason, what is measured in part is counted."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.analyses.left_out import first_token_only
from interp.apps.cli.session import MOST
from interp.results import Result

Run = Callable[..., tuple[int, str, str]]
IN = {"relation": "place", "template": "The {} is in"}
FACTS = [
    {"subject": "Eiffel Tower", "object": "Paris", **IN},
    {"subject": "Space Needle", "object": "Tower", **IN},
]


COMMANDS = [
    ("knockout", "--window", "1"),
    ("knockout", "--sublayer", "mlp", "--window", "2"),
    ("knockout", "--extraction"),
    ("lens",),
    ("memories", "--top", "1"),
    ("attribute", "--by", "sublayer"),
    ("attribute", "--by", "sublayer", "--foils", "none"),
    ("neurons", "--position", "subject", "--steps", "2", "--controls", "1", "--count", "1"),
    ("trace", "--kinds", "resid", "--samples", "1"),
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return str(tmp_path / "facts.json")


@pytest.mark.usefixtures("memory")
def test_the_lens_over_one_fact_has_no_interval(run: Run, file: str) -> None:
    code, printed, _ = run("lens", "--facts", file)
    assert code == 0
    assert "nan" not in printed
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] == ["0"]]
    assert [row[2] for row in rows] == ["–"]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_facts_that_are_left_out_are_named_with_the_reason(run: Run, file: str, words: tuple[str, ...]) -> None:
    code, printed, complaint = run(*words, "--facts", file, "--quiet")
    assert code == 0, complaint
    assert "Left out place/Space Needle: the model says ' Seattle'" in printed
    document = json.loads(run(*words, "--facts", file, "--quiet", "--json")[1])
    assert document["left_out"] == {"place/Space Needle": "the model says ' Seattle'"}


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("words", [*COMMANDS, ("facts", "filter"), ("facts", "stats")], ids=" ".join)
def test_answers_of_several_tokens_are_counted_named_and_saved(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    facts = [{**FACTS[0], "object": "Paris Tower"}, {**FACTS[0], "id": "plain"}, {**FACTS[1], "object": "Seattle"}]
    path, out = tmp_path / "facts.json", tmp_path / "out"
    path.write_text(json.dumps(facts))
    code, printed, complaint = run(*words, "--facts", str(path), "--quiet", "--out", str(out))
    assert code == 0, complaint
    assert printed.count("1 of 3 answers has several tokens, of which the first is measured: place/Eiffel Tower\n") == 1
    assert json.loads(run(*words, "--facts", str(path), "--quiet", "--json")[1])["first_token_only"] == {
        "place/Eiffel Tower": 2
    }
    saved = Result.load(out)
    assert first_token_only(saved) == {"place/Eiffel Tower": 2}
    assert sorted(set(saved["answer_tokens"].tolist())) == [1, 2]


@pytest.mark.usefixtures("memory")
def test_a_prompts_answer_of_several_tokens_is_told_too(run: Run) -> None:
    words = ("The Eiffel Tower is in", "--subject", "Eiffel Tower", "--controls", "1", "--steps", "2", "-q")
    code, printed, _ = run("neurons", *words, "--answer", " Paris Tower", "--json", "--others", "0")
    document = json.loads(printed)
    assert code == 0
    assert document["first_token_only"] == {words[0]: 2}
    assert document["results"]["edits"]["first_token_only"] == {"the prompt": 2}


@pytest.mark.usefixtures("memory")
def test_of_many_facts_left_out_the_text_names_the_first_and_the_document_all(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps([FACTS[0], *({**FACTS[1], "id": f"needle {number}"} for number in range(MOST + 2))]))
    printed = run("lens", "--facts", str(path))[1]
    assert printed.count("Left out needle") == MOST
    assert "… and 2 more; --json and --out name all" in printed
    assert len(json.loads(run("lens", "--facts", str(path), "--json")[1])["left_out"]) == MOST + 2
