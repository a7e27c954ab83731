"""The pages of patching and of fact tracing in a browser, on the real model: clicked, exported, repeated."""

import io
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from dashboard import example, link, run_command, run_program

from interp.apps.dashboard.views import patching, tracing

if TYPE_CHECKING:
    from dashboard import Dashboard

    from interp.apps.dashboard.page import Page

BRIEF = {**tracing.PAGE.example, "prompt": "The capital of France is", "subject": "France", "answer": " Paris",
         "replacement": "Italy", "position": 4}  # fmt: skip


def test_a_patched_cell_is_clicked_and_has_the_numbers_of_the_copied_command(dashboard: "Dashboard") -> None:
    with dashboard.open("patching") as view:
        view.shown("empty")
        view.tab.get_by_role("button", name="Load example").click()
        view.shown()
        view.click_cell("map", row=20, column=14)
        view.wait_value("layer", "20")
        view.wait_value("place", "14")
        view.tab.get_by_label("Layer", exact=True).fill("3")
        view.tab.get_by_label("Layer", exact=True).press("Enter")
        view.wait_value("layer", "3")
        frame = pd.read_csv(io.BytesIO(view.exported("CSV")))
        printed = run_command(view.copied("Copy as command"))
    table = pd.DataFrame(printed["table"])
    assert len(frame) == len(table) == 30 * 15
    for metric in ("logit_difference", "probability"):
        name = f"{metric}_recovered"
        assert frame[name].to_numpy() == pytest.approx(table[name].to_numpy(dtype=float), abs=1e-4, nan_ok=True)
    assert frame["logit_difference_recovered"].max() > 0.9


@pytest.mark.parametrize(
    ("page", "long"),
    [
        (patching.PAGE, {"pairs": "ioi", "count": 200, "site": "z", "over": "both"}),
        (tracing.PAGE, {"of": "set", "limit": 200}),
    ],
    ids=["patching", "tracing"],
)
def test_long_work_is_confirmed_and_can_be_cancelled(
    dashboard: "Dashboard", page: "Page", long: dict[str, object]
) -> None:
    with dashboard.open(page.key, **link(page, **{**page.example, **long})) as view:
        view.tab.get_by_role("button", name="Start it").click()
        view.cancel()


def test_a_traced_cell_is_clicked_and_has_the_numbers_of_the_copied_program(dashboard: "Dashboard") -> None:
    with dashboard.open("tracing", **link(tracing.PAGE, **BRIEF)) as view:
        view.shown()
        view.click_cell("mlp-map", row=4, column=7)
        view.wait_value("position", "4")
        view.wait_value("layer", "7")
        frame = pd.read_csv(io.BytesIO(view.exported("CSV")))
        printed = run_command(view.copied("Copy as command"))
        program = view.copied("Copy as Python")
        view.tab.get_by_role("button", name="Knock attention out").click()
        view.figure("knockout").wait_for()
    table, found = pd.DataFrame(printed["table"]), run_program(program)["found"].to_frame()
    for other in (table, found):
        assert frame["effect"].to_numpy() == pytest.approx(other["effect"].to_numpy(dtype=float), abs=1e-5)
    assert frame["effect"].max() > 0.1


def test_the_example_of_tracing_is_whole(dashboard: "Dashboard") -> None:
    with dashboard.open("tracing", **example(tracing.PAGE)) as view:
        view.shown()
        view.draws("severed", "plot => plot._fullData.length", 3)  # the stream alone, and with either sublayer held
