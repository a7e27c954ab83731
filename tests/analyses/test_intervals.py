"""Intervals of means and of their ratios (one set of draws, seeded) and of a share, with the coverage they claim."""

import numpy as np
import pytest

from interp.analyses.intervals import mean_interval, ratio_interval, share_interval, standard_error

RANDOM = np.random.default_rng(3)
WAY = 5 + RANDOM.normal(size=40)
MOVED = 0.3 * WAY + RANDOM.normal(scale=0.5, size=(2, 3, 40))


def slowly(moved: np.ndarray, way: np.ndarray, seed: int, draws: int, level: float) -> tuple[float, float]:
    """One ratio after the other, of pairs drawn with replacement."""
    chosen = np.random.default_rng(seed).integers(len(way), size=(draws, len(way)))
    ratios = [moved[each].mean() / way[each].mean() for each in chosen]
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return low, high


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_bounds_are_quantiles_of_redrawn_ratios(level: float) -> None:
    """Every cell by the same draws."""
    low, high = ratio_interval(MOVED, WAY, seed=7, draws=200, level=level)
    for cell in np.ndindex(2, 3):
        assert (low[cell], high[cell]) == pytest.approx(slowly(MOVED[cell], WAY, 7, 200, level), rel=1e-9)


def test_a_seed_fixes_the_bounds() -> None:
    first, again, other = (ratio_interval(MOVED, WAY, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).all()


def test_pairs_that_all_agree_leave_no_doubt() -> None:
    """A numerator that is the same share of every denominator: numerator and denominator are drawn together."""
    low, high = ratio_interval(0.25 * WAY, WAY)
    assert (float(low), float(high)) == pytest.approx((0.25, 0.25))


def test_the_true_ratio_lies_inside_about_as_often_as_is_claimed() -> None:
    random, inside = np.random.default_rng(0), 0
    for trial in range(200):
        way = random.normal(5, 1, size=50)
        moved = 0.3 * way + random.normal(0, 1, size=50)
        low, high = ratio_interval(moved, way, seed=trial, draws=300)
        inside += low <= 0.3 <= high
    assert 0.88 <= inside / 200 <= 0.99


def test_more_pairs_narrow_the_interval() -> None:
    """By about the square root of their number."""
    random = np.random.default_rng(1)
    widths = []
    for count in (50, 800):
        way = random.normal(5, 1, size=count)
        low, high = ratio_interval(0.3 * way + random.normal(0, 1, size=count), way)
        widths.append(float(high - low))
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.3)


def test_a_single_pair_says_nothing_of_the_spread() -> None:
    low, high = ratio_interval(np.ones((2, 1)), np.ones(1))
    assert low.shape == high.shape == (2,)
    assert np.isnan([low, high]).all()


def test_denominators_that_are_nought_have_no_ratio() -> None:
    low, high = ratio_interval(np.ones((2, 3)), np.zeros(3))
    assert np.isnan([low, high]).all()
    low, high = ratio_interval(np.zeros(3), np.array([0.0, 0.0, 2.0]), seed=1)
    assert (low, high) == (0, 0), "draws without a denominator are left out"


def test_every_cell_can_have_denominators_of_its_own() -> None:
    ways = WAY + RANDOM.uniform(size=(2, 3, 40))
    low, high = ratio_interval(MOVED, ways, seed=7, draws=200)
    for cell in np.ndindex(2, 3):
        assert (low[cell], high[cell]) == pytest.approx(slowly(MOVED[cell], ways[cell], 7, 200, 0.95), rel=1e-9)


def test_a_mean_is_resampled_as_a_ratio_to_one() -> None:
    low, high = mean_interval(MOVED, seed=7, draws=200)
    for cell in np.ndindex(2, 3):
        assert (low[cell], high[cell]) == pytest.approx(slowly(MOVED[cell], np.ones(40), 7, 200, 0.95), rel=1e-9)


def test_a_standard_error_is_the_spread_over_the_root_of_the_number() -> None:
    assert standard_error(np.array([1.0, 2.0, 3.0])) == pytest.approx(1 / 3**0.5)
    assert np.isnan(standard_error(np.ones((2, 1)))).all()


def test_a_share_has_the_bounds_at_which_it_would_be_just_as_surprising() -> None:
    """Wilson: |share − p| = z √(p (1 − p) / n) at both bounds; closed forms where all or none succeeded."""
    z = 1.959963985
    low, high = share_interval(np.array([0, 3, 10, 40]), np.array([10, 10, 10, 50]))
    shares, count = np.array([0, 0.3, 1, 0.8]), np.array([10, 10, 10, 50])
    for bound in (low, high):
        np.testing.assert_allclose(np.abs(shares - bound), z * np.sqrt(bound * (1 - bound) / count), atol=1e-9)
    assert low[0] == pytest.approx(0, abs=1e-12)
    assert high[0] == pytest.approx(z**2 / (10 + z**2))
    assert low[2] == pytest.approx(10 / (10 + z**2))


def test_a_share_of_nothing_has_no_bounds_and_others_of_the_same_call_keep_theirs() -> None:
    low, high = share_interval(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    assert np.isnan([low[0], high[0]]).all()
    assert 0 < low[1] < 0.5 < high[1] < 1


def test_the_interval_of_a_share_covers_as_often_as_it_claims() -> None:
    drawn = np.random.default_rng(0).binomial(25, 0.7, size=4000)
    low, high = share_interval(drawn, np.full(4000, 25), level=0.9)
    assert 0.87 < ((low <= 0.7) & (high >= 0.7)).mean() < 0.94
