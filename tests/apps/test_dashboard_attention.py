"""The page of attention, alone, on a circuit written by hand whose heads are known."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dashboard import alone, complaints, ends, errors, example, link, settle, values

import interp
from interp.analyses.attention_read import said_twice
from interp.analyses.local_ablation import ablate_here
from interp.apps.dashboard.session import workshop
from interp.apps.dashboard.views.attention import PAGE
from interp.apps.dashboard.views.attention_maps import Shown, every_head
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

    from interp.apps.dashboard.session import Workshop
    from interp.models.transformer import Transformer

LAYER, HEAD = InductionCircuit().induction
TWICE: dict[str, Any] = {
    "read": "repeated",
    "seq_len": 6,
    "prefix": "none",
    "layer": LAYER,
    "head": HEAD,
    "controls": 3,
}


@pytest.fixture(scope="module")
def circuit() -> "Transformer":
    return induction_circuit()


@pytest.fixture(autouse=True)
def made_by_hand(circuit: "Transformer", own_workshop: "Workshop", monkeypatch: pytest.MonkeyPatch) -> None:
    """The page gets this model, whatever it asks for."""
    monkeypatch.setattr(interp, "load", lambda *_, **__: circuit, raising=False)


def opened(**given: Any) -> "AppTest":
    return settle(alone(PAGE, **link(PAGE, **{**TWICE, **given})))


def markdown(app: "AppTest") -> str:
    return "\n".join(each.value for each in app.markdown)


def test_without_a_link_the_page_says_what_it_needs() -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Prompt is needed" in app.info[0].value
    assert app.button(key="_run.attention").disabled


def test_random_tokens_need_no_prompt() -> None:
    app = settle(alone(PAGE, **{**link(PAGE, read="repeated"), "asked": ""}))
    assert ends(app) == "empty"
    assert not app.button(key="_run.attention").disabled


def test_beside_where_a_head_looks_stands_what_it_does_with_controls(circuit: "Transformer") -> None:
    app = opened(method="zero")
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    tokens, since = said_twice(circuit, 6, 0, "none")
    found = ablate_here(circuit, tokens, [(LAYER, HEAD)], since=since, method="zero", controls=3, prefix="none")
    assert f"Without {LAYER}.{HEAD}" in markdown(app)
    assert found.interval("loss", 0) in markdown(app)
    assert found.beside("loss", 0) in markdown(app)
    assert any(found.caution in caption.value for caption in app.caption)


def test_another_head_brings_its_own_map_and_its_own_effect() -> None:
    app = opened()
    app.number_input(key="attention.head").set_value(0).run()
    app = settle(app)
    assert f"Without {LAYER}.0" in markdown(app)
    assert values(app)["head"] == "0"


def test_the_pictures_are_those_of_the_api(circuit: "Transformer") -> None:
    from interp.analyses.attention import attention_maps

    maps = attention_maps(circuit, said_twice(circuit, 6, 0, "none")[0], prefix="none")
    grid = every_head(maps, Shown("pattern", "prompt", first=False))
    assert grid.pictures is not None
    np.testing.assert_array_equal(grid.pictures[HEAD, LAYER], maps.picture("pattern", sink=False)[LAYER, HEAD])
    assert grid.values[HEAD, LAYER] == maps.picture("pattern", sink=False)[LAYER, HEAD].max()


def test_what_cannot_be_compared_is_said_in_words() -> None:
    app = opened(other="something else")
    assert any("Another prompt is compared with a prompt" in each for each in errors(app))
    assert not any("Traceback" in each for each in errors(app))


def test_values_of_a_link_that_cannot_be_are_said_and_mended() -> None:
    app = settle(alone(PAGE, **{**link(PAGE, **TWICE), "head": "77", "what": "colour", "seq_len": "1"}))
    said = "\n".join(complaints(app))
    assert "Head 77 is outside 0 to 3" in said
    assert "what = 'colour' in the link" in said
    assert "seq_len = '1' in the link" in said
    assert ends(app) == "shown"


def test_a_link_that_is_written_opens_to_the_same() -> None:
    first = values(opened(what="moved", first=False, query=5, key=2))
    assert values(settle(alone(PAGE, **first))) == first
    assert first["first"] == "0"
    assert set(first["asked"].split(",")) == {"main", "head", "ablation"}


def test_changed_inputs_leave_map_and_effect_as_they_were() -> None:
    app = opened()
    before = markdown(app)
    app.number_input(key="attention.seq_len").set_value(9).run()
    assert any("inputs changed" in warning.value for warning in app.warning)
    assert markdown(app) == before


def test_settings_can_be_taken_away_and_heads_do_not_fill_the_disk() -> None:
    opened()
    names = {path.name.split("-")[1] for path in workshop().options.runs.iterdir()}
    assert not any("head" in name for name in names)
    found = [json.loads((path / "manifest.json").read_text()) for path in workshop().options.runs.iterdir()]
    assert {each["settings"]["work"] for each in found} == {"main", "ablation"}


def test_the_example_is_whole() -> None:
    assert set(example(PAGE)) == {"v", "asked", *(each.name for each in PAGE.parameters)}
