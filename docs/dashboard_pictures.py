"""Draw `docs/images/dashboard/`: every page of the dashboard with its example, in both themes, wide and on a phone.

    python docs/dashboard_pictures.py [page …]

Needs the development extra (playwright) and a Chromium on the path. A page whose example takes minutes is waited for.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

import interp
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import VERSION, defaults, write
from interp.apps.dashboard.registry import all_pages

PICTURES = Path(__file__).parent / "images" / "dashboard"
SIZES = {"wide": (1280, 800), "phone": (390, 844)}
PATIENCE = 900_000  # milliseconds


def query(page: Page) -> str:
    """The link to the page's example."""
    said = write(page.parameters, {**defaults(page.parameters), **page.example})
    return urlencode({"v": VERSION, "asked": "main" if page.compute else "", **said})


def picture(browser: Browser, url: str, page: Page, theme: str, size: str) -> None:
    """One page at its first figure, once it shows its results and nothing moves any more."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
    tab = context.new_page()
    path = "" if page is all_pages()[0] else page.key  # the first page stands at the root alone
    tab.goto(f"{url}/{path}?{query(page)}", timeout=PATIENCE)
    tab.locator('.interp-state[data-state="shown"]').wait_for(state="attached", timeout=PATIENCE)
    tab.wait_for_function("() => !document.querySelector('[data-testid=\"stSkeleton\"]')", timeout=PATIENCE)
    tab.wait_for_timeout(2500)  # figures are drawn in a moment of their own
    figures = tab.locator(".js-plotly-plot")
    if figures.count():
        figures.first.evaluate("figure => figure.scrollIntoView({block: 'center'})")
        tab.wait_for_timeout(500)
    tab.screenshot(path=PICTURES / f"{page.key}-{theme}-{size}.png")
    main = tab.locator('[data-testid="stMain"]')
    tall = int(main.evaluate("main => main.scrollHeight"))
    tab.set_viewport_size({"width": width, "height": min(tall, 6000)})
    tab.wait_for_timeout(1500)
    tab.screenshot(path=Path(tempfile.gettempdir()) / f"dashboard-{page.key}-{theme}-{size}-whole.png")
    context.close()


def main(names: list[str]) -> None:
    """All pages, or those that were named; whole pages go to the folder of temporary files, for looking at them."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    interp.pull("smollm2-135m")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    command = [sys.executable, "-m", "interp", "dashboard", "--no-browser", "--port", str(port)]
    with tempfile.TemporaryDirectory() as runs, sync_playwright() as playwright:
        server = subprocess.Popen([*command, "--runs", f"{runs}/runs"])
        time.sleep(5)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            for page in [page for page in all_pages() if not names or page.key in names]:
                for theme in ("light", "dark"):
                    for size in SIZES:
                        picture(browser, f"http://127.0.0.1:{port}", page, theme, size)
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
