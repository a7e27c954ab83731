"""A mixture of experts equals all experts computed on all tokens, masked and weighted; its points act as named."""

from dataclasses import replace

import pytest
import torch
from families.sparse import CASES
from identities import close
from tiny import BASE, random_tokens, tiny
from torch import Tensor

import interp
from interp.errors import HookError
from interp.hooks import HookFn, HookPoint
from interp.models.config import ModelConfig, MoEConfig
from interp.models.ffn import activate
from interp.models.moe import MoE
from interp.models.transformer import Transformer

PLAIN = MoEConfig(n_experts=7, top_k=3, d_expert=22)
SHARED = replace(PLAIN, d_shared=26)
LAYER, NAME = 1, "blocks.1.mlp."

ROUTINGS = {
    f"{routing}, {'renormalised' if renormalise else 'as they are'}": replace(
        PLAIN, routing=routing, renormalise=renormalise, scaling=scaling
    )
    for scaling, routing in enumerate(("softmax_then_top_k", "top_k_then_softmax"), start=1)
    for renormalise in (True, False)
}
KINDS = ROUTINGS | {
    "scaled": replace(PLAIN, renormalise=False, scaling=2.5),
    "one of seven": replace(PLAIN, top_k=1, renormalise=False),
    "all of seven": replace(PLAIN, top_k=7),
    "shared": SHARED,
    "shared with a gate": replace(SHARED, shared_gate=True),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def mixture(moe: MoEConfig, seed: int = 0) -> Transformer:
    return tiny(replace(BASE, n_layers=2, moe=moe), seed=seed)


def gated_ffn(config: ModelConfig, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (activate(config.activation, x @ gate) * (x @ up)) @ down


def routed(moe: MoEConfig, logits: Tensor) -> tuple[list[int], list[float]]:
    """The experts of one token and their weights, by sorting."""
    best = sorted(range(moe.n_experts), key=lambda expert: -float(logits[expert]))[: moe.top_k]
    among = best if moe.routing == "top_k_then_softmax" else list(range(moe.n_experts))
    total = sum(float(logits[expert].exp()) for expert in among)
    weights = [float(logits[expert].exp()) / total for expert in best]
    if moe.renormalise:
        weights = [weight / sum(weights) for weight in weights]
    return best, [weight * moe.scaling for weight in weights]


def dense(model: Transformer, x: Tensor) -> Tensor:
    """Every expert on every token, times its weight, which is zero for most; and the shared expert."""
    config, moe = model.config, model.config.moe
    assert moe is not None
    w = {name.removeprefix(NAME): weight for name, weight in model.weights().items() if name.startswith(NAME)}
    mask = torch.zeros(*x.shape[:2], moe.n_experts)
    for row, position in torch.cartesian_prod(torch.arange(x.shape[0]), torch.arange(x.shape[1])).tolist():
        experts, weights = routed(moe, x[row, position] @ w["W_router"])
        mask[row, position, experts] = torch.tensor(weights)
    parts = [gated_ffn(config, x, w["W_gate"][e], w["W_in"][e], w["W_out"][e]) for e in range(moe.n_experts)]
    out = (torch.stack(parts, -2) * mask[..., None]).sum(-2)
    if moe.d_shared is None:
        return out
    shared = gated_ffn(config, x, w["shared.W_gate"], w["shared.W_in"], w["shared.W_out"])
    return out + (shared * (x @ w["W_shared_gate"]).sigmoid() if moe.shared_gate else shared)


# ------------------------------------------------------------------------------------------------------ values


@every_kind
def test_the_output_is_that_of_all_experts_masked_and_weighted(kind: str) -> None:
    model = mixture(KINDS[kind])
    _, cache = model.run_with_cache(random_tokens(model.config, 2, 9), [f"{NAME}*", "blocks.1.ln2.hook_normalized"])
    close(cache["mlp.out", LAYER], dense(model, cache["ln2.normalized", LAYER]))


def test_experts_that_no_token_chose_are_passed_over() -> None:
    model = mixture(PLAIN)
    _, cache = model.run_with_cache(random_tokens(model.config, 1, 1))
    assert len(set(cache["mlp.expert_indices", LAYER].flatten().tolist())) == PLAIN.top_k < PLAIN.n_experts
    close(cache["mlp.out", LAYER], dense(model, cache["ln2.normalized", LAYER]))


@pytest.mark.parametrize("kind", ROUTINGS)
def test_experts_are_chosen_and_weighted_as_the_configuration_says(kind: str) -> None:
    moe = ROUTINGS[kind]
    model = mixture(moe)
    _, cache = model.run_with_cache(random_tokens(model.config, 1, 6))
    for position, logits in enumerate(cache["mlp.router", LAYER][0]):
        experts, weights = routed(moe, logits)
        assert cache["mlp.expert_indices", LAYER][0, position].tolist() == experts
        assert cache["mlp.expert_weights", LAYER][0, position].tolist() == pytest.approx(weights, rel=1e-5)


def test_each_routing_gives_weights_of_its_own() -> None:
    logits = torch.tensor([0.5, 2.0, -1.0, 1.0, 0.0, 0.3, -2.0])
    sums = []
    for moe in ROUTINGS.values():
        mlp = mixture(moe).layers[LAYER].mlp
        assert isinstance(mlp, MoE)
        indices, weights = mlp.choose(logits[None, None])
        assert indices.flatten().tolist() == [1, 3, 0], "best first"
        sums.append(float(weights.sum()))
    assert sums == pytest.approx([1.0, 0.8047, 2.0, 2.0], abs=1e-4)


def test_an_expert_that_nobody_chose_changes_no_bit() -> None:
    model = mixture(PLAIN)
    tokens = random_tokens(model.config, 1, 2)
    logits, (_, cache) = model(tokens), model.run_with_cache(tokens, "blocks.*.mlp.*")
    w, changed = model.weights(), 0
    for layer in range(model.config.n_layers):
        unused = sorted(set(range(PLAIN.n_experts)) - set(cache["mlp.expert_indices", layer].flatten().tolist()))
        for name in ("W_gate", "W_in", "W_out"):
            w[f"blocks.{layer}.mlp.{name}"][unused] = torch.nan
        changed += len(unused)
    assert changed >= 2, "at most 6 of 7 experts are chosen in each of the layers"
    assert torch.equal(model(tokens), logits)


@pytest.mark.parametrize("point", ["pre", "pre_linear", "post", "expert_out"])
def test_watching_the_neurons_changes_nothing(point: str) -> None:
    """Unwatched, an expert goes through all three maps at once; watched, all experts through one after the other."""
    model = mixture(SHARED)
    tokens = random_tokens(model.config, 2, 9)
    watched, _ = model.run_with_cache(tokens, f"*.mlp.hook_{point}")
    close(watched, model(tokens))


def test_experts_may_be_numbered_in_any_order() -> None:
    model = mixture(PLAIN)
    tokens, order = random_tokens(model.config, 2, 9), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    logits, cache = model.run_with_cache(tokens)
    for name, weight in model.weights().items():
        if name.endswith("mlp.W_router"):
            weight.copy_(weight[:, order].clone())
        elif ".mlp." in name:
            weight.copy_(weight[order].clone())
    renumbered, after = model.run_with_cache(tokens)
    close(renumbered, logits)
    for layer in range(model.config.n_layers):
        assert torch.equal(order[after["mlp.expert_indices", layer]], cache["mlp.expert_indices", layer])


def test_gate_and_up_taken_for_each_other_would_be_noticed() -> None:
    hf = CASES["mixtral"].build()
    tokens = random_tokens(interp.from_transformers(hf, device="cpu").config, 2, 7)
    expected = hf(tokens, use_cache=False).logits
    for layer in hf.model.layers:
        both = layer.mlp.experts.gate_up_proj
        both.copy_(torch.cat(both.chunk(2, 1)[::-1], 1))
    swapped = interp.from_transformers(hf, device="cpu")(tokens)
    close(swapped, hf(tokens, use_cache=False).logits)
    assert float((swapped - expected).abs().max()) > 0.1 * float(expected.abs().max())


# ------------------------------------------------------------------------------------------------------ points


@every_kind
def test_every_point_of_the_mixture_is_what_it_says(kind: str) -> None:
    model = mixture(KINDS[kind])
    config, moe = model.config, KINDS[kind]
    w = {name.removeprefix(NAME): weight for name, weight in model.weights().items() if name.startswith(NAME)}
    _, cache = model.run_with_cache(random_tokens(config, 2, 9), "*")
    x = cache["ln2.normalized", LAYER]

    def at(short: str) -> Tensor:
        return cache[f"mlp.{short}", LAYER]

    close(at("router"), x @ w["W_router"])
    chosen = at("expert_indices")
    assert torch.equal(chosen, at("router").topk(moe.top_k).indices)
    close(at("pre"), torch.einsum("bpm,bpsmf->bpsf", x, w["W_gate"][chosen]))
    close(at("pre_linear"), torch.einsum("bpm,bpsmf->bpsf", x, w["W_in"][chosen]))
    close(at("post"), activate(config.activation, at("pre")) * at("pre_linear"))
    close(at("expert_out"), torch.einsum("bpsf,bpsfm->bpsm", at("post"), w["W_out"][chosen]))
    mixed = (at("expert_out") * at("expert_weights")[..., None]).sum(-2)
    if moe.d_shared is None:
        close(at("out"), mixed)
        return
    close(at("shared.pre"), x @ w["shared.W_gate"])
    close(at("shared.pre_linear"), x @ w["shared.W_in"])
    close(at("shared.post"), activate(config.activation, at("shared.pre")) * at("shared.pre_linear"))
    gate = (x @ w["W_shared_gate"]).sigmoid() if moe.shared_gate else 1.0
    close(at("shared.out"), at("shared.post") @ w["shared.W_out"] * gate)
    close(at("out"), mixed + at("shared.out"))


GATED = replace(SHARED, shared_gate=True)


def out_with(model: Transformer, tokens: Tensor, point: str, edit: HookFn) -> Tensor:
    """The mixture's output while one of its points is edited."""
    with model.hooks([(NAME + point, edit)]):
        return model.run_with_cache(tokens, f"{NAME}hook_out")[1]["mlp.out", LAYER]


def without_slot_1(value: Tensor, point: HookPoint) -> Tensor:
    value[:, :, 1] = 0
    return value


@pytest.mark.parametrize("point", ["expert_weights", "pre", "pre_linear", "post", "expert_out"])
def test_a_slot_that_is_zeroed_adds_nothing(point: str) -> None:
    model = mixture(GATED)
    tokens = random_tokens(model.config, 2, 9)
    _, cache = model.run_with_cache(tokens, f"{NAME}*")
    terms = cache["mlp.expert_out", LAYER] * cache["mlp.expert_weights", LAYER][..., None]
    found = out_with(model, tokens, f"hook_{point}", without_slot_1)
    close(found, cache["mlp.out", LAYER] - terms[:, :, 1])


@pytest.mark.parametrize("point", ["pre", "pre_linear", "post", "out"])
def test_a_shared_expert_that_is_zeroed_adds_nothing(point: str) -> None:
    model = mixture(GATED)
    tokens = random_tokens(model.config, 2, 9)
    _, cache = model.run_with_cache(tokens, f"{NAME}*")
    found = out_with(model, tokens, f"shared.hook_{point}", lambda value, _: torch.zeros_like(value))
    close(found, cache["mlp.out", LAYER] - cache["mlp.shared.out", LAYER])


def test_edited_router_logits_choose_other_experts() -> None:
    model = mixture(PLAIN)
    tokens, wanted = random_tokens(model.config, 2, 9), [5, 2, 6]

    def prefer(value: Tensor, point: HookPoint) -> Tensor:
        value[...] = 0
        value[..., wanted] = torch.tensor([30.0, 29.0, 28.0])
        return value

    with model.hooks([(f"{NAME}hook_router", prefer)]):
        _, cache = model.run_with_cache(tokens, f"{NAME}*")
    weights = torch.tensor([30.0, 29.0, 28.0]).softmax(0)
    assert (cache["mlp.expert_indices", LAYER] == torch.tensor(wanted)).all()
    close(cache["mlp.expert_weights", LAYER], weights.expand(2, 9, 3))


def test_experts_can_be_replaced_at_their_indices() -> None:
    """The weights stay: what another expert would have written, at the same strength."""
    model = mixture(PLAIN)
    tokens = random_tokens(model.config, 2, 9)
    _, before = model.run_with_cache(tokens, [f"{NAME}*", "blocks.1.ln2.hook_normalized"])
    found = out_with(model, tokens, "hook_expert_indices", lambda value, _: torch.full_like(value, 4))
    w, x = model.weights(), before["ln2.normalized", LAYER]
    fourth = gated_ffn(model.config, x, *(w[f"{NAME}{name}"][4] for name in ("W_gate", "W_in", "W_out")))
    close(found, fourth * before["mlp.expert_weights", LAYER].sum(-1, keepdim=True))


@pytest.mark.parametrize("expert", [-1, 7, 10**12])
def test_an_expert_that_does_not_exist_is_refused_before_any_computes(expert: int) -> None:
    model = mixture(PLAIN)

    def choose(value: Tensor, point: HookPoint) -> Tensor:
        value[0, -1, 1] = expert
        return value

    said = rf"The hook at {NAME}hook_expert_indices chose expert {expert}; there are 0 to 6\."
    with pytest.raises(HookError, match=said):
        model.run_with_hooks(random_tokens(model.config, 1, 4), [(f"{NAME}hook_expert_indices", choose)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_of_a_recording_is_known_before(dtype: torch.dtype) -> None:
    """The chosen experts are whole numbers of eight bytes, whatever the rest is."""
    model = tiny(replace(BASE, moe=GATED), dtype=dtype)
    _, cache = model.run_with_cache(random_tokens(model.config, 2, 9), "*.mlp.*")
    assert model.cache_bytes(2, 9, "*.mlp.*") == sum(value.nbytes for value in cache.values())


def test_gradients_reach_every_recorded_point_of_a_mixture() -> None:
    model = mixture(GATED)
    tokens = random_tokens(model.config, 2, 9)
    points = [name for name in model.points() if name.startswith(NAME) and "indices" not in name]
    _, cache = model.run_with_cache(tokens, points, gradients_of=lambda logits: logits[:, -1].logsumexp(-1).sum())
    assert cache.gradients is not None
    for name in points:
        assert float(cache.gradients[name].abs().max()) > 0, name


def test_a_gradient_is_the_slope_of_the_output() -> None:
    model = mixture(GATED)
    tokens, step = random_tokens(model.config, 1, 5), 1e-2

    def score(logits: Tensor) -> Tensor:
        return logits[0, -1, 3]

    def with_weight(change: float) -> float:
        def edit(value: Tensor, point: HookPoint) -> Tensor:
            value[0, -1, 0] += change
            return value

        return float(score(model.run_with_hooks(tokens, [(f"{NAME}hook_expert_weights", edit)])))

    _, cache = model.run_with_cache(tokens, f"{NAME}hook_expert_weights", gradients_of=score)
    assert cache.gradients is not None
    slope = (with_weight(step) - with_weight(-step)) / (2 * step)
    assert float(cache.gradients["mlp.expert_weights", LAYER][0, -1, 0]) == pytest.approx(slope, rel=1e-2)
