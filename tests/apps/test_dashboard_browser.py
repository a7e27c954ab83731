"""The dashboard in a browser, on the real model: what a person does with it, and what the browser says of it."""

import io
import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from dashboard import example, run_command, run_program
from dashboard_soak import SESSIONS, soak

import interp
from interp.apps.dashboard import address
from interp.apps.dashboard.views import prompt

if TYPE_CHECKING:
    from dashboard import Dashboard

    from interp.models.transformer import Transformer

EXAMPLE = example(prompt.PAGE)
COLOUR = "plot => plot._fullData?.[0]?.colorbar?.title?.text ?? null"


def test_the_first_page_tells_what_the_model_is_and_leads_to_the_others(dashboard: "Dashboard") -> None:
    with dashboard.open() as view:
        view.shown()
        view.says("134,515,008")
        counted = run_command(view.copied("Copy as command"))
        frame = pd.read_csv(io.BytesIO(view.exported("CSV")))
        assert set(frame.columns) == {"fact", "value"}
        assert counted["parameters"] == 134_515_008
        view.tab.get_by_role("link", name="Prompt and lens").click()
        view.shown("empty")
        view.tab.get_by_role("button", name="Load example").click()
        view.shown()
        view.wait_value("text", EXAMPLE["text"])
        view.wait_value("asked", "main")


def test_models_stand_side_by_side_with_what_they_take(dashboard: "Dashboard") -> None:
    with dashboard.open() as view:
        view.shown()
        box = view.tab.get_by_label("Shapes beside it", exact=True)
        box.fill("mixtral-8x7b")
        box.press("Enter")
        view.wait_value("beside", "mixtral-8x7b")
        frame = pd.read_csv(io.BytesIO(view.exported("CSV", "shapes")))
        view.draws("kv", "plot => plot._fullData.length", len(frame))
    assert 46_702_792_704 in frame["parameters"].tolist()
    assert len(frame) == 2


def kept(dashboard: "Dashboard", page: str) -> list[str]:
    """Names of the page's runs that are whole on the disk: a page is shown before its run is written."""
    begun = [path.parent for path in dashboard.runs.glob(f"{page}-*/manifest.json")]
    return [folder.name for folder in begun if interp.open_run(folder).status().state == "finished"]


def test_what_was_computed_is_kept_and_leads_back_to_its_page(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **EXAMPLE) as view:
        view.shown()
        name = view.until(lambda: kept(dashboard, "prompt"), bool, "a run of the page")[0]
    with dashboard.open("runs", run=name, job="surprisal", v="1", asked="") as view:
        view.shown()
        frame = pd.read_csv(io.BytesIO(view.exported("CSV", "surprisal")))
        told = run_command(view.copied("Copy as command") + " --json")
        opened = run_program(view.copied("Copy as Python"))["run"]
        view.tab.get_by_role("button", name="Show on the page 'Prompt and lens'").click()
        view.tab.wait_for_url("**/prompt?**")
        view.shown()
    assert told["state"] == "finished"
    assert frame["surprisal"].to_numpy() == pytest.approx(
        opened.frame("surprisal")["surprisal"].to_numpy(), nan_ok=True
    )


def test_a_cell_is_chosen_by_a_click_and_by_numbers(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **EXAMPLE) as view:
        view.shown()
        view.click_cell("lens", row=29, column=7)
        view.wait_value("layer", "28")
        view.wait_value("position", "7")
        number = view.tab.get_by_label("Layer", exact=True)
        number.fill("3")
        number.press("Enter")
        view.wait_value("layer", "3")
        view.says("After layer 3")


def test_what_is_exported_and_copied_has_the_numbers_of_the_page(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **{**EXAMPLE, "layer": "28", "position": "10"}) as view:
        view.shown()
        frame = pd.read_csv(io.BytesIO(view.exported("CSV")))
        assert pd.read_parquet(io.BytesIO(view.exported("Parquet")))["prediction"].tolist() == (
            frame["prediction"].tolist()
        )
        settings = json.loads(view.exported("Settings (JSON)"))
        page = view.exported("HTML, all figures").decode()
        program, command, link = (view.copied(f"Copy {what}") for what in ("as Python", "as command", "link"))
    assert settings["values"]["text"] == EXAMPLE["text"]
    assert "Plotly.newPlot" in page
    assert "http" not in page.split("</script>", 1)[1].split("<h2>Settings")[0].replace("http://www.w3.org", "")
    cells = frame[frame["position"] == 10]
    table = run_command(command)["table"]
    np.testing.assert_allclose([row["probability"] for row in table], cells["final_probability"], atol=1e-5)
    lens = run_program(program)["lens"]
    np.testing.assert_allclose(
        lens.at("prediction_probability", position=10), cells["prediction_probability"], atol=1e-5
    )
    with dashboard.open(link.split("/", 3)[3].split("?")[0], **_query(link)) as again:
        again.shown()
        again.wait_value("layer", "28")


def _query(link: str) -> dict[str, str]:
    from urllib.parse import parse_qsl, urlsplit

    return dict(parse_qsl(urlsplit(link).query, keep_blank_values=True))


def test_a_figure_is_saved_as_a_picture_by_the_browser(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **EXAMPLE) as view:
        view.shown()
        assert view.exported("PNG").startswith(b"\x89PNG")


def test_the_colour_of_the_map_changes_without_computing_again(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **EXAMPLE) as view:
        view.shown()
        before = view.until(lambda: kept(dashboard, "prompt"), bool, "a run of the page")
        view.choose("Colour", "rank of the followed token")
        view.wait_value("metric", "rank")
        view.shown()
        view.draws("lens", COLOUR, "rank of the followed token")
        assert kept(dashboard, "prompt") == before


def test_who_goes_back_and_forward_in_the_browser_sees_what_the_page_showed(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **EXAMPLE) as view:
        view.shown()
        view.choose("Colour", "rank of the followed token")
        view.wait_value("metric", "rank")
        view.tab.wait_for_timeout(address.HEARD * 1000)
        view.tab.go_back()
        view.draws("lens", COLOUR, "probability of the likeliest token")
        view.tab.go_forward()
        view.draws("lens", COLOUR, "rank of the followed token")


def test_a_bad_link_is_answered_in_words(dashboard: "Dashboard") -> None:
    with dashboard.open("prompt", **{**EXAMPLE, "top_k": "many", "layer": "77"}) as view:
        view.shown()
        view.says("top_k = 'many' in the link")
        view.says("Layer 77 is outside -1 to 29 here")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_no_page_is_wider_than_the_screen(dashboard: "Dashboard", width: int, height: int) -> None:
    with dashboard.open("prompt", width=width, height=height, theme="dark", **EXAMPLE) as view:
        view.shown()
        view.narrow(width)
        background = view.tab.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        assert max(int(part) for part in background.strip("rgb()").split(",")) < 60, "the dark theme is dark"


def test_a_job_can_be_cancelled(dashboard: "Dashboard") -> None:
    long = " ".join(f"The number {number} comes after the number before it." for number in range(130))
    with dashboard.open("prompt", **{**EXAMPLE, "text": long}) as view:
        view.start()
        view.cancel()
        view.tab.get_by_role("button", name="Start again").wait_for()


def test_eight_sessions_on_one_model_get_each_its_own_numbers(dashboard: "Dashboard", smollm2: "Transformer") -> None:
    assert soak(dashboard, smollm2, seconds=0, rounds=1) == SESSIONS
