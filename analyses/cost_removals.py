"""The costs of analyses that take something away: attention edges, sublayers, components, heads, neurons.

Which components are meant decides where their runs part from the base run: they are named in the settings by the
parameter's own name (`components`, `heads`, `senders` and `receivers`, `neurons`). Without, one of layer 0 is meant,
which costs the most.
"""

from collections.abc import Iterable, Mapping, Sequence

from interp.analyses import cost_texts
from interp.analyses.ablation_sets import Sets
from interp.analyses.components import Component
from interp.analyses.cost_asked import Asked, Item
from interp.analyses.cost_heads import prefix
from interp.analyses.cost_parts import Alike, Costing, Work
from interp.analyses.cost_sweeps import base_run
from interp.analyses.cost_texts import BUDGET, recalls_at_once
from interp.analyses.edited_texts import TEXTS_AT_ONCE
from interp.analyses.neurons import Neuron
from interp.analyses.sites import layer_window
from interp.errors import UsageError

BLOCKS = ("subject", "non_subject", "last", "random")
REFERENCE, REFERENCE_LENGTH = 68, 8
"""How many bundled facts a mean is over by default, and about how many tokens they have."""
PARAPHRASES, RELATIONS = 3, 19
"""Of every bundled fact, and of all of them."""


def _swept(
    costing: Costing, asked: Asked, item: Item, cells: Sequence[Alike], points: Iterable[str] = (), rows: int = 1
) -> Work:
    """The base run of texts and a sweep over them; every text has cells of its own."""
    shortcuts, budget = asked.flag("shortcuts", True), asked.number("budget", BUDGET)
    swept = costing.sweep(item.length, cells, rows, points=points, budget=budget, shortcuts=shortcuts)
    return base_run(costing, item.length, rows) + swept.of_cells(swept.cells * rows)


def knockout(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, and edges into the last token blocked in a window around every layer."""
    blocks, draws = asked.words("blocks", BLOCKS, BLOCKS), asked.number("draws", 3, least=1)
    cuts = len(blocks) + (draws - 1) * ("random" in blocks)

    def some(item: Item, rows: int) -> Work:
        return _blocked(costing, asked, item, rows, cuts, item.length - 1, 5)

    return cost_texts.facts(costing, asked) + asked.batched(some, recalls_at_once(costing, asked), sort=True)


def edge_knockout(costing: Costing, asked: Asked) -> Work:
    """Sets of edges (`edges`, one without) blocked in a window around every layer, from the first query on."""
    cuts = asked.count("edges", 1)
    return asked.each(lambda item: _blocked(costing, asked, item, 1, cuts, item.first, 1))


def _blocked(costing: Costing, asked: Asked, item: Item, rows: int, cuts: int, start: int, window: int) -> Work:
    """Edges of scores blocked around every layer."""
    count, wide = costing.config.n_layers, asked.number("window", window, least=1)
    joins = [layer_window(layer, wide, count)[0] for layer in asked.places("layers", count)]
    cells = [Alike(cuts, join, start) for join in joins]
    return _swept(costing, asked, item, cells, ["blocks.0.attn.hook_attn_scores"], rows)


def sublayer_knockout(costing: Costing, asked: Asked) -> Work:
    """Which facts are known, the mean over the subjects of others, and sublayers replaced from every layer on."""
    sublayers, methods = asked.words("sublayers", ("mlp", "attn")), asked.words("methods", ("mean", "zero"))
    cuts = len(sublayers) * len(methods)
    points = [f"blocks.0.hook_{sublayer}_out" for sublayer in sublayers]

    def some(item: Item, rows: int) -> Work:
        cells = [Alike(cuts, layer, item.first) for layer in asked.places("layers", costing.config.n_layers)]
        return _swept(costing, asked, item, cells, points, rows)

    means = costing.forward(REFERENCE_LENGTH, 1, read=0) * asked.count("reference", REFERENCE)
    known = cost_texts.facts(costing, asked) + (means if "mean" in methods else Work())
    return known + asked.batched(some, recalls_at_once(costing, asked), sort=True)


def ablation(costing: Costing, asked: Asked) -> Work:
    """Sets of components and random sets of their kind, taken away from all texts in one sweep."""
    given = asked.settings.get("components", ["0.0"])
    sets = given if isinstance(given, Mapping) else {"all": given}
    runs = _sets(costing, asked, {str(name): _components(each) for name, each in sets.items()}, 20)
    first = min(asked.places("positions", max(asked.lengths, default=1)))

    def one(item: Item) -> Work:
        start = max(first, 0 if asked.settings.get("method", "mean") not in ("mean", "resample") else item.first)
        cells = [Alike(1, join, min(start, item.length - 1)) for join in runs]
        return costing.forward(item.length, read=0) + _swept(costing, asked, item, cells)

    return asked.each(one)


def local_ablation(costing: Costing, asked: Asked) -> Work:
    """Heads taken away from each text together, beside others, every token read; and what is said with all of them."""
    heads = _components(asked.settings.get("heads", ["0.0"]))
    runs = _sets(costing, asked, {"the heads": heads}, 8)
    budget, recorded = asked.number("budget", BUDGET), costing.up_to(1 + max(head.layer for head in heads))
    by_mean = asked.settings.get("method", "mean") == "mean"

    def one(item: Item) -> Work:
        swept = costing.sweep(item.length, [Alike(1, join, 0) for join in runs], read=item.length, budget=budget)
        base = costing.forward(item.length, read=1) + costing.forward(item.length, read=item.length)
        return base + swept + (recorded.forward(item.length, read=0) if by_mean else Work())

    return asked.each(one)


def head_ablation(costing: Costing, asked: Asked) -> Work:
    """Heads taken away alone and together, each set beside others of its layers, from random texts."""
    heads = _components(asked.settings.get("heads", ["0.0"]))
    alone = asked.flag("alone", True) or len(heads) == 1
    groups: dict[str, tuple[Component, ...]] = {str(head): (head,) for head in heads} if alone else {}
    groups |= {"together": heads} if len(heads) > 1 else {}
    size, repeats = asked.number("seq_len", 25, least=2), asked.number("repeats", 2, least=2)
    length, texts = prefix(asked) + size * repeats, asked.number("n_seqs", 8, least=1)
    by_others = asked.settings.get("method", "mean") in ("mean", "resample")
    start = prefix(asked) if by_others else 0
    cells = [Alike(1, join, start) for join in _sets(costing, asked, groups, 20, heads)]
    return _on_texts(costing, asked, length, texts, cells, repeats * (size - 1))


def head_links(costing: Costing, asked: Asked) -> Work:
    """The path from every sender, and from others of its layer, into every receiver blocked on random texts."""
    last = costing.config.n_layers - 1
    senders = _components(asked.settings.get("senders", ["0.0"]))
    receivers = _components(asked.settings.get("receivers", [f"{min(1, last)}.0"]))
    runs = _sets(costing, asked, {str(sender): (sender,) for sender in senders}, 20, senders)
    size, repeats = asked.number("seq_len", 25, least=2), asked.number("repeats", 2, least=2)
    length, texts = prefix(asked) + size * repeats, asked.number("n_seqs", 8, least=1)
    cells = [Alike(len(runs), receiver.layer, 0) for receiver in receivers]  # patterns are looked at whole
    config, own = costing.config, asked.word("path", "k", ("k", "q", "v"))
    inputs = (config.n_heads if own == "q" else config.n_kv_heads) + 1
    apart = 2 * len(runs) * len(receivers) * texts * length * inputs * config.d_model * config.d_head
    swept = _on_texts(costing, asked, length, texts, cells, (repeats - 1) * (size - 1))
    return swept + costing.product(apart)


def _on_texts(costing: Costing, asked: Asked, length: int, texts: int, cells: Sequence[Alike], read: int) -> Work:
    """What components do in random texts, the base run, and a sweep that reads many columns."""
    swept = costing.sweep(length, cells, texts, read=read, budget=asked.number("budget", BUDGET))
    return costing.forward(length, texts, read=0) + costing.forward(length, texts, read=read) + swept


def knowledge_neurons(costing: Costing, asked: Asked) -> Work:
    """Every wording of every fact: runs with a layer's neurons scaled step by step, and their gradients."""
    wordings = 1 + asked.count("paraphrases", PARAPHRASES)
    return asked.each(lambda item: integrated(costing, asked, item) * wordings)


def integrated(costing: Costing, asked: Asked, item: Item) -> Work:
    """Integrated gradients of one wording."""
    config, steps = costing.config, asked.number("steps", 20, least=1)
    at = item.changed[-1] if asked.settings.get("position") == "subject" else item.length - 1
    cells = [Alike(steps + 1, layer, at) for layer in asked.places("layers", config.n_layers)]
    swept = costing.sweep(item.length, cells, budget=asked.number("budget", BUDGET))
    back = Work(0, swept.steps, swept.held * config.n_layers // 2)
    run = costing.forward(item.length, read=1) + base_run(costing, item.length)
    return run + swept + back


def neuron_edits(costing: Costing, asked: Asked) -> Work:
    """Neurons of one fact, and random ones, edited in every text; items are the texts that are measured."""
    changes, controls = asked.words("changes", ("zero", "mean", "x2")), asked.number("controls", 5, least=1)
    given = asked.settings.get("neurons")
    layer = min((Neuron.parse(str(each)).layer for each in given), default=0) if isinstance(given, Sequence) else 0
    runs = len(changes) * (1 + controls)

    def some(item: Item, rows: int) -> Work:
        cells = [Alike(runs, layer, item.length - 1 if asked.flag("last", False) else 0)]
        mean = costing.forward(item.length, rows, read=0) if "mean" in changes else Work()
        return mean + _swept(costing, asked, item, cells, (), rows)

    return asked.batched(some, lambda longest: TEXTS_AT_ONCE)


def suppression(costing: Costing, asked: Asked) -> Work:
    """Which facts are known; the neurons of some; and these edited, in their own wordings and in others' prompts."""
    limit = min(asked.number("limit", 20, least=1), len(asked.lengths))
    edited = asked.of_lengths(asked.lengths[:limit])
    relations = min(limit, asked.number("relations", RELATIONS, least=1))
    measured = min(len(asked.lengths), limit + relations * asked.number("peers", 2))
    others, own = asked.settings.get("others", 12), -(-measured // max(1, relations))
    texts = own + min(measured - own, others if isinstance(others, int) else measured)
    texts += asked.count("paraphrases", PARAPHRASES)
    found = cost_texts.facts(costing, asked) + knowledge_neurons(costing, edited)
    return found + neuron_edits(costing, edited) * texts


def _components(named: object) -> tuple[Component, ...]:
    """Components by any of their names."""
    if isinstance(named, str) or not isinstance(named, Sequence) or not named:
        raise UsageError(f"Components are named in a list, such as ['18.6', 'mlp 3'], not {named!r}.")
    return tuple(
        each
        if isinstance(each, Component)
        else Component("head", *each)
        if isinstance(each, tuple | list)
        else Component.parse(str(each))
        for each in named
    )


def _sets(
    costing: Costing,
    asked: Asked,
    groups: Mapping[str, Sequence[Component]],
    controls: int,
    without: Sequence[Component] = (),
) -> list[int]:
    """The first layer of every set, and of each of its controls."""
    tested = {name: tuple(each) for name, each in groups.items()}
    for component in (one for each in tested.values() for one in each):
        if not 0 <= component.layer < costing.config.n_layers:
            raise UsageError(f"{component} lies in no layer: there are {costing.config.n_layers}.")
    count, seed = asked.number("controls", controls), asked.number("seed", 0)
    sets = Sets.drawn(costing.config, tested, count, seed=seed, without=without)
    return [min(component.layer for component in run) for run in sets.runs]
