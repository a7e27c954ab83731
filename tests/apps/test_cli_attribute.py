"""`interp attribute`: one prompt or a file of facts, and what it refuses before a model is loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.analyses.attribution import Attribution
from interp.analyses.attribution_facts import FactAttribution

Run = Callable[..., tuple[int, str, str]]
PARIS = ["attribute", "The capital of France is", "--answer", " Paris"]


@pytest.mark.usefixtures("loaded")
def test_the_strongest_parts_of_a_prompt_are_shown_and_all_of_them_saved(run: Run, tmp_path: Path) -> None:
    code, printed, _ = run(*PARIS, "--foil", " London", "--top", "3", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "logit(' Paris') − logit(' London') = +5.4" in printed
    assert printed.splitlines()[4].split()[0] == "L23.H4"
    assert "3 of 301 parts." in printed
    assert "add up to it within" in printed
    assert Attribution.caution in printed
    result = Attribution.load(tmp_path / "out")
    assert len(result["mean"]) == 301
    assert result.worst_error < 1e-4
    assert "plotly" in (tmp_path / "out/figures/attribution.html").read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("loaded")
def test_json_holds_every_part(run: Run) -> None:
    code, printed, _ = run(*PARIS, "--by", "source", "--json", "--quiet")
    document = json.loads(printed)
    assert code == 0
    assert {"L23.attn←4", "L0.mlp", "embed"} <= {row["part"] for row in document["table"]}
    assert document["settings"]["by"] == "source"


@pytest.mark.usefixtures("loaded")
def test_several_ways_are_told_one_after_the_other(run: Run) -> None:
    document = json.loads(run(*PARIS, "--by", "sublayer, head", "--json", "-q")[1])
    assert document["settings"]["by"] == "sublayer"
    assert {"L23.attn", "L0.mlp", "embed"} <= {row["part"] for row in document["table"]}
    told = document["results"]["head"]
    assert told["settings"]["by"] == "head"
    assert "L23.H4" in {row["part"] for row in told["table"]}
    printed = run(*PARIS, "--by", "sublayer,head", "--top", "3")[1]
    assert printed.count("3 of ") == 2


@pytest.mark.usefixtures("mixture")
def test_by_neuron_a_mixture_of_experts_is_taken_apart_too(run: Run) -> None:
    code, printed, _ = run(
        "attribute", "The Eiffel Tower is in", "--answer", " Paris", "--by", "neuron", "--json", "-q"
    )
    parts = {row["part"]: row for row in json.loads(printed)["table"]}
    assert code == 0
    assert parts["neuron 1.shared.25"]["part_expert"] == -2
    assert sum(name.startswith("neuron 1.") for name in parts) == 2 * 22 + 26  # the two chosen, and the shared one


@pytest.mark.usefixtures("loaded")
def test_facts_of_a_file_are_averaged(run: Run, tmp_path: Path) -> None:
    known = [("France", "Paris"), ("Italy", "Rome"), ("Germany", "Rome")]
    rows = [
        {"subject": name, "relation": "capital", "template": "The capital of {} is", "object": city}
        for name, city in known
    ]
    (tmp_path / "facts.json").write_text(json.dumps(rows))
    code, printed, _ = run("attribute", "--facts", str(tmp_path / "facts.json"), "--out", str(tmp_path / "out"))
    assert code == 0
    assert "mean over 2 prompts" in printed
    assert "1 of 3 facts are left out" in printed
    assert FactAttribution.load(tmp_path / "out").excluded == {"capital/Germany": "the model says ' Berlin'"}


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one of the two"),
        (["x", "--facts", "bundled"], "one of the two"),
        (["x"], "--answer"),
        (["", "--answer", "y"], "empty"),
        (["--facts", "bundled", "--answer", "y"], "--answer belongs to a PROMPT"),
        (["x", "--answer", "y", "--relation", "capital"], "--relation belongs to --facts"),
        (["--facts", "bundled", "--relation", "capitel"], "Did you mean 'capital'?"),
        (["x", "--answer", "y", "--by", "neurons"], "'neuron'"),
        (["x", "--answer", "y", "--by", "head,head"], "--by names 'head' twice"),
        (["x", "--answer", "y", "--by", ""], "--by names ''; expected some of sublayer,head"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_loading(run: Run, words: list[str], said: str) -> None:
    code, printed, complaint = run("attribute", *words)
    assert code == 2
    assert printed == ""
    assert said in complaint
