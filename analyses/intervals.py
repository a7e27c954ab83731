"""How far a ratio of means could move by chance: bootstrap intervals over pairs, facts or texts (Efron 1979)."""

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
