"""The page of FFN memories, alone, on a memory written by hand."""

from typing import TYPE_CHECKING

import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values

from interp.apps.dashboard.views.memories import PAGE

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop

pytestmark = pytest.mark.usefixtures("memory", "own_workshop")
TEXT = "The Eiffel Tower is in"


def test_without_a_link_the_page_says_what_it_needs() -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Prompt is needed" in app.info[0].value


def test_a_link_opens_with_its_results() -> None:
    app = settle(alone(PAGE, **link(PAGE, text=TEXT, top_k=3, position=3)))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
