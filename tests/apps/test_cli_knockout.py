"""`interp knockout`: one prompt or a file of facts, blocks, sublayers or extraction, and clear refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.analyses.knockout import BLOCKS as KNOWN_BLOCKS
from interp.analyses.knockout import AttentionKnockout
from interp.apps.cli.knockout import BLOCKS

Run = Callable[..., tuple[int, str, str]]
FACTS = [
    {"subject": "Eiffel Tower", "relation": "place", "template": "The {} is in", "object": "Paris"},
    {"subject": "Space Needle", "relation": "place", "template": "The {} is in", "object": "Paris"},
]
PROMPT = ["The Eiffel Tower is in", "--subject", "Eiffel Tower"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return str(tmp_path / "facts.json")


def test_the_blocks_are_those_of_the_analysis() -> None:
    assert BLOCKS == KNOWN_BLOCKS


@pytest.mark.usefixtures("memory")
def test_facts_are_cut_layer_by_layer_and_saved(run: Run, file: str, tmp_path: Path) -> None:
    code, printed, logged = run("knockout", "--facts", file, "--window", "1", "--out", str(tmp_path / "out"))
    assert code == 0, logged
    assert "Cutting around every layer" in logged
    assert "1 known of 2 facts" in printed
    rows = [line.split() for line in printed.splitlines() if line[:2] in ("0 ", "1 ")]
    assert rows == [["0", "+0", "+0", "+0", "+0"], ["1", "-100", "+0", "+0", "+0"]]
    assert AttentionKnockout.caution in printed
    saved = AttentionKnockout.load(tmp_path / "out")
    assert saved.axes["excluded"] == ("place/Space Needle",)
    assert "plotly" in (tmp_path / "out/figures/knockout.html").read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("memory")
def test_one_prompt_is_one_json_document(run: Run) -> None:
    code, printed, _ = run("knockout", *PROMPT, "--blocks", "subject,last", "--window", "2", "--json")
    document = json.loads(printed)
    assert code == 0
    assert document["kind"] == "knockout.attention"
    assert document["settings"]["answer"] == " Paris"
    assert [(row["cut"], row["layer"], row["last_layer"]) for row in document["table"]] == [
        ("subject", 0, 0),
        ("subject", 1, 1),
        ("last", 0, 0),
        ("last", 1, 1),
    ]
    assert document["table"][1]["mean_change_low"] is None, "one fact has no interval"


@pytest.mark.usefixtures("memory")
def test_the_occurrence_says_which_subject_is_cut(run: Run) -> None:
    words = ("knockout", "The Eiffel Tower is Eiffel Tower is in", *PROMPT[1:], "--json")
    code, _, complaint = run(*words)
    assert (code, "stands 2 times" in complaint) == (2, True)
    code, printed, _ = run(*words, "--occurrence", "-1", "--blocks", "subject")
    assert (code, json.loads(printed)["settings"]["subject"]) == (0, "Eiffel Tower")


@pytest.mark.usefixtures("memory")
def test_what_each_sublayer_says_is_shown(run: Run) -> None:
    code, printed, _ = run("knockout", *PROMPT, "--extraction")
    assert code == 0
    assert [line.split() for line in printed.splitlines() if line.startswith("1 ")] == [
        ["1", '"', 'Paris"', '"<|endoftext|>"']
    ]
    assert "attention: in any layer 100%" in printed


@pytest.mark.usefixtures("loaded")
def test_a_sublayer_is_replaced_at_the_subject(run: Run) -> None:
    words = ["I think that the Louvre is in", "--subject", "the Louvre", "--sublayer", "attn", "--window", "30"]
    code, printed, _ = run("knockout", *words)
    assert code == 0
    assert "0 (0 to 29)" in printed
    assert "attn mean %" in printed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Give a PROMPT, or --facts"),
        (["The Louvre is in"], "Give --subject the words"),
        (["The Louvre is in", "--subject", "Louvre", "--limit", "3"], "--limit belongs to --facts"),
        ([*PROMPT, "--facts", "bundled"], "one of the two"),
        (["--facts", "bundled", "--occurrence", "0"], "--occurrence belongs to a PROMPT"),
        (["--facts", "bundled", "--subject", "Louvre"], "--subject belongs to a PROMPT"),
        (["--facts", "bundled", "--relation", "captial"], "capital"),
        ([*PROMPT, "--blocks", "subjekt"], "--blocks names 'subjekt'"),
        ([*PROMPT, "--blocks", "last,last"], "'last' twice"),
        ([*PROMPT, "--sublayer", "mlp", "--extraction"], "Give one of them"),
        ([*PROMPT, "--window", "3", "--extraction"], "leave out --window"),
    ],
)
@pytest.mark.usefixtures("unloadable")
def test_what_no_model_could_answer_is_refused_before_one_is_loaded(run: Run, words: list[str], says: str) -> None:
    code, printed, complaint = run("knockout", *words)
    assert (code, printed) == (2, "")
    assert says in complaint
