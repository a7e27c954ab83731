"""The dashboard in a browser, on the real model."""

from typing import TYPE_CHECKING

from dashboard import example

from interp.apps.dashboard.views import prompt

if TYPE_CHECKING:
    from dashboard import Dashboard


def test_the_example_of_the_lens_is_a_click_away(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt") as view:
        view.shown("empty")
        view.tab.get_by_role("button", name="Load example").click()
        view.shown()
        view.wait_value("text", "The Eiffel Tower is located in the city of")
        assert view.value("asked") == "main"


def test_a_click_on_a_cell_chooses_it_and_so_do_numbers(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **example(prompt.PAGE)) as view:
        view.shown()
        view.click_cell("lens", row=29, column=7)
        view.wait_value("layer", "28")
        view.wait_value("position", "7")
        view.tab.get_by_label("Layer", exact=True).fill("3")
        view.tab.get_by_label("Layer", exact=True).press("Enter")
        view.wait_value("layer", "3")
        assert view.tab.get_by_text("After layer 3").count() == 1
