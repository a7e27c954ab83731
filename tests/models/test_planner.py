"""What is counted from a configuration is what the model holds."""

from dataclasses import replace

import pytest
from tiny import BASE, CONFIGS

from interp.models.config import ModelConfig
from interp.models.kv_cache import KVCache
from interp.models.planner import Numbers, head_sharing, kv_bytes, kv_bytes_per_token, parameters, point_shapes, serving
from interp.models.planner.memory import weight_bytes
from interp.models.presets import preset, presets
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


METADATA = "number of parameters that the published safetensors files state"
TOTALS = {
    "smollm2-135m": (134_515_008, METADATA),
    "llama-2-7b": (6_738_415_616, METADATA),
    "mixtral-8x7b": (46_702_792_704, METADATA),
    "llama-3.1-8b": (8_030_261_248, METADATA),
    "qwen2.5-0.5b": (494_032_768, METADATA),
    "gemma-2-2b": (2_614_341_888, METADATA),
    "gemma-3-270m": (268_098_176, METADATA),
    "mistral-7b-v0.1": (7_241_732_096, METADATA),
    "phi-3-mini-4k": (3_821_079_552, METADATA),
    "olmoe-1b-7b": (6_919_161_856, METADATA),
    "gpt2": (
        124_439_808,
        "Radford et al. 2019, the release whose paper says 117M, as the model card corrects it: 124M",
    ),
    "pythia-70m": (70_426_624, "Biderman et al. 2023, arXiv 2304.01373, table of parameter counts"),
}
"""Published totals, and where they were published."""


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_the_published_ones(name: str) -> None:
    total, source = TOTALS[name]
    assert parameters(preset(name).config).total == total, source


def test_active_parameters_are_those_counted_by_hand() -> None:
    mixtral = parameters(preset("mixtral-8x7b").config)
    assert mixtral.total - mixtral.total_active == 32 * 6 * 3 * 4096 * 14_336, "6 of 8 experts stay idle"
    assert mixtral.total_active == 12_879_925_248
    olmoe = parameters(preset("olmoe-1b-7b").config)
    assert olmoe.total - olmoe.total_active == 16 * 56 * 3 * 2048 * 1024, "56 of 64"
    shared = parameters(preset("qwen1.5-moe-a2.7b").config)
    assert shared.total - shared.total_active == 24 * 56 * 3 * 2048 * 1408, "56 of 60; the shared expert never does"


EIGHT_BILLION = Numbers(layers=32, heads=32, head_dim=128)
"""As wide and deep as the usual models of 7 and 8 billion parameters."""


def test_keys_and_values_of_32_layers_of_32_heads_of_128_at_16_bit() -> None:
    shape = EIGHT_BILLION.config()
    assert kv_bytes_per_token(shape, 2) == 524_288
    assert kv_bytes(shape, 128_000, 2) == 67_108_864_000
    assert kv_bytes(shape, 131_072, 2) == 64 * 2**30 == 68_719_476_736


def test_a_quarter_of_the_heads_keeps_a_quarter() -> None:
    shape = replace(EIGHT_BILLION, kv_heads=8).config()
    assert kv_bytes_per_token(shape, 2) == 131_072
    assert kv_bytes(shape, 128_000, 2) == 16_777_216_000
    assert kv_bytes(shape, 131_072, 2) == 16 * 2**30


def test_many_small_heads_save_nothing_at_equal_product() -> None:
    for product in (64, 120, 1024):
        found = {
            (
                kv_bytes_per_token(replace(BASE, n_heads=kv * group, n_kv_heads=kv, d_head=product // kv), 2),
                KVCache(
                    replace(BASE, n_heads=kv * group, n_kv_heads=kv, d_head=product // kv), batch=2
                ).bytes_per_token,
            )
            for kv in range(1, product // 2 + 1)
            if product % (2 * kv) == 0
            for group in (1, 3)
        }
        assert found == {(2 * BASE.n_layers * product * 2, 2 * BASE.n_layers * product * 4)}


@pytest.mark.parametrize("name", presets())
def test_a_cache_of_any_published_shape_is_as_large_as_counted(name: str) -> None:
    config = preset(name).config
    assert KVCache(config, batch=1, capacity=1, device="meta").nbytes == kv_bytes_per_token(config)


def test_a_window_is_all_that_its_layer_still_needs() -> None:
    mixed = CONFIGS["mixed_windows"]
    token = 2 * mixed.n_kv_heads * mixed.d_head * 4
    assert kv_bytes(mixed, 100, windowed=True) == (3 + 100 + 5) * token
    assert kv_bytes(mixed, 4, windowed=True) == (3 + 4 + 4) * token
    assert kv_bytes(mixed, 100) == 3 * 100 * token
    gemma = preset("gemma-3-1b").config
    assert kv_bytes(gemma, 32_768, 2, windowed=True) == (22 * 512 + 4 * 32_768) * 2 * 256 * 2


def test_sharing_keys_and_values_saves_what_it_leaves_out() -> None:
    found = {each.name: each for each in head_sharing(EIGHT_BILLION.config(), 2)}
    assert [(name, each.kv_heads, each.saved) for name, each in found.items()] == [
        ("MHA", 32, 0.0),
        ("GQA 8", 8, 0.75),
        ("MQA", 1, 1 - 1 / 32),
    ]
    for each in found.values():
        shape = replace(EIGHT_BILLION, kv_heads=each.kv_heads).config()
        assert (each.kv_bytes_per_token, each.parameters) == (kv_bytes_per_token(shape, 2), parameters(shape).total)


def test_users_share_the_weights_and_nothing_else() -> None:
    shape = preset("llama-3.1-8b").config
    one, many = serving(shape, 1, 4096, 2), serving(shape, 10, 4096, 2)
    assert one.weights == many.weights == 2 * 8_030_261_248
    assert many.kv == 10 * one.kv == 10 * 4096 * 131_072
    assert many.workspace == 10 * one.workspace
    assert many.total == many.weights + many.kv + many.workspace


@every_config
def test_a_dense_step_reads_every_weight_that_is_no_embedding_once(config: ModelConfig) -> None:
    if config.moe is not None:
        return
    counted = parameters(config)
    rows = 7 * config.d_model
    ends = (config.final_norm + config.embed_norm) * config.d_model * (2 if config.norm == "layer" else 1)
    biases = config.d_vocab * config.unembed_bias
    within = counted.total - counted.embedding - counted.positions - ends - biases
    unembedding = counted.embedding if config.tied_embeddings else 0
    assert weight_bytes(config, 7) == 4 * (within + unembedding + rows)


def test_few_tokens_read_few_experts_and_many_read_all() -> None:
    mixtral = preset("mixtral-8x7b").config
    counted = parameters(mixtral)
    ends = mixtral.d_model  # the final norm
    one = counted.total_active - counted.embedding - ends + mixtral.d_model
    assert weight_bytes(mixtral, 1, 2) == 2 * one
    many = counted.total - counted.embedding - ends + 4096 * mixtral.d_model
    assert weight_bytes(mixtral, 4096, 2) == 2 * many
    assert 2 * one < weight_bytes(mixtral, 2, 2) < weight_bytes(mixtral, 8, 2) < 2 * many


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
