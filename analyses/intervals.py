"""How far a figure could move by chance: a mean or a ratio of means by bootstrap, a share in closed form.

For the bootstrap (Efron 1979) what was measured, pairs, facts or texts, is drawn anew with replacement, as many as
there are, and the means taken again; the interval holds the middle 95 % of what comes out.
"""

from functools import lru_cache
from statistics import NormalDist

import numpy as np

DRAWS = 1000
LEVEL = 0.95


def standard_error(values: np.ndarray) -> np.ndarray:
    """Of the mean over the last axis; NaN where that has one place."""
    count = values.shape[-1]
    return values.std(-1, ddof=1) / np.sqrt(count) if count > 1 else np.full(values.shape[:-1], np.nan)


def mean_interval(
    values: np.ndarray, *, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the mean over the last axis, `values` [*axes, pair]; NaN for a single pair."""
    return ratio_interval(values, np.ones(values.shape[-1]), seed=seed, draws=draws, level=level)


def ratio_interval(
    numerator: np.ndarray, denominator: np.ndarray, *, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of mean(numerator) / mean(denominator), the last axis drawn with replacement; both by the same draws.

    `numerator` [*axes, pair], `denominator` [pair] or [*axes, pair]; the bounds have shape [*axes]. They are NaN for a
    single pair, which says nothing of the spread, and where the denominators cancel out.
    """
    count = denominator.shape[-1]
    if count < 2:
        unknown = np.full(numerator.shape[:-1], np.nan)
        return unknown, unknown.copy()
    weights = _draws(seed, draws, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (numerator @ weights.T) / (denominator @ weights.T)
    ratios = np.where(np.isfinite(ratios), ratios, np.nan)
    tail = (1 - level) / 2
    known = ~np.isnan(ratios).all(-1)
    low, high = (np.full(numerator.shape[:-1], np.nan) for _ in range(2))
    if known.any():
        quantile = np.nanquantile if np.isnan(ratios[known]).any() else np.quantile  # many times as fast
        low[known], high[known] = quantile(ratios[known], (tail, 1 - tail), axis=-1)
    return low, high


@lru_cache(maxsize=1)  # many values of the same items follow each other
def _draws(seed: int, draws: int, count: int) -> np.ndarray:
    """[draw, pair]: the share that each pair has in each draw with replacement."""
    chosen = np.random.default_rng(seed).integers(count, size=(draws, count))
    weights = np.stack([np.bincount(each, minlength=count) for each in chosen]) / count
    weights.flags.writeable = False
    return weights


def share_interval(successes: np.ndarray, count: np.ndarray, *, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the share successes / count, of any shape (Wilson 1927); NaN where the count is nought.

    Unlike a bootstrap they stay apart where all or none succeeded: of 10 out of 10 the lower bound is 0.72.
    """
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = successes / count
        middle = (share + z2 / (2 * count)) / (1 + z2 / count)
        reach = np.sqrt(z2 * (share * (1 - share) + z2 / (4 * count)) / count) / (1 + z2 / count)
    return np.clip(middle - reach, 0, 1), np.clip(middle + reach, 0, 1)  # rounding may lead out


def bracketed(low: float, high: float, places: int) -> str:
    """` [0.12, 0.34]` to stand behind a value; nothing where there is no interval."""
    return "" if np.isnan(low) else f" [{low:.{places}f}, {high:.{places}f}]"
