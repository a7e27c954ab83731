"""A report is one file that says what it is told, loads nothing, and draws in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from loads import Loads

from interp.apps.report import Code, Column, Figure, Highlight, Report, Section, Table, render, token
from interp.apps.report.cells import chip, prose, written
from interp.plots import curves, head_heatmap

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = '</script><script>alert("x")</script> & <b>\n'


def table() -> Table:
    frame = pd.DataFrame(
        {
            "layer": [0, 1, 2],
            "piece": [" the", HOSTILE, " Paris"],
            "p": [0.0004, 0.25, 0.7521],
            "best": [False, False, True],
        }
    )
    columns = {
        "layer": Column("layer", "whole"),
        "piece": Column("top token", "token"),
        "p": Column("probability", "bar"),
    }
    return Table("answers", frame, f"What each layer says about {token(HOSTILE)}", columns, first=2, emphasis="best")


def section(slug: str, figures: list[go.Figure]) -> Section:
    return Section(
        slug=slug,
        title="Where is the tower?",
        question="At which layer does the answer appear?",
        explanation=f"We follow {token(' Paris')} upwards.",
        finding=f"It wins after layer 2, {HOSTILE}",
        blocks=[*(Figure(figure, f"A figure of {HOSTILE}") for figure in figures), table()],
        not_shown="Why it does so.",
        code=Code('print("<no markup>")', "interp lens 'x'"),
    )


@pytest.fixture(scope="module")
def page_text() -> str:
    lines = curves([0, 1, 2], {HOSTILE: [0.1, 0.2, 0.7]}, title=HOSTILE, x_title="layer", y_title="p")
    heads = head_heatmap(np.array([[0.1, 0.9], [0.2, -0.3]]), title="heads", metric="effect")
    sections = [section("first", [lines, heads]), section("second", [lines])]
    tiles = [Highlight("75.2 %", token(" Paris"), "after the last layer", "first")]
    return render(Report(f"Title {HOSTILE}", "A lead.", tiles, [("Weights", "ab" * 32)], sections, [HOSTILE]))


def test_nothing_on_the_page_asks_for_another_file(page_text: str) -> None:
    parser = Loads()
    parser.feed(page_text)
    assert parser.found == ["data:,"]
    assert not re.search(r"@import|url\(", page_text.split("</style>")[0])


def test_texts_cannot_become_markup(page_text: str) -> None:
    parser = Loads()
    parser.feed(page_text)
    assert parser.tags.count("script") == 5  # three figures, plotly, and the script that draws
    assert "<script>alert" not in page_text
    assert "&lt;/script&gt;&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &lt;b&gt;↵" in page_text


def test_plotly_is_inlined_once(page_text: str) -> None:
    assert page_text.count("plotly.js v") == 1
    assert 3_000_000 < len(page_text.encode()) < 8_000_000


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (0.75213, "percent", "75.2 %"),
        (0.0, "percent", "0.0 %"),
        (0.0004, "bar", "< 0.1 %"),
        (1234.0, "whole", "1,234"),
        (-0.5, "signed", "−0.500"),
        (float("nan"), "number", "–"),
    ],
)
def test_numbers_are_written_for_readers(number: float, kind: str, text: str) -> None:
    assert written(number, kind) == text


@pytest.fixture
def opened(browser: "Browser", page_text: str, tmp_path: Path) -> "Callable[..., tuple[Page, list[str]]]":
    """Opens the report from disk; complaints are console messages, errors and requests beyond the file itself."""

    def open_page(**settings: object) -> "tuple[Page, list[str]]":
        file = tmp_path / "report.html"
        file.write_text(page_text, encoding="utf-8")
        page = browser.new_page(**settings)  # type: ignore[arg-type]
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        page.wait_for_function("document.documentElement.dataset.drawn === '3'")
        return page, complaints

    return open_page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_every_figure_without_complaint_or_request(
    opened: "Callable[..., tuple[Page, list[str]]]", scheme: str
) -> None:
    page, complaints = opened(color_scheme=scheme)
    assert page.locator(".plot .scatterlayer .trace .point").count() == 6
    assert page.locator(".plot .heatmaplayer image").count() == 1
    assert page.locator("tr.strong").count() == 2
    assert complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_never_scrolls_sideways(opened: "Callable[..., tuple[Page, list[str]]]", width: int) -> None:
    page, _ = opened(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_colours_follow_the_scheme_of_the_reader(opened: "Callable[..., tuple[Page, list[str]]]") -> None:
    page, _ = opened(color_scheme="light")
    paint = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = page.evaluate(paint)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{paint} !== '{light}'")
    assert page.evaluate(paint) != light


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (" a b", " a b"),
        ("\n\t", "↵⇥"),
        ("\xa0", "\\xa0"),
        ("\x00\u202e", "\\x00\\u202e"),
        ("é漢🎉", "é漢🎉"),
        ("<b>", "&lt;b&gt;"),
    ],
)
def test_a_token_shows_what_would_print_as_nothing(text: str, seen: str) -> None:
    assert chip(text) == f'<code class="token">{seen}</code>'
    assert prose(f"before {token(text)}") == f'before <code class="token">{seen}</code>'


def test_a_long_token_may_wrap() -> None:
    assert 'class="token long"' in chip("a prompt of more than thirty characters")
