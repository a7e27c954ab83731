"""The parts of the dashboard that need no page: parameters of links, jobs, results, paths that may be opened."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.graph_objects import Bar, Figure, Scatter
from tiny import random_tokens, tiny

from interp.analyses.surprisal import surprisal
from interp.apps.dashboard import figures, look
from interp.apps.dashboard.heatmaps import MOST_CELLS, summed_up
from interp.apps.dashboard.jobs import Job, Jobs, Reporter
from interp.apps.dashboard.options import Options, inside, parse
from interp.apps.dashboard.parameters import LONGEST, Parameter, defaults, read, write
from interp.apps.dashboard.registry import all_pages
from interp.apps.dashboard.shelf import Shelf
from interp.apps.dashboard.store import Store, content_key, size
from interp.errors import UsageError
from interp.plots import SERIES_COLOURS

TABLE = (
    Parameter("text", "text", "", "Text"),
    Parameter("count", "whole", 3, "Count", low=1, high=9),
    Parameter("share", "number", 0.5, "Share", low=0, high=1),
    Parameter("kind", "choice", "a", "Kind", choices=("a", "b")),
    Parameter("parts", "choices", ("x",), "Parts", choices=("x", "y", "z")),
    Parameter("on", "flag", False, "On"),
)


# ------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"text": "a & b = c?\n#ü 🗼 %20", "count": 9, "share": 1 / 3, "kind": "b", "parts": ("z", "x"), "on": True},
        {"parts": (), "text": ""},
    ],
)
def test_values_come_back_from_a_link_as_they_were(values: dict[str, Any]) -> None:
    whole = {**defaults(TABLE), **values}
    query = {"v": ["1"], **{name: [text] for name, text in write(TABLE, whole).items()}}
    reading = read(TABLE, query)
    assert (reading.values, reading.complaints) == (whole, [])


@pytest.mark.parametrize(
    ("name", "said", "complaint"),
    [
        ("count", "ten", "a whole number is expected"),
        ("count", "10", "from 1 to 9"),
        ("count", "1.5", "a whole number is expected"),
        ("share", "nan", "from 0 to 1"),
        ("share", "1e400", "from 0 to 1"),
        ("kind", "c", "one of a, b is expected"),
        ("parts", "x,q", "'q' is none of x, y, z"),
        ("parts", "x,x", "different words"),
        ("on", "yes", "1 (on) or 0 (off)"),
        ("text", "a" * (LONGEST + 1), f"{LONGEST:,} are the most"),
    ],
)
def test_what_cannot_be_used_is_said_and_has_its_default(name: str, said: str, complaint: str) -> None:
    query = {"v": ["1"], **{key: [text] for key, text in write(TABLE, defaults(TABLE)).items()}, name: [said]}
    reading = read(TABLE, query)
    assert reading.values == defaults(TABLE)
    assert len(reading.complaints) == 1
    assert complaint in reading.complaints[0]
    assert len(reading.complaints[0]) < 400


def test_what_a_link_leaves_out_says_twice_or_makes_up_is_said() -> None:
    whole = {key: [text] for key, text in write(TABLE, defaults(TABLE)).items()}
    del whole["count"]
    query = {"v": ["2"], **whole, "kind": ["a", "b"], "cuont": ["4"]}
    reading = read(TABLE, query)
    assert reading.values["kind"] == "b"
    said = " ".join(reading.complaints)
    for part in ("version '2'", "does not say count", "says kind 2 times", "'cuont'", "Did you mean 'count'"):
        assert part in said


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.key)
def test_examples_of_pages_are_values_that_they_take(page: Any) -> None:
    assert set(page.example) <= {parameter.name for parameter in page.parameters}
    for name, value in page.example.items():
        assert page.parameter(name).problem(value) is None
    assert not page.example or not page.missing({**defaults(page.parameters), **page.example})


# -------------------------------------------------------------------------------------------------------------- jobs


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened by a test when work may go on; opened at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


def stepping(gate: threading.Event, steps: int = 1000) -> Callable[[Reporter], str]:
    def work(report: Reporter) -> str:
        for step in range(steps):
            report(step, steps)
            gate.wait(0.01)
        return "finished"

    return work


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen within a minute"
        time.sleep(0.005)


def test_two_sessions_that_ask_the_same_share_a_job(gate: threading.Event) -> None:
    jobs, calls = Jobs(), []

    def work(report: Reporter) -> str:
        calls.append(1)
        gate.wait(60)
        return "once"

    first, second = (jobs.submit("key", "label", "lane", work, name) for name in ("one", "two"))
    assert first is second
    gate.set()
    wait_for(lambda: first.over)
    assert (first.state, first.value, calls) == ("done", "once", [1])


def test_a_job_that_one_of_two_leaves_goes_on_and_ends_when_both_have(gate: threading.Event) -> None:
    jobs = Jobs()
    job = jobs.submit("key", "label", "lane", stepping(gate), "one")
    jobs.submit("key", "label", "lane", stepping(gate), "two")
    assert not jobs.leave("key", "one")
    assert not job.stop.is_set()
    assert jobs.leave("key", "two")
    wait_for(lambda: job.over)
    assert job.state == "cancelled"
    assert jobs.submit("key", "label", "lane", lambda report: "anew", "one") is not job


def test_a_lane_runs_one_job_after_the_other_and_tells_the_place(gate: threading.Event) -> None:
    jobs = Jobs()
    running = jobs.submit("a", "a", "lane", lambda report: gate.wait(60), "s")
    wait_for(lambda: running.state == "running")
    waiting = [jobs.submit(name, name, "lane", lambda report: None, "s") for name in "bcd"]
    assert [job.place for job in waiting] == [1, 2, 3]
    jobs.leave("b", "s")
    assert waiting[0].state == "cancelled"
    assert [job.place for job in waiting[1:]] == [1, 2]
    other = jobs.submit("e", "e", "another", lambda report: None, "s")
    wait_for(lambda: other.over)
    assert running.state == "running"
    gate.set()
    wait_for(lambda: all(job.over for job in jobs.all()))
    assert [job.state for job in waiting] == ["cancelled", "done", "done"]


def test_a_full_queue_refuses_in_words(gate: threading.Event) -> None:
    jobs = Jobs(most_waiting=2)
    running = jobs.submit("a", "a", "lane", lambda report: gate.wait(60), "s")
    wait_for(lambda: running.state == "running")
    for name in "bc":
        jobs.submit(name, name, "lane", lambda report: None, "s")
    with pytest.raises(UsageError, match="2 jobs wait already"):
        jobs.submit("d", "d", "lane", lambda report: None, "s")


def test_an_error_is_kept_with_its_place_and_the_next_job_runs() -> None:
    def broken(report: Reporter) -> None:
        raise UsageError("nothing to see")

    jobs = Jobs()
    job = jobs.submit("a", "a", "lane", broken, "s")
    after = jobs.submit("b", "b", "lane", lambda report: 4, "s")
    wait_for(lambda: after.over)
    assert (job.state, str(job.error), after.value) == ("failed", "nothing to see", 4)
    assert "test_dashboard_parts.py:" in job.where()


def test_time_that_is_left_follows_from_the_steps_done() -> None:
    job = Job("k", "l", "lane", None, done=25, total=100, started=100.0, ended=110.0)
    assert job.seconds_left == pytest.approx(30.0)
    assert Job("k", "l", "lane", None).seconds_left is None


# ----------------------------------------------------------------------------------------------------------- results


def test_results_are_known_by_model_tokens_and_settings() -> None:
    model, other = tiny(), tiny(seed=1)
    key = content_key(model, "page/main", {"a": 1}, {"text": [1, 2]})
    assert key == content_key(model, "page/main", {"a": 1}, {"text": [1, 2]})
    others = [
        content_key(other, "page/main", {"a": 1}, {"text": [1, 2]}),
        content_key(model, "page/other", {"a": 1}, {"text": [1, 2]}),
        content_key(model, "page/main", {"a": 2}, {"text": [1, 2]}),
        content_key(model, "page/main", {"a": 1}, {"text": [1, 3]}),
        content_key(tiny(dtype=__import__("torch").float64), "page/main", {"a": 1}, {"text": [1, 2]}),
    ]
    assert len({key, *others}) == 6


def test_the_least_recently_used_results_make_room(tmp_path: Path) -> None:
    found = {"it": surprisal(tiny(), random_tokens(tiny().config, 1, 6))}
    store = Store(tmp_path, 2 * size(found))
    for key in ("a", "b"):
        store.put(key, found)
    store.get("a")
    store.put("c", found)
    assert [store.get(key) is not None for key in "abc"] == [True, False, True]
    assert store.held <= store.budget


def test_results_outlive_the_process_as_run_directories(tmp_path: Path) -> None:
    found = {"it": surprisal(tiny(), random_tokens(tiny().config, 1, 6))}
    store = Store(tmp_path, 1)
    folder = store.record("0" * 64, "page", found, {"page": "page"})
    assert folder is not None
    again = Store(tmp_path, 1).recall("0" * 64, "page")
    assert again is not None
    assert again["it"].identical(found["it"])
    assert Store(tmp_path, 1).recall("0" * 16 + "1" * 48, "page") is None, "another key of the same beginning"
    next(folder.rglob("*.safetensors")).write_bytes(b"damaged")
    assert Store(tmp_path, 1).recall("0" * 64, "page") is None


# ------------------------------------------------------------------------------------------------------------- paths


def test_only_what_lies_in_the_folders_of_the_start_can_be_opened(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "models", tmp_path / "secret"
    for folder in (allowed / "one", outside):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (allowed / "link").symlink_to(outside)
    assert inside("one", [allowed], "models") == allowed / "one"
    assert inside(str(allowed / "one"), [allowed], "models") == allowed / "one"
    for typed in ("link", "../secret", str(outside), "nowhere", "\0", "~root"):
        with pytest.raises(UsageError):
            inside(typed, [allowed], "models")
    shelf = Shelf(Options(models=(allowed,)))
    names = [offer.name for offer in shelf.offers()]
    assert str(allowed / "one") in names
    assert str(allowed / "link") not in names
    with pytest.raises(UsageError, match="--models FOLDER"):
        shelf.resolved(str(outside))
    with pytest.raises(UsageError, match="none of the models that are offered"):
        Shelf(Options()).resolved("org/name")


def test_options_pass_through_their_words() -> None:
    options = Options("name", Path("runs"), (Path("a"), Path("b")), 7 * 2**20)
    assert parse(options.words()) == options
    assert parse([]) == Options()


# --------------------------------------------------------------------------------------------------------- heat maps


def test_a_small_map_is_drawn_as_it_is() -> None:
    values = np.arange(12.0).reshape(3, 4)
    drawn = summed_up(values)
    assert (drawn.values == values).all()
    assert drawn.block == (1, 1)


def test_a_big_map_shows_the_value_of_each_block_that_is_farthest_from_zero() -> None:
    values = np.random.default_rng(0).normal(size=(30, 2000))
    values[7, 1234] = -50.0
    values[29, 1999] = np.nan
    drawn = summed_up(values)
    assert drawn.values.size <= MOST_CELLS
    high, wide = drawn.block
    assert drawn.values[7 // high, 1234 // wide] == -50.0
    assert (drawn.source_rows[7 // high, 1234 // wide], drawn.source_columns[7 // high, 1234 // wide]) == (7, 1234)
    kept = values[drawn.source_rows, drawn.source_columns]
    np.testing.assert_array_equal(kept, drawn.values)


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances, 1 to 21 (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_curves_and_bars_can_be_seen_on_a_dark_page(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [Scatter(y=[1, 2], line={"color": colour}) for colour in SERIES_COLOURS]
    figure = Figure([*drawn, *(Bar(y=[1], marker={"color": colour}) for colour in SERIES_COLOURS)])
    monkeypatch.setattr(look, "theme", lambda: "dark")
    for trace in figures.fitted(figure).data:
        colour = (trace.line if trace.type == "scatter" else trace.marker).color
        assert contrast(colour, "#0e1117") > 3.5, "what WCAG asks of graphics is 3"
    monkeypatch.setattr(look, "theme", lambda: "light")
    assert figures.fitted(figure).data[0].line.color == SERIES_COLOURS[0]
