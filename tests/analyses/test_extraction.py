"""Which sublayer says the answer: exact on a memory written by hand, by the definition on random and real models."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from published import small_tokenizer
from tiny import CONFIGS, reference, tiny

from interp.analyses.extraction import Extraction, extraction
from interp.analyses.fact_data import bundled_facts
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.constructed import one_fact_memory
from interp.models.loading import from_transformers
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

TOWER = Fact("Eiffel Tower", "place", "The {} is in", "Paris")
PRIOR = Fact("Space Needle", "prior", "The {} is in", "Seattle")
NEEDLE = Fact("Space Needle", "place", "The {} is in", "Paris")


@pytest.fixture(scope="module")
def found() -> Extraction:
    return extraction(one_fact_memory(), [TOWER, PRIOR, NEEDLE])


def test_the_head_that_reads_the_fact_extracts_it_and_nothing_extracts_what_was_there_before(
    found: Extraction,
) -> None:
    """The foil is said by the embedding of the relation: no sublayer adds it."""
    assert found["extracted"][:, :, 0].tolist() == [[False, True], [False, False]]
    assert not found["extracted"][:, :, 1].any()
    assert found.at("said", sublayer="attn", layer=1, fact="place/Eiffel Tower") == " Paris"
    assert found["rate"].tolist() == [[0, 0.5], [0, 0]]
    assert found["any_rate"].tolist() == [0.5, 0]
    assert found["any_low"][0] < 0.5 < found["any_high"][0]
    assert found.at("relation_any", relation="place").tolist() == [1, 0]
    assert found["relation_count"].tolist() == [1, 1]
    assert found["reason"].tolist() == ["the model says ' Seattle'"]


@pytest.mark.parametrize("name", ["grouped_query", "biases"])
def test_what_a_sublayer_says_is_its_output_through_the_final_norm(name: str) -> None:
    model = from_transformers(reference(tiny(replace(CONFIGS[name], d_vocab=300))), small_tokenizer(), device="cpu")
    prompt = "of the tower of the city"
    read = extraction(model, prompt, subject="the tower")
    logits, cache = model.run_with_cache(model.to_tokens(prompt))
    gain = model.weights()["ln_final.w"]
    for place, sublayer in enumerate(("attn", "mlp")):
        for layer in range(3):
            said = int(((cache[f"{sublayer}_out", layer][0, -1] * gain) @ model.W_U).argmax())
            assert read["said"][place, layer, 0] == model.tokenizer.str_tokens([said])[0]
            assert read["extracted"][place, layer, 0] == (said == int(logits[0, -1].argmax()))


def test_known_facts_in_a_padded_batch_say_what_each_says_alone(smollm2: "Transformer") -> None:
    read = extraction(smollm2, bundled_facts()[::60])
    lengths = {len(name) for name in read.axes["fact"]}
    assert len(lengths) > 3
    for place, fact in enumerate(fact for fact in bundled_facts()[::60] if fact.id in read.axes["fact"][:3]):
        _, cache = smollm2.run_with_cache(smollm2.to_tokens(fact.prompt))
        for row, sublayer in enumerate(("attn", "mlp")):
            last = torch.stack([cache[f"{sublayer}_out", layer][0, -1] for layer in range(30)])
            ids = smollm2.unembed_residual(last).argmax(-1).tolist()
            assert read["said"][row, :, place].tolist() == smollm2.tokenizer.str_tokens(ids), (fact.id, sublayer)


def test_the_saved_copy_is_the_same_and_counts_in_words(found: Extraction, tmp_path: Path) -> None:
    loaded = Result.load(found.save(tmp_path / "extraction"))
    assert isinstance(loaded, Extraction)
    assert loaded.identical(found)
    said = "\n".join(found.summary())
    assert "2 known of 3 facts" in said
    assert "attention: in any layer 50% [9%, 91%], most in layer 1 (50%)" in said
    assert "FFN: in any layer 0% [0%, 66%]" in said
    assert [line.name for line in found.figure().data] == ["attention", "FFN"]


def test_a_prompt_without_its_subject_is_refused() -> None:
    with pytest.raises(UsageError, match="One prompt came without its subject"):
        extraction(one_fact_memory(), "The Eiffel Tower is in")
