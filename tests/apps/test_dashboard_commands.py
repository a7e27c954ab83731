"""What every page offers to copy, as commands and as a program: they find, bit for bit, all that the page shows."""

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dashboard import alone, ends, errors, link, run_program, settle

import interp
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.views import attention, attribution, heads, memories, patching, prompt, tracing
from interp.facts import Fact
from interp.models.constructed import induction_circuit, one_fact_memory
from interp.results import Result

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

    from interp.apps.dashboard.session import Workshop

Run = Callable[..., tuple[int, str, str]]

TEXT = "The Eiffel Tower is in"
FACTS = (
    Fact("Eiffel Tower", "landmark city", "The {} is in", "Paris", counterfactual="Space Needle"),
    Fact("Space Needle", "landmark city", "The {} is in", "Paris", counterfactual="Eiffel Tower"),
)
TRACED = {"prompt": TEXT, "subject": "Eiffel Tower", "corruption": "replace", "replacement": "Space Needle"}
NOISY = {"corruption": "noise", "noise": "0.3", "samples": 2}
CHANGED = {"neuron": "0.5", "changes": ("zero", "x2"), "others": 0, "controls": 1, "new_tokens": 2}
PATCHED = {"clean": TEXT, "corrupted": "The Space Needle is in", "answer": " Paris", "foil": " Seattle"}
ATLAS = {"seq_len": 8, "n_seqs": 2, "n_documents": 1, "doc_len": 24, "copying": False, "controls": 2}

CASES: dict[str, tuple[Page, str, dict[str, Any]]] = {
    "prompt": (prompt.PAGE, "", {"text": TEXT, "answer": " Paris", "top_k": 3, "position": -2}),
    "attention": (attention.PAGE, "", {"text": TEXT, "layer": 1, "head": 2, "controls": 1}),
    "attention of random tokens": (attention.PAGE, "", {"read": "repeated", "seq_len": 6, "controls": 1}),
    "heads": (heads.PAGE, "ablation,composition", {**ATLAS, "selection": "1.0", "sort": "prefix_matching"}),
    "memories": (memories.PAGE, "triggers,changes", {"text": TEXT, "top_k": 2, "documents": 1, **CHANGED}),
    "attribution": (attribution.PAGE, "head_source", {"text": TEXT, "answer": " Paris", "foil": " Seattle"}),
    "attribution by neuron": (attribution.PAGE, "", {"text": TEXT, "answer": " Paris", "by": "neuron"}),
    "patching": (patching.PAGE, "estimates", {**PATCHED, "metrics": ("probability", "logit_difference")}),
    "estimates": (patching.PAGE, "", {**PATCHED, "method": "atp"}),
    "tracing": (tracing.PAGE, "knockout", {**TRACED, "cut": 1}),
    "tracing of facts": (tracing.PAGE, "knockout", {**TRACED, **NOISY, "of": "set"}),
}


@pytest.fixture(autouse=True)
def made_by_hand(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and commands get a model that was written by hand, and two facts."""
    model = induction_circuit() if "heads" in request.node.name else one_fact_memory()
    monkeypatch.setattr(interp, "load", lambda *_, **__: model, raising=False)
    monkeypatch.setattr("interp.analyses.fact_data.bundled_facts", lambda: FACTS)


def opened(name: str) -> "AppTest":
    """The page of a case, with everything on it asked for."""
    page, further, values = CASES[name]
    app = settle(alone(page, **{**link(page, **values), "asked": f"main,{further}".strip(",")}))
    assert (ends(app), errors(app)) == ("shown", [])
    return app


def kept(workshop: "Workshop") -> "dict[str, Result]":
    """All results that the page shows, by name."""
    found = {name: each for results in workshop.store._kept.values() for name, each in results.items()}
    assert found
    return found


def parts(value: object) -> list[object]:
    """What a variable holds, be it one thing or several."""
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else [value]


def offered(app: "AppTest") -> list[list[str]]:
    """The commands that the page offers, as words behind `interp`."""
    return [shlex.split(block.value)[1:] for block in app.code if block.value.startswith("interp ")]


@pytest.mark.parametrize("name", CASES)
def test_the_commands_of_a_page_find_all_that_it_shows(
    name: str, own_workshop: "Workshop", run: Run, tmp_path: Path
) -> None:
    app, found = opened(name), list[Result]()
    for number, words in enumerate(offered(app)):
        code, printed, said = run(*words)
        assert code == 0, said
        assert json.loads(printed)["table"]
        folder = tmp_path / str(number)
        options = words.index("--") if "--" in words else len(words)  # what stands behind is a text
        assert run(*words[:options], "--out", str(folder), *words[options:])[0] == 0
        saved = interp.open_run(folder)
        found += [saved.result("result", job) for job in saved.jobs]
    for shown, each in kept(own_workshop).items():
        assert any(each.identical(other) for other in found), f"{shown} is not among {[one.kind for one in found]}"


@pytest.mark.parametrize("name", CASES)
def test_the_program_of_a_page_finds_all_that_it_shows(name: str, own_workshop: "Workshop") -> None:
    """What takes long stands in functions of the program, which whoever runs it may call."""
    app = opened(name)
    (program,) = [block.value for block in app.code if block.value.startswith("import interp")]
    found = dict(run_program(program))
    found |= {
        function: found[function]()
        for function in ("composed", "triggers", "changed", "estimates")
        if function in found
    }
    results = [each for value in found.values() for each in parts(value) if isinstance(each, Result)]
    for shown, each in kept(own_workshop).items():
        assert any(each.identical(other) for other in results), f"{shown} is not among {[one.kind for one in results]}"
