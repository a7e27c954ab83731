"""The pages of attention and of heads in a browser, on the real model: clicked, exported, repeated as commands."""

import io
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from dashboard import example, link, run_command, run_program

from interp.apps.dashboard.views import attention, heads

if TYPE_CHECKING:
    from dashboard import Dashboard

QUICK = {
    **heads.EXAMPLE,
    "n_seqs": 2,
    "n_documents": 1,
    "doc_len": 32,
    "seq_len": 12,
    "selection": "18.6",
    "controls": 2,
}


def test_a_head_is_clicked_and_its_effect_is_that_of_the_copied_command(dashboard: "Dashboard") -> None:
    with dashboard.open("attention", **example(attention.PAGE)) as view:
        view.shown()
        view.click_cell("heads", row=2, column=17)  # heads downwards, layers across
        view.wait_value("layer", "17")
        view.wait_value("head", "2")
        view.says("Without 17.2, the loss")
        view.click_cell("head", row=10, column=3)
        view.wait_value("query", "10")
        view.wait_value("key", "3")
        told = pd.read_csv(io.BytesIO(view.exported("CSV", "effects"))).set_index("metric")
        printed = run_command(view.copied("Copy as command"))
    found = pd.DataFrame(printed["results"]["ablation"]["table"]).iloc[0]
    for metric in ("loss", "log_probability", "kl"):
        assert told.loc[metric, "effect"] == pytest.approx(found[f"{metric}_effect"], abs=1e-4)
        assert told.loc[metric, "others, mean"] == pytest.approx(found[f"{metric}_control_mean"], abs=1e-4)
    assert printed["settings"]["head"] == "17.2"


def test_a_head_on_random_tokens_said_twice_comes_from_the_page_of_heads(dashboard: "Dashboard") -> None:
    with dashboard.open("heads", **link(heads.PAGE, **QUICK)) as view:
        view.shown()
        view.click_cell("map", row=6, column=18)
        view.wait_value("layer", "18")
        view.wait_value("head", "6")
        frame = pd.read_csv(io.BytesIO(view.exported("CSV")))
        program = view.copied("Copy as Python")
        view.tab.get_by_role("button", name="See it on a repeated sequence").click()
        view.tab.wait_for_url("**/attention?**")
        view.says("Without 18.6, the loss")
        for name, value in {"read": "repeated", "seq_len": "12", "layer": "18"}.items():
            view.wait_value(name, value)
    atlas = run_program(program)["atlas"]
    assert frame["prefix_matching"].to_numpy() == pytest.approx(atlas.to_frame()["prefix_matching"], abs=1e-5)


def test_work_of_heads_can_be_cancelled_and_its_settings_changed(dashboard: "Dashboard") -> None:
    long = {**QUICK, "n_seqs": 128, "n_documents": 30, "doc_len": 900}
    with dashboard.open("heads", **{**link(heads.PAGE, **long), "asked": ""}) as view:
        view.shown("empty")
        view.tab.get_by_role("button", name="Compute", exact=True).click()
        view.start()
        view.cancel()
