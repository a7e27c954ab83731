"""How soon the dashboard answers, as a browser sees it: the first page, and a control changed on kept results."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import interp
from benchmarks.measuring import Row

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST, CHANGE = 3.0, 0.5  # seconds, on two cores
STARTS = 3
QUERY = {
    "v": "1",
    "asked": "main",
    "text": "The Eiffel Tower is located in the city of",
    "answer": " Paris",
    "metric": "probability",
}
_SHOWN = '.interp-state[data-state="shown"]'
_TITLE = "() => document.querySelector('.js-plotly-plot')?._fullData?.[0]?.colorbar?.title?.text"


@contextmanager
def _server() -> "Iterator[tuple[str, float]]":
    """A fresh dashboard; its address, and the moment at which it was started."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "interp", "dashboard", "--no-browser", "--port", str(port)]
        started = time.perf_counter()
        process = subprocess.Popen([*command, "--runs", f"{folder}/runs"], stderr=subprocess.DEVNULL)
        try:
            while True:
                with socket.socket() as trial:
                    if trial.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}", started
        finally:
            process.terminate()
            process.wait()


def dashboard() -> Iterator[Row]:
    """From the start of the program to the first page's controls; from a changed control to the new picture."""
    from playwright.sync_api import sync_playwright

    interp.pull("smollm2-135m")  # a page that offers to fetch it is no first page
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.set_default_timeout(120_000)
        firsts = [_first(tab) for _ in range(STARTS)]
        first = median(firsts)
        yield Row("dashboard: start to first controls", f"{first:.2f} s", first, FIRST, "s")
        with _server() as (url, _):
            tab.goto(f"{url}/prompt?{urlencode(QUERY)}")
            tab.locator(_SHOWN).wait_for(state="attached")
            tab.wait_for_function(_TITLE)
            times = [_change(tab, name) for name in ("entropy (nats)", "rank of the followed token") * 4]
        yield Row("dashboard: colour of the map changed", f"{median(times):.2f} s", median(times), CHANGE, "s")
        browser.close()


def _first(tab: "Page") -> float:
    """Seconds from the start of the program to the first page's controls, in a browser that is open already."""
    with _server() as (url, started):
        tab.goto(f"{url}/prompt?{urlencode(QUERY)}")
        tab.get_by_role("button", name="Compute", exact=True).wait_for()
        return time.perf_counter() - started


def _change(tab: "Page", name: str) -> float:
    """Seconds from the click on an option to the map that shows it."""
    box = tab.locator('[data-testid="stSelectbox"]', has_text="Colour").get_by_role("combobox")
    box.scroll_into_view_if_needed()
    tab.wait_for_timeout(500)  # a list closes when the page moves
    box.fill(name)
    option = tab.get_by_role("option", name=name, exact=True)
    option.wait_for()
    began = time.perf_counter()
    option.click()
    wanted = name.removesuffix(" (nats)")
    tab.wait_for_function(f"wanted => ({_TITLE})() === wanted", arg=wanted, polling=20)
    return time.perf_counter() - began
