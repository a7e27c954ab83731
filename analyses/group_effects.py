"""Effects of edits on groups of texts, beside those of controls, with intervals over facts.

A *unit* is what an interval is drawn over: an edited fact, of whose group the mean over texts is taken; or where only
one fact is edited, a fact that is measured. Units that have no texts of a group are left out of it.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.analyses.intervals import mean_interval, ratio_interval
from interp.results import Arrays

CELLS = ("change", "group")


def by_group(member: np.ndarray, fact_ids: Sequence[str], found: Mapping[str, np.ndarray], seed: int) -> Arrays:
    """Means and intervals by [change, group], from `found` by text.

    `member` [group, edited, text] says which texts are a group of an edited fact, `fact_ids` whose text each is.
    """
    base = found["base_probability"].astype(np.float64)
    own = np.where(np.isnan(found["probability"]), base, found["probability"])  # where no group has the text
    control = np.where(np.isnan(found["probability"]), base, found["control_probability"].mean(2))
    share, owner = _units(member, np.array(fact_ids))
    effect, beside = _over(own - base, share, owner), _over(control - base, share, owner)
    after, before = _over(own, share, owner), _over(np.broadcast_to(base, own.shape), share, owner)
    there = [~np.isnan(before[0, group]) for group in range(len(share))]
    measured = {"effect": effect, "control_effect": beside, "excess": effect - beside}
    arrays = {
        name: array for key, values in measured.items() for name, array in _mean(key, values, there, seed).items()
    }
    arrays |= _relative(after, before, there, seed)
    for name, rank in (("lost", found["rank"]), ("control_lost", found["control_rank"])):
        arrays[name] = _lost(member, found["base_rank"], rank)
    own_share, every = _normalised(member), np.arange(member.shape[1])
    by_fact = {"fact_effect": own - base, "fact_control_effect": control - base}
    return {
        **{name: (array, CELLS) for name, array in arrays.items()},
        **{name: (_over(delta, own_share, every), (*CELLS, "edited")) for name, delta in by_fact.items()},
        "units": (np.array([int(each.sum()) for each in there]), ("group",)),
    }


def _units(member: np.ndarray, fact_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much each text counts, [group, unit, text], and whose edit a unit is measured under."""
    if member.shape[1] > 1:
        return _normalised(member), np.arange(member.shape[1])
    of_fact = np.stack([fact_ids == each for each in dict.fromkeys(fact_ids)])
    return _normalised(member & of_fact), np.zeros(len(of_fact), dtype=np.int64)


def _normalised(member: np.ndarray) -> np.ndarray:
    """Weights whose sum over texts is 1; NaN where there are none."""
    count = member.sum(-1, keepdims=True)
    return np.divide(member, count, out=np.full(member.shape, np.nan), where=count > 0)


def _over(values: np.ndarray, share: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """[change, edited, text] → [change, group, unit]."""
    return np.einsum("cut,gut->cgu", values[:, owner], share)


def _mean(name: str, values: np.ndarray, there: Sequence[np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The mean over units and its interval; NaN where a group has none."""
    mean, low, high = (np.full(values.shape[:2], np.nan) for _ in range(3))
    for group, which in enumerate(there):
        if which.any():
            some = values[:, group, which]
            mean[:, group] = some.mean(-1)
            low[:, group], high[:, group] = mean_interval(some, seed=seed)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _relative(after: np.ndarray, before: np.ndarray, there: Sequence[np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Mean after over mean before, less 1, and its interval."""
    found = {f"relative{end}": np.full(after.shape[:2], np.nan) for end in ("", "_low", "_high")}
    for group, which in enumerate(there):
        if which.any():
            new, old = after[:, group, which], before[:, group, which]
            low, high = ratio_interval(new, old, seed=seed)
            bounds = {"relative": new.mean(-1) / old.mean(-1), "relative_low": low, "relative_high": high}
            for name, value in bounds.items():
                found[name][:, group] = value - 1
    return found


def _lost(member: np.ndarray, base_rank: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """[change, group]: of the texts that were answered rightly, the share that no longer is."""
    right = member & (base_rank == 1)
    lost = (rank > 1).reshape(*rank.shape[:2], -1, rank.shape[-1]).mean(2)
    count = right.sum((1, 2))
    with np.errstate(invalid="ignore"):
        return np.einsum("cet,get->cg", lost, right) / np.where(count > 0, count, np.nan)
