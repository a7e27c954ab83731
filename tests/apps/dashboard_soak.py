"""Eight browser sessions on one model, each with texts of its own, all at once; every number against the API.

`python tests/apps/dashboard_soak.py SECONDS` (tests and tests/apps on the path) ends with exit code 1, and says why, if
a page shows an error or a number that is not that of its own text, or if the process outgrows its budget.
"""

import re
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from dashboard import Dashboard, View, link, serving

from interp.apps.dashboard.options import Options
from interp.apps.dashboard.views import prompt

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

SESSIONS = 8
CITIES = ("Paris", "Rome", "Berlin", "Tokyo", "Madrid", "Cairo", "Oslo", "Lima", "Delhi", "Quito", "Seoul", "Dublin")
GROWTH = 512 * 2**20  # what the server itself may need beside its budget of results


def expected(model: "Transformer", text: str, answer: str) -> tuple[int, float]:
    """Rank and probability of the answer after the last layer."""
    from interp.analyses.lens import logit_lens

    lens = logit_lens(model, text, answers=[answer], positions=[-1], top_k=1)
    return int(lens["answer_rank"][-1, 0, 0]), float(lens["answer_probability"][-1, 0, 0])


def soak(dashboard: Dashboard, model: "Transformer", *, seconds: float, rounds: int = 10**6) -> int:
    """Rounds until the time is up or all are done; how many pages were compared. Raises `AssertionError`."""
    end, compared, warm = time.monotonic() + seconds, 0, 0
    server = psutil.Process(dashboard.process)
    with ExitStack() as stack:
        views = [stack.enter_context(dashboard.open()) for _ in range(SESSIONS)]
        for number in range(rounds):
            compared += one_round(dashboard, model, views, number)
            held = server.memory_info().rss
            warm = warm or held
            assert held - warm < Options.cache_bytes + GROWTH, f"the server grew by {(held - warm) / 2**20:.0f} MiB"
            if time.monotonic() > end:
                break
    return compared


def one_round(dashboard: Dashboard, model: "Transformer", views: list[View], number: int) -> int:
    """Every session opens a text of its own before the first one is waited for; two of them share one."""
    asked = []
    for session, view in enumerate(views):
        place = (number * SESSIONS + max(session, 1)) % (len(CITIES) ** 2)
        here, there = CITIES[place % len(CITIES)], CITIES[place // len(CITIES)]
        text = f"Round {number}: from {there} we travelled to the city of {here}, and from {here} back to"
        asked.append((text, f" {there}"))
        query = link(prompt.PAGE, text=text, answer=f" {there}")
        view.go(dashboard.url, "prompt", query)
    for view, (text, answer) in zip(views, asked, strict=True):
        view.shown()
        assert view.value("text") == text
        shown = re.search(r"in the end rank ([\d,]+), probability (\d\.\d+)", view.tab.locator("body").inner_text())
        assert shown, f"no numbers on the page of {text!r}"
        rank, probability = expected(model, text, answer)
        assert abs(float(shown[2]) - probability) < 6e-4, f"{text!r}: {shown[0]!r}, expected {probability}"
        assert int(shown[1].replace(",", "")) == rank, f"{text!r}: {shown[0]!r}, expected rank {rank}"
    return len(views)


def main(seconds: float) -> int:
    """The long form; the exit code."""
    from conftest import FLAGS
    from playwright.sync_api import sync_playwright

    import interp

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    model = interp.load("smollm2-135m", device="cpu")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = Path(folder) / "runs"
        with serving(runs) as (url, process):
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
            try:
                compared = soak(Dashboard(url, browser, runs, process), model, seconds=seconds)
            except AssertionError as error:
                print(f"The dashboard does not hold: {error}")  # noqa: T201
                return 1
            finally:
                browser.close()
    print(f"{compared} pages of {SESSIONS} sessions in {seconds:.0f} s: every number as the API gives it")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 300))
