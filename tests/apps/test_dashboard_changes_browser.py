"""The page of patching in a browser, on the real model: clicked, exported, repeated."""

import io
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from dashboard import run_command

if TYPE_CHECKING:
    from dashboard import Dashboard


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
