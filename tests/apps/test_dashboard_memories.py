"""The page of FFN memories, alone, on a memory written by hand: neuron 0.5 knows where the Eiffel Tower is."""

import json
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values
from streamlit.testing.v1 import AppTest

from interp.analyses.continuations import continuations
from interp.analyses.memories import ffn_memories
from interp.apps.dashboard.views.memories import PAGE

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

pytestmark = pytest.mark.usefixtures("memory", "own_workshop")
TEXT = "The Eiffel Tower is in"
TOWER = 3  # the position of the subject's last token, behind the prefix
ASKED = {"text": TEXT, "top_k": 2, "position": TOWER}
QUICK: dict[str, Any] = {"others": 0, "controls": 1, "new_tokens": 2, "answer": " Paris"}


def opened(asked: str = "main", **said: Any) -> AppTest:
    return settle(alone(PAGE, **{**link(PAGE, **{**ASKED, **said}), "asked": asked}))


def page_text(app: AppTest) -> str:
    """Every sentence on the page, as HTML or Markdown."""
    return " ".join([str(each.proto.body) for each in app.get("html")] + [each.value for each in app.markdown])


def test_without_a_link_the_page_says_what_it_needs() -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Prompt is needed" in app.info[0].value


def test_a_link_shows_the_numbers_of_the_analysis(memory: "Transformer") -> None:
    app = opened()
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    found = ffn_memories(memory, TEXT, position=TOWER, top_k=2)
    table = next(frame.value for frame in app.dataframe if "dominance" in frame.value)
    np.testing.assert_allclose(table["coefficient"], found["coefficient"][0])
    assert table["neuron"].tolist() == found["name"][0].tolist()


def test_the_neuron_of_the_chosen_cell_is_looked_at_and_another_cell_changes_it() -> None:
    app = opened()
    assert values(app)["neuron"] == "0.5", "it writes most in layer 0"
    assert "coefficient <b>+1.000</b>" in page_text(app)
    app.number_input(key="memories.layer").set_value(1)
    settle(app)
    assert values(app)["neuron"].startswith("1.")


def test_a_neuron_that_is_named_stays_until_another_cell_is_chosen() -> None:
    app = opened(neuron="1.3")
    assert values(app)["neuron"] == "1.3"
    app.text_input(key="memories.neuron").set_value("0.7")
    settle(app)
    assert values(app)["neuron"] == "0.7"
    app.number_input(key="memories.rank").set_value(2)
    settle(app)
    assert values(app)["neuron"] not in ("0.7", "0.5")


def test_a_link_that_is_written_opens_to_the_same() -> None:
    first = values(opened(layer=1, rank=2, metric="coefficient", changes=("mean", "x10")))
    assert values(settle(alone(PAGE, **first))) == first
    assert first["changes"] == "mean,x10"
    assert set(first) == {"v", "model", "device", "dtype", "asked", *(each.name for each in PAGE.parameters)}


def test_bad_values_are_said_in_words() -> None:
    app = settle(alone(PAGE, **{**link(PAGE, **ASKED), "neuron": "five", "changes": "half", "rank": "0"}))
    said = " ".join(complaints(app))
    for part in ("'five' names no neuron", "changes = 'half'", "rank = '0'"):
        assert part in said
    app.text_input(key="memories.neuron").set_value("0.9999")
    settle(app)
    assert "There is no neuron 0.9999: layer 0 has one dense FFN" in " ".join(complaints(app))
    app.text_input(key="memories.neuron").set_value("0.5, 0.6")
    settle(app)
    assert "One neuron is expected here." in complaints(app)
    assert errors(app) == []


def test_a_position_outside_of_the_text_stands_on_the_page_in_the_analysis_words() -> None:
    app = opened(position=40)
    assert ends(app) == "waiting"
    assert "40" in errors(app)[0]
    assert "Traceback" not in " ".join(block.value for block in app.code)


def test_suppressing_the_neuron_writes_another_city(memory: "Transformer") -> None:
    app = opened("main,changes", changes=("zero",), **QUICK)
    assert (ends(app), errors(app)) == ("shown", [])
    table = next(frame.value for frame in app.dataframe if "goes on" in frame.value)
    wanted = continuations(memory, TEXT, ["0.5"], changes=("zero",), max_new_tokens=2)
    assert dict(zip(table["change"], table["goes on"], strict=True)) == wanted.texts
    effects = next(frame.value for frame in app.dataframe if "control_effect" in frame.value)
    assert effects["effect"].tolist()[0] < -0.9
    assert abs(effects["control_effect"].tolist()[0]) < 0.01


def test_the_command_that_changes_neurons_tells_the_same(run: Callable[..., tuple[int, str, str]]) -> None:
    app = opened("main,changes", changes=("zero", "x2"), **QUICK)
    words = shlex.split(next(block.value for block in app.code if block.value.startswith("interp neurons")))
    code, printed, _ = run(*words[1:])
    assert code == 0
    told = [row for row in json.loads(printed)["table"] if row["units"]]
    shown = next(frame.value for frame in app.dataframe if "control_effect" in frame.value)
    assert shown["change"].tolist() == [row["change"] for row in told]
    for column in ("effect", "control_effect"):
        np.testing.assert_allclose(shown[column], [row[column] for row in told], atol=1e-6)


def test_the_neurons_to_change_may_be_others_than_the_one_looked_at() -> None:
    app = opened("main,changes", changes=("zero",), edited="1.3, 1.4", **QUICK)
    table = next(frame.value for frame in app.dataframe if "goes on" in frame.value)
    assert set(table["tokens as unedited"]) == {2}, "these know nothing"
    app.text_input(key="memories.edited").set_value("1.3, 9.1")
    settle(app)
    assert "There is no neuron 9.1" in " ".join(complaints(app))


def test_triggers_are_searched_when_they_are_asked_for() -> None:
    app = opened(documents=1)
    assert not any("context" in frame.value for frame in app.dataframe)
    app.button(key="_ask.memories.triggers").click()
    settle(app)
    assert errors(app) == []
    frame = next(frame.value for frame in app.dataframe if "context" in frame.value)
    assert set(frame["end"]) == {"largest", "smallest"}
    assert "triggers" in values(app)["asked"].split(",")
