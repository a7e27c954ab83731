"""The page of attribution, alone, on a memory written by hand: head 1.2 says what the neuron knows."""

from typing import Any

import numpy as np
import pytest
from dashboard import alone, complaints, ends, errors, link, settle, values
from streamlit.testing.v1 import AppTest

from interp.analyses.attribution import Attribution, direct_logit_attribution
from interp.analyses.local_ablation import ablate_here
from interp.apps.dashboard.views import attribution_drawn
from interp.apps.dashboard.views.attribution import PAGE
from interp.models.transformer import Transformer

pytestmark = pytest.mark.usefixtures("memory", "own_workshop")
TEXT = "The Eiffel Tower is in"
ASKED = {"text": TEXT, "answer": " Paris", "foil": " Seattle"}


def opened(asked: str = "main", **said: Any) -> AppTest:
    return settle(alone(PAGE, **{**link(PAGE, **{**ASKED, **said}), "asked": asked}))


def attributed(model: Transformer, by: str) -> Attribution:
    return direct_logit_attribution(model, TEXT, " Paris", " Seattle", by=by)  # type: ignore[arg-type]  # by name


def test_without_a_link_the_page_says_what_it_needs() -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Prompt is needed" in app.info[0].value
    app.text_area(key="attribution.text").set_value(TEXT).run()
    assert "Answer is needed" in app.info[0].value
    assert app.button(key="_run.attribution").disabled


@pytest.mark.parametrize("by", ["sublayer", "head", "source", "head_source", "neuron"])
def test_the_parts_are_those_of_the_analysis(memory: Transformer, by: str) -> None:
    app = opened(by=by)
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    found = attributed(memory, by)
    table = next(frame.value for frame in app.dataframe if "part" in frame.value)
    strongest = np.argsort(-np.abs(found["mean"]), kind="stable")[: len(table)]
    assert table["part"].tolist() == [found.axes["part"][place] for place in strongest]
    np.testing.assert_allclose(table["mean"], found["mean"][strongest])


def test_the_completeness_error_stands_beside_the_logit(memory: Transformer) -> None:
    app = opened()
    found = attributed(memory, "sublayer")
    assert any(f"{float(found['logit'][0]):+.4f}" in each.value for each in app.markdown)
    assert any("completeness error" in each.value for each in app.caption)


def test_the_chosen_head_stands_beside_what_taking_it_away_does(memory: Transformer) -> None:
    app = opened(layer=1, head=2)
    own = attributed(memory, "head").layer_map()[1, 2]
    assert any(f"{own:+.3f} logits, place 1 of" in each.value for each in app.markdown)
    effects = next(frame.value for frame in app.dataframe if "taken away" in frame.value)
    without = ablate_here(memory, TEXT, [(1, 2)], answer=" Paris")
    np.testing.assert_allclose(effects["effect"][0], without["log_probability_effect"][0], rtol=1e-5)


def test_what_a_head_brings_from_each_token_adds_up_to_its_term(memory: Transformer) -> None:
    both = attributed(memory, "head_source")
    brought = attribution_drawn.head_sources(both, 1, 2)
    np.testing.assert_allclose(brought.sum(), attributed(memory, "head").layer_map()[1, 2], atol=1e-5)
    assert brought.argmax() == 3, "from the last token of the subject"
    app = opened("main,head_source", layer=1, head=2)
    assert (ends(app), errors(app)) == ("shown", [])


def test_all_sources_add_up_to_what_attention_writes(memory: Transformer) -> None:
    total = attribution_drawn.by_token(attributed(memory, "source")).sum()
    np.testing.assert_allclose(total, attributed(memory, "head").layer_map().sum(), atol=1e-5)


def test_a_link_that_is_written_opens_to_the_same() -> None:
    first = values(opened(by="neuron", layer=1, head=2, source_layer=1, source=3, method="zero", controls=2))
    assert values(settle(alone(PAGE, **first))) == first
    assert set(first) == {"v", "model", "device", "dtype", "asked", *(each.name for each in PAGE.parameters)}


def test_a_head_that_is_not_there_is_said_and_mended() -> None:
    app = opened(head=77)
    assert "Head 77 is outside" in complaints(app)[0]
    assert values(app)["head"] == "0"


def test_what_the_analysis_refuses_stands_on_the_page_in_its_words() -> None:
    app = opened(answer=" Paris", foil=" Paris")
    assert ends(app) == "waiting"
    assert len(errors(app)) == 1
    app = opened(by="expert")
    assert any("expert" in error for error in errors(app))
    assert ends(app) == "shown", "the rest of the page stays"
