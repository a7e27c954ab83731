"""Every mechanism that a configuration can ask for, against the same written out by hand; edits act on all of them."""

import math

import pytest
import torch
from by_hand import logits_by_hand, norm
from identities import check_identities
from tiny import CONFIGS, MECHANISMS, random_tokens, reference, tiny

from interp import edits
from interp.errors import UsageError
from interp.hooks import HookPoint

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    scale = float(expected.abs().max())
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=tolerance * scale)


@every_mechanism
def test_logits_are_those_written_out_by_hand(name: str) -> None:
    """In float64, so that only the rotary tables, which are float32, differ."""
    model = tiny(MECHANISMS[name], dtype=torch.float64)
    tokens = random_tokens(model.config, 2, 9)
    expected = torch.stack([logits_by_hand(model, row) for row in tokens])
    close(model(tokens), expected, 1e-6)
    close(tiny(MECHANISMS[name])(tokens), expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_equation_of_the_hook_points_holds(name: str) -> None:
    model = tiny(CONFIGS[name])
    check_identities(model, random_tokens(model.config, 2, 11))


@every_mechanism
def test_what_a_hook_returns_is_what_the_model_uses(name: str) -> None:
    """At every point of the middle layer: a look changes nothing, an edit changes the logits and is recorded."""
    model, generator = tiny(MECHANISMS[name]), torch.Generator().manual_seed(3)
    tokens = random_tokens(model.config, 2, 6)
    plain, before = model.run_with_cache(tokens, "*")
    for point in (name for name in model.points() if "blocks" not in name or ".1." in name):
        if point.endswith("hook_expert_indices"):
            continue  # whole numbers: other experts, not other values

        def disturbed(value: torch.Tensor, hook: HookPoint) -> torch.Tensor:
            return value * (1.3 + 0.4 * torch.rand(value.shape, generator=generator))

        with model.hooks([(point, disturbed)]):
            edited, cache = model.run_with_cache(tokens, point)
        finite = before[point].isfinite()
        assert (cache[point] - before[point])[finite].abs().max() > 1e-3, point
        assert (edited - plain).abs().max() > 1e-4, point
        close(model.run_with_hooks(tokens, [(point, lambda value, hook: None)]), plain)


@every_mechanism
def test_gradients_reach_the_embedding(name: str) -> None:
    model = tiny(MECHANISMS[name])
    _, cache = model.run_with_cache(
        random_tokens(model.config, 2, 6), "hook_embed", gradients_of=lambda logits: logits[:, -1, 0].sum()
    )
    assert cache.gradients is not None
    assert cache.gradients["embed"].isfinite().all()
    assert cache.gradients["embed"][:, -1].abs().max() > 0


@every_mechanism
def test_stacked_and_single_weights_are_the_same_numbers(name: str) -> None:
    model = tiny(MECHANISMS[name])
    for layer in range(model.config.n_layers):
        assert torch.equal(model.W_Q[layer], model.weights()[f"blocks.{layer}.attn.W_Q"])
    assert sum(weight.numel() for weight in model.weights().values()) == model.n_parameters


def test_fixed_waves_and_norms_after_the_additions_are_the_original_transformer() -> None:
    """Embedding + table, then LayerNorm(x + sublayer(x)) twice a layer, and nothing before the unembedding."""
    model = tiny(MECHANISMS["sinusoidal"])
    config, w, length = model.config, model.weights(), 5
    tokens = random_tokens(config, 1, length)
    logits, cache = model.run_with_cache(tokens)
    waves = [math.sin, math.cos]
    table = torch.tensor(
        [
            [waves[i % 2](p / 10_000 ** (i // 2 * 2 / config.d_model)) for i in range(config.d_model)]
            for p in range(length)
        ]
    )
    close(cache["pos_embed"][0], table)
    x = w["embed.W_E"][tokens] + table
    for layer in range(config.n_layers):
        close(cache["resid_pre", layer], x)
        x = norm(config, w, f"blocks.{layer}.ln1", x + cache["attn_out", layer])
        close(cache["resid_mid", layer], x)
        x = norm(config, w, f"blocks.{layer}.ln2", x + cache["mlp_out", layer])
    close(logits, x @ w["embed.W_E"].T)


def test_a_window_is_a_number_of_positions_the_query_included() -> None:
    model = tiny(MECHANISMS["sliding_window"])
    _, cache = model.run_with_cache(random_tokens(model.config, 1, 7))
    assert ((cache["pattern", 0][0] > 0).sum(-1) == torch.tensor([1, 2, 3, 3, 3, 3, 3])).all()
    changed = model.run_with_hooks(
        random_tokens(model.config, 1, 7), [("blocks.*.attn.hook_v", edits.zero(positions=0))]
    )
    reach = 2 * model.config.n_layers  # two positions further a layer
    assert torch.equal(changed[0, reach + 1 :], model(random_tokens(model.config, 1, 7))[0, reach + 1 :])


def test_layers_without_positions_do_not_see_the_order() -> None:
    """Their scores of two keys that hold the same residual are equal, wherever these stand."""
    model = tiny(MECHANISMS["no_positions_on_some_layers"])
    same = random_tokens(model.config, 1, 1).expand(1, 5)
    _, cache = model.run_with_cache(same)
    close(cache["rot_k", 1], cache["k", 1])
    close(cache["attn_scores", 1][0, :, 4, :], cache["attn_scores", 1][0, :, 4, :1].expand(-1, 5))
    assert (cache["rot_k", 0] - cache["k", 0]).abs().max() > 0.1


ALL_WAYS = ("sublayer", "head", "neuron")
NOT_ADDITIVE = {
    **{(name, by): "normalises its residual" for name in ("sinusoidal", "post_norm") for by in ALL_WAYS},
    **{(name, by): "take by='sublayer'" for name in ("output_norm", "sandwich_norm") for by in ALL_WAYS[1:]},
    **{(name, "neuron"): "mixture of experts" for name in ("moe_top2", "moe_shared_gated", "moe_mixed_layers")},
}


@pytest.mark.parametrize("by", ALL_WAYS)
@every_mechanism
def test_the_residual_stream_is_the_sum_of_its_parts_or_has_none(name: str, by: str) -> None:
    model = tiny(MECHANISMS[name])
    _, cache = model.run_with_cache(random_tokens(model.config, 2, 5))
    if (name, by) in NOT_ADDITIVE:
        with pytest.raises(UsageError, match=NOT_ADDITIVE[name, by]):
            cache.residual_parts(by)
    else:
        close(cache.residual_parts(by).values.sum(0), cache["resid_post", -1])
    close(cache.residual_parts(by, layer=0).values.sum(0), cache["resid_pre", 0])


def test_the_reference_refuses_what_llamas_class_cannot_express() -> None:
    for name in MECHANISMS:
        with pytest.raises(ValueError, match="Llama's class cannot express"):
            reference(tiny(MECHANISMS[name]))
