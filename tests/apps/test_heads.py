"""`interp heads` on a circuit written by hand, whose heads are known: what it prints, saves and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tiny import tiny

import interp
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]
CIRCUIT = InductionCircuit()
SMALL = ("--doc-len", "40", "--n-documents", "2", "-q")


@pytest.fixture(scope="module")
def circuit() -> "Transformer":
    return induction_circuit()


@pytest.fixture
def made_by_hand(circuit: "Transformer", monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets this model, whatever it asks for."""
    monkeypatch.setattr(interp, "load", lambda *_, **__: circuit, raising=False)


def rows(printed: str) -> list[str]:
    """The lines of a table."""
    return [line for line in printed.splitlines() if line[:1].isdigit()]


@pytest.mark.usefixtures("made_by_hand")
class TestHeads:
    def test_the_strongest_stand_first_and_what_they_cause_below(self, run: Run) -> None:
        code, printed, _ = run("heads", *SMALL, "--ablate-top", "2", "--controls", "3", "--top", "4")
        assert code == 0
        where, what = map(rows, printed.split("What they copy"))
        assert len(where) == 4
        assert [line.split()[0] for line in what] == [line.split()[0] for line in where]
        induction = next(line for line in what if line.startswith("1.2"))
        assert induction.split()[1:] == ["1.000", "1.000", "15.704", "1.000", "0.000"]
        assert {tuple(line.split()[:3]) for line in where[:2]} == {("0.1", "1", "previous"), ("1.2", "2", "induction")}
        below = printed.partition("Heads taken away")[2]
        assert "0.1" in below
        assert "all 3 that exist" in below

    def test_everything_is_saved_and_told_as_json(self, run: Run, tmp_path: Path) -> None:
        words = ("--ablate-top", "1", "--role", "induction", "--json", "--out", str(tmp_path / "out"))
        code, printed, _ = run("heads", *SMALL, *words)
        document = json.loads(printed)
        assert code == 0
        assert [(row["layer"], row["head"], row["role"]) for row in document["table"]] == [
            (*CIRCUIT.induction, "induction")
        ]
        assert [row["removed"] for row in document["results"]["ablation"]["table"]] == ["1.2", "1.2"]
        assert {path.name for path in (tmp_path / "out/figures").iterdir()} == {"heads.html", "ablation.html"}
        saved = interp.open_run(tmp_path / "out")
        assert len(saved.result(job="heads").to_frame()) == 8
        assert saved.result(job="ablation").settings["heads"] == ("1.2",)

    def test_heads_below_a_score_are_left_out_and_composition_is_told_on_request(self, run: Run) -> None:
        words = ("--sort", "prefix_matching", "--at-least", "0.9", "--ablate-top", "0", "--composition", "--json")
        document = json.loads(run("heads", *SMALL, *words)[1])
        assert [(row["layer"], row["head"]) for row in document["table"]] == [CIRCUIT.induction]
        best = document["results"]["composition"]["table"][0]
        assert (best["kind"], (best["layer"], best["head"])) == ("k", CIRCUIT.previous)
        assert (best["to_layer"], best["to_head"]) == CIRCUIT.induction

    def test_without_heads_of_a_role_nothing_is_taken_away(self, run: Run) -> None:
        code, printed, _ = run("heads", *SMALL, "--role", "delimiter", "--ablate-top", "2")
        assert code == 0
        assert rows(printed) == []
        assert "Heads taken away" not in printed

    def test_random_texts_are_as_many_and_as_long_as_asked(self, run: Run) -> None:
        asked = ("--seq-len", "9", "--repeats", "3", "--n-seqs", "2", "--ablate-top", "1", "--controls", "1")
        atlas, _, without = run("heads", *SMALL, *asked)[1].partition("Heads taken away")
        assert "2 random texts of 3 × 9 tokens" in atlas
        assert "2 random texts of 3 × 9 tokens" in without

    def test_more_heads_than_there_are_cannot_be_taken_away(self, run: Run) -> None:
        code, printed, complaint = run("heads", *SMALL, "--ablate-top", "9")
        assert (code, printed) == (2, "")
        assert "--ablate-top is 9; this model has 8 heads" in complaint

    def test_another_score_has_a_column_of_its_own(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("One day, they say, it rains. The next day it does not rain, they say.")
        words = ("--sort", "entropy", "--ablate-top", "0", "--documents", str(tmp_path))
        code, printed, _ = run("heads", *SMALL, *words, "--top", "1")
        assert code == 0
        assert "entropy" in printed.splitlines()[1]
        assert "Heads taken away" not in printed


def test_a_model_without_a_tokenizer_is_mapped_on_random_tokens(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp, "load", lambda *_, **__: tiny(), raising=False)
    code, printed, _ = run("heads", "--prefix", "none", "--ablate-top", "1", "--controls", "2", "-q")
    assert code == 0
    assert "agreement" not in printed.splitlines()[1]
    assert "no tokenizer" in printed


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--role", "inductoin"], 2, "Did you mean 'induction'"),
        (["--sort", "entropie"], 2, "Did you mean 'entropy'"),
        (["--documents", "nowhere.txt"], 4, "nowhere.txt"),
        (["--ablate-top", "-1"], 2, "--ablate-top"),
        (["--doc-len", "1"], 2, "--doc-len"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_model_is_loaded(
    run: Run, words: list[str], code: int, said: str
) -> None:
    found, printed, complaint = run("heads", *words)
    assert (found, printed) == (code, "")
    assert said in complaint


@pytest.mark.usefixtures("made_by_hand")
def test_heads_are_taken_away_by_name_and_copying_is_left_out(run: Run) -> None:
    words = ("--ablate", "0.1, 1.2", "--method", "zero", "--controls", "2", "--no-copying", "--json")
    code, printed, _ = run("heads", *SMALL, *words)
    document = json.loads(printed)
    assert code == 0
    assert "ov_eigenvalue" not in document["table"][0]
    assert document["results"]["ablation"]["settings"]["method"] == "zero"
    assert {row["removed"] for row in document["results"]["ablation"]["table"]} == {"0.1", "1.2", "all together"}
