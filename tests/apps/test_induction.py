"""`interp induction`: scores with their causes beside them, on a circuit whose every number is known."""

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny import BASE, CONFIGS, tiny

import interp
from interp.apps.cli import main
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]

CIRCUIT = InductionCircuit(words=tuple(ascii_lowercase), n_ctx=64)
LONG = InductionCircuit(n_ctx=520)
FEW = ("--seq-len", "20", "--n-seqs", "3", "--controls", "2")


@pytest.fixture(scope="module")
def circuit() -> "Transformer":
    return induction_circuit(CIRCUIT)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> "Callable[[Transformer], None]":
    """Have commands load this model, whatever they ask for."""
    return lambda model: monkeypatch.setattr(interp, "load", lambda *_, **__: model, raising=False)


def test_scores_stand_beside_what_it_costs_to_take_the_best_heads_away(
    run: Run, circuit: "Transformer", loads: "Callable[[Transformer], None]"
) -> None:
    loads(circuit)
    code, printed, logged = run("induction", *FEW, "--ablate-top", "1", "--top", "3")
    assert code == 0
    table, _, rest = printed.partition("A score says where a head looks")
    heads = [line.split()[0] for line in table.splitlines() if line[:1].isdigit()]
    assert (heads[0], len(heads)) == ("1.2", 3)
    assert "1.000 to 1.000" in table
    assert "OV copying, next logit, IOI copy: embedding tokens, 3 random texts of 2 × 20 tokens" in table
    assert "nan" not in printed  # idle heads have no eigenvalue score, layer 0 no names
    assert "repeat 2" in rest
    assert "Heads taken away (mean)" in rest
    assert "controls +0.000 (2 random sets)" in rest
    assert "Taking heads away, and others to compare …" in logged


@pytest.fixture(scope="module")
def saved(circuit: "Transformer", tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The document that --json prints, and the folder that --out fills, of a run in which a head is set to zero."""
    out, printed = tmp_path_factory.mktemp("saved"), io.StringIO()
    asked = (
        "--n-seqs",
        "8",
        "--ablate-top",
        "1",
        "--method",
        "zero",
        "--composition",
        "--json",
        "--out",
        str(out),
        "-q",
    )
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(interp, "load", lambda *_, **__: circuit, raising=False)
        assert main(["induction", *FEW, *asked]) == 0
    return json.loads(printed.getvalue()), out


def test_the_document_has_a_row_for_every_head(saved: tuple[dict[str, Any], Path]) -> None:
    table = saved[0]["table"]
    assert len(table) == CIRCUIT.n_layers * CIRCUIT.n_heads
    best = table[0]
    assert (best["layer"], best["head"], round(best["prefix_matching_low"], 6)) == (*CIRCUIT.induction, 1)
    assert {"ov_eigenvalue", "behavioural", "ioi_copy"} <= set(best)


def test_the_document_and_the_folder_hold_every_result(saved: tuple[dict[str, Any], Path]) -> None:
    document, out = saved
    results = document["results"]
    assert list(results) == ["repeat_loss", "copying", "ablation", "composition", "links"]
    assert document["saved"] == str(out)
    run = interp.open_run(out)
    for name, told in {"induction": document, **results}.items():
        assert run.result(job=name).summary() == told["summary"]
        assert (out / "figures" / f"{name}.html").exists()


def test_without_its_induction_head_the_circuit_guesses_again(saved: tuple[dict[str, Any], Path]) -> None:
    certain, guessing = np.log1p(27 * np.exp(-CIRCUIT.strength)), np.log(28)
    later = next(row for row in saved[0]["results"]["ablation"]["table"] if row["repeat"] == 2)
    assert later["nll_effect"] == pytest.approx(guessing - certain, abs=1e-5)
    assert later["nll_control_mean"] == pytest.approx(0, abs=1e-6)


def test_the_head_that_feeds_it_composes_with_it_and_is_needed(saved: tuple[dict[str, Any], Path]) -> None:
    results = saved[0]["results"]
    strongest = results["composition"]["table"][0]
    assert [strongest[name] for name in ("kind", "layer", "head", "to_layer", "to_head")] == ["k", 0, 1, 1, 2]
    link = next(row for row in results["links"]["table"] if row["sender"] == "0.1")
    assert (link["receiver"], round(link["prefix_matching_effect"], 1)) == ("1.2", -1)


def test_every_tested_head_that_reads_from_others_has_its_links(
    run: Run, circuit: "Transformer", loads: "Callable[[Transformer], None]"
) -> None:
    loads(circuit)
    document = json.loads(run("induction", *FEW, "--ablate", "0.1,1.2,1.0", "--composition", "--json", "-q")[1])
    assert {row["receiver"] for row in document["results"]["links"]["table"]} == {"1.2", "1.0"}
    assert document["notes"] == ["No links into 0.1: heads of the first layer read from no other."]


def test_heads_of_different_layers_have_feeders_of_their_own(run: Run, loads: "Callable[[Transformer], None]") -> None:
    """The previous-token scores of 0.4 and 1.5 are the highest, in layer 0 those of 0.4 and 0.3."""
    loads(tiny())
    words = ("--prefix", "none", "--ablate", "1.2,2.3", "--composition", "--json", "-q")
    results = json.loads(run("induction", *FEW, *words)[1])["results"]
    senders = {name: {row["sender"] for row in results[f"links_{name}"]["table"]} for name in ("1.2", "2.3")}
    assert senders == {"1.2": {"0.4", "0.3"}, "2.3": {"0.4", "1.5"}}


def test_documents_are_read_with_and_without_the_heads(
    run: Run, loads: "Callable[[Transformer], None]", tmp_path: Path
) -> None:
    """Words in one order over and over: guessed at place 50, certain at place 500, while the head is there."""
    loads(induction_circuit(LONG))
    for seed in range(2):
        words = np.random.default_rng(seed).permutation(LONG.words)
        (tmp_path / f"{seed}.txt").write_text(" ".join([*words] * 10))
    asked = ("--ablate-top", "1", "--method", "zero", "--documents", str(tmp_path), "--json", "-q")
    code, printed, _ = run("induction", *FEW, *asked)
    results = json.loads(printed)["results"]
    assert code == 0
    scores = [row["score"] for row in results["in_context"]["table"]]
    assert scores == pytest.approx([-np.log(54)] * 2, abs=1e-4)
    assert [row["removed"] for row in results["in_context_ablation"]["table"]] == ["1.2"]
    assert "in-context score, 2 documents: -3.989 with all heads" in "".join(results["in_context_ablation"]["summary"])
    (tmp_path / "short.txt").write_text("A B C")
    code, _, complaint = run("induction", *asked)
    assert (code, "'short' has 3 tokens" in complaint) == (2, True)


@pytest.mark.parametrize(("asked", "read"), [(1, 2), (3, 3), (9, 8)])
def test_heads_are_taken_away_from_no_more_texts_than_were_asked_for_but_for_two(
    run: Run, circuit: "Transformer", loads: "Callable[[Transformer], None]", asked: int, read: int
) -> None:
    loads(circuit)
    words = ("--seq-len", "20", "--n-seqs", str(asked), "--controls", "1", "--ablate-top", "1", "--json", "-q")
    results = json.loads(run("induction", *words)[1])["results"]
    assert results["ablation"]["settings"]["n_seqs"] == read


def test_one_file_is_enough_for_the_in_context_score(
    run: Run, loads: "Callable[[Transformer], None]", tmp_path: Path
) -> None:
    loads(induction_circuit(LONG))
    (tmp_path / "mine.txt").write_text(" ".join([*np.random.default_rng(0).permutation(LONG.words)] * 10))
    asked = ("--ablate-top", "1", "--in-context", "--documents", str(tmp_path / "mine.txt"), "-q")
    code, printed, complaint = run("induction", *FEW, *asked)
    assert (code, complaint) == (0, "")
    assert "In-context-learning score" in printed
    assert "in-context score, 1 document (heads replaced from 8 bundled ones): -3.989 with all heads" in printed


def test_heads_are_taken_away_by_name(run: Run, circuit: "Transformer", loads: "Callable[[Transformer], None]") -> None:
    loads(circuit)
    words = ("--ablate", "0.1, 1.2", "--method", "pattern_preserving", "--json", "-q")
    results = json.loads(run("induction", *FEW, *words)[1])["results"]
    assert results["ablation"]["settings"]["heads"] == ["0.1", "1.2"]
    assert results["ablation"]["settings"]["method"] == "pattern_preserving"


def test_nothing_is_taken_away_where_that_is_asked(
    run: Run, circuit: "Transformer", loads: "Callable[[Transformer], None]"
) -> None:
    loads(circuit)
    code, printed, _ = run("induction", *FEW, "--ablate-top", "0", "--json", "-q")
    assert code == 0
    assert list(json.loads(printed)["results"]) == ["repeat_loss", "copying"]


def test_one_layer_is_scored_with_a_note(run: Run, loads: "Callable[[Transformer], None]") -> None:
    loads(tiny(replace(BASE, n_layers=1)))
    code, printed, _ = run("induction", *FEW, "--prefix", "none", "--ablate-top", "0", "--composition", "-q")
    assert code == 0
    assert "none can find by composition" in printed
    assert "No composition: Heads compose with heads of later layers" in printed


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_a_model_refuses_is_said_beside_what_it_shows(
    run: Run, loads: "Callable[[Transformer], None]", form: list[str]
) -> None:
    loads(tiny(CONFIGS["post_norm"]))
    words = (*FEW, "--prefix", "none", "--ablate-top", "1", "--composition", "-q")
    code, printed, _ = run("induction", *words, *form)
    assert code == 0
    assert "OV copying" not in printed
    assert all(f"No {what}" in printed for what in ("copying scores: ", "composition: ", "links into "))
    assert "Heads taken away" in printed


@pytest.mark.parametrize(
    ("words", "expected", "said"),
    [
        (["--ablate", "7.0"], 2, "7.0"),
        (["--ablate", "mlp 0"], 2, "mlp 0"),
        (["--ablate-top", "9"], 2, "this model has 8 heads"),
        (["--seq-len", "27"], 2, "too small to draw 27 tokens without replacement: 26 are left"),
        (["--seq-len", "26", "--repeats", "3"], 2, "context is 64"),
        (["--seq-len", "5", "--exclude-most", "3"], 2, "no BPE tokenizer"),
        (["--documents", "nowhere.txt"], 4, "no file or folder nowhere.txt"),
        (["--documents", "empty.txt"], 4, "empty.txt is empty"),
        (["--documents", "short.txt"], 2, "the model's context is 64"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run,
    circuit: "Transformer",
    loads: "Callable[[Transformer], None]",
    words: list[str],
    expected: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads(circuit)
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text(" \n")
    Path("short.txt").write_text("A B C")
    code, printed, complaint = run("induction", *FEW, "-q", *words)
    assert (code, printed) == (expected, "")
    assert said in complaint
    assert len(complaint.splitlines()) == 1
