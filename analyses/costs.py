"""What an analysis will cost, before it is run: cells, operations, bytes and seconds.

    cost = analysis_cost("tracing", read_config("llama-3.1-8b"), [10] * 1000, {"samples": 3}, speed=accelerator("h200"))
    print(cost)

Only the model's configuration and the lengths of the texts are needed; no weights are read. Counted are the products
with weights and those of attention, as `torch.utils.flop_counter` does, of everything that the analysis runs: the plain
runs before a sweep, too. What differs from text to text is taken for the worst: without `changed` two runs of a pair,
or of a fact with a hidden subject, are thought to differ from position 1 on, and every fact to be known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.analyses.cost_asked import Asked
from interp.analyses.cost_parts import Costing
from interp.analyses.cost_table import COSTS
from interp.errors import UsageError, nearest
from interp.models.config import ModelConfig
from interp.models.planner.memory import ITEMSIZE
from interp.models.planner.speed import Speed

ARGUMENTS = (
    *("changed", "components", "heads", "senders", "receivers", "neurons"),
    *("edges", "paraphrases", "relations", "head", "other"),
)
"""What may stand among the settings though it is none: what analyses are given, where their cost depends on it."""


@dataclass(frozen=True)
class AnalysisCost:
    """What is about to be spent. Costs add up; what is held is that of the widest."""

    cells: int = 0
    """Texts that are run with one thing changed; one for a text that is only read."""
    flops: int = 0
    bytes: int = 0
    """Held beside the model at the widest moment."""
    seconds: float | None = None
    """None where no speed was given."""
    moved: int = 0
    """Bytes of weights, keys, values and logits that must pass between memory and processor at least."""

    def __add__(self, other: "AnalysisCost") -> "AnalysisCost":
        """Both, one after the other. Seconds are unknown where those of a part are."""
        known = self.seconds is not None and other.seconds is not None
        return AnalysisCost(
            self.cells + other.cells,
            self.flops + other.flops,
            max(self.bytes, other.bytes),
            self.seconds + other.seconds if known else None,  # type: ignore[operator]  # both are known
            self.moved + other.moved,
        )

    def __str__(self) -> str:
        held = f"{self.bytes / 2**20:,.0f} MiB beside the model"
        time = f", about {self.time}" if self.time else ""
        return f"{self.cells:,} cell{'s' * (self.cells != 1)}: {self.flops / 1e9:,.1f} GFLOP, {held}{time}"

    @property
    def time(self) -> str:
        """Seconds for people; empty where they are not known."""
        return "" if self.seconds is None else _duration(self.seconds)


def analysis_cost(
    analysis: str,
    config: ModelConfig,
    lengths: Sequence[int],
    settings: Mapping[str, object] = {},  # never written to
    *,
    speed: Speed | None = None,
) -> AnalysisCost:
    """The cost of an analysis of `ANALYSES` on items of `lengths` tokens each, their prefix included.

    `settings`: those of the analysis; what is left out has the analysis's default. Beside them: `dtype` of the weights
    (float32), and `changed`, the positions whose tokens differ between the two runs of an item (those of the subject,
    where one is hidden): one list for all items, or a list for each. For analyses that make their own texts, lengths
    are ignored. Seconds are those of a roofline at the given speed.

    Raises `UsageError` for an analysis that does not exist, and for lengths and settings of which no cost can be told.
    """
    if analysis not in COSTS:
        raise UsageError(f"There is no analysis {analysis!r}.{nearest(analysis, COSTS)} There are {', '.join(COSTS)}.")
    asked = Asked(config, tuple(lengths), settings)
    costing = Costing(config, ITEMSIZE[asked.word("dtype", "float32", tuple(ITEMSIZE))])
    work = COSTS[analysis](costing, asked)
    seconds = None if speed is None else sum(speed.seconds(*step) for step in work.steps)
    return AnalysisCost(work.cells, work.flops, work.held, seconds, work.moved)


def _duration(seconds: float) -> str:
    """Seconds for people.

    >>> _duration(0.25), _duration(300), _duration(86400)
    ('0.2 s', '5.0 min', '24.0 h')
    """
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"
