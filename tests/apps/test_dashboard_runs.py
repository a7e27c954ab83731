"""The page of runs: what is kept, what is damaged, and the way back to the page that made it."""

from typing import TYPE_CHECKING

import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values

from interp.apps.dashboard.views import prompt
from interp.apps.dashboard.views.runs import PAGE, listed

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop

pytestmark = pytest.mark.usefixtures("memory")
TEXT = "The capital of Germany is"


def kept(workshop: "Workshop") -> str:
    """The name of a run that the page of the lens left behind."""
    settle(alone(prompt.PAGE, **link(prompt.PAGE, text=TEXT, top_k=3)))
    (run,) = listed(workshop.options.runs)
    return run.folder.name


def test_without_runs_the_page_says_where_they_will_be(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE))
    assert (ends(app), errors(app)) == ("shown", [])
    assert "No run is kept here yet" in app.info[0].value


def test_what_a_page_computed_is_listed_and_opened_by_its_link(own_workshop: "Workshop") -> None:
    name = kept(own_workshop)
    app = settle(alone(PAGE, v="1", asked="", run=name, job="surprisal"))
    assert (errors(app), complaints(app)) == ([], [])
    assert values(app)["run"] == name
    assert any("Surprisal" in block.value for block in app.code)
    assert app.dataframe[1].value["item"].unique().tolist() == ["result"]


def test_from_a_run_leads_a_button_to_the_page_with_its_values(own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, v="1", asked="", run=kept(own_workshop), job=""))
    (button,) = [each for each in app.button if each.label == "Show on the page 'Prompt and lens'"]
    button.click().run()
    assert app.session_state["_go"] == "prompt"
    assert app.session_state["_values.prompt"]["text"] == TEXT


def test_a_damaged_run_is_listed_with_the_reason(own_workshop: "Workshop") -> None:
    name = kept(own_workshop)
    (own_workshop.options.runs / name / "manifest.json").write_text("{}")
    app = settle(alone(PAGE, v="1", asked="", run=name, job=""))
    assert "cannot be read" in app.dataframe[0].value["state"].iloc[0]
    assert len(errors(app)) == 1


@pytest.mark.parametrize("name", ["nowhere", "../secret", "/etc"])
def test_a_run_that_is_not_listed_is_not_opened(own_workshop: "Workshop", name: str) -> None:
    kept(own_workshop)
    app = settle(alone(PAGE, v="1", asked="", run=name, job=""))
    assert "There is no run called" in complaints(app)[0]
    assert len(app.dataframe) == 1
