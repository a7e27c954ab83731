"""Key/value agreement: by hand, its exact chance, both ends, and the real model."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from spoken import spoken_fact
from tiny import CONFIGS, tiny

from interp.analyses.agreement import Agreement, agreement
from interp.analyses.documents import Document, bundled
from interp.analyses.neurons import Neuron, memory_of
from interp.analyses.triggers import ENDS, Triggers, find_triggers
from interp.analyses.value_tokens import value_tokens
from interp.errors import UsageError
from interp.models.circuits import OneFact
from interp.results import Result

if TYPE_CHECKING:
    from pathlib import Path

    from interp.models.transformer import Transformer

MODEL = tiny(CONFIGS["grouped_query"], dtype=torch.float64)


@pytest.fixture(scope="module")
def triggers() -> Triggers:
    rows = torch.randint(0, 67, (3, 40), generator=torch.Generator().manual_seed(2))
    return find_triggers(MODEL, rows, layers=[0, 2], top_k=4, prefix="none", length=40)


def by_hand(triggers: Triggers, layer: int, end: str) -> dict[str, float]:
    """Neuron by neuron, and every pairing of one neuron's value with another one's triggers."""
    values = value_tokens(MODEL, layer=layer, top_k=1)
    tokens, sets = [], []
    for neuron in triggers.axes["neuron"]:
        cell = {"layer": layer, "neuron": neuron, "end": end}
        following, size = triggers.next_ids(**cell), triggers.at("coefficient", **cell)
        right = size > 0 if end == "largest" else size < 0
        if right[0] and following[0] >= 0:
            tokens.append(int(values.at("top_id" if end == "largest" else "bottom_id", neuron=neuron)[0]))
            sets.append([int(token) for token, fits in zip(following, right, strict=True) if fits and token >= 0])
    pairs = [(i, j) for i in range(len(tokens)) for j in range(len(tokens)) if i != j]
    return {
        "count": len(tokens),
        "agreement": np.mean([token == some[0] for token, some in zip(tokens, sets, strict=True)]),
        "in_any": np.mean([token in some for token, some in zip(tokens, sets, strict=True)]),
        "chance": np.mean([tokens[i] == sets[j][0] for i, j in pairs]),
        "chance_in_any": np.mean([tokens[i] in sets[j] for i, j in pairs]),
    }


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("layer", [0, 2])
def test_shares_and_their_chances_are_those_of_counting(triggers: Triggers, layer: int, end: str) -> None:
    found = agreement(MODEL, triggers)
    expected = by_hand(triggers, layer, end)
    assert expected["in_any"] > 0
    for name, value in expected.items():
        assert float(found.at(name, layer=layer, end=end)) == pytest.approx(value)


def test_neurons_of_a_shared_expert_agree_where_their_own_value_says_what_follows() -> None:
    """Every neuron of the shared expert is given the value that speaks for what follows its top trigger."""
    model = tiny(replace(CONFIGS["moe_shared_gated"], tied_embeddings=False), dtype=torch.float64)
    rows = torch.randint(0, 67, (3, 40), generator=torch.Generator().manual_seed(2))
    mine = [memory_of(model.config, Neuron(1, index, "shared")) for index in range(26)]
    found = find_triggers(model, rows, layers=1, neurons=mine, top_k=2, prefix="none", length=40)
    following = found.next_ids(layer=1, end="largest")[:, 0]
    weights = model.weights()
    model.weights()["blocks.1.mlp.shared.W_out"].copy_(
        (weights["unembed.W_U"] * weights["ln_final.w"][:, None]).T[following]
    )
    weights["unembed.W_U"].div_(weights["unembed.W_U"].norm(dim=0))
    assert agreement(model, found)["agreement"][0, 0] > 0.9


def test_a_fact_written_by_hand_agrees_where_the_answer_follows_its_subject() -> None:
    model = spoken_fact(OneFact())
    for text, expected in (("The Eiffel Tower Paris", 1), ("The Eiffel Tower is", 0)):
        found = agreement(model, find_triggers(model, [Document("it", text)], layers=0, length=30))
        assert found["count"].tolist() == [[1, 0]]  # no other neuron fires, and none writes with a minus
        assert found["agreement"][0, 0] == expected
        assert np.isnan(found["chance"]).all()


def test_triggers_of_other_weights_are_refused(triggers: Triggers) -> None:
    other = tiny(CONFIGS["grouped_query"])
    other._provenance["weights_sha256"] = "another"
    with pytest.raises(UsageError, match="other weights"):
        agreement(other, triggers)


def test_a_result_is_saved_shown_and_told(triggers: Triggers, tmp_path: "Path") -> None:
    found = agreement(MODEL, triggers)
    assert Result.load(found.save(tmp_path / "it")).identical(found)
    assert len(found.figure().data) == 4
    assert len(found.summary()) == 4


def test_an_upper_layer_of_the_real_model_agrees_far_above_chance(smollm2: "Transformer") -> None:
    found: Agreement = agreement(smollm2, find_triggers(smollm2, bundled()[:3], layers=25, top_k=10, context=1))
    assert found["agreement"][0, 0] > 5 * found["chance"][0, 0]
    assert found["in_any"][0, 0] > 2 * found["chance_in_any"][0, 0]
