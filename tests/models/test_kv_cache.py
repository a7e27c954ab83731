"""Reading on from a cache gives what reading everything gives, and a cache that does not fit is refused."""

import itertools

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import edits
from interp.errors import HookError, UsageError
from interp.models.kv_cache import KVCache
from interp.models.transformer import Transformer


def in_pieces(
    model: Transformer, tokens: torch.Tensor, cuts: list[int], mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits of all tokens, read in pieces that end at the cuts."""
    cache = KVCache.for_model(model, batch=len(tokens), capacity=2)
    ends = [0, *cuts, tokens.shape[1]]
    found = [
        model(tokens[:, start:end], None if mask is None else mask[:, start:end], cache)
        for start, end in itertools.pairwise(ends)
    ]
    assert cache.length == tokens.shape[1]
    return torch.cat(found, 1)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_split_gives_the_full_forward(name: str, device: str) -> None:
    model = tiny(CONFIGS[name]).to(device)
    tokens = random_tokens(model.config, 2, 7).to(device)
    whole = model(tokens)
    for cut in range(1, 7):
        close(in_pieces(model, tokens, [cut]), whole)
    close(in_pieces(model, tokens, [1, 2, 3, 4, 5, 6]), whole)
    close(in_pieces(model, tokens, [2, 5]), whole)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_split_anywhere(side: str) -> None:
    model, tokens = tiny(), random_tokens(BASE, 3, 8)
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[0, slice(0, 5) if side == "left" else slice(3, None)] = False
    mask[1, slice(0, 2) if side == "left" else slice(6, None)] = False
    whole = model(tokens, mask)
    for cut in range(1, 8):
        close(in_pieces(model, tokens, [cut], mask)[mask], whole[mask])


@pytest.mark.parametrize("names", ["blocks.*.attn.hook_pattern", "blocks.1.hook_q_input", "blocks.*.attn.hook_result"])
def test_splits_agree_while_hooks_edit(names: str) -> None:
    """Edits at every position, with explicit attention and on-demand points, cached and uncached."""
    model, tokens = tiny(), random_tokens(BASE, 2, 6)
    hooks = [("blocks.0.hook_resid_post", edits.scale(1.3)), (names, edits.scale(0.8))]
    with model.hooks(hooks):
        whole = model(tokens)
        for cut in range(1, 6):
            close(in_pieces(model, tokens, [cut]), whole)


@pytest.mark.parametrize("position", range(6))
def test_an_edit_at_a_position_happens_when_that_position_is_read(position: int) -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 6)
    hooks = [
        ("blocks.1.hook_resid_pre", edits.steer(torch.ones(BASE.d_model), positions=position)),
        ("blocks.1.attn.hook_attn_scores", edits.knock_out(queries=5, keys=[0, position % 5])),
    ]
    with model.hooks(hooks):
        whole = model(tokens)
        for cuts in ([2], [1, 2, 3, 4, 5]):
            close(in_pieces(model, tokens, cuts), whole)


def test_keys_and_values_are_those_of_the_full_forward_and_can_be_edited() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 6)
    _, recorded = model.run_with_cache(tokens)
    cache = KVCache.for_model(model, batch=2)
    model(tokens[:, :5], kv_cache=cache)
    close(cache.keys, recorded.stack("rot_k")[:, :, :5])
    close(cache.values, recorded.stack("v")[:, :, :5])
    plain = model(tokens[:, 5:], kv_cache=cache.clone())
    edited = cache.clone()
    edited.values[1, :, 3, 0] = 0
    changed = model(tokens[:, 5:], kv_cache=edited)
    assert (changed - plain).abs().max() > 1e-3
    close(model(tokens[:, 5:], kv_cache=cache), plain)


def test_bytes_are_counted_as_allocated_and_growth_keeps_what_is_stored() -> None:
    model = tiny(dtype=torch.bfloat16)
    cache = KVCache.for_model(model, batch=3, capacity=4)
    assert cache.bytes_per_token == 2 * BASE.n_layers * BASE.n_kv_heads * BASE.d_head * 2
    assert cache.nbytes == cache.bytes_per_token * 3 * 4
    assert cache.keys.dtype == torch.bfloat16
    model(random_tokens(BASE, 3, 4), kv_cache=cache)
    before = cache.keys.clone()
    model(random_tokens(BASE, 3, 1), kv_cache=cache)
    assert cache.capacity == 8
    assert torch.equal(cache.keys[:, :, :4], before)
    cache.reserve(100)
    assert (cache.capacity, cache.length) == (100, 5)


def test_truncating_goes_back_to_an_earlier_state() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 6)
    cache = KVCache.for_model(model, batch=1)
    whole = model(tokens, kv_cache=cache)
    cache.truncate(2)
    close(model(tokens[:, 2:], kv_cache=cache), whole[:, 2:])
    with pytest.raises(UsageError, match="cannot be cut to 7"):
        cache.truncate(7)


@pytest.mark.parametrize("error", [HookError, KeyboardInterrupt])
def test_an_interrupted_pass_leaves_the_cache_as_it_was(error: type[BaseException]) -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 6)
    cache = KVCache.for_model(model, batch=1)
    model(tokens[:, :3], kv_cache=cache)

    def fail(value: torch.Tensor, point: object) -> None:
        raise error

    with pytest.raises(error), model.hooks([("blocks.2.hook_resid_pre", fail)]):
        model(tokens[:, 3:], kv_cache=cache)
    assert cache.length == 3
    close(model(tokens[:, 3:], kv_cache=cache), model(tokens)[:, 3:])


def test_caches_that_do_not_fit_are_refused() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 3)
    with pytest.raises(UsageError, match="belongs to another model"):
        model(tokens, kv_cache=KVCache.for_model(tiny(CONFIGS["multi_head"]), batch=2))
    with pytest.raises(UsageError, match="float32"):
        model(tokens, kv_cache=KVCache(BASE, batch=2, dtype=torch.float16))
    with pytest.raises(UsageError, match="holds 1 rows, 2 came"):
        model(tokens, kv_cache=KVCache.for_model(model, batch=1))
    with pytest.raises(UsageError, match="made for 2 tokens, 3 are needed"):
        model(tokens, kv_cache=KVCache.for_model(model, batch=2, capacity=2, grows=False))
    with pytest.raises(UsageError, match="at least one row"):
        KVCache.for_model(model, batch=0)
    full = KVCache.for_model(model, batch=2)
    full.length = BASE.n_ctx - 1
    with pytest.raises(UsageError, match="exceed the context"):
        model(tokens, kv_cache=full)
    with pytest.raises(UsageError, match="keeps no gradients"), model.hooks([("hook_embed", _with_gradient)]):
        model(tokens, kv_cache=KVCache.for_model(model, batch=2))


def _with_gradient(value: torch.Tensor, point: object) -> torch.Tensor:
    return value.requires_grad_()


@pytest.mark.parametrize("padded", [False, True])
def test_inference_mode_and_normal_mode_can_share_a_cache(padded: bool) -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 6)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 0] = not padded
    with torch.inference_mode():
        cache = KVCache.for_model(model, batch=2, capacity=1)
        model(tokens[:, :2], mask[:, :2], cache)
        model(tokens[:, 2:4], mask[:, 2:4], cache)
    close(model(tokens[:, 4:], mask[:, 4:], cache), model(tokens, mask)[:, 4:])
