"""The page of patching, alone, on a memory written by hand."""

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
import pytest
from dashboard import alone, complaints, ends, errors, html, link, run_program, settle, values

from interp import pair_builders
from interp.analyses import patching as api
from interp.analyses.patching_runs import METRICS
from interp.analyses.sites import Site
from interp.apps.dashboard import repeat
from interp.apps.dashboard.parameters import defaults
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.views import pair_inputs, patching
from interp.apps.dashboard.views.patching import PAGE
from interp.pairs import of_texts

if TYPE_CHECKING:
    from interp.apps.dashboard.session import Workshop
    from interp.models.transformer import Transformer

PAIR = {
    "clean": "The Eiffel Tower is in",
    "corrupted": "The Space Needle is in",
    "answer": " Paris",
    "foil": " Seattle",
}


def opened(**more: Any) -> dict[str, str]:
    return link(PAGE, **{**PAIR, **more})


def test_what_can_be_chosen_is_what_the_analysis_knows() -> None:
    assert tuple(patching.SITES) == get_args(Site)
    assert set(patching.METRICS) == set(METRICS)
    assert set(pair_inputs.PAIRS) == {pair_inputs.TYPED, *pair_builders.BUILDERS}


def test_without_a_link_the_page_says_what_it_needs(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE))
    assert ends(app) == "empty"
    assert "Clean prompt is needed" in app.info[0].value
    assert app.button(key="_run.patching").disabled


def test_tokens_are_aligned_before_anything_is_computed(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **{**opened(), "asked": ""}))
    assert ends(app) == "empty"
    (drawn,) = [each for each in html(app) if "interp-pair" in each and "<style>" not in each]
    assert drawn.count("marked") == 4
    assert any("Before it starts: about" in each.value for each in app.caption)


def test_the_cell_that_is_chosen_has_the_numbers_of_the_api(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **opened(layer=1, place=3, metrics=("logit_difference", "probability"))))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    pair = of_texts(memory.tokenizer, **PAIR)
    found = api.sweep(memory, pair, site="resid_pre", metric=["logit_difference", "probability"])
    cell: pd.DataFrame = app.dataframe[0].value
    for row in cell.to_dict(orient="records"):
        metric = row["metric"]
        assert row["patched"] == found[metric][1, 3].mean()
        np.testing.assert_equal(row["share of the way"], found[f"{metric}_recovered"][1, 3])
        assert row["clean"] == found[f"{metric}_clean"].mean()
    assert any("layer 1, position Needle 3" in each for each in html(app))


@pytest.mark.parametrize(
    ("more", "axes"),
    [
        ({"site": "z", "over": "both"}, 3),
        ({"site": "embed"}, 1),
        ({"site": "pattern", "direction": "noise"}, 2),
        ({"site": "z", "over": "part", "method": "atp"}, 2),
        ({"site": "mlp_out", "window": 2, "measure": "effect"}, 2),
    ],
)
def test_sites_of_all_shapes_are_drawn(
    memory: "Transformer", own_workshop: "Workshop", more: dict[str, Any], axes: int
) -> None:
    app = settle(alone(PAGE, **opened(**more)))
    assert (ends(app), errors(app), complaints(app)) == ("shown", [], [])
    (results,) = own_workshop.store._kept.values()
    assert len(next(iter(results.values())).over) == axes


def test_estimates_can_be_set_beside_exact_effects(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **opened(site="z")))
    app.button(key="_ask.patching.estimates").click().run()
    settle(app)
    assert errors(app) == []
    assert any("Pearson" in each.value for each in app.caption)
    assert values(app)["asked"] == "estimates,main"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"corrupted": "The Needle is in"}, "the clean prompt has 6 tokens and the corrupted one 5"),
        ({"answer": " Paris Seattle"}, "token"),
        ({"foil": "", "metrics": ("logit_difference",)}, "needs a foil"),
        ({"site": "resid_pre", "over": "part"}, "cannot be swept over"),
        ({"method": "atp", "window": 3}, "one layer a cell"),
        ({"method": "atp", "metrics": ("logit", "loss")}, "one metric"),
        ({"site": "expert"}, "expert"),
    ],
)
def test_what_cannot_be_patched_is_said_in_words(
    memory: "Transformer", own_workshop: "Workshop", more: dict[str, Any], said: str
) -> None:
    app = settle(alone(PAGE, **opened(**more)))
    assert len(app.exception) == 0
    (error,) = errors(app)
    assert said in error
    assert "fault in interp" not in error


def test_a_link_with_a_bad_value_says_so(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **{**opened(), "site": "resid", "layer": "99"}))
    assert any("site = 'resid' in the link" in each for each in complaints(app))
    assert any("Layer 99 is outside" in each for each in complaints(app))
    assert ends(app) == "shown"


def test_a_metric_that_was_not_measured_is_said(memory: "Transformer", own_workshop: "Workshop") -> None:
    app = settle(alone(PAGE, **opened(metric="loss")))
    assert any("loss was not measured here" in each for each in complaints(app))


def test_a_link_that_is_written_opens_to_the_same(memory: "Transformer", own_workshop: "Workshop") -> None:
    first = values(settle(alone(PAGE, **opened(site="z", measure="effect", layer=1, place=2))))
    assert values(settle(alone(PAGE, **first))) == first
    assert set(first) == {"v", "model", "device", "dtype", "asked", *(each.name for each in PAGE.parameters)}


@pytest.mark.parametrize("method", ["exact", "atp"])
def test_the_program_finds_what_the_page_found(
    memory: "Transformer", own_workshop: "Workshop", method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {**defaults(PAGE.parameters), **PAIR, "site": "z", "over": "both", "method": method}
    program = repeat.program(PAGE, asked, Chosen("tiny"))
    assert program is not None
    found = run_program(program)["found"]
    settle(alone(PAGE, **opened(site="z", over="both", method=method)))
    (results,) = own_workshop.store._kept.values()
    assert next(iter(results.values())).identical(found)
