"""The overview: what the model is, what it takes, what was computed lately."""

from typing import TYPE_CHECKING

import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values

from interp.apps.dashboard.views import prompt
from interp.apps.dashboard.views.overview import PAGE

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop

pytestmark = pytest.mark.usefixtures("memory")


def test_it_tells_what_the_model_is(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    assert app.dataframe[0].value.columns.tolist() == ["smollm2-135m", "llama-3.1-8b", "gemma-2-2b"]
    assert values(app)["itemsize"] == "2"


def test_shapes_beside_it_come_from_the_link_and_unknown_ones_are_said(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **link(PAGE, beside="gpt2, lama-2-7b", itemsize="4", users=10)))
    assert app.dataframe[0].value.columns.tolist() == ["smollm2-135m", "gpt2"]
    assert "'lama-2-7b'" in complaints(app)[0]
    assert "llama-2-7b" in complaints(app)[0]
    assert values(settle(alone(PAGE, **values(app)))) == values(app)


def test_what_was_computed_lately_leads_to_its_run(own_workshop: "Workshop") -> None:
    settle(alone(prompt.PAGE, **link(prompt.PAGE, text="The capital of Germany is", top_k=3)))
    app = settle(alone(PAGE))
    (button,) = [each for each in app.button if each.label == "Open"]
    button.click().run()
    assert app.session_state["_go"] == "runs"
    assert app.session_state["_values.runs"]["run"].startswith("prompt-")
