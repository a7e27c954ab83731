"""The report of a run: one page that says what was run, how it ended and what was found, and loads nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import small_runs
from loads import Loads

import interp
from interp.apps.run_report import report
from interp.apps.run_report.tables import MOST, as_table, column_of
from interp.apps.run_summary import JobFinding, findings
from interp.plots import curves

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = '</script><script>alert("x")</script>'


@pytest.fixture
def failed(tmp_path: Path) -> "interp.Run":
    return interp.open_run(small_runs.write(tmp_path / "failed", failing=["Italy"]))


def drawn(job: str) -> JobFinding:
    """What a job found, hostile texts among it."""
    frame = small_runs.table(job).assign(token=HOSTILE)
    figure = curves([0, 1, 2], {HOSTILE: [0.1, 0.2, 0.7]}, title=HOSTILE, x_title="layer", y_title="p")
    return JobFinding([f"first line of {job}", HOSTILE], frame, figure, "Not why.")


def text_of(page: "interp.apps.report.Report") -> str:
    from interp.apps.report import render

    return render(page)


def test_failures_and_what_is_left_are_on_the_page(failed: "interp.Run") -> None:
    page = report(failed, {"lens-tiny": drawn("lens")})
    slugs = [section.slug for section in page.sections]
    assert slugs == ["job-lens-tiny", "failures", "provenance"]
    assert page.notes[0] == "Nothing yet of more-tiny."
    assert [tile.value for tile in page.highlights] == ["6 of 8", "2", "1", "2"]
    text = text_of(page)
    assert "no Italy here" in text
    assert "ab" * 32 in text
    assert failed.manifest.settings_sha256 in text


def test_a_run_without_failures_has_no_section_of_them(tmp_path: Path) -> None:
    run = interp.open_run(small_runs.write(tmp_path / "run"))
    assert [section.slug for section in report(run, {}).sections] == ["provenance"]


def test_nothing_on_the_page_asks_for_another_file_and_texts_stay_texts(failed: "interp.Run") -> None:
    text = text_of(report(failed, {job: drawn(job) for job in failed.jobs}))
    parser = Loads()
    parser.feed(text)
    assert parser.found == ["data:,"]
    assert "<script>alert" not in text


def test_a_long_table_is_cut_and_says_where_the_rest_is() -> None:
    import pandas as pd

    table = as_table("x", pd.DataFrame({"layer": range(MOST + 1)}), "x.csv")
    assert len(table.frame) == MOST
    assert table.caption == f"{MOST + 1} rows; the first {MOST} stand here. All of it:"
    assert table.file == "x.csv"


def test_columns_are_written_by_what_they_hold() -> None:
    import pandas as pd

    frame = pd.DataFrame({"layer": [1], "top_token": ["a"], "said": ["b"], "known": [True], "p_value": [1e-7]})
    kinds = {name: column_of(frame[name]).kind for name in frame}
    assert kinds == {"layer": "whole", "top_token": "token", "said": "text", "known": "flag", "p_value": "general"}
    assert column_of(frame["p_value"]).heading == "p value"


def test_a_single_analysis_is_reported_as_its_result_says(tmp_path: Path) -> None:
    from tiny import tiny

    from interp.analyses.induction import score_heads
    from interp.runs import record

    scores = score_heads(tiny(), seq_len=4, n_seqs=2, prefix="none")
    run = record(tmp_path / "out", {"induction": scores}, analysis="induction")
    found = findings(run)["induction"]
    assert found.lines == scores.summary()
    assert found.caution == scores.caution
    section = report(run, findings(run)).sections[0]
    assert section.title.startswith("induction")
    assert section.not_shown == scores.caution


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it_without_complaint_and_without_scrolling_sideways(
    failed: "interp.Run", browser: "Browser", tmp_path: Path, width: int, scheme: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(text_of(report(failed, {job: drawn(job) for job in failed.jobs})), encoding="utf-8")
    page: Page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
    page.goto(file.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn === '2'")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
