"""What the tests of dashboard pages share: a page alone in this process, and the whole dashboard in a browser.

Alone (quick, no server; the model is whatever `interp.load` gives, so a fixture may put a tiny one in its place):

    app = alone(PAGE, v="1", asked="main", text="Hello")      # the page as its link opens it
    settle(app)                                               # run until no job is left, and once more
    values(app); complaints(app); errors(app)

In Chromium (fixture `dashboard`: one server for all tests of a process):

    with dashboard.open("prompt", asked="main", text="Hello") as view:
        view.shown()                         # waits until results stand on the page
        view.click_cell("lens", row=3, column=2)
        view.value("layer")                  # what the address bar says
        view.exported("CSV")                 # bytes of the file
        view.copied("Copy as command")
    # at the end: no console error, no request to another host
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import tree
from playwright.sync_api import TimeoutError as Timeout
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

import interp
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import defaults, write
from interp.apps.dashboard.session import workshop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Download, Locator
    from playwright.sync_api import Page as Tab

Found = TypeVar("Found")
PATIENCE = 180  # seconds for one thing to happen: what a loaded machine may take; nothing is timed here
ALONE: dict[str, Page] = {}
"""The pages that are run alone, by key: those of the registry, or made for one test."""
_ALONE = """
from dashboard import ALONE
from interp.apps.dashboard.shell import draw
draw(ALONE[{key!r}])
"""


# ------------------------------------------------------------------------------------------- a page in this process


def alone(page: Page, **query: str) -> AppTest:
    """The page as a link with this query opens it; without one, as the navigation does. Jobs may be under way."""
    ALONE[page.key] = page
    app = AppTest.from_string(_ALONE.format(key=page.key), default_timeout=PATIENCE)
    app.query_params.update(query)
    return app.run()


def link(page: Page, **values: Any) -> dict[str, str]:
    """The query of a whole link to the page, everything at its default except `values`, its computation asked for."""
    said = write(page.parameters, {**defaults(page.parameters), **values})
    return {"v": "1", "asked": "main" if page.compute else "", **said}


def example(page: Page) -> dict[str, str]:
    """The query of a link to the page's example."""
    return link(page, **page.example)


def settle(app: AppTest) -> AppTest:
    """Run the page until no job is waiting or running, and once more."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        app.run()
        if all(job.over for job in workshop().jobs.all()):
            app.run()
            if all(job.over for job in workshop().jobs.all()):  # a loaded model may have started the next one
                return app
        time.sleep(0.05)
    raise AssertionError(f"jobs still run after {PATIENCE} s: {[job.label for job in workshop().jobs.all()]}")


def values(app: AppTest) -> dict[str, str]:
    """What the address bar says."""
    return {name: said[-1] if isinstance(said, list) else said for name, said in app.query_params.items()}


def complaints(app: AppTest) -> list[str]:
    """Every warning on the page."""
    return [warning.value for warning in app.warning]


def errors(app: AppTest) -> list[str]:
    """Every error on the page, exceptions of the script among them."""
    return [error.value for error in app.error] + [str(exception.value) for exception in app.exception]


def html(app: AppTest) -> list[str]:
    """Every piece of HTML on the page."""
    return [str(each.proto.body) for each in app.get("html")]


def ends(app: AppTest) -> str:
    """The state in which the page ended: shown, partial, empty, loading, waiting or error."""
    marks = [each for each in html(app) if "interp-state" in each]
    return marks[-1].split('data-state="')[1].split('"')[0]


# ------------------------------------------------------------------------------------------------------ in a browser


class Dashboard:
    """A running dashboard, and the browser that opens its pages."""

    def __init__(self, url: str, browser: "Browser", runs: Path, process: int) -> None:
        self.url, self.browser, self.runs, self.process = url, browser, runs, process

    @contextmanager
    def open(
        self, page: str = "", *, width: int = 1280, height: int = 800, theme: str = "light", **query: str
    ) -> "Iterator[View]":
        """A page in a new session; at the end nothing may have been said in the console or asked of other hosts."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(PATIENCE * 1000)
        view = View(context.new_page())
        try:
            view.go(self.url, page, query)
            yield view
            assert view.strange == []
        finally:
            context.close()


class View:
    """One tab of the dashboard."""

    def __init__(self, tab: "Tab") -> None:
        self.tab = tab
        self.strange: list[str] = []
        tab.on("console", self._console)
        tab.on("pageerror", lambda error: self.strange.append(f"page error: {error}"))
        tab.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.strange.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Any) -> None:
        host = urlsplit(request.url).hostname
        if not request.url.startswith(("data:", "blob:")) and host != "127.0.0.1":
            self.strange.append(f"request to {request.url}")

    def go(self, url: str, page: str, query: Mapping[str, str]) -> None:
        """Open a link."""
        self.tab.goto(f"{url}/{page}{'?' + urlencode(query) if query else ''}")

    def shown(self, state: str = "shown") -> "View":
        """Wait until the page ends in a state, and nothing of it is old."""
        try:
            self.tab.locator(f'.interp-state[data-state="{state}"]').wait_for(state="attached")
        except Timeout as error:
            raise AssertionError(f"not {state} after {PATIENCE} s; {self._there()}") from error
        self.quiet()
        return self

    def quiet(self) -> None:
        """Wait until the script has run, and nothing on the page is left from the run before."""
        self.tab.wait_for_timeout(100)  # what was done a moment ago has asked for a run by then
        self.tab.wait_for_function(
            """() => {
                const app = document.querySelector('[data-testid="stApp"]');
                return app && app.dataset.testScriptState === "notRunning"
                    && !document.querySelector('[data-stale="true"], [data-testid="stSkeleton"]');
            }"""
        )

    def value(self, name: str) -> str:
        """What the address bar says under a name."""
        return parse_qs(urlsplit(self.tab.url).query, keep_blank_values=True)[name][-1]

    def wait_value(self, name: str, value: str) -> None:
        """Wait until the address bar says so."""
        self.tab.wait_for_function(
            "([name, value]) => new URLSearchParams(location.search).get(name) === value", arg=[name, value]
        )
        self.quiet()

    def says(self, text: str) -> None:
        """Wait until a text can be seen on the page."""
        expect(self.tab.get_by_text(text).first).to_be_visible(timeout=PATIENCE * 1000)

    def start(self) -> None:
        """Say yes to work that is large enough to be confirmed on this machine; what is smaller runs already."""
        start, cancel = (self.tab.get_by_role("button", name=name) for name in ("Start it", "Cancel"))
        start.or_(cancel).first.wait_for()
        if start.count():
            start.click()

    def cancel(self) -> None:
        """Cancel what runs, and wait until the page says so."""
        self.tab.get_by_role("button", name="Cancel").click()
        self.says("Cancelled")

    def figure(self, name: str) -> "Locator":
        """The drawing of a figure of this page."""
        ends = (f'[class*="st-key-figure-"][class{how}]' for how in (f'$="-{name}"', f'*="-{name} "'))
        return self.tab.locator(f":is({', '.join(ends)}) .js-plotly-plot").first

    def draws(self, name: str, seen: str, wanted: Any) -> None:
        """Wait until a figure is as wanted: what a function in the browser's language sees in it."""
        self.until(
            lambda: self.figure(name).evaluate(seen), lambda found: found == wanted, f"{name} drawn as {wanted!r}"
        )

    def until(self, look: "Callable[[], Found]", right: "Callable[[Found], bool]", what: str) -> "Found":
        """Look, a glance, a click, a download, again and again until what is found is right: pages change by and by."""
        end = time.monotonic() + PATIENCE
        while not right(found := look()):
            assert time.monotonic() < end, f"not {what} after {PATIENCE} s, but {found!r}; {self._there()}"
            self.tab.wait_for_timeout(200)
        return found

    def _there(self) -> str:
        """What stands on the page, for those who read of an error on another machine."""
        return f"{self.tab.url} says: {self.tab.locator('body').inner_text()}"

    def narrow(self, width: int) -> None:
        """Wait until the page fits into the width, once nothing on it moves any more."""
        self.quiet()
        self.tab.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)

    def click_cell(self, name: str, row: int, column: int) -> None:
        """Click into a cell of a heat map, counted from 0: as a person does, once the map stands still and answers."""
        plot = self.figure(name)
        plot.scroll_into_view_if_needed()
        self.quiet()
        aim = """(plot, [row, column]) => {
            const box = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
            return [box.left + xaxis._offset + xaxis.l2p(column), box.top + yaxis._offset + yaxis.l2p(row)];
        }"""

        def hovered() -> list[list[int]]:
            across, down = plot.evaluate(aim, [row, column])
            self.tab.mouse.move(across + 1, down + 1)
            self.tab.mouse.move(across, down)
            self.tab.wait_for_timeout(100)  # plotly looks for what is hovered at most every 50 ms
            found: list[list[int]] = plot.evaluate("plot => (plot._hoverdata ?? []).map(point => [point.y, point.x])")
            return found if plot.evaluate(aim, [row, column]) == [across, down] else []

        self.until(hovered, lambda cells: [row, column] in cells, f"over the cell {row}, {column}")
        self.tab.mouse.down()
        self.tab.mouse.up()

    def choose(self, label: str, option: str) -> None:
        """Choose from a list. One that opens while the page still moves closes at once, so that it is opened again."""
        box = self.tab.locator('[data-testid="stSelectbox"]', has_text=label).get_by_role("combobox")
        offered = self.tab.get_by_role("option", name=option, exact=True)

        def chosen() -> bool:
            box.fill("")
            box.fill(option)
            with suppress(Timeout):
                offered.click(timeout=2000)
                return True
            return False

        self.until(chosen, bool, f"offered {option!r} as {label}")
        self.quiet()

    def opened(self, label: str) -> None:
        """Open an expander, if it is closed."""
        head = self.tab.locator('[data-testid="stExpander"] summary', has_text=label)
        if not head.locator("..").evaluate("details => details.open"):
            head.click()

    def exported(self, button: str, table: str | None = None) -> bytes:
        """The file that a button of the export bar gives, of the table of this name where there are several."""
        self.opened("Export")
        if table is not None:
            self.choose("Table", table)

        def of_this_table(file: "Download") -> bool:  # a table chosen a moment ago may not be that of the button yet
            return table is None or Path(file.suggested_filename).stem.endswith(f"-{table}")

        file = self.until(lambda: self._download(button), of_this_table, f"the table {table}")
        return Path(file.path()).read_bytes()

    def _download(self, button: str) -> "Download":
        with self.tab.expect_download() as download:
            self.tab.get_by_role("button", name=button, exact=True).click()
        return download.value

    def copied(self, button: str) -> str:
        """What a button of the bar of links puts into the clipboard."""
        self.opened("Link, command, Python")
        self.tab.evaluate("navigator.clipboard.writeText('')")
        clicked = self.tab.get_by_role("button", name=button, exact=True).element_handle()
        clicked.click()
        # others, clicked a moment ago, may still say so
        self.tab.wait_for_function("button => button.textContent === 'Copied'", arg=clicked)
        text: str = self.tab.evaluate("navigator.clipboard.readText()")
        return text


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


@contextmanager
def serving(runs: Path, *words: str) -> Iterator[tuple[str, int]]:
    """`interp dashboard` in a process of its own, its model on this machine: where it answers, and its process."""
    interp.pull("smollm2-135m")  # the pages do not fetch what nobody asked for
    port = free_port()
    command = [sys.executable, "-m", "interp", "dashboard", "--no-browser", "--port", str(port), "--runs", str(runs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree.ROOT)}
    log = runs.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *words],
            cwd=runs.parent,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the scheduler shares by session: the browser's drawing must not starve the server
        )
        try:
            _wait_for(port, process, log)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the dashboard does not answer: {log.read_text()}")


def run_command(command: str) -> Mapping[str, Any]:
    """Run a copied command that ends in a JSON document; what it printed."""
    import shlex

    words = shlex.split(command)
    assert words[0] == "interp"
    done = subprocess.run([sys.executable, "-m", *words], cwd=tree.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def run_program(program: str) -> dict[str, Any]:
    """Run a copied program; the names that it leaves."""
    names: dict[str, Any] = {}
    exec(compile(program, "copied.py", "exec"), names)
    return names
