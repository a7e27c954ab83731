"""Tokens of different prompts by the part that they play, so that traces of many facts can be averaged.

    first subject    the subject's first token
    middle subject   those between
    last subject     its last token, at which the whole of it has been read
    first after      the token behind the subject
    further          those between that and the last
    last             the last token, behind which the answer comes

A token plays every part that fits: the only token of a subject is its first and its last, as in the reference code, and
a token that both follows the subject and ends the prompt is the first after it and the last. A prompt can lack parts: a
subject of two tokens has no middle. Tokens before the subject see nothing of what is changed, and play none.
"""

from collections.abc import Mapping

import numpy as np

from interp.analyses.intervals import mean_interval
from interp.prompts import Span

ROLES = ("first subject", "middle subject", "last subject", "first after", "further", "last")


def role_positions(span: Span, length: int) -> dict[str, list[int]]:
    """The positions of every role in a prompt of `length` tokens; none for a role that it lacks."""
    behind = list(range(span.stop, length))
    places = ([span.start], span.positions[1:-1], [span.last], behind[:1], behind[1:-1], [length - 1])
    return dict(zip(ROLES, places, strict=True))


def by_role(effect: np.ndarray, span: Span, length: int) -> np.ndarray:
    """[kind, role, layer]: means over the tokens of each role, NaN where there is none.

    `effect` [kind, position, layer] begins at the subject's first token.
    """
    found = np.full((effect.shape[0], len(ROLES), effect.shape[2]), np.nan, dtype=np.float32)
    for place, positions in enumerate(role_positions(span, length).values()):
        if positions:
            found[:, place] = effect[:, [position - span.start for position in positions]].mean(1)
    return found


def averaged(values: np.ndarray, *, seed: int) -> Mapping[str, np.ndarray]:
    """`mean` over facts of values [fact, kind, role, layer], with `low` and `high`, the ends of its 95 % interval.

    Each role is averaged over the facts that have it, `count` [role], and those alone are drawn for the interval. A
    role that no fact has is NaN, and so is the interval of one fact.
    """
    present = ~np.isnan(values[:, 0, :, 0])
    found = {name: np.full(values.shape[1:], np.nan) for name in ("mean", "low", "high")}
    for place in np.flatnonzero(present.any(0)):
        own = np.moveaxis(values[present[:, place], :, place].astype(np.float64), 0, -1)
        low, high = mean_interval(own, seed=seed)
        for name, value in (("mean", own.mean(-1)), ("low", low), ("high", high)):
            found[name][:, place] = value
    return {**found, "count": present.sum(0)}
