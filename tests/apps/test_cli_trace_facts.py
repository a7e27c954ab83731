"""`interp trace --facts`: averages over the facts that the model knows, and a list of those that it does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interp.analyses import trace_facts
from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_traces import FactTraces
from interp.analyses.subjects import embedding_spread
from interp.models.replay import Replay

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]
CAPITAL = {"relation": "capital", "template": "The capital of {} is"}
PLACE = {"subject": "Eiffel Tower", "relation": "place", "template": "The {} is in", "object": "Paris"}
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
    steps = ["Loading smollm2-135m", "Asking the model which facts it knows", "Tracing the facts that the model knows"]
    assert logged.splitlines()[:3] == [f"{step} …" for step in steps]
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


def test_noise_can_be_measured_on_the_subjects_of_the_file_whichever_of_them_are_traced(
    run: Run, tmp_path: Path, memory: "Transformer"
) -> None:
    facts = [PLACE, {**PLACE, "subject": "Space Needle"}, {**PLACE, "subject": "Tower", "relation": "other"}]
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    words = ("trace", "--facts", str(tmp_path / "facts.json"), "--kinds", "resid", "--samples", "1", "--limit", "1")
    subjects = ["Eiffel Tower", "Space Needle", "Tower"]
    spread = embedding_spread(memory, subjects)
    code, printed, _ = run(*words, "--relation", "place", "--noise-subjects", "facts")
    assert code == 0
    assert f"σ {spread:.3f}, measured on the subjects, the 3 that were given" in printed
    own = json.loads(run(*words, "--noise-subjects", "facts", "--json")[1])["settings"]
    assert (own["noise_subjects"], own["embedding_spread"]) == (subjects, spread)
    assert own["noise_level"] == pytest.approx(3 * spread)
    assert f"the subjects, all {len(bundled_facts())} of the bundled facts" in run(*words)[1]
    assert "subjects hidden by noise 0.500\n" in run(*words, "--noise", "0.5")[1]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("corruption", ["noise", "replace"])
def test_an_estimate_counts_the_rows_that_a_trace_then_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corruption: str
) -> None:
    """Two lengths of prompt, each with two groups of two facts, and one fact left over."""
    named = [{**PLACE, "template": f"{before}{{}} is in", "id": f"{number} {before}"}
             for number in range(4) for before in ("The ", "in The ")]  # fmt: skip
    path = tmp_path / "places.json"
    path.write_text(json.dumps([*named, {**PLACE, "subject": "Space Needle", "object": "Seattle"}]))
    monkeypatch.setattr(trace_facts, "cases_at_once", lambda *_: 2)
    ran, walk = [], Replay.run
    monkeypatch.setattr(Replay, "run", lambda replay, **more: [ran.append(replay.rows), walk(replay, **more)][1])
    words = ("trace", "--facts", str(path), "--samples", "2", "--corruption", corruption, "-q")
    words = tuple(word for word in words if corruption == "noise" or word not in ("--samples", "2"))
    code, printed, complaint = run(*words, "--estimate", "--json")
    assert (code, complaint, ran) == (0, "", [])
    cost = json.loads(printed)
    assert (cost["kind"], cost["settings"]["corruption"]) == ("tracing.cost", corruption)
    assert "GFLOP" in run(*words, "--estimate")[1]
    assert run(*words)[0] == 0
    assert len(ran) == 5
    assert cost["rows"] == sum(ran)


@pytest.mark.usefixtures("memory")
def test_a_large_trace_of_facts_says_first_what_it_costs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "facts.json").write_text(json.dumps([PLACE]))
    words = ("trace", "--facts", str(tmp_path / "facts.json"), "--kinds", "resid", "--samples", "1")
    assert "GFLOP" not in run(*words)[2]
    monkeypatch.setattr("interp.apps.cli.trace_cost.LARGE", 0)
    assert "GFLOP" in run(*words)[2]
    assert run(*words, "--quiet")[2] == ""
