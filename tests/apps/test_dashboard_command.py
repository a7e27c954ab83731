"""`interp dashboard`: what it refuses, what it says, and with which settings the server is started."""

import socket
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tree
from dashboard import free_port

from interp.apps.cli import dashboard as command
from interp.apps.dashboard.options import Options, parse

if TYPE_CHECKING:
    from conftest import Run

SETTINGS = tomllib.loads((tree.ROOT / "apps/dashboard/.streamlit/config.toml").read_text())


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, list[str]]]:
    """What the server would have been started with; none is started."""
    calls: list[tuple[str, int, list[str]]] = []
    monkeypatch.setattr(command, "_serve", lambda *given: calls.append(given))
    return calls


def test_it_listens_on_this_machine_alone_and_says_where(run: "Run", served: list[tuple[str, int, list[str]]]) -> None:
    port = free_port()
    code, out, err = run("dashboard", "--no-browser", "--port", str(port))
    assert (code, out) == (0, "")
    assert f"http://127.0.0.1:{port}" in err
    assert "password" not in err
    assert served[0][:2] == ("127.0.0.1", port)


def test_listening_for_others_is_told_for_what_it_is(run: "Run", served: list[tuple[str, int, list[str]]]) -> None:
    code, _, err = run("dashboard", "--no-browser", "--port", str(free_port()), "--host", "0.0.0.0")
    assert code == 0
    assert "everybody who can reach this machine" in err
    assert "no password" in err


def test_the_options_reach_the_pages(run: "Run", served: list[tuple[str, int, list[str]]], tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    words = ("--model", "some.gguf", "--runs", runs, "--models", str(tmp_path), "--cache-mib", "64")
    run("dashboard", "--no-browser", "--port", str(free_port()), *words)
    assert parse(served[0][2]) == Options("some.gguf", Path(runs), (tmp_path,), 64 * 2**20)


def test_a_port_in_use_is_refused_in_words(run: "Run", served: list[tuple[str, int, list[str]]]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = run("dashboard", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "Give another --port" in err
    assert served == []


def test_a_folder_that_is_not_there_is_refused(run: "Run", served: list[tuple[str, int, list[str]]]) -> None:
    code, _, err = run("dashboard", "--no-browser", "--port", str(free_port()), "--models", "/no/such/folder")
    assert code == 2
    assert "is not there" in err
    assert served == []


def test_without_streamlit_it_says_what_to_install(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = run("dashboard", "--no-browser")
    assert code == 2
    assert "pip install 'interp[dashboard]'" in err


def test_the_settings_beside_the_app_keep_it_private() -> None:
    assert SETTINGS["server"]["address"] == "127.0.0.1"
    assert SETTINGS["browser"]["gatherUsageStats"] is False
    assert SETTINGS["server"]["enableXsrfProtection"] is True
    assert SETTINGS["server"]["fileWatcherType"] == "none"
    assert SETTINGS["server"]["maxUploadSize"] <= 20
    assert SETTINGS["client"]["showErrorDetails"] == "none"


def test_no_run_of_a_page_stops_all_threads_to_collect_garbage() -> None:
    assert SETTINGS["runner"]["postScriptGC"] is False


def test_every_setting_is_one_that_streamlit_knows() -> None:
    from streamlit import config

    known = set(config.get_config_options())
    said = {f"{part}.{name}" for part, names in SETTINGS.items() if part != "theme" for name in names}
    assert said <= known
