"""What tasks over facts share: those that the model does not know are left out, those that cannot be asked fail."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from interp.analyses.fact_filter import filter_facts
from interp.analyses.study.prompts import prompt_length
from interp.analyses.study.task import Found, Item, Outcomes, Task, Work
from interp.errors import InterpError, UsageError
from interp.facts import Fact

FactTask = partial(Task, kinds=("facts",), may_leave_out=True, length=prompt_length)
"""A task that takes facts, and leaves out those that the model does not know."""


def known_only(
    work: Work, items: Sequence[Item], of_known: Callable[[list[Fact]], Mapping[str, Mapping[str, object]]]
) -> Outcomes:
    """What `of_known` finds of the known facts, by id; of the others, why they are not among them."""
    facts: dict[str, Fact] = {item.id: item.value for item in items}
    filtered = filter_facts(work.model, facts.values(), prefix=work.prefix)
    found: dict[str, Found | InterpError] = {name: UsageError(why) for name, why in filtered.skipped.items()}
    unknown = {name: why for name, why in filtered.left_out.items() if name not in filtered.skipped}
    found |= {name: Found(left_out=f"unknown: {why}") for name, why in unknown.items()}
    known = [fact for name, fact in facts.items() if name not in found]
    if known:
        found |= {name: Found(columns) for name, columns in of_known(known).items()}
    return {name: found.get(name, UsageError("the analysis left this fact out.")) for name in facts}
