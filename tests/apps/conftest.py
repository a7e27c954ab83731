"""The command line in this process, and a real browser for the pages that the apps write."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import chromium
from spoken import with_words

import interp
from interp.apps.cli import main
from interp.models.constructed import one_fact_memory

if TYPE_CHECKING:
    from dashboard import Dashboard
    from playwright.sync_api import Browser

    from interp.apps.dashboard.session import Workshop
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def own_program() -> "Iterator[None]":
    """Streamlit's scripts put themselves in the place of the program, which processes started later would run."""
    program = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = program


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`interp words…` in this process: exit code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def loaded(smollm2: "Transformer", monkeypatch: pytest.MonkeyPatch) -> "Transformer":
    """Commands get the default model from memory, whatever they ask for."""
    monkeypatch.setattr(interp, "load", lambda *_, **__: smollm2, raising=False)
    return smollm2


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> "Transformer":
    """Commands get the memory written by hand, whatever they ask for."""
    model = one_fact_memory()
    monkeypatch.setattr(interp, "load", lambda *_, **__: model, raising=False)
    return model


@pytest.fixture
def mixture(monkeypatch: pytest.MonkeyPatch) -> "Transformer":
    """Commands get a tiny random mixture of experts with a shared one, whatever they ask for."""
    model = with_words("moe_shared_gated")
    monkeypatch.setattr(interp, "load", lambda *_, **__: model, raising=False)
    return model


@pytest.fixture
def unloadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever loads a model fails the test."""

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the weights were asked for")

    monkeypatch.setattr(interp, "load", fail, raising=False)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium from the system, without a window."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def dashboard(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Dashboard]":
    """The dashboard on the default model, in a process of its own."""
    from dashboard import Dashboard, serving

    runs = tmp_path_factory.mktemp("dashboard") / "runs"
    with serving(runs) as (url, process):
        yield Dashboard(url, browser, runs, process)


@pytest.fixture
def own_workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2_here: None) -> "Workshop":
    """Models, jobs and results of one test alone, for pages that are run in this process; runs go below tmp_path.

    Pages believe that they show the default model, and offer to fetch it where it is not here.
    """
    import streamlit as st

    from interp.apps.dashboard import session

    monkeypatch.setattr("sys.argv", ["app.py", "--runs", str(tmp_path / "runs"), "--models", str(tmp_path)])
    st.cache_resource.clear()
    return session.workshop()
