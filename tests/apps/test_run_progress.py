"""Progress of a run: lines at intervals, JSON lines, nothing."""

import json
from dataclasses import dataclass

import pytest

from interp.apps.cli.options import RunOptions
from interp.apps.cli.output import speak_json, write_error, write_message
from interp.apps.cli.run_progress import Lines, reporting


@dataclass(frozen=True)
class Event:
    """What a study reports."""

    job: str
    batch: int
    done: int
    failed: int
    total: int
    seconds: float


def events() -> list[Event]:
    return [Event("lens", batch, batch + 1, 0, 6, 1.0) for batch in range(6)]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_the_first_and_the_last_batch_have_a_line_and_others_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 1.0, 2.0, 12.0, 13.0, 14.0, 15.0])
    tell = Lines(10.0, clock=lambda: next(now))
    for event in events():
        tell(event)
    assert lines(capsys) == [
        "1 of 6 items (lens)",
        "3 of 6 items, about 18 s left (lens)",
        "6 of 6 items (lens)",
    ]


def test_every_batch_has_a_line_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting("Running x", RunOptions(verbose=True)) as tell:
        for event in events():
            tell(event)
    assert len(lines(capsys)) == 7


def test_failures_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Lines(0.0)(Event("lens", 0, 2, 1, 6, 0.1))
    assert lines(capsys) == ["3 of 6 items, 1 failed (lens)"]


def test_as_json_every_line_is_an_object_messages_and_errors_too(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting("Running x", RunOptions(progress="json")) as tell:
        tell(events()[0])
    write_message("saved")
    write_error("no room")
    speak_json(False)
    write_message("plain again")
    *told, last = lines(capsys)
    assert [json.loads(line) for line in told] == [
        {"event": "progress", "job": "lens", "batch": 0, "done": 1, "failed": 0, "total": 6, "seconds": 1.0},
        {"event": "message", "text": "saved"},
        {"event": "error", "text": "Error: no room"},
    ]
    assert last == "plain again"


@pytest.mark.parametrize("options", [RunOptions(quiet=True), RunOptions(progress="none")], ids=["quiet", "none"])
def test_nothing_is_said_where_nothing_is_wanted(options: RunOptions, capsys: pytest.CaptureFixture[str]) -> None:
    with reporting("Running x", options) as tell:
        tell(events()[0])
    assert lines(capsys) == []
