"""The pages of FFN memories and of attribution in a browser, on the real model: clicked, exported, repeated."""

import io
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from dashboard import example, link, run_command, run_program

from interp.apps.dashboard.views import attribution, memories

if TYPE_CHECKING:
    from dashboard import Dashboard, View

    from interp.models.transformer import Transformer

TEXT = memories.PAGE.example["text"]


def table(view: "View", name: str) -> pd.DataFrame:
    """A table that the page exports, by name."""
    return pd.read_csv(io.BytesIO(view.exported("CSV", name)), dtype={"name": str})  # 26.10 is a name, and no number


def test_a_neuron_is_clicked_and_its_numbers_are_those_of_the_copied_command(dashboard: "Dashboard") -> None:
    with dashboard.open("memories", **example(memories.PAGE)) as view:
        view.shown()
        view.click_cell("memories", row=26, column=2)
        view.wait_value("layer", "26")
        view.wait_value("rank", "3")
        named = view.value("neuron")
        frame = table(view, "memories").set_index(["layer", "rank"])
        view.choose("Colour", "coefficient m")
        view.wait_value("metric", "coefficient")
        assert view.value("neuron") == named
        printed = pd.DataFrame(run_command(view.copied("Copy as command"))["table"]).set_index(["layer", "rank"])
    assert named == frame.loc[(26, 3), "name"] == printed.loc[(26, 3), "name"]
    for column in ("coefficient", "dominance", "explained"):
        assert frame[column].to_numpy() == pytest.approx(printed[column].to_numpy(), abs=1e-4)


def test_a_neuron_is_suppressed_and_the_copied_program_finds_the_same(
    dashboard: "Dashboard", loaded: "Transformer"
) -> None:
    quick = {**memories.PAGE.example, "neuron": "24.1005", "changes": ("zero",), "others": 0, "controls": 1}
    asked = {**link(memories.PAGE, **{**quick, "new_tokens": 3}), "asked": "main,changes"}
    with dashboard.open("memories", **asked) as view:
        view.shown()
        view.says("Effects on the probability of the answer")
        view.quiet()
        effects, texts = table(view, "effects"), table(view, "texts")
        program = view.copied("Copy as Python")
    written, edits = run_program(program)["changed"]()
    assert texts["goes on"].tolist() == list(written.texts.values())
    wanted = edits.to_frame()
    assert effects["effect"].to_numpy() == pytest.approx(wanted["effect"].to_numpy(), abs=1e-5, nan_ok=True)


def test_a_search_for_triggers_can_be_cancelled(dashboard: "Dashboard") -> None:
    with dashboard.open("memories", **link(memories.PAGE, **{**memories.PAGE.example, "documents": 36})) as view:
        view.shown()
        view.tab.get_by_role("button", name="Search for its triggers").click()
        view.start()
        view.cancel()


def test_a_head_is_clicked_and_its_term_is_that_of_the_copied_command(dashboard: "Dashboard") -> None:
    with dashboard.open("attribution", **{**example(attribution.PAGE), "by": "head"}) as view:
        view.shown()
        view.click_cell("heads", row=24, column=3)
        view.wait_value("layer", "24")
        view.wait_value("head", "3")
        view.says("Without 24.3, the log-probability")
        view.click_cell("sources", row=20, column=5)
        view.wait_value("source_layer", "20")
        view.wait_value("source", "5")
        frame = table(view, "head").set_index("part")
        printed = run_command(view.copied("Copy as command"))
        view.choose("Parts", "neurons")
        view.wait_value("by", "neuron")
        view.says("parts, the strongest first")
        neurons = table(view, "parts by neuron")
        assert view.exported("PNG").startswith(b"\x89PNG")
    told = pd.DataFrame(printed["table"]).set_index("part")
    assert frame["mean"].to_numpy() == pytest.approx(told.loc[frame.index, "mean"].to_numpy(), abs=1e-4)
    assert neurons["mean"].sum() == pytest.approx(frame["mean"].sum(), abs=1e-3), "however it is cut, it is one logit"
