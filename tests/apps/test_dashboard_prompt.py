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
