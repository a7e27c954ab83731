"""The page of heads, alone, on a circuit written by hand whose heads are known."""

from typing import TYPE_CHECKING, Any

import pytest
from dashboard import alone, complaints, ends, errors, example, link, settle, values

import interp
from interp.analyses.head_ablation import ablate_heads
from interp.apps.dashboard.views.heads import PAGE
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

    from interp.apps.dashboard.session import Workshop
    from interp.models.transformer import Transformer

LAYER, HEAD = InductionCircuit().induction
NAME = f"{LAYER}.{HEAD}"
SMALL: dict[str, Any] = {"seq_len": 8, "n_seqs": 2, "n_documents": 1, "doc_len": 24, "copying": False, "controls": 2}


@pytest.fixture(scope="module")
def circuit() -> "Transformer":
    return induction_circuit()


@pytest.fixture(autouse=True)
def made_by_hand(circuit: "Transformer", own_workshop: "Workshop", monkeypatch: pytest.MonkeyPatch) -> None:
    """The page gets this model, whatever it asks for."""
    monkeypatch.setattr(interp, "load", lambda *_, **__: circuit, raising=False)


def opened(asked: str = "main", **given: Any) -> "AppTest":
    return settle(alone(PAGE, **{**link(PAGE, **{**SMALL, **given}), "asked": asked}))


def markdown(app: "AppTest") -> str:
    return "\n".join(each.value for each in app.markdown)


def listed(app: "AppTest") -> list[str]:
    frame = app.dataframe[0].value
    return [f"{row.layer}.{row.head}" for row in frame.itertuples()]


def test_without_a_link_the_page_waits_and_says_what_for() -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert not app.button(key="_run.heads").disabled


def test_the_list_is_sorted_by_any_score_and_filtered_by_role_and_value() -> None:
    app = opened(sort="prefix_matching", layer=LAYER, head=HEAD)
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    assert listed(app)[0] == NAME
    assert len(listed(app)) == 8
    assert f"**Head {NAME}**: role induction" in markdown(app)
    app.selectbox(key="heads.role").set_value("previous token").run()
    assert listed(app) == ["0.1"]
    app.selectbox(key="heads.role").set_value("any").run()
    app.number_input(key="heads.least").set_value(0.9).run()
    assert listed(app) == [NAME]


def test_heads_are_selected_one_by_one_or_from_the_top_of_the_list() -> None:
    app = opened(sort="prefix_matching", layer=0, head=1)
    app.button(key="_add.heads").click().run()
    assert settle(app).text_input(key="heads.selection").value == "0.1"
    app.number_input(key="heads.first").set_value(2).run()
    app.button(key="_take.heads").click().run()
    assert values(settle(app))["selection"].startswith(f"{NAME}, ")


def test_the_selection_is_taken_away_beside_others(circuit: "Transformer") -> None:
    app = opened("main,ablation", selection=NAME, method="zero")
    found = ablate_heads(circuit, [NAME], method="zero", controls=2, seq_len=8, n_seqs=2, prefix="doc")
    assert errors(app) == []
    assert f"Without {NAME}" in markdown(app)
    assert found.interval("nll", 0, -1) in markdown(app)
    assert found.beside("nll", 0, -1) in markdown(app)


def test_several_heads_are_told_together() -> None:
    app = opened("main,ablation", selection=f"{NAME}, 0.1")
    assert "Without all together" in markdown(app)


def test_heads_that_are_none_are_refused_in_words() -> None:
    app = opened("main,ablation", selection="7.9")
    assert any("layers go from 0 to 1" in each for each in errors(app))
    app = opened(selection="the best")
    assert any("parted by commas" in each for each in complaints(app))
    app = opened("main,ablation")
    assert any("No head is selected" in each for each in errors(app))


def test_a_score_that_the_atlas_lacks_is_said() -> None:
    app = opened(sort="ioi_copy")
    assert any("no score ioi copy" in each for each in complaints(app))


def test_composition_stands_beside_random_matrices() -> None:
    app = opened("main,composition", layer=LAYER, head=HEAD)
    assert errors(app) == []
    assert f"Head {NAME} is made to read" in markdown(app)
    assert any("rotary positions left out" in each.value for each in app.caption)


def test_a_link_that_is_written_opens_to_the_same() -> None:
    first = values(opened(sort="sink", role="induction", least=0.5, selection="1.2, 0.1", kind="v"))
    assert values(settle(alone(PAGE, **first))) == first
    assert first["least"] == "0.5"


def test_the_example_is_whole() -> None:
    assert set(example(PAGE)) == {"v", "asked", *(each.name for each in PAGE.parameters)}
