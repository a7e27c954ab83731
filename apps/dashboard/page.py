"""What a page is: a table of parameters, what is computed from them, and how it is shown. The shell does the rest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen

if TYPE_CHECKING:
    from interp.apps.dashboard.context import Context
    from interp.apps.dashboard.jobs import Reporter
    from interp.apps.dashboard.store import Results
    from interp.models.transformer import Transformer

MAIN = "main"

Compute = Callable[["Transformer", Values, "Reporter"], "Results"]


@dataclass(frozen=True)
class Cost:
    """What a computation will take, as far as it can be told before."""

    seconds: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Work:
    """One computation of a page: a job, found again by its content.

    `needs` are the parameters that it depends on (default: all that are not `view`). `automatic` work starts by itself
    when the page has what it needs; other work waits to be asked for. `cost` is asked before it starts. Work that is
    not `recorded` is kept in memory alone: what is made anew in no time, at every click, need not fill the disk.
    `command` gives the words of a command that leads to its numbers, where the page's own does not.
    """

    name: str
    label: str
    compute: Compute
    needs: tuple[str, ...] | None = None
    automatic: bool = False
    cost: Callable[["Transformer", Values], Cost] | None = None
    recorded: bool = True
    command: Callable[[Values, Chosen], Sequence[str]] | None = None


@dataclass(frozen=True)
class Page:
    """One page. See docs/dashboard.md for how to write one.

    `preview` draws below the inputs, before anything is computed, what they come to: how a text is cut into tokens,
    what the computation will take; it must be quick. `compute` makes the results that `show` draws; a page without it
    shows what needs no computation, or only what `further` work makes. `command` gives the words of a command, `python`
    the lines of a program (in which `model` is loaded), that lead to the same numbers.
    """

    key: str
    title: str
    icon: str
    question: str
    parameters: tuple[Parameter, ...]
    example: Mapping[str, Any]
    show: Callable[["Context", "Results"], None]
    compute: Compute | None = None
    command: Callable[[Values, Chosen], Sequence[str]] | None = None
    python: Callable[[Values, Chosen], str] | None = None
    cost: Callable[["Transformer", Values], Cost] | None = None
    further: tuple[Work, ...] = ()
    preview: Callable[["Context"], None] | None = None
    empty: str = "Nothing is computed yet."
    needs_model: bool = True

    @property
    def main(self) -> Work | None:
        """The computation that the page's own button starts."""
        return None if self.compute is None else Work(MAIN, self.title, self.compute, cost=self.cost)

    def parameter(self, name: str) -> Parameter:
        """The parameter of this name."""
        return next(parameter for parameter in self.parameters if parameter.name == name)

    def work(self, name: str) -> Work:
        """The further work of this name."""
        return next(work for work in self.further if work.name == name)

    def inputs(self, work: Work, values: Values) -> dict[str, Any]:
        """The values that a work depends on."""
        needs = work.needs
        if needs is None:
            needs = tuple(parameter.name for parameter in self.parameters if not parameter.view)
        return {name: values[name] for name in needs}

    def missing(self, values: Values) -> list[Parameter]:
        """Texts that are needed and empty."""
        return [
            parameter for parameter in self.parameters if parameter.is_needed(values) and not values[parameter.name]
        ]
