"""Roles of tokens, and averages over facts, against numbers that were worked out by hand."""

import numpy as np
import pytest

from interp.analyses.trace_roles import ROLES, averaged, by_role, role_positions
from interp.prompts import Span


def span(start: int, stop: int) -> Span:
    return Span(start, stop, "it", ("x",) * (stop - start), exact=True)


@pytest.mark.parametrize(
    ("start", "stop", "length", "places"),
    [
        (2, 3, 7, ([2], [], [2], [3], [4, 5], [6])),
        (2, 4, 7, ([2], [], [3], [4], [5], [6])),
        (1, 4, 8, ([1], [2], [3], [4], [5, 6], [7])),
        (1, 5, 6, ([1], [2, 3], [4], [5], [], [5])),
        (1, 3, 3, ([1], [], [2], [], [], [2])),
    ],
    ids=["one token", "two tokens", "three tokens", "one token after it", "nothing after it"],
)
def test_every_token_from_the_subject_on_has_its_roles(
    start: int, stop: int, length: int, places: tuple[list[int], ...]
) -> None:
    found = role_positions(span(start, stop), length)
    assert found == dict(zip(ROLES, places, strict=True))
    assert {place for each in found.values() for place in each} == set(range(start, length))


def test_a_role_of_several_tokens_is_their_mean_and_one_without_tokens_is_missing() -> None:
    effect = np.array([[[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]]])  # subject of 4 tokens, and 2 behind it
    found = by_role(effect, span(3, 7), 9)[0, :, 0]
    np.testing.assert_array_equal(found, [1, 3, 8, 16, np.nan, 32])


def test_facts_count_alike_and_each_row_has_its_own_number() -> None:
    """Subjects of one, two and three tokens, of prompts with three, two and one token behind them."""
    one = by_role(np.array([[[0.6], [0.1], [0.2], [0.4]]]), span(1, 2), 5)
    two = by_role(np.array([[[0.2], [0.5], [0.3], [0.1]]]), span(1, 3), 5)
    three = by_role(np.array([[[0.1], [-0.2], [0.7], [0.5]]]), span(1, 4), 5)
    found = averaged(np.stack([one, two, three]), seed=0)
    assert found["count"].tolist() == [3, 1, 3, 3, 1, 3]
    expected = [0.9 / 3, -0.2, 1.8 / 3, (0.1 + 0.3 + 0.5) / 3, 0.2, (0.4 + 0.1 + 0.5) / 3]
    np.testing.assert_allclose(found["mean"][0, :, 0], expected, atol=1e-7)
    assert np.isnan(found["low"][0, [1, 4], 0]).all(), "one fact says nothing of the spread"
    several = [0, 2, 3, 5]
    assert (found["low"][0, several, 0] < found["mean"][0, several, 0]).all()
    assert (found["mean"][0, several, 0] < found["high"][0, several, 0]).all()


def test_the_interval_draws_only_facts_that_have_the_role() -> None:
    generator = np.random.default_rng(0)
    with_role = generator.normal(size=(40, 1, len(ROLES), 2))
    diluted = np.concatenate([with_role, with_role[:25]])
    diluted[40:, :, 1] = np.nan
    alone, among = averaged(with_role, seed=1), averaged(diluted, seed=1)
    for name in ("mean", "low", "high"):
        np.testing.assert_array_equal(alone[name][:, 1], among[name][:, 1])
    assert among["count"].tolist() == [65, 40, 65, 65, 65, 65]


def test_a_role_that_no_fact_has_is_missing() -> None:
    values = np.zeros((3, 2, len(ROLES), 4))
    values[:, :, 1] = np.nan
    found = averaged(values, seed=0)
    assert all(np.isnan(found[name][:, 1]).all() for name in ("mean", "low", "high"))
    assert found["count"][1] == 0
