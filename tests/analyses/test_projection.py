"""Vectors in words: the order of tokens, the gain in it, and blocks that change nothing."""

from dataclasses import replace

import pytest
import torch
from tiny import BASE, CONFIGS, tiny

from interp.analyses.projection import project
from interp.errors import UsageError
from interp.models.config import ModelConfig


def vectors(count: int, *, seed: int = 3) -> torch.Tensor:
    return torch.randn(count, BASE.d_model, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_small_vector_moves_the_logits_in_the_order_of_its_scores(config: ModelConfig) -> None:
    model = tiny(replace(config, logit_cap=None), dtype=torch.float64)
    resid, added = vectors(1).double(), vectors(1, seed=4).double()
    if model.ln_final is not None:  # along the stream itself a vector moves the divisor too
        centred = model.ln_final.centre(resid)
        added = added - centred * (added * centred).sum() / centred.square().sum()
    moved = (model.unembed_residual(resid + 1e-6 * added) - model.unembed_residual(resid))[0]
    found = project(model, added, top_k=5)
    assert found.top_id[0].tolist() == moved.topk(5).indices.tolist()
    assert found.bottom_id[0].tolist() == moved.topk(5, largest=False).indices.tolist()


def test_the_three_ways_of_reading_are_those_of_their_definitions() -> None:
    model, rows = tiny(), vectors(3)
    expected = {
        None: rows @ model.W_U,
        "gain": (rows * model.weights()["ln_final.w"]) @ model.W_U,
        "full": model.unembed_residual(rows),
    }
    for final_norm, scores in expected.items():
        found = project(model, rows, top_k=4, tracked=[9], final_norm=final_norm)
        torch.testing.assert_close(found.top_score, scores.topk(4).values)
        torch.testing.assert_close(found.bottom_score, -(-scores).topk(4).values)
        torch.testing.assert_close(found.tracked_score[:, 0], scores[:, 9])
        assert found.tracked_rank[:, 0].tolist() == (1 + (scores > scores[:, [9]]).sum(-1)).tolist()


def test_the_gain_changes_which_tokens_a_vector_speaks_for() -> None:
    model, rows = tiny(), vectors(20)
    assert not torch.equal(project(model, rows).top_id, project(model, rows, final_norm=None).top_id)


def test_the_opposite_vector_speaks_for_what_the_vector_speaks_against() -> None:
    model, rows = tiny(), vectors(4)
    for final_norm in ("gain", None):
        forth, back = (project(model, sign * rows, final_norm=final_norm) for sign in (1, -1))
        assert torch.equal(forth.bottom_id, back.top_id)


def test_blocks_of_vectors_change_nothing() -> None:
    model, rows = tiny(), vectors(5)
    whole, pieces = project(model, rows, tracked=[2]), project(model, rows, tracked=[2], max_bytes=1)
    assert torch.equal(whole.top_id, pieces.top_id)
    assert torch.equal(whole.tracked_rank, pieces.tracked_rank)
    torch.testing.assert_close(whole.top_score, pieces.top_score)


def test_vectors_in_half_precision_are_scored_in_float32() -> None:
    model = tiny(dtype=torch.bfloat16)
    rows = model.W_out[1]
    found = project(model, rows)
    exact = (rows.float() * model.weights()["ln_final.w"].float()) @ model.W_U.float()
    torch.testing.assert_close(found.top_score, exact.topk(10).values)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": 68}, "expected 1 to 67"),
        ({"tracked": [67]}, "67 is no token id"),
        ({"tracked": [-1]}, "-1 is no token id"),
    ],
)
def test_what_the_vocabulary_does_not_have_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        project(tiny(), vectors(2), **wrong)


@pytest.mark.usefixtures("shapes_unchecked")
def test_an_unknown_way_of_reading_is_refused() -> None:
    with pytest.raises(UsageError, match="gain, full"):
        project(tiny(), vectors(2), final_norm="gains")
