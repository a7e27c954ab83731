"""Bytes: of keys and values, of a model that serves many users, and those that a run must move.

    keys and values of a token = 2 · layers · KV heads · head width · bytes a number

whatever the number of query heads, and whatever the KV heads are called: only their product with the head width counts.
The cache of this package (`models/kv_cache.py`) keeps every token in every layer, also where a layer sees a window of
the text alone; `windowed=True` says what would do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interp.models.config import ModelConfig
from interp.models.planner.parameters import layer_numbers, parameters

ITEMSIZE: Mapping[str, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by the name of its format."""


def kv_bytes_per_token(config: ModelConfig, itemsize: int = 4) -> int:
    """Bytes that keys and values take for every token: 2 · layers · KV heads · head width · bytes a number.

    Layers that see a window of the text keep all of it too.
    """
    return 2 * config.n_layers * config.n_kv_heads * config.d_head * itemsize


def kv_bytes(config: ModelConfig, context: int, itemsize: int = 4, *, windowed: bool = False) -> int:
    """Bytes of keys and values of one text of `context` tokens; `windowed`: of those alone that are still read."""
    if not windowed:
        return context * kv_bytes_per_token(config, itemsize)
    windows = [config.layer(layer).window or context for layer in range(config.n_layers)]
    return sum(min(window, context) for window in windows) * 2 * config.n_kv_heads * config.d_head * itemsize


@dataclass(frozen=True)
class Sharing:
    """The same shape with another number of KV heads."""

    name: str
    kv_heads: int
    kv_bytes_per_token: int
    saved: float
    """Share of the bytes of MHA that is not needed."""
    parameters: int


def head_sharing(config: ModelConfig, itemsize: int = 4, groups: Sequence[int] = (8,)) -> list[Sharing]:
    """What MHA (a KV head for every query head), GQA (some share one) and MQA (all share one) would take.

    GQA stands for the shape as it is, if it shares, and for as many KV heads as `groups` says, where that divides the
    query heads.
    """
    counts = {config.n_heads, config.n_kv_heads, 1}
    counts |= {count for count in groups if count < config.n_heads and config.n_heads % count == 0}
    whole = kv_bytes_per_token(replace(config, n_kv_heads=config.n_heads), itemsize)
    found = []
    for count in sorted(counts, reverse=True):
        shape = replace(config, n_kv_heads=count)
        name = "MHA" if count == config.n_heads else "MQA" if count == 1 else f"GQA {count}"
        each = kv_bytes_per_token(shape, itemsize)
        found.append(Sharing(name, count, each, 1 - each / whole, parameters(shape).total))
    return found


@dataclass(frozen=True)
class Serving:
    """Bytes to write on for some users at once, each with a context of their own."""

    users: int
    context: int
    weights: int
    kv: int
    """Keys and values: users · context · bytes a token."""
    workspace: int
    """One token of every user in the widest moment of a layer, and the logits of all users in float32, twice."""

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.workspace


def serving(config: ModelConfig, users: int, context: int, itemsize: int = 4) -> Serving:
    """What so many users need who each hold `context` tokens. Prefilling long texts takes more, as long as it lasts."""
    joint = (config.n_heads + 2 * config.n_kv_heads) * config.d_head
    widest = max(config.ffn_width(layer) for layer in range(config.n_layers))
    token = (4 * config.d_model + max(2 * joint, widest)) * itemsize
    return Serving(
        users,
        context,
        parameters(config).total * itemsize,
        users * kv_bytes(config, context, itemsize),
        users * (token + 2 * 4 * config.d_vocab),
    )


def weight_bytes(config: ModelConfig, tokens: int, itemsize: int = 4, *, join: int = 0, logits: bool = True) -> int:
    """Bytes of weights that a run of so many tokens at once reads: layers from `join` on, and the unembedding."""
    layers = sum(layer_numbers(config, layer, tokens) for layer in range(join, config.n_layers))
    rows = tokens * config.d_model if join == 0 else 0
    return (layers + rows + config.d_vocab * config.d_model * logits) * itemsize


def run_bytes(
    config: ModelConfig, length: int, *, batch: int = 1, start: int = 0, itemsize: int = 4, logits: bool = True
) -> int:
    """Bytes that a run over columns from `start` on must move at least: weights once, keys and values of each text.

    What passes between the parts of a layer is left out: it stays near the processor where there is room.
    """
    tokens = batch * (length - start)
    return weight_bytes(config, tokens, itemsize, logits=logits) + batch * kv_bytes(config, length, itemsize)
