"""The costs of analyses of heads on texts of their own, and of those that read weights alone; lengths do not matter."""

from collections.abc import Callable

from interp.analyses.cost_asked import Asked, Item
from interp.analyses.cost_parts import Costing, Work
from interp.models.config import ModelConfig

NAMES = 80
"""About how many names of people are one token, and stand for all tokens in one copying score."""
SENTENCES, SENTENCE = 128, 14
"""About how many marked sentences the atlas reads, and their tokens."""


def prefix(asked: Asked) -> int:
    """Tokens before a text, as far as they do not depend on the tokenizer: the document separator or nothing."""
    return 0 if asked.settings.get("prefix") == "none" else 1


def induction(costing: Costing, asked: Asked) -> Work:
    """Random sequences said several times; the runs end at the last layer's pattern."""
    length = prefix(asked) + asked.number("repeats", 2, least=2) * asked.number("seq_len", 50, least=2)
    return patterns(costing, length, asked.number("n_seqs", 16, least=1))


def patterns(costing: Costing, length: int, texts: int) -> Work:
    """Runs that end at the pattern of the last layer, each pattern reduced as it appears."""
    c = costing.config
    joint = (c.n_heads + 2 * c.n_kv_heads) * c.d_head
    last = 2 * texts * length * (joint * c.d_model + length * c.n_heads * c.d_head)
    before = costing.up_to(c.n_layers - 1).forward(length, texts, read=0) if c.n_layers > 1 else Work()
    pattern = texts * c.n_heads * length**2 * costing.itemsize
    return before + Work(texts, costing.product(last, joint * c.d_model).steps, pattern)


COPIES = 7
"""Maps of a layer that are held at once where small pictures are made: of three kinds, with a column and without."""


def attention(costing: Costing, asked: Asked) -> Work:
    """One text an item, or two of one length where `other` is named; maps of a layer at a time."""
    c, texts = costing.config, 2 if asked.settings.get("other") else 1

    def one(item: Item) -> Work:
        work = patterns(costing, item.length, texts) + costing.product(c.n_layers * _value_norms(c, item.length, texts))
        return Work(work.cells, work.steps, COPIES * texts * c.n_heads * item.length**2 * costing.itemsize)

    return asked.each(one)


def head_attention(costing: Costing, asked: Asked) -> Work:
    """The same as far as the layer of the `head`, the last one if none is named, whose maps are made."""
    layer = int(str(asked.settings.get("head", costing.config.n_layers - 1)).partition(".")[0])
    reached, texts = costing.up_to(layer + 1), 2 if asked.settings.get("other") else 1

    def one(item: Item) -> Work:
        norms = costing.product(_value_norms(costing.config, item.length, texts))
        return (patterns(reached, item.length, texts) + norms).of_cells(1)

    return asked.each(one)


def _value_norms(config: ModelConfig, length: int, texts: int) -> int:
    """Norms of what every value writes: W_O with itself, and each value with that, in one layer."""
    each = config.d_head * config.d_model + texts * length * (config.d_head + 1)
    return 2 * config.n_heads * config.d_head * each


def atlas(costing: Costing, asked: Asked) -> Work:
    """Random texts, documents and marked sentences; and, unless it is left out, what heads copy."""
    documents, before = asked.number("n_documents", 8, least=1), prefix(asked)
    read = patterns(costing, before + asked.number("doc_len", 256, least=1), documents)
    marked = patterns(costing, before + SENTENCE, SENTENCES)
    work = induction(costing, asked) + read + marked
    if not asked.flag("copying", True):
        return work
    some = {"seq_len": 50, **asked.settings, "which": ("ov_eigenvalue", "behavioural", "ioi_copy")}
    return work + copying(costing, asked.with_settings(some))


def copying(costing: Costing, asked: Asked) -> Work:
    """The scores that are asked for; the share of what is raised takes the whole vocabulary for every head."""
    which = asked.words("which", tuple(SCORES), tuple(SCORES))
    work = Work()
    if {"behavioural", "raised_share"} & set(which):
        texts = asked.number("n_seqs", 16, least=1)
        length = prefix(asked) + 2 * asked.number("seq_len", 25, least=2)
        work += costing.forward(length, texts, read=0, kept=("blocks.*.attn.hook_z",))
    for score in which:
        work += costing.product(SCORES[score](costing, asked), costing.config.d_vocab * costing.config.d_model)
    return work.of_cells(costing.config.n_layers * costing.config.n_heads)


def _eigenvalues(costing: Costing, asked: Asked) -> int:
    c = costing.config
    heads = c.n_heads * c.d_head * c.d_model * (c.d_model + c.d_head)
    return 2 * (c.d_vocab * c.d_model**2 + 2 * c.n_layers * heads)


def _behavioural(costing: Costing, asked: Asked) -> int:
    c, rows = costing.config, asked.number("n_seqs", 16, least=1) * asked.number("seq_len", 25, least=2)
    return 2 * c.n_layers * rows * c.n_heads * c.d_head * c.d_model


def _raised(costing: Costing, asked: Asked) -> int:
    c, length = costing.config, asked.number("seq_len", 25, least=2)
    rows = asked.number("n_seqs", 16, least=1) * length
    width = c.n_heads * c.d_head
    return 2 * c.n_layers * width * (rows * (c.d_model + length) + c.d_vocab * (c.d_model + rows))


def _names(costing: Costing, asked: Asked) -> int:
    c, tokens = costing.config, asked.count("tokens", NAMES)
    values = (c.n_kv_heads + c.n_heads) * c.d_head * c.d_model
    return 2 * tokens * (c.n_layers - 1) * (values + c.n_heads * c.d_vocab * c.d_model)


SCORES: dict[str, Callable[[Costing, Asked], int]] = {
    "ov_eigenvalue": _eigenvalues,
    "behavioural": _behavioural,
    "raised_share": _raised,
    "ioi_copy": _names,
}


def repeat_loss(costing: Costing, asked: Asked) -> Work:
    """The loss of every token of random sequences said several times."""
    length = prefix(asked) + asked.number("repeats", 2, least=2) * asked.number("seq_len", 50, least=2)
    texts = asked.number("n_seqs", 16, least=1)
    return costing.forward(length, texts, read=length - 1).of_cells(texts)


def in_context(costing: Costing, asked: Asked) -> Work:
    """The loss of every token of as many documents as there are items, 36 if there are none, up to the late token."""
    length = prefix(asked) + asked.number("late", 500, least=1) + 12
    documents = len(asked.lengths) or 36
    return (costing.forward(length, 1, read=length - 1) * documents).of_cells(documents)


def composition(costing: Costing, asked: Asked) -> Work:
    """Every head with every head of later layers: products of thin matrices."""
    c, layers = costing.config, len(asked.places("layers", costing.config.n_layers))
    width, seen = c.n_heads * c.d_head, (c.n_heads + 2 * c.n_kv_heads) * c.d_head
    draws = asked.number("baseline_draws", 20, least=2)
    pair = 2 * width * (c.d_model * seen + 3 * c.n_heads * c.d_head**2)
    random = 2 * draws**2 * (3 * c.d_head**2 * c.d_model + 3 * c.d_head**3)
    own = 2 * (layers * c.n_heads + draws) * c.d_head**2 * (2 * c.d_head + c.d_model)
    flops = layers * (layers - 1) // 2 * pair + random + own
    return costing.product(flops, layers * width * c.d_model).of_cells(layers)


def head_circuit(costing: Costing, asked: Asked) -> Work:
    """The whole vocabulary through one head, and at most every pair of tokens twice, block by block."""
    c = costing.config
    flops = 2 * c.d_vocab * c.d_head * (4 * c.d_model + 2 * c.d_vocab)
    return costing.product(flops, 2 * c.d_vocab * c.d_model).of_cells(1)
