"""What is counted from a configuration is what the model holds."""

import pytest
from tiny import CONFIGS

from interp.models.config import ModelConfig
from interp.models.kv_cache import KVCache
from interp.models.planner import kv_bytes_per_token, parameters, point_shapes
from interp.models.transformer import Transformer

every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))

PLACES = {
    "embedding": ("embed.",),
    "positions": ("pos_embed.",),
    "attention": ("attn.",),
    "norms": ("ln1", "ln2", "ln_"),
    "unembedding": ("unembed.",),
}


def component(name: str, config: ModelConfig) -> str:
    """The component that a weight is counted with."""
    short = name.split(".", 2)[2] if name.startswith("blocks.") else name
    if short.startswith("mlp."):
        return "experts" if config.layer(int(name.split(".")[1])).moe else "ffn"
    return next(place for place, starts in PLACES.items() if short.startswith(starts))


@every_config
def test_every_component_counts_what_its_weights_hold(config: ModelConfig) -> None:
    model = Transformer(config, device="meta")
    held = dict.fromkeys(parameters(config).stored, 0)
    for name, weight in model.weights().items():
        held[component(name, config)] += weight.numel()
    assert parameters(config).stored == held
    assert parameters(config).total == model.n_parameters


@every_config
def test_a_token_goes_through_the_chosen_experts_only(config: ModelConfig) -> None:
    counted = parameters(config)
    layers = [layer for layer in range(config.n_layers) if config.layer(layer).moe]
    idle = 0 if config.moe is None else config.moe.n_experts - config.moe.top_k
    width = 0 if config.moe is None else config.moe.d_expert
    assert counted.total - counted.total_active == len(layers) * idle * width * 3 * config.d_model


@every_config
def test_keys_and_values_take_what_a_cache_allocates(config: ModelConfig) -> None:
    cache = KVCache(config, batch=1, capacity=5)
    assert kv_bytes_per_token(config) * 5 == cache.nbytes


@every_config
def test_the_kinds_of_points_stand_for_all_points(config: ModelConfig) -> None:
    points = Transformer(config, device="meta").points()
    assert next(iter(point_shapes(config))) == next(iter(points))
    counts = {"once": 1, "every layer": config.n_layers}
    told = [counts.get(where) or len(where.split(",")) for _, where in point_shapes(config).values()]
    assert sum(told) == len(points)
    for kind, (shape, where) in point_shapes(config).items():
        layer = "0" if where in counts else where.removeprefix("layers ").split(",")[0]
        assert points.shape_of(kind.partition(" ")[0].replace("{layer}", layer)) == shape
