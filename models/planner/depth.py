"""Depth against width: shapes with as many parameters, from few wide layers to many narrow ones.

Heads keep their width, and as many query heads share a KV head; the FFN keeps its share of the layer as far as whole
layers allow. Counted are all parameters but those of embeddings, positions and unembedding, which grow with the width
alone. Every layer is a step that waits for the one before it, so that depth costs time where width costs none; keys and
values grow with layers times KV heads. Which of two such shapes learns more from a text, no count tells.
"""

from dataclasses import dataclass, replace

from interp.models.config import ModelConfig
from interp.models.planner.flops import token_flops
from interp.models.planner.memory import kv_bytes_per_token
from interp.models.planner.parameters import parameters
from interp.models.planner.shape import with_layers

WITHIN = 0.01  # of the parameters
REACH = 4  # times as wide, and as narrow
STRETCH = 0.25  # how far the FFN may leave its share, so that whole layers fit


@dataclass(frozen=True)
class DepthWidth:
    """One of the shapes."""

    config: ModelConfig
    non_embedding: int
    total: int
    kv_bytes_per_token: int
    flops_per_token: int
    """Of decoding, attention apart."""
    steps: int
    """Sublayers that wait for each other; in parallel blocks attention and FFN do not."""


def non_embedding(config: ModelConfig) -> int:
    """Parameters of the layers and the norms."""
    counted = parameters(config).stored
    return sum(counted[name] for name in ("attention", "ffn", "experts", "norms"))


def depth_width(config: ModelConfig, itemsize: int = 4, *, most: int = 9) -> list[DepthWidth]:
    """Shapes of equal non-embedding parameters (within 1 %), the widest first, the given one among them."""
    target, found = non_embedding(config), {config.n_layers: config}
    for shape in _widths(config):
        fitted = [_fitted(with_layers(shape, count), config, target) for count in _depths(shape, target)]
        good = [each for each in fitted if each is not None and shape.d_model != config.d_model]
        if good:
            best = min(good, key=lambda each: abs(_share(each) / _share(config) - 1))
            found.setdefault(best.n_layers, best)
    chosen = _spread(sorted(found), config.n_layers, most)
    return [_told(found[count], itemsize) for count in chosen]


def _widths(config: ModelConfig) -> list[ModelConfig]:
    """The same layer at other widths: more and fewer heads of the same kind."""
    shared = config.n_heads // config.n_kv_heads
    step = 1 if config.n_kv_heads > 1 or shared == 1 else 0
    shapes = []
    for heads in range(1, REACH * config.n_heads + 1):
        if heads * REACH < config.n_heads or (step and heads % shared):
            continue
        width = round(config.d_model * heads / config.n_heads)
        ratio = width / config.d_model
        moe = config.moe and replace(
            config.moe,
            d_expert=max(1, round(config.moe.d_expert * ratio)),
            d_shared=None if config.moe.d_shared is None else max(1, round(config.moe.d_shared * ratio)),
        )
        sizes = {"d_model": width, "n_heads": heads, "n_kv_heads": heads // shared if step else config.n_kv_heads}
        shapes.append(replace(config, **sizes, d_mlp=max(1, round(config.d_mlp * ratio)), moe=moe))  # type: ignore[arg-type]
    return shapes


def _depths(shape: ModelConfig, target: int) -> list[int]:
    """The two whole numbers of layers around the one that would fit."""
    one, two = (non_embedding(with_layers(shape, count)) for count in (1, 2))
    exact = 1 + (target - one) / max(1, two - one)
    return sorted({max(1, int(exact)), max(1, int(exact) + 1)})


def _fitted(shape: ModelConfig, like: ModelConfig, target: int) -> ModelConfig | None:
    """The shape with the width of FFNs that makes it as large as the target; None where that would distort it."""
    now = shape.d_mlp if shape.moe is None else shape.moe.d_expert
    slope = non_embedding(_with_ffn(shape, now + 1)) - non_embedding(shape)
    wanted = now + round((target - non_embedding(shape)) / slope) if slope else now
    if wanted < 1:
        return None
    fitted = _with_ffn(shape, wanted)
    near = abs(_share(fitted) / _share(like) - 1) <= STRETCH
    return fitted if near and abs(non_embedding(fitted) / target - 1) <= WITHIN else None


def _share(shape: ModelConfig) -> float:
    """How much wider an FFN, or an expert, is than the residual stream."""
    return (shape.d_mlp if shape.moe is None else shape.moe.d_expert) / shape.d_model


def _with_ffn(shape: ModelConfig, width: int) -> ModelConfig:
    if shape.moe is None:
        return replace(shape, d_mlp=width)
    return replace(shape, moe=replace(shape.moe, d_expert=width))


def _spread(counts: list[int], own: int, most: int) -> list[int]:
    """At most so many of them, evenly spread, the given shape's own and both ends among them."""
    if len(counts) <= most:
        return counts
    step = (len(counts) - 1) / (most - 1)
    places = {round(place * step) for place in range(most)}
    nearest = min(places - {0, len(counts) - 1}, key=lambda place: abs(place - counts.index(own)))
    return [counts[place] for place in sorted(places - {nearest} | {counts.index(own)})]


def _told(config: ModelConfig, itemsize: int) -> DepthWidth:
    return DepthWidth(
        config,
        non_embedding(config),
        parameters(config).total,
        kv_bytes_per_token(config, itemsize),
        token_flops(config).without_attention,
        config.n_layers * (1 if config.parallel else 2),
    )
