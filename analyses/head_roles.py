"""Which of several roles a head plays most: scores on different scales, made comparable by what even attention scores.

    excess = (score − uniform) / (1 − uniform)

is 0 for a head that looks at everything alike and 1 for one that does nothing but what the score asks for. A role that
shows on two kinds of text counts by the larger excess: one of them may give no occasion for it. A role of sentences
whose nouns change places counts by the smaller: what fails in one order is a liking for a place. A head's role is that
of its largest excess, if that reaches a threshold. `sink`, resting on the first position, is no activity: it is a
head's role only where no other is and it reaches `RESTING`; a strong induction head rests there too as long as nothing
is repeated.

What it does NOT tell: that a head has one role. Most do several things, and the runner-up may be close; so all excesses
are kept. Nor that the head is needed for what its role is named after.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from interp.errors import UsageError, nearest

NONE, SINK = "none", "sink"
RESTING = 0.5

ON_EITHER_TEXT: dict[str, tuple[str, ...]] = {
    "induction": ("prefix_matching",),
    "previous token": ("previous_token", "random_previous_token"),
    "current token": ("current_token", "random_current_token"),
    "same token": ("same_token", "duplicate_token"),
    "delimiter": ("delimiter",),
    "after delimiter": ("after_delimiter",),
    SINK: ("sink", "random_sink"),
}
"""Roles, and the scores of which one is enough."""
IN_BOTH_ORDERS: dict[str, tuple[str, ...]] = {
    "agreement": ("agreement_written", "agreement_swapped"),
    "coreference": ("coreference_written", "coreference_swapped"),
}
"""Roles, and the scores that are all needed."""
ACTIVE = (*(role for role in ON_EITHER_TEXT if role != SINK), *IN_BOTH_ORDERS)
IDLE = (SINK, NONE)


def strengths(excess: Mapping[str, Float[np.ndarray, "layer head"]]) -> dict[str, Float[np.ndarray, "layer head"]]:
    """The excess of every role of which there are scores, from that of the scores; NaN where a head has no value."""
    found = {}
    for roles, chosen in ((ON_EITHER_TEXT, np.fmax), (IN_BOTH_ORDERS, np.minimum)):
        for role, names in roles.items():
            if there := [excess[name] for name in names if name in excess]:
                found[role] = chosen.reduce(there)
    return found


def labelled(
    found: Mapping[str, Float[np.ndarray, "layer head"]], threshold: float
) -> tuple[np.ndarray, Float[np.ndarray, "layer head"]]:
    """The role of every head, and its largest excess in any role but `sink`, whether that makes it a role or not."""
    active = [role for role in found if role != SINK]
    table = np.nan_to_num(np.stack([found[role] for role in active]), nan=-np.inf)
    strength, roles = table.max(0), np.array(active, dtype=object)[table.argmax(0)]
    roles[strength < threshold] = NONE
    roles[(roles == NONE) & (found[SINK] >= RESTING)] = SINK
    return roles, strength


def check_role(role: str) -> str:
    """The role's name; raises `UsageError` for one that does not exist."""
    known = (*ACTIVE, *IDLE)
    if role not in known:
        raise UsageError(f"{role!r} is no role.{nearest(role, known)} The roles are {', '.join(known)}.")
    return role
