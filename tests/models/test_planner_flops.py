"""The operations that are told of a token are those that PyTorch counts."""

from collections.abc import Callable, Sequence

import pytest
import torch
from tiny import CONFIGS, random_tokens, tiny
from torch.utils.flop_counter import FlopCounterMode

from interp.models.config import ModelConfig
from interp.models.kv_cache import KVCache
from interp.models.operations import run_flops
from interp.models.planner import decode_step, kv_bytes, prefill_step, token_flops
from interp.models.planner.intensity import Step
from interp.models.planner.memory import weight_bytes
from interp.models.planner.speed import Speed
from interp.models.presets import preset

every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))


def counted(work: Callable[[], object]) -> int:
    """What PyTorch counts, with its CPU kernel of attention, which it does not know."""

    def attention(query: Sequence[int], key: Sequence[int], *rest: object, **more: object) -> int:
        batch, head, query_pos, d_head = query
        return 4 * batch * head * query_pos * key[2] * d_head

    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with FlopCounterMode(display=False, custom_mapping={kernel: attention}) as counter:
        work()
    return counter.get_total_flops()


@every_config
def test_a_forward_pass_does_what_is_counted(config: ModelConfig) -> None:
    model, tokens = tiny(config), random_tokens(config, 2, 9)
    assert counted(lambda: model(tokens)) == run_flops(config, 9, batch=2)


@every_config
def test_reading_a_text_and_writing_on_do_what_is_counted(config: ModelConfig) -> None:
    model, flops, tokens = tiny(config), token_flops(config), random_tokens(config, 1, 9)
    last = f"blocks.{config.n_layers - 1}.hook_resid_post"

    def read() -> None:
        _, cache = model.run_with_cache(tokens, [last], stop_at_layer=config.n_layers)
        model.unembed_rows(cache[last][:, -1:])

    cache = KVCache.for_model(model, batch=1)
    model(tokens[:, :8], kv_cache=cache)
    assert counted(read) == flops.prefill(9)
    assert counted(lambda: model(tokens[:, 8:], kv_cache=cache)) == flops.decode(9)


@every_config
def test_operations_without_attention_are_two_for_each_number_in_a_product(config: ModelConfig) -> None:
    flops = token_flops(config)
    ffn = sum(config.ffn_width(layer) for layer in range(config.n_layers)) * config.d_model
    attention = config.n_layers * 2 * (config.n_heads + config.n_kv_heads) * config.d_head * config.d_model
    assert flops.without_attention == 2 * (ffn + attention + config.d_model * config.d_vocab)
    assert flops.decode(11) - flops.decode(10) == 4 * config.n_layers * config.n_heads * config.d_head


def test_only_chosen_experts_are_computed() -> None:
    mixtral, mistral = (token_flops(preset(name).config) for name in ("mixtral-8x7b", "mistral-7b-v0.1"))
    one_more_expert = 2 * 32 * 3 * 14_336 * 4096
    routers = 2 * 32 * 8 * 4096
    assert mixtral.without_attention - mistral.without_attention == one_more_expert + routers


# ------------------------------------------------------------------------------------------------------ intensity


def test_a_step_of_decoding_reads_weights_once_and_everybodys_keys_and_values() -> None:
    config = preset("llama-3.1-8b").config
    one, many = (decode_step(config, 2048, batch=batch, itemsize=2) for batch in (1, 32))
    assert many.flops == 32 * one.flops
    assert one.moved == weight_bytes(config, 1, 2) + kv_bytes(config, 2048, 2)
    assert many.moved - weight_bytes(config, 32, 2) == 32 * kv_bytes(config, 2048, 2)
    assert 0.9 < one.intensity < 1.1 < many.intensity


def test_a_long_text_is_bound_by_computing_and_one_token_by_memory() -> None:
    config, speed = preset("llama-3.1-8b").config, Speed(4e14, 4e12)
    reading, writing = prefill_step(config, 2048, itemsize=2), decode_step(config, 2048, itemsize=2)
    assert speed.ridge == 100
    assert (reading.bound(speed), writing.bound(speed)) == ("computing", "memory")
    assert reading.seconds(speed) == reading.flops / 4e14
    assert writing.seconds(speed) == writing.moved / 4e12


def test_at_the_ridge_both_take_as_long() -> None:
    speed = Speed(flops_per_second=300.0, bytes_per_second=3.0)
    assert Step(100, 1).seconds(speed) == 100 / 300.0 == 1 / 3.0
