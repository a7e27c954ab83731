"""The page of attribution, alone, on a memory written by hand."""

from typing import TYPE_CHECKING

import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values

from interp.apps.dashboard.views.attribution import PAGE

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop

pytestmark = pytest.mark.usefixtures("memory", "own_workshop")
TEXT = "The Eiffel Tower is in"
ASKED = {"text": TEXT, "answer": " Paris", "foil": " Seattle"}


def test_a_link_opens_with_its_results() -> None:
    app = settle(alone(PAGE, **link(PAGE, **ASKED)))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
