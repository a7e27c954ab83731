"""How far a figure could move by chance: a ratio of means by bootstrap (Efron 1979), a share in closed form."""

from statistics import NormalDist

import numpy as np

DRAWS = 1000
LEVEL = 0.95


def ratio_interval(
    numerator: np.ndarray, denominator: np.ndarray, *, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of mean(numerator) / mean(denominator), the last axis drawn with replacement; both by the same draws.

    `numerator` [*axes, pair], `denominator` [pair]; the bounds have shape [*axes]. They are NaN for a single pair,
    which says nothing of the spread, and where the denominators cancel out.
    """
    count = denominator.shape[-1]
    if count < 2:
        unknown = np.full(numerator.shape[:-1], np.nan)
        return unknown, unknown.copy()
    chosen = np.random.default_rng(seed).integers(count, size=(draws, count))
    weights = np.stack([np.bincount(each, minlength=count) for each in chosen]) / count
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (numerator @ weights.T) / (weights @ denominator)
    ratios = np.where(np.isfinite(ratios), ratios, np.nan)
    tail = (1 - level) / 2
    known = ~np.isnan(ratios).all(-1)
    low, high = (np.full(numerator.shape[:-1], np.nan) for _ in range(2))
    if known.any():
        low[known], high[known] = np.nanquantile(ratios[known], (tail, 1 - tail), axis=-1)
    return low, high


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
