"""What a result over facts is not about: facts that were left out, and answers of which only the first token counts.

An object of several tokens is measured at its first, which may be that of other words too (" San"). Results say of how
many tokens each answer is, `answer_tokens`; from that alone, and from the reasons that they hold, all that read them
say the same.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.results import Result

NAMED = 3  # answers of several tokens that a line names
_REASONS = {"excluded": "reason", "left_out": "left_out_reason", "skipped": "skip_reason"}


def left_out(result: "Result") -> dict[str, str]:
    """Id of each fact or text that is not in a result's means → why; empty for results about no facts."""
    for axis, reasons in _REASONS.items():
        if reasons in result:
            return dict(zip(map(str, result.axes[axis]), map(str, result[reasons]), strict=True))
    return {}


def none_left(said: str, reasons: Mapping[str, str]) -> UsageError:
    """The error where of several facts none is left: what is said of all of them, and the reason of the first."""
    name, reason = next(iter(reasons.items()))
    return UsageError(f"{said}; the first, {name!r}: {reason}")


def first_token_only(result: "Result") -> dict[str, int]:
    """Id of each fact (text of each prompt) whose answer has several tokens → how many; the first was measured."""
    return {name: count for name, count in _answer_tokens(result).items() if count > 1}


def first_token_lines(result: "Result") -> list[str]:
    """What a summary says of those, in one line; in none where there are none."""
    several = list(first_token_only(result))
    if not several:
        return []
    named = ", ".join(several[:NAMED]) + (f" and {len(several) - NAMED} more" if len(several) > NAMED else "")
    return [
        f"  {len(several)} of {len(_answer_tokens(result))} answers {'have' if len(several) > 1 else 'has'} several "
        f"tokens, of which the first is measured: {named}"
    ]


def _answer_tokens(result: "Result") -> dict[str, int]:
    """Of how many tokens each answer is, the largest number where a fact is asked for in several ways."""
    if "answer_tokens" not in result:
        return {}
    (axis,) = result.named("answer_tokens").axes
    names = result["fact_id"] if axis == "text" else result.axes[axis]
    found: dict[str, int] = {}
    for name, count in zip(map(str, names), result["answer_tokens"].tolist(), strict=True):
        found[name] = max(count, found.get(name, 0))
    return found
