"""Which analysis costs what: a function for every entry of `ANALYSES`, from a model's shape and items to work."""

from collections.abc import Callable, Mapping

from interp.analyses import cost_sweeps
from interp.analyses.cost_asked import Asked, Item
from interp.analyses.cost_parts import Costing, Work

STREAM = ("blocks.0.hook_resid_pre", "blocks.*.hook_resid_post")


def lens(costing: Costing, asked: Asked) -> Work:
    """A forward pass, and every boundary at every position read over the vocabulary."""

    def one(item: Item) -> Work:
        columns = asked.count("positions", item.length)
        read = (costing.config.n_layers + 1) * columns
        run = costing.forward(item.length, read=0, kept=STREAM)
        return (run + costing.unembed(read, asked.number("max_bytes", 128 * 2**20))).of_cells(1)

    return asked.each(one)


COSTS: Mapping[str, Callable[[Costing, Asked], Work]] = {
    "lens": lens,
    "facts": cost_sweeps.known_facts,
    "tracing": cost_sweeps.tracing,
    "fact-tracing": cost_sweeps.fact_tracing,
    "patching": cost_sweeps.patching,
}
"""By the name of the analysis; lengths are those of its items."""
