"""Commands on `--facts`: what a model does not know is named with its reason, and one known fact has no interval."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.apps.cli.session import MOST

Run = Callable[..., tuple[int, str, str]]
IN = {"relation": "place", "template": "The {} is in"}
FACTS = [
    {"subject": "Eiffel Tower", "object": "Paris", **IN},
    {"subject": "Space Needle", "object": "Tower", **IN},
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
@pytest.mark.parametrize(
    "words",
    [
        ("knockout", "--window", "1"),
        ("knockout", "--extraction"),
        ("lens",),
        ("memories", "--top", "1"),
        ("attribute", "--by", "sublayer"),
        ("neurons", "--position", "subject", "--steps", "2", "--controls", "1", "--count", "1"),
        ("trace", "--kinds", "resid", "--samples", "1"),
    ],
    ids=" ".join,
)
def test_facts_that_are_left_out_are_named_with_the_reason(run: Run, file: str, words: tuple[str, ...]) -> None:
    code, printed, complaint = run(*words, "--facts", file, "--quiet")
    assert code == 0, complaint
    assert "Left out place/Space Needle: the model says ' Seattle'" in printed
    document = json.loads(run(*words, "--facts", file, "--quiet", "--json")[1])
    assert document["left_out"] == {"place/Space Needle": "the model says ' Seattle'"}


@pytest.mark.usefixtures("memory")
def test_of_many_facts_left_out_the_text_names_the_first_and_the_document_all(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps([FACTS[0], *({**FACTS[1], "id": f"needle {number}"} for number in range(MOST + 2))]))
    printed = run("lens", "--facts", str(path))[1]
    assert printed.count("Left out needle") == MOST
    assert "… and 2 more; --json and --out name all" in printed
    assert len(json.loads(run("lens", "--facts", str(path), "--json")[1])["left_out"]) == MOST + 2
