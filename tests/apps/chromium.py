"""The system's Chromium without a window, as Playwright is told to start it."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser. A machine without one fails here: the pages need looking at."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "No Chromium on the path. `make browser` installs it (Debian, Ubuntu)."
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=program, args=FLAGS)) as found,
    ):
        yield found
