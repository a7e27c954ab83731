"""The page of fact tracing, alone, on a memory written by hand."""

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, get_args

import pandas as pd
import pytest
from dashboard import alone, complaints, ends, errors, html, link, run_program, settle, values

from interp.analyses.knockout import attention_knockout
from interp.analyses.trace_settings import SAID, Kind, Sublayer
from interp.analyses.tracing import causal_trace
from interp.apps.dashboard import repeat
from interp.apps.dashboard.parameters import defaults
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.views import fact_inputs, tracing
from interp.apps.dashboard.views.tracing import PAGE
from interp.facts import Fact

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop
    from interp.models.transformer import Transformer

PROMPT, SUBJECT, OTHER = "The Eiffel Tower is in", "Eiffel Tower", "Space Needle"
FACT = {"prompt": PROMPT, "subject": SUBJECT, "corruption": "replace", "replacement": OTHER}
FACTS = (
    Fact("Eiffel Tower", "landmark city", "The {} is in", "Paris", counterfactual="Space Needle"),
    Fact("Space Needle", "landmark city", "The {} is in", "Paris", counterfactual="Eiffel Tower"),
)


def opened(**more: Any) -> dict[str, str]:
    return link(PAGE, **{**FACT, **more})


@pytest.fixture
def two_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two facts come along: one that the memory knows, and one that it does not."""
    monkeypatch.setattr("interp.analyses.fact_data.bundled_facts", lambda: FACTS)


def test_what_can_be_chosen_is_what_there_is() -> None:
    lines = files("interp.analyses.texts").joinpath("facts.jsonl").read_text(encoding="utf-8").splitlines()
    there = {json.loads(line)["relation"] for line in lines}
    assert set(fact_inputs.RELATIONS) == {fact_inputs.ALL, *there}
    assert dict(SAID) == tracing.KINDS
    assert tuple(tracing.KINDS) == get_args(Kind)
    assert get_args(Sublayer) == tracing.SUBLAYERS


def test_without_a_link_the_page_says_what_it_needs(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Fact is needed" in app.info[0].value
    assert app.button(key="_run.tracing").disabled


def test_the_subject_is_marked_before_anything_is_computed(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **{**opened(), "asked": ""}))
    assert ends(app) == "empty"
    drawn = html(app)
    (tokens,) = [each for each in drawn if "interp-tokens" in each and "<style>" not in each]
    assert tokens.count("marked") == 2
    assert any("positions 2 to 3" in each for each in drawn)


def test_a_fact_that_is_picked_fills_the_inputs(
    memory: "Transformer", own_workshop: "Workshop", two_facts: None
) -> None:
    app = settle(alone(PAGE))
    app.selectbox(key="_pick.tracing").select("landmark city/Eiffel Tower").run()
    found = values(settle(app))
    assert (found["prompt"], found["subject"], found["replacement"]) == (PROMPT, SUBJECT, OTHER)
    assert found["answer"].strip() == "Paris"


def test_the_cell_that_is_chosen_has_the_numbers_of_the_api(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **opened(position=3, layer=1)))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    found = causal_trace(memory, PROMPT, SUBJECT, replacement=OTHER, severed=("mlp", "attn"))
    cell: pd.DataFrame = app.dataframe[0].value
    assert cell["effect"].tolist() == found["effect"][:, 3, 1].tolist()
    assert cell["P restored"].tolist() == found["probability"][:, 3, 1].tolist()
    assert cell["restored"].tolist() == [found.panel(str(kind)) for kind in found.axes["kind"]]
    assert abs(found["effect"]).max() > 0.5


def test_knocking_attention_out_has_the_numbers_of_the_api(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **opened(cut=1)))
    app.button(key="_ask.tracing.knockout").click().run()
    settle(app)
    assert errors(app) == []
    found = attention_knockout(memory, PROMPT, subject=SUBJECT, window=1)
    frame = next(each.value for each in app.dataframe if "mean_change" in each.value)
    assert frame["mean_change"].tolist() == found.to_frame()["mean_change"].tolist()


def test_a_set_of_facts_is_averaged_and_who_is_left_out_is_said(
    memory: "Transformer", own_workshop: "Workshop", two_facts: None
) -> None:
    app = settle(alone(PAGE, **opened(of="set", corruption="noise", noise="0.3", samples=2, position=2)))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    assert any("1 known (1 unknown left out)" in each for each in html(app))
    assert any("<b>Last subject</b>, <b>layer 0</b>" in each for each in html(app))
    assert any(each.value.get("fact", pd.Series()).tolist() == ["landmark city/Space Needle"] for each in app.dataframe)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subject": "Eifel Tower"}, "does not stand in"),
        ({"replacement": "Needle"}, "token"),
        ({"answer": " Paris Seattle"}, "token"),
        ({"corruption": "noise", "noise": "loud"}, "noise"),
        ({"prompt": "Tower Tower is in", "subject": "Tower", "occurrence": 7}, "no occurrence 7"),
    ],
)
def test_what_cannot_be_traced_is_said_in_words(
    memory: "Transformer", own_workshop: "Workshop", more: dict[str, Any], said: str
) -> None:
    app = settle(alone(PAGE, **opened(**more)))
    assert len(app.exception) == 0
    (error,) = errors(app)
    assert said in error
    assert "fault in interp" not in error


def test_a_link_with_a_bad_value_says_so(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **{**opened(), "kinds": "resid,ffn", "position": "77"}))
    assert any("kinds = 'resid,ffn' in the link" in each for each in complaints(app))
    assert any("Position or role 77 is outside" in each for each in complaints(app))
    assert ends(app) == "shown"


def test_a_link_that_is_written_opens_to_the_same(memory: "Transformer", own_workshop: "Workshop") -> None:
    first = values(settle(alone(PAGE, **opened(kinds=("mlp",), severed=(), measure="logit_effect", layer=1))))
    assert values(settle(alone(PAGE, **first))) == first
    assert set(first) == {"v", "model", "device", "dtype", "asked", *(each.name for each in PAGE.parameters)}


@pytest.mark.parametrize("more", [{}, {"of": "set", "corruption": "noise", "noise": "0.3", "samples": 2}])
def test_the_program_finds_what_the_page_found(
    memory: "Transformer", own_workshop: "Workshop", two_facts: None, more: dict[str, Any]
) -> None:
    program = repeat.program(PAGE, {**defaults(PAGE.parameters), **FACT, **more}, Chosen("tiny"))
    assert program is not None
    found = run_program(program)["found"]
    settle(alone(PAGE, **opened(**more)))
    (results,) = own_workshop.store._kept.values()
    assert next(iter(results.values())).identical(found)
