"""The page of prompt and lens, alone, on a memory written by hand."""

from typing import TYPE_CHECKING

import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values

from interp.apps.dashboard.views.prompt import PAGE

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop

pytestmark = pytest.mark.usefixtures("memory")
TEXT = "The capital of Germany is"


def test_without_a_link_the_page_says_what_it_needs(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Prompt is needed" in app.info[0].value
    assert app.button(key="_run.prompt").disabled


def test_a_link_opens_with_its_results(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **link(PAGE, text=TEXT, top_k=3)))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    assert values(app)["text"] == TEXT


def test_a_link_that_is_written_opens_to_the_same(own_workshop: "Workshop") -> None:
    first = values(settle(alone(PAGE, **link(PAGE, text=TEXT, top_k=3, layer=0, metric="kl"))))
    assert values(settle(alone(PAGE, **first))) == first
    assert set(first) == {"v", "model", "device", "dtype", "asked", *(each.name for each in PAGE.parameters)}


def test_the_example_is_a_button(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE))
    app.button(key="_example.prompt").click()
    settle(app)
    assert values(app)["text"] == PAGE.example["text"]
    assert values(app)["asked"] == "main"


def test_a_bad_value_in_the_link_is_said_until_something_is_changed(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **{**link(PAGE, text=TEXT), "top_k": "0", "metric": "loss", "sauce": "hot"}))
    said = " ".join(complaints(app))
    for part in ("top_k = '0'", "from 1 to 50", "metric = 'loss'", "'sauce', which this page does not know"):
        assert part in said
    assert ends(app) == "shown"
    app.number_input(key="prompt.top_k").set_value(4).run()
    assert not any("in the link" in each for each in complaints(app))


def test_a_position_outside_of_the_text_is_said_and_mended(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **link(PAGE, text=TEXT, position=40)))
    assert "Position 40 is outside -6 to 5 here" in complaints(app)[0]
    assert values(app)["position"] == "-1"


def test_a_model_that_may_not_be_opened_is_said(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **link(PAGE, text=TEXT), model="/etc/passwd", device="gpu", dtype="float32"))
    said = " ".join(complaints(app))
    assert "is not in a folder that this dashboard may open for models" in said
    assert "device = 'gpu'" in said
    assert values(app)["model"] == "smollm2-135m"


def test_what_the_analysis_refuses_stands_on_the_page_in_its_words(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **link(PAGE, text=TEXT, answer="two words")))
    assert ends(app) == "partial", "the tokens stand there all the same"
    assert any("found before that" in each.value for each in app.caption)
    assert len(errors(app)) == 1
    assert "token" in errors(app)[0]
    assert "Traceback" not in " ".join(block.value for block in app.code)
    assert '"what": "prompt main"' in app.code[0].value


def test_changed_inputs_make_what_is_shown_stale_until_it_is_computed_again(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **link(PAGE, text=TEXT, top_k=3)))
    app.number_input(key="prompt.top_k").set_value(2).run()
    assert "The inputs changed since" in complaints(app)[0]
    app.button(key="_again.prompt.main").click()
    settle(app)
    assert complaints(app) == []
    app.number_input(key="prompt.top_k").set_value(3).run()
    assert (complaints(app), ends(app)) == ([], "shown"), "both are kept: nothing need be asked again"
