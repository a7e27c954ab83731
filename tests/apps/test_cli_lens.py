"""`interp lens` on parts and over facts; what it does with a plain text stands in test_cli.py."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interp.analyses.lens_facts import FactLens
from interp.analyses.lens_parts import PartLens
from interp.analyses.surprisal import surprisal

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]
EIFFEL = ["lens", "The Eiffel Tower is located in the city of", "--answer", " Paris"]


@pytest.mark.usefixtures("loaded")
def test_heads_are_shown_best_first_and_saved_whole(run: Run, tmp_path: Path) -> None:
    code, printed, _ = run(*EIFFEL, "--heads", "--out", str(tmp_path / "out"))
    assert code == 0
    first = next(line for line in printed.splitlines() if line.lstrip().startswith("L"))
    assert first.split()[0] == "L23.H4"
    assert "15 of 270 heads" in printed
    assert PartLens.load(tmp_path / "out")["answer_rank"].shape == (270, 1, 1)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("flag", "names"), [("--sublayers", ["embed", "L0.mid"]), ("--outputs", ["L0.attn", "L0.mlp"])]
)
def test_boundaries_and_sublayers_are_in_the_order_of_the_model(run: Run, flag: str, names: list[str]) -> None:
    code, printed, _ = run(*EIFFEL, flag, "--position", "3", "--json", "--quiet")
    document = json.loads(printed)
    assert code == 0
    assert [row["part"] for row in document["table"]][:2] == names
    assert document["settings"]["positions"] == [3]


@pytest.mark.usefixtures("loaded")
def test_every_token_is_told_with_its_surprisal_and_all_layers(run: Run, smollm2: "Transformer") -> None:
    printed = run(*EIFFEL, "--tokens")[1]
    lines = [line.split() for line in printed.splitlines() if line.split()[:1] == ["6"]]
    told = surprisal(smollm2, EIFFEL[1])
    assert lines[0][:3] == ["6", '"', 'located"']
    assert float(lines[0][3]) == pytest.approx(float(told["surprisal"][6]), abs=0.006)
    document = json.loads(run(*EIFFEL, "--tokens", "--json")[1])
    places = len(told["token"])
    assert len(document["results"]["surprisal"]["table"]) >= places
    assert {row["position"] for row in document["results"]["map"]["table"]} == set(range(places))
    assert len(document["table"]) == 31


@pytest.mark.usefixtures("loaded")
def test_facts_are_read_layer_by_layer(run: Run, tmp_path: Path) -> None:
    known = [("France", "Paris"), ("Italy", "Rome"), ("Germany", "Rome")]
    rows = [
        {"subject": name, "relation": "capital", "template": "The capital of {} is", "object": city}
        for name, city in known
    ]
    (tmp_path / "facts.json").write_text(json.dumps(rows))
    code, printed, _ = run("lens", "--facts", str(tmp_path / "facts.json"), "--out", str(tmp_path / "out"))
    assert code == 0
    assert "of 2 known facts" in printed
    last = next(line for line in printed.splitlines() if line.split()[:1] == ["29"])
    assert "100%" in last
    assert FactLens.load(tmp_path / "out")["rank"][-1].tolist() == [1, 1]


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x", "--facts", "bundled"], "one of the two"),
        (["x", "--heads", "--tokens"], "--tokens tells of whole layers"),
        (["x", "--heads", "--outputs"], "one of --sublayers, --outputs and --heads"),
        (["x", "--relation", "capital"], "--relation belongs to --facts"),
        (["x", "--at", "subject"], "--at belongs to --facts"),
        (["--facts", "bundled", "--position", "-1"], "--position belongs to a TEXT"),
        (["--facts", "bundled", "--top-k", "3"], "--top-k belongs to a TEXT"),
        (["--facts", "bundled", "--heads"], "--heads belongs to a TEXT"),
        (["--facts", "bundled", "--answer", " Paris"], "--answer belongs to a TEXT"),
    ],
)
def test_what_does_not_go_together_is_refused_before_loading(run: Run, words: list[str], said: str) -> None:
    code, printed, complaint = run("lens", *words)
    assert code == 2
    assert printed == ""
    assert said in complaint
