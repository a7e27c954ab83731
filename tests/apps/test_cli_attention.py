"""`interp attention` on a circuit written by hand, whose heads are known: what it prints, saves and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import interp
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]
LAYER, HEAD = InductionCircuit().induction
NAME = f"{LAYER}.{HEAD}"
TWICE = ("attention", "--repeated", "6", "--prefix", "none", "-q")


@pytest.fixture(scope="module")
def circuit() -> "Transformer":
    return induction_circuit()


@pytest.fixture
def made_by_hand(circuit: "Transformer", monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gets this model, whatever it asks for."""
    monkeypatch.setattr(interp, "load", lambda *_, **__: circuit, raising=False)


@pytest.mark.usefixtures("made_by_hand")
class TestAttention:
    def test_every_head_has_a_row(self, run: Run) -> None:
        code, printed, _ = run(*TWICE, "--json")
        document = json.loads(printed)
        assert code == 0
        assert {(row["layer"], row["head"]) for row in document["table"]} == {
            (layer, head) for layer in range(2) for head in range(4)
        }

    def test_an_induction_head_looks_behind_the_first_time_and_costs_the_second(self, run: Run) -> None:
        code, printed, _ = run(*TWICE, "--head", NAME, "--method", "zero", "--controls", "3", "--json")
        document = json.loads(printed)
        assert code == 0
        strong = [row for row in document["table"] if row["pattern"] > 0.9 and row["key"] > 0]
        assert strong
        assert {row["query"] - row["key"] for row in strong if row["query"] >= 6} == {5}
        (without,) = document["results"]["ablation"]["table"]
        assert without["loss_effect"] > 1 > abs(without["loss_control_mean"])
        assert len(document["results"]["maps"]["table"]) == 8

    def test_tables_are_drawn_and_all_of_it_is_saved(self, run: Run, tmp_path: Path) -> None:
        code, printed, _ = run(*TWICE, "--head", NAME, "--out", str(tmp_path / "out"))
        assert code == 0
        assert f"Head {NAME}: where it looks" in printed
        assert "random sets" in printed or "that exist" in printed
        saved = interp.open_run(tmp_path / "out")
        assert saved.result(job="head")["pattern"].shape == (12, 12)
        assert saved.result(job="ablation").settings["since"] == 7

    def test_a_head_that_is_none_is_refused(self, run: Run) -> None:
        code, _, complaint = run(*TWICE, "--head", "9.9")
        assert code == 2
        assert "layers go from 0 to 1" in complaint


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one of the two"),
        (["x", "--repeated", "5"], "one of the two"),
        ([""], "The text is empty"),
        (["--repeated", "5", "--other", "x"], "leave --repeated out"),
        (["x", "--head", "six"], "names no component"),
        (["--repeated", "1"], "--repeated"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_model_is_loaded(run: Run, words: list[str], said: str) -> None:
    code, printed, complaint = run("attention", *words)
    assert (code, printed) == (2, "")
    assert said in complaint
