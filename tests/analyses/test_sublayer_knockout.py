"""Sublayers replaced at a subject: exact on a memory written by hand, and the same run by run."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from published import small_tokenizer
from tiny import CONFIGS, reference, tiny

from interp import edits
from interp.analyses.recall import recall_of
from interp.analyses.sublayer_knockout import SublayerKnockout, sublayer_knockout
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.circuits import Head, Neuron, OneFact
from interp.models.constructed import one_fact_memory
from interp.models.loading import from_transformers
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

TOWER = Fact("Eiffel Tower", "place", "The {} is in", "Paris")
SHORT = Fact("Eiffel Tower", "short", "{} is in", "Paris")
NEEDLE = Fact("Space Needle", "place", "The {} is in", "Seattle")
PROMPT = "of the tower of the city"
READ = [Fact("the tower", "r", "of {} of", "x"), Fact("city", "r", "of the {} of the", "x")]
FOUR = OneFact(n_layers=5, gatherers=(Head(1, 1),), neuron=Neuron(2, 5), extractor=Head(3, 2))
"""A token of the subject is gathered in layer 1, the fact remembered in layer 2, and read in layer 3."""


@pytest.fixture(scope="module")
def tower() -> SublayerKnockout:
    return sublayer_knockout(one_fact_memory(FOUR), [TOWER, SHORT], window=2, reference=[NEEDLE])


@pytest.mark.parametrize("method", ["mean", "zero"])
def test_the_fact_is_lost_in_the_windows_that_hold_what_makes_it(tower: SublayerKnockout, method: str) -> None:
    """Subjects that the memory does not know give it nothing, so that their mean is nought."""
    assert tower.at("logit_effect", cut=f"mlp {method}").tolist() == [0, -16, -16, 0, 0]
    assert tower.at("logit_effect", cut=f"attn {method}", layer=2) == 0, "behind the gatherer; others need not look"
    assert tower.at("logit_effect", cut="attn zero").tolist() == [-16, -16, 0, 0, 0]
    assert tower["first_layer"].tolist() == [0, 1, 2, 3, 4]
    assert tower["last_layer"].tolist() == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("name", ["grouped_query", "biases"])
@pytest.mark.parametrize("shortcuts", [True, False])
def test_every_number_is_that_of_a_forward_pass(name: str, shortcuts: bool) -> None:
    model = from_transformers(reference(tiny(replace(CONFIGS[name], d_vocab=300))), small_tokenizer(), device="cpu")
    found = sublayer_knockout(
        model, PROMPT, subject="the tower", window=2, reference=READ, shortcuts=shortcuts, layers=[0, 2]
    )
    tokens = model.to_tokens(PROMPT)
    answer = int(model(tokens)[0, -1].argmax())
    for sublayer in ("mlp", "attn"):
        for layer in (0, 2):
            names = [f"blocks.{each}.hook_{sublayer}_out" for each in range(layer, min(3, layer + 2))]
            for method in ("mean", "zero"):
                new = [_mean(model, name) if method == "mean" else torch.zeros(30) for name in names]
                hooks = [(name, edits.replace(value, positions=[2, 3])) for name, value in zip(names, new, strict=True)]
                expected = model.run_with_hooks(tokens, hooks)[0, -1].log_softmax(-1)[answer]
                value = found.at("log_probability", cut=f"{sublayer} {method}", layer=layer, fact=PROMPT)
                assert float(value) == pytest.approx(float(expected), abs=2e-5), (sublayer, layer, method)


def _mean(model: "Transformer", name: str) -> torch.Tensor:
    """Over the tokens of both subjects, each fact run by itself."""
    rows = []
    for fact in READ:
        recall = recall_of(model, fact, "doc")
        _, cache = model.run_with_cache(torch.tensor([recall.ids]), name)
        rows.append(cache[name][0, list(recall.subject)])
    assert [len(each) for each in rows] == [2, 1]
    return torch.cat(rows).mean(0)


def test_a_fact_is_measured_alike_with_others_in_its_batch_and_alone(tower: SublayerKnockout) -> None:
    model = one_fact_memory(FOUR)
    alone = sublayer_knockout(model, [SHORT], window=2, reference=[NEEDLE])
    np.testing.assert_array_equal(tower["logit"][..., [1]], alone["logit"])
    prompt = sublayer_knockout(model, "Eiffel Tower is in", subject="Eiffel Tower", window=2, reference=[NEEDLE])
    np.testing.assert_array_equal(prompt["logit"], alone["logit"])


def test_the_saved_copy_is_the_same_and_draws_its_cuts(tower: SublayerKnockout, tmp_path: Path) -> None:
    loaded = Result.load(tower.save(tmp_path / "sublayers"))
    assert isinstance(loaded, SublayerKnockout)
    assert loaded.identical(tower)
    assert [line.name for line in tower.figure().data] == ["mlp mean", "mlp zero", "attn mean", "attn zero"]
    assert tower.settings["reference"] == ("place/Space Needle",)
    assert "mlp mean  -100 % [-100, -100] at layer 1" in "\n".join(tower.summary())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sublayers": ()}, r"Sublayers are some of mlp, attn, each once, not \(\)"),
        ({"methods": ("zero", "zero")}, "Methods are some of mean, zero, each once"),
        ({"window": 0}, "window is 0"),
        ({"reference": []}, "None of the reference facts"),
        ({"layers": [7]}, "For the layers, 7 lies outside"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sublayer_knockout(one_fact_memory(), [TOWER], **settings)
