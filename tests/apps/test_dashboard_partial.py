"""What pages show while their work is not done: results with gaps, drawn without a word that is not true of them."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dashboard import alone, complaints, ends, errors, link, settle

from interp.apps.dashboard import jobs
from interp.apps.dashboard.jobs import Job, Reporter
from interp.apps.dashboard.views import attribution, heads, patching, prompt, tracing
from interp.facts import Fact
from interp.models import replay_cost

if TYPE_CHECKING:
    from interp.apps.dashboard.page import Page
    from interp.apps.dashboard.store import Results
    from interp.models.transformer import Transformer

TEXT = "The Eiffel Tower is in"
PAIR = {"clean": TEXT, "corrupted": "The Space Needle is in", "answer": " Paris", "foil": " Seattle"}
FACT = {"prompt": TEXT, "subject": "Eiffel Tower", "corruption": "replace", "replacement": "Space Needle"}
MANY = {"of": "set", "samples": 1}
FACTS = (
    Fact("Eiffel Tower", "landmark city", "The {} is in", "Paris"),
    Fact("The Eiffel Tower", "landmark city", "{} is in", "Paris"),
)
PAGES: dict[str, tuple["Page", dict[str, Any]]] = {
    "prompt": (prompt.PAGE, {"text": TEXT, "answer": " Paris"}),
    "attribution": (attribution.PAGE, {"text": TEXT, "answer": " Paris"}),
    "heads": (heads.PAGE, {"seq_len": 6, "n_seqs": 2, "n_documents": 1, "doc_len": 24, "sort": "agreement"}),
    "patching": (patching.PAGE, {**PAIR, "metrics": ("logit_difference", "probability")}),
    "tracing": (tracing.PAGE, FACT),
    "tracing of a set": (tracing.PAGE, MANY),
}


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens at once, and everything is handed over as soon as it is there."""
    monkeypatch.setattr("interp.analyses.fact_data.bundled_facts", lambda: FACTS)
    monkeypatch.setattr(replay_cost, "TOKENS_A_WALK", 10)
    monkeypatch.setattr(jobs, "NOW_AND_THEN", 0.0)
    monkeypatch.setattr("interp.analyses.trace_facts.cases_at_once", lambda *_: 1)


def worked(page: "Page", model: "Transformer", values: dict[str, Any]) -> "tuple[list[Results], Results]":
    """Everything that the page's work hands over on its way, and what it ends in."""
    handed: list[Results] = []

    class Kept(Reporter):
        def partial(self, value: Any) -> None:
            handed.append(value)

        def so_far(self, name: str) -> Any:
            return lambda make: handed.append({name: make()})

    assert page.compute is not None
    return handed, page.compute(model, values, Kept(Job("key", "label", "lane", None)))


@pytest.mark.usefixtures("step_by_step", "own_workshop")
@pytest.mark.parametrize("name", PAGES)
def test_what_is_found_by_then_is_shown_and_said_to_be_partial(name: str, memory: "Transformer") -> None:
    page, values = PAGES[name]
    query = link(page, **values)
    read = {**{each.name: each.default for each in page.parameters}, **values}
    handed, results = worked(page, memory, read)
    assert len(handed) > 1 or name == "prompt"
    unfinished = replace(page, compute=lambda model, values, report: _stopped(report, handed[0]))
    app = settle(alone(unfinished, **query))
    assert (ends(app), errors(app)) == ("partial", [])
    assert any("partial" in each for each in complaints(app))
    for key, result in handed[-1].items():
        for array, there in result.arrays.items():
            np.testing.assert_array_equal(there.values, results[key].arrays[array].values, err_msg=array)


def _stopped(report: Reporter, found: "Results") -> None:
    """Work that is stopped once it has handed something over."""
    from interp.errors import Cancelled

    report.partial(found)
    raise Cancelled("The work was cancelled.")


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.parametrize(("name", "array"), [("patching", "probability"), ("tracing", "effect")])
def test_cells_that_are_not_done_are_left_blank(name: str, array: str, memory: "Transformer") -> None:
    page, values = PAGES[name]
    handed, results = worked(page, memory, {**{each.name: each.default for each in page.parameters}, **values})
    ((key, last),) = results.items()
    gaps = [int(np.isnan(each[key][array]).sum()) for each in handed]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > gaps[-1] == 0
    for each in handed:
        done = ~np.isnan(each[key][array])
        np.testing.assert_array_equal(each[key][array][done], last[array][done])


@pytest.mark.usefixtures("step_by_step")
def test_averages_by_then_are_those_of_the_facts_that_are_traced(memory: "Transformer") -> None:
    page, values = PAGES["tracing of a set"]
    handed, results = worked(page, memory, {**{each.name: each.default for each in page.parameters}, **values})
    assert [len(each["traces"]["total_effect"]) for each in handed] == [1, 2]
    first = str(handed[0]["traces"].axes["fact"][0])
    assert handed[0]["traces"]["mean_total_effect"] == results["traces"].at("total_effect", fact=first)


def test_what_takes_long_to_make_is_made_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    job, made = Job("key", "label", "lane", None), []
    hand_over = Reporter(job).so_far("found")

    def make() -> int:
        now[0] += 1.0
        made.append(now[0])
        return len(made)

    for _ in range(100):
        hand_over(make)
        now[0] += 0.5
    assert made == [106.0, 127.0, 148.0], "first after five seconds, then after twenty times what it took"
    assert job.partial == {"found": 3}
