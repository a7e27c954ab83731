"""What `interp trace` says of its cost: on request in place of a trace, and before a large one."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from interp.apps.cli.options import Common

if TYPE_CHECKING:
    from interp.models.replay_cost import Cost
    from interp.models.transformer import Transformer

LARGE = 5e12  # multiplications, as full forward passes, from which on a trace says what it will cost


def estimated(cost: "Cost", settings: Mapping[str, object], common: Common) -> None:
    """Print a cost in place of a result."""
    from interp.apps.cli.output import write_data, write_json

    if common.as_json:
        write_json({"kind": "tracing.cost", "settings": settings, **asdict(cost)})
    else:
        write_data(str(cost))


def announce(cost: "Callable[[], Cost]", tokens: int, model: "Transformer", common: Common) -> None:
    """What a large trace of so many tokens will cost. Timing the model takes a moment: a small one is not worth it."""
    from interp.apps.cli.output import write_message

    if tokens * model.n_parameters > LARGE and not common.quiet:
        write_message(str(cost()))
