"""Attention knockout: exact on a memory written by hand, the same run by run, and what SmolLM2's known facts show."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from published import small_tokenizer
from tiny import CONFIGS, reference, tiny
from traced_facts import speaker

from interp import edits
from interp.analyses.fact_data import bundled_facts
from interp.analyses.knockout import BLOCKS, AttentionKnockout, attention_knockout, blocked_keys
from interp.analyses.recall import Recall, Recalls, recall_of
from interp.analyses.recall_effects import averaged
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.constructed import one_fact_memory
from interp.models.loading import from_transformers
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

TOWER = Fact("Eiffel Tower", "place", "The {} is in", "Paris")
SHORT = Fact("Eiffel Tower", "short", "{} is in", "Paris")
NEEDLE = Fact("Space Needle", "place", "The {} is in", "Paris")
PROMPT = "of the tower of the city"
"""Behind the separator " the tower" stands at positions 2 and 3 of a tiny model's prompt."""
SEVERAL = bundled_facts()[::29]


@pytest.fixture(scope="module")
def tower() -> AttentionKnockout:
    return attention_knockout(one_fact_memory(), [TOWER, SHORT, NEEDLE], window=1)


@pytest.fixture(scope="module")
def known(smollm2: "Transformer") -> AttentionKnockout:
    """Around the layers where SmolLM2 reads subjects, and some before them."""
    return attention_knockout(
        smollm2, SEVERAL, blocks=("subject", "non_subject", "random"), layers=[2, 12, 22], draws=2
    )


# ---------------------------------------------------------------------------------------------------------- by hand


def test_the_fact_is_lost_where_its_subject_cannot_be_read_and_nowhere_else(tower: AttentionKnockout) -> None:
    """The extractor, in layer 1, reads the subject; blocking anything else, or layer 0, changes nothing."""
    lost = tower["logit_effect"]
    assert lost[0].tolist() == [0, -16]
    assert (lost[1:] == 0).all()
    assert float(tower.at("mean_change", cut="subject", layer=1)) == pytest.approx(-100, abs=0.1)
    assert tower.strongest("subject")[0] == 1


def test_an_unknown_fact_is_kept_out_of_the_means_and_named(tower: AttentionKnockout) -> None:
    assert tower.axes["fact"] == ("place/Eiffel Tower", "short/Eiffel Tower")
    assert tower.axes["excluded"] == ("place/Space Needle",)
    assert tower["reason"].tolist() == ["the model says ' Seattle'"]
    assert "2 known of 3 facts" in tower.summary()[0]
    assert tower["relation_count"][:, 0].tolist() == [1, 1]


def test_a_fact_with_too_few_other_tokens_has_no_control(tower: AttentionKnockout) -> None:
    """Behind the separator "Eiffel Tower is in" has one token besides the subject's two and the last."""
    assert tower["count"].tolist() == [2, 2, 2, 1]
    assert np.isnan(tower.at("change", cut="random", fact="short/Eiffel Tower")).all()
    assert (tower.at("change", cut="random", fact="place/Eiffel Tower") == 0).all()
    assert tower.at("mean_change", cut="random").tolist() == [0, 0]
    assert np.isnan(tower.at("relation_change", relation="short", cut="random")).all()
    assert tower["subject_beyond_random"].tolist() == pytest.approx([0, -100], abs=0.1)
    assert np.isnan(tower["subject_beyond_random_low"]).all(), "one fact alone has both"


def test_what_each_block_blocks() -> None:
    recall = Recall("name", "relation", (0, 5, 6, 7, 8, 9, 4, 3), 1, (3, 4), 11)
    assert blocked_keys(recall, "subject") == (3, 4)
    assert blocked_keys(recall, "non_subject") == (1, 2, 5, 6)
    assert blocked_keys(recall, "last") == (7,)
    drawn = [blocked_keys(recall, f"random {draw}", seed) for seed in range(3) for draw in range(4)]
    assert all(len(each) == 2 and set(each) <= {1, 2, 5, 6} for each in drawn)
    assert len(set(drawn)) > 3
    assert drawn[0] == blocked_keys(recall, "random 0", 0)


def test_a_fact_is_cut_at_the_subject_in_its_slot_and_measured_at_the_first_token_of_its_answer() -> None:
    model = speaker()
    recall = recall_of(model, Fact("city", "streets", "the city of {} of a", "tower of"), "doc")
    assert model.tokenizer.str_tokens(recall.ids) == ["<|endoftext|>", "the", " city", " of", " city", " of", " a"]
    assert (recall.subject, recall.others) == ((4,), (1, 2, 3, 5))
    assert model.tokenizer.str_tokens([recall.answer]) == [" tower"]


# ----------------------------------------------------------------------------------------------------- run by run


@pytest.mark.parametrize("name", ["grouped_query", "multi_query", "biases"])
@pytest.mark.parametrize("shortcuts", [True, False])
def test_every_number_is_that_of_a_forward_pass(name: str, shortcuts: bool) -> None:
    model = from_transformers(reference(tiny(replace(CONFIGS[name], d_vocab=300))), small_tokenizer(), device="cpu")
    found = attention_knockout(model, PROMPT, subject="the tower", window=2, draws=2, shortcuts=shortcuts, seed=4)
    (recall,) = Recalls.of(model, PROMPT, subject="the tower").asked
    tokens = model.to_tokens(PROMPT)
    assert recall.answer == int(model(tokens)[0, -1].argmax())
    for block in BLOCKS:
        draws = [f"random {draw}" for draw in range(2)] if block == "random" else [block]
        for layer in range(3):
            each = [_by_hand(model, tokens, recall, cut, range(max(0, layer - 1), layer + 1)) for cut in draws]
            expected = torch.stack(each).mean(0)
            for place, metric in enumerate(("probability", "log_probability", "logit")):
                value = float(found.at(metric, cut=block, layer=layer, fact=PROMPT))
                assert value == pytest.approx(float(expected[place]), abs=2e-5), (block, layer, metric)


def _by_hand(
    model: "Transformer", tokens: torch.Tensor, recall: Recall, cut: str, layers: range, seed: int = 4
) -> torch.Tensor:
    """Probability, log-probability and logit of the answer, by the edit that blocks edges in one text."""
    edit = edits.knock_out(queries=-1, keys=list(blocked_keys(recall, cut, seed)))
    hooks = [(f"blocks.{each}.attn.hook_attn_scores", edit) for each in layers]
    logits = model.run_with_hooks(tokens, hooks)[0, -1]
    return torch.stack([of[recall.answer] for of in (logits.softmax(-1), logits.log_softmax(-1), logits)])


def test_facts_of_different_lengths_in_one_batch_are_as_each_alone(
    smollm2: "Transformer", known: AttentionKnockout
) -> None:
    recalls = Recalls.of(smollm2, SEVERAL)
    assert len({len(each.ids) for each in recalls.asked}) > 3
    for recall in recalls.asked[:3]:
        for block in ("subject", "non_subject"):
            tokens = torch.tensor([recall.ids])
            expected = _by_hand(smollm2, tokens, recall, block, range(20, 25))[1]
            value = float(known.at("log_probability", cut=block, layer=22, fact=recall.name))
            assert value == pytest.approx(float(expected), abs=1e-3), recall.name


# ------------------------------------------------------------------------------------------------------ real facts


def test_blocking_the_subject_hurts_more_than_blocking_as_many_random_tokens(known: AttentionKnockout) -> None:
    """Of all 363 known facts the two lie 65 points apart around layer 22; here a dozen is asked."""
    assert 10 <= len(known.axes["fact"]) <= 14
    late = known.axes["layer"].index(22)
    assert known.at("mean_change", cut="subject", layer=22) < -45
    assert known.at("mean_change", cut="random", layer=22) > -25
    assert known["subject_beyond_random"][late] < -40
    assert known["subject_beyond_random_high"][late] < -15
    assert known.at("mean_change", cut="non_subject", layer=12) < known.at("mean_change", cut="non_subject", layer=22)


def test_means_are_ratios_of_means_over_the_facts_that_have_the_block(known: AttentionKnockout) -> None:
    there = ~np.isnan(known["change"]).any(1)
    for place, cut in enumerate(known.axes["cut"]):
        members, base = there[place], known["probability_base"]
        assert int(known["count"][place]) == members.sum()
        moved = known["probability"][place][:, members] - base[members]
        np.testing.assert_allclose(known["probability_effect"][place], moved.mean(-1), err_msg=str(cut))
        np.testing.assert_allclose(known["mean_change"][place], 100 * moved.mean(-1) / base[members].mean())
        np.testing.assert_allclose(known["change"][place][:, members], 100 * moved / base[members])
    assert (known["mean_change_low"] <= known["mean_change"]).all()
    assert (known["mean_change"] <= known["mean_change_high"]).all()
    relation = known.axes["relation"][0]
    own = known["relation_name"] == relation
    expected = 100 * (known["probability"][0] - known["probability_base"])[:, own].mean(-1)
    expected /= known["probability_base"][own].mean()
    np.testing.assert_allclose(known.at("relation_change", relation=relation, cut="subject"), expected)


def test_a_fact_of_small_probability_decides_neither_the_mean_change_nor_its_interval() -> None:
    """Nine facts lose half of 0.8; the tenth rises from 0.001 to 0.02, which by itself would be +1900 %."""
    base, moved = np.array([0.8] * 9 + [0.001]), np.array([-0.4] * 9 + [0.019])
    mean, low, high = averaged(moved[None, None], base, np.ones((1, 10), dtype=bool), seed=0)
    assert mean.item() == pytest.approx((-0.4 * 9 + 0.019) / (0.8 * 9 + 0.001))
    assert -0.51 < low.item() <= mean.item() <= high.item() < -0.45


def test_the_saved_copy_is_the_same_and_the_summary_names_the_strongest_layers(
    known: AttentionKnockout, tmp_path: Path
) -> None:
    loaded = Result.load(known.save(tmp_path / "knockout"))
    assert isinstance(loaded, AttentionKnockout)
    assert loaded.identical(known)
    said = "\n".join(known.summary())
    layer, change = known.strongest("subject")
    assert f"subject  {change:+.0f} %" in said
    assert f"at layer {layer}, log P" in said
    assert "subject less as many random tokens" in said
    assert [line.name for line in known.figure().data] == list(known.axes["cut"])
    assert known["first_layer"].tolist() == [0, 10, 20]
    assert known["last_layer"].tolist() == [4, 14, 24]


def test_another_answer_than_the_models_own_is_measured_and_said() -> None:
    model = one_fact_memory()
    found = attention_knockout(model, "The Eiffel Tower is in", subject="Eiffel Tower", answer=" Seattle", window=1)
    assert found["logit_base"].tolist() == [8]
    assert found["answer"].tolist() == [" Seattle"]
    assert "the model's own answer is ' Paris'" in "\n".join(found.summary())
    assert found["change"][0, 1, 0] > 100


def test_progress_counts_cells_times_facts() -> None:
    told: list[tuple[int, int]] = []
    attention_knockout(
        one_fact_memory(), [TOWER, SHORT], draws=2, progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (2 * 5 * 2, 2 * 5 * 2)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("facts", "settings", "says"),
    [
        ("The Eiffel Tower is in", {}, "One prompt came without its subject"),
        ("The Eiffel Tower is in", {"subject": "Louvre"}, "'Louvre' does not stand in"),
        ("The Eiffel Tower is in", {"subject": "iffel"}, "begins or ends inside a token"),
        ("The Tower Eiffel Tower is in", {"subject": "Tower"}, "stands 2 times"),
        ("The Eiffel Tower is in", {"subject": "Tower", "answer": " Paris Seattle"}, "2 tokens, not one"),
        ([TOWER], {"subject": "Tower"}, "Facts bring their subjects"),
        ([], {}, "no facts"),
        ([NEEDLE], {}, "knows none of the 1 facts; the first, 'place/Space Needle': the model says ' Seattle'"),
        ([TOWER], {"blocks": ()}, r"each once, not \(\)"),
        ([TOWER], {"blocks": ("subject", "subject")}, "each once, not"),
        ([TOWER], {"draws": 0}, "draws is 0"),
        ([TOWER], {"seed": -1}, "seed is -1"),
        ([TOWER], {"window": 0}, "window is 0"),
        ([TOWER], {"layers": [2]}, "For the layers, 2 lies outside"),
        ([TOWER], {"prefix": "chat"}, "The prefix is 'chat'"),
    ],
)
def test_what_cannot_be_asked_is_refused(facts: str | list[Fact], settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        attention_knockout(one_fact_memory(), facts, **settings)


@pytest.mark.usefixtures("shapes_unchecked")
def test_blocks_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="subject, non_subject, last, random, each once"):
        attention_knockout(one_fact_memory(), [TOWER], blocks=("relation",))
