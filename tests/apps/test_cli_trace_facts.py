"""`interp trace --facts`: averages over the facts that the model knows, and a list of those that it does not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.analyses.fact_traces import FactTraces

Run = Callable[..., tuple[int, str, str]]
CAPITAL = {"relation": "capital", "template": "The capital of {} is"}
FACTS = [
    {"subject": "France", "object": "Paris", **CAPITAL},
    {"subject": "Italy", "object": "Ljubljana", **CAPITAL},
    {"subject": "Japan", "object": "Tokyo", **CAPITAL},
    {"subject": "Fin", "relation": "odd", "template": "The {}land of the thousand lakes has", "object": "Helsinki"},
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return str(tmp_path / "facts.json")


@pytest.mark.usefixtures("loaded")
def test_known_facts_are_averaged_and_others_listed(run: Run, file: str, tmp_path: Path) -> None:
    words = ["--kinds", "resid", "--samples", "1", "--out", str(tmp_path / "out")]
    code, printed, logged = run("trace", "--facts", file, *words)
    assert code == 0
    assert logged.splitlines()[:2] == ["Loading smollm2-135m …", "Tracing the facts that the model knows …"]
    assert "2 known (1 unknown and 1 that cannot be traced left out)" in printed
    rows = {line[:14].strip(): line[14:].split() for line in printed.splitlines()}
    assert rows["last subject"][0] == "2"
    assert rows["middle subject"] == ["0", "–", "–", "–"]
    assert "Left out capital/Italy: the model says ' Rome'" in printed
    assert "Left out odd/Fin: the subject 'Fin' shares a token" in printed
    assert FactTraces.caution in printed
    assert FactTraces.load(tmp_path / "out")["relation_count"].tolist() == [2]
    assert "plotly" in (tmp_path / "out/figures/trace.html").read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("loaded")
def test_as_json_facts_replaced_by_each_other_have_every_cell(run: Run, file: str) -> None:
    words = ["--kinds", "resid", "--severed", "mlp", "--corruption", "replace", "--relation", "capital", "--json"]
    code, printed, _ = run("trace", "--facts", file, *words)
    document = json.loads(printed)
    assert code == 0
    assert (document["kind"], document["settings"]["corruption"]) == ("tracing.facts", "replace")
    assert {row["kind"] for row in document["table"]} == {"resid", "severed_mlp"}
    assert len(document["table"]) == 2 * 6 * 30
    missing = next(row for row in document["table"] if row["role"] == "middle subject")
    assert (missing["count"], missing["effect"]) == (0, None)


@pytest.mark.usefixtures("loaded")
def test_a_limit_takes_facts_from_the_whole_list(run: Run, file: str) -> None:
    words = ["--kinds", "resid", "--samples", "1", "--limit", "2", "--json"]
    document = json.loads(run("trace", "--facts", file, *words)[1])
    assert document["settings"]["facts"] == 2, "the first and the third"
    assert "2 known (0 unknown left out)" in document["summary"][0]
