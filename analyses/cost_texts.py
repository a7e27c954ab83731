"""The costs of analyses that read texts as they are: lenses, attribution, facts, neurons."""

from collections.abc import Callable

from interp.analyses.cost_asked import Asked, Item
from interp.analyses.cost_parts import Costing, Work
from interp.analyses.last_logits import texts_that_fit
from interp.analyses.pieces import LONGEST
from interp.analyses.recall import AT_ONCE, HELD

STREAM = ("blocks.0.hook_resid_pre", "blocks.*.hook_resid_post")
SUBLAYERS = ("blocks.*.hook_attn_out", "blocks.*.hook_mlp_out")
MEBIBYTE = 2**20
BUDGET = 2**30


def lens(costing: Costing, asked: Asked) -> Work:
    """A run, and every boundary at every position read over the vocabulary."""

    def one(item: Item) -> Work:
        read = (costing.config.n_layers + 1) * asked.count("positions", item.length)
        run = costing.forward(item.length, read=0, kept=STREAM)
        return (run + costing.unembed(read, asked.number("max_bytes", 128 * MEBIBYTE))).of_cells(1)

    return asked.each(one)


def surprisal(costing: Costing, asked: Asked) -> Work:
    """A run, and its last boundary at every position read over the vocabulary."""

    def one(item: Item) -> Work:
        run = costing.forward(item.length, read=0, kept=STREAM[1:])
        return (run + costing.unembed(item.length, asked.number("max_bytes", 128 * MEBIBYTE))).of_cells(1)

    return asked.each(one)


def lens_parts(costing: Costing, asked: Asked) -> Work:
    """A run, and every part at the last position, or at those that are named, read over the vocabulary."""
    config, of = costing.config, asked.word("of", "sublayer", ("stream", "sublayer", "head"))
    vectors = {"stream": 1, "sublayer": 1, "head": 1 + config.n_layers * (config.n_heads - 2)}[of] + 2 * config.n_layers

    def one(item: Item) -> Work:
        columns = asked.count("positions", item.length) if "positions" in asked.settings else 1
        heads = 2 * config.n_layers * config.n_heads * config.d_head * config.d_model * columns * (of == "head")
        kept = {"stream": STREAM, "sublayer": SUBLAYERS, "head": ("blocks.*.attn.hook_z",)}[of]
        run = costing.forward(item.length, read=0, kept=kept, columns=columns)
        read = costing.unembed(vectors * columns, asked.number("max_bytes", 128 * MEBIBYTE))
        return (run + costing.product(heads) + read).of_cells(1)

    return asked.each(one)


def facts(costing: Costing, asked: Asked) -> Work:
    """What the model says at the end of every prompt, in batches."""
    return _padded(costing, asked, lambda item, rows: costing.forward(item.length, rows, read=1).of_cells(rows))


def _padded(costing: Costing, asked: Asked, cost: Callable[[Item, int], Work], share: int = 1) -> Work:
    """Batches of prompts as `texts_within` makes them, of a share of the memory."""
    room = asked.number("max_bytes", 256 * MEBIBYTE, least=1) // share
    return asked.batched(cost, lambda longest: texts_that_fit(costing.config, costing.itemsize, longest, room))


def fact_lens(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, and every boundary at one token of each."""

    def some(item: Item, rows: int) -> Work:
        read = costing.unembed(rows * (costing.config.n_layers + 1), asked.number("max_bytes", 256 * MEBIBYTE))
        return costing.forward(item.length, rows, read=0, kept=STREAM, columns=1) + read

    return facts(costing, asked) + _padded(costing, asked, some, 4)


def attribution(costing: Costing, asked: Asked) -> Work:
    """A run, two where key positions are told apart, what is said, and what was asked pulled back through sublayers."""
    config, by = costing.config, asked.word("by", "sublayer", BY)

    def one(item: Item) -> Work:
        width = config.n_heads * config.d_head * (by in ("head", "source", "head_source"))
        sources = config.n_heads * config.d_head * item.length * (by in ("source", "head_source"))
        neurons = config.d_mlp * (by == "neuron")
        flops = 2 * config.n_layers * ((width + neurons) * config.d_model + sources)
        run = costing.forward(item.length, read=0, kept=SUBLAYERS, columns=1)
        return (run * (2 if sources else 1) + costing.product(flops) + costing.unembed(1)).of_cells(1)

    return asked.each(one)


BY = ("sublayer", "head", "source", "head_source", "neuron", "expert")


def fact_attribution(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, and the attribution of each."""
    longest = max(asked.lengths, default=0)
    padded = asked.of_lengths([longest] * len(asked.lengths)).with_settings({"by": "head", **asked.settings})
    return facts(costing, asked) + attribution(costing, padded).of_cells(0)


def extraction(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, and what each sublayer would say at the last token."""

    def some(item: Item, rows: int) -> Work:
        run = costing.forward(item.length, rows, read=0, kept=SUBLAYERS, columns=1)
        return run + costing.unembed(2 * costing.config.n_layers * rows)

    return facts(costing, asked) + asked.batched(some, recalls_at_once(costing, asked), sort=True)


def recalls_at_once(costing: Costing, asked: Asked) -> Callable[[int], int]:
    """How many prompts share a sweep, by the length of the longest: their base run takes a quarter of the budget."""
    quarter = asked.number("budget", BUDGET) // 4
    return lambda longest: min(AT_ONCE, quarter // costing.recorded(HELD, longest, longest))


def memories(costing: Costing, asked: Asked) -> Work:
    """A run up to the last layer that is looked at, and its strongest neurons read over the vocabulary."""
    layers = asked.places("layer", costing.config.n_layers)
    rows = len(layers) * asked.number("top_k", 10, least=1)
    run = costing.up_to(max(layers) + 1)
    return asked.each(lambda item: (run.forward(item.length, read=0) + costing.unembed(rows)).of_cells(1))


def fact_memories(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, and the strongest neurons at two tokens of each."""
    layers = asked.places("layer", costing.config.n_layers)
    rows = 2 * len(layers) * asked.number("top_k", 5, least=1)
    run = costing.up_to(max(layers) + 1)
    found = asked.each(lambda item: run.forward(item.length, read=0) + costing.unembed(rows))
    return facts(costing, asked) + found


def value_tokens(costing: Costing, asked: Asked) -> Work:
    """The values of some neurons of a layer, or of all, read over the vocabulary."""
    return costing.unembed(asked.count("neurons", _neurons(costing))).of_cells(1)


def agreement(costing: Costing, asked: Asked) -> Work:
    """The values of the neurons that triggers were found for, in every layer, read over the vocabulary."""
    layers = asked.places("layers", costing.config.n_layers)
    return (costing.unembed(asked.count("neurons", _neurons(costing))) * len(layers)).of_cells(len(layers))


def triggers(costing: Costing, asked: Asked) -> Work:
    """Every document in pieces, each a run up to the last layer that is searched."""
    before = 0 if asked.settings.get("prefix") == "none" else 1
    layers = asked.places("layers", costing.config.n_layers)
    length = asked.number("length", min(LONGEST, costing.config.n_ctx - before), least=1)
    run = costing.up_to(max(layers) + 1)

    def one(item: Item) -> Work:
        pieces = -(-item.length // length)
        each = -(-item.length // pieces)
        batch = max(1, 2048 // each)
        whole, rest = divmod(pieces, batch)
        done = run.forward(each + before, batch, read=0) * whole
        done += run.forward(each + before, rest, read=0) if rest else Work()
        return done.of_cells(pieces)

    return asked.each(one)


def _neurons(costing: Costing) -> int:
    moe = costing.config.moe
    return costing.config.d_mlp if moe is None else moe.n_experts * moe.d_expert
