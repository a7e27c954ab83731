"""A real browser for the pages that the apps write."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

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


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium from the system, without a window. A machine without one fails here: the pages need looking at."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "No Chromium on the path. `make browser` installs it (Debian, Ubuntu)."
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=program, args=FLAGS)) as found,
    ):
        yield found
