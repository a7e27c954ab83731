"""The equations of the registry, from recorded values and weights alone, for whatever a model's configuration says."""

import torch

from interp.cache import ActivationCache
from interp.models.config import ModelConfig
from interp.models.ffn import activate
from interp.models.transformer import Transformer


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-5 of the largest value."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def check_identities(model: Transformer, tokens: torch.Tensor) -> None:
    """Every equation on one batch of texts."""
    logits, cache = model.run_with_cache(tokens, "*")
    for layer in range(model.config.n_layers):
        check_attention(model, cache, layer)
        check_sublayers(model, cache, layer)
        (check_experts if model.config.layer(layer).moe else check_ffn)(model, cache, layer)
    check_ends(model, tokens, logits, cache)


def check_attention(model: Transformer, cache: ActivationCache, layer: int) -> None:
    """From what the heads read to what they write."""
    config, w = model.config, model.weights()
    block = f"blocks.{layer}."
    read = cache["ln1.normalized", layer] if config.norms in ("pre", "sandwich") else cache["resid_pre", layer]
    for letter in "qkv":
        product = torch.einsum("bpm,hmd->bphd", read, w[f"{block}attn.W_{letter.upper()}"])
        close(cache[letter, layer], product + w.get(f"{block}attn.b_{letter.upper()}", 0.0))
    pattern, shared = cache["pattern", layer], torch.arange(config.n_heads) // config.queries_per_kv
    close(pattern.sum(-1), torch.ones(pattern.shape[:-1]))
    assert (pattern.triu(1) == 0).all(), "nobody reads ahead"
    window = config.layer(layer).window
    assert window is None or (pattern.tril(-window) == 0).all(), "nobody reads what lies outside the window"
    close(cache["z", layer], torch.einsum("bhqk,bkhd->bqhd", pattern, cache["v", layer][:, :, shared]))
    close(cache["result", layer], torch.einsum("bphd,hdm->bphm", cache["z", layer], w[f"{block}attn.W_O"]))
    close(cache["attn.out", layer], cache["result", layer].sum(2) + w.get(f"{block}attn.b_O", 0.0))


def check_sublayers(model: Transformer, cache: ActivationCache, layer: int) -> None:
    """The residual stream, and the norms beside it."""
    config = model.config

    def at(short: str) -> torch.Tensor:
        return cache[short, layer]

    if config.norms in ("output", "sandwich"):
        check_norm(model, cache, f"blocks.{layer}.ln1_post", at("attn.out"))
        check_norm(model, cache, f"blocks.{layer}.ln2_post", at("mlp.out"))
        close(at("attn_out"), at("ln1_post.normalized"))
        close(at("mlp_out"), at("ln2_post.normalized"))
    middle = at("resid_pre") + at("attn_out")
    end = (middle if config.parallel else at("resid_mid")) + at("mlp_out")
    if config.norms == "post":
        check_norm(model, cache, f"blocks.{layer}.ln1", middle)
        check_norm(model, cache, f"blocks.{layer}.ln2", end)
        middle, end = at("ln1.normalized"), at("ln2.normalized")
    elif config.norms != "output":
        check_norm(model, cache, f"blocks.{layer}.ln1", at("resid_pre"))
        check_norm(model, cache, f"blocks.{layer}.ln2", at("mlp_in"))
    if not config.parallel:
        close(at("resid_mid"), middle)
    assert torch.equal(at("mlp_in"), at("resid_pre" if config.parallel else "resid_mid"))
    close(at("resid_post"), end)
    if layer + 1 < config.n_layers:
        assert torch.equal(cache["resid_pre", layer + 1], at("resid_post"))


def check_ffn(model: Transformer, cache: ActivationCache, layer: int) -> None:
    """From the normalised residual to what the neurons write."""
    config, w, name = model.config, model.weights(), f"blocks.{layer}.mlp."
    read = cache["ln2.normalized", layer] if config.norms in ("pre", "sandwich") else cache["mlp_in", layer]
    up = read @ w[name + "W_in"] + w.get(name + "b_in", 0.0)
    if config.gated:
        close(cache["mlp.pre_linear", layer], up)
        close(cache["mlp.pre", layer], read @ w[name + "W_gate"] + w.get(name + "b_gate", 0.0))
        close(cache["mlp.post", layer], activate(config.activation, cache["mlp.pre", layer]) * up)
    else:
        close(cache["mlp.pre", layer], up)
        close(cache["mlp.post", layer], activate(config.activation, up))
    close(cache["mlp.out", layer], cache["mlp.post", layer] @ w[name + "W_out"] + w.get(name + "b_out", 0.0))


def check_experts(model: Transformer, cache: ActivationCache, layer: int) -> None:
    """The chosen experts, their weights, and the sum of what they write."""
    moe = model.config.moe
    assert moe is not None
    router, chosen = cache["mlp.router", layer], cache["mlp.expert_indices", layer]
    assert torch.equal(router.topk(moe.top_k).indices, chosen), "best first"
    weights = cache["mlp.expert_weights", layer]
    if moe.renormalise or moe.routing == "top_k_then_softmax":
        close(weights.sum(-1), torch.full(weights.shape[:-1], moe.scaling))
    out = (cache["mlp.expert_out", layer] * weights[..., None]).sum(-2)
    close(cache["mlp.out", layer], out if moe.d_shared is None else out + cache["mlp.shared.out", layer])


def check_norm(model: Transformer, cache: ActivationCache, name: str, read: torch.Tensor) -> None:
    """The divisor, and the result, of one norm."""
    centred = read - read.mean(-1, keepdim=True) if model.config.norm == "layer" else read
    scale = (centred.square().mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
    close(cache[f"{name}.hook_scale"], scale)
    close(cache[f"{name}.hook_normalized"], scaled(model, name, centred / scale))


def scaled(model: Transformer, name: str, divided: torch.Tensor) -> torch.Tensor:
    """With the gain and the bias of a norm."""
    w = model.weights()
    gain = w[f"{name}.w"] + float(model.config.norm_offset)
    return divided * gain + w.get(f"{name}.b", 0.0)


def check_ends(model: Transformer, tokens: torch.Tensor, logits: torch.Tensor, cache: ActivationCache) -> None:
    """Embedding and unembedding."""
    config, w = model.config, model.weights()
    if not config.embed_norm:
        close(cache["embed"], w["embed.W_E"][tokens] * config.embed_scale)
    placed = config.learned_positions or config.sinusoidal
    close(cache["resid_pre", 0], cache["embed"] + cache["pos_embed"] if placed else cache["embed"])
    final = cache["resid_post", -1]
    if config.final_norm:
        check_norm(model, cache, "ln_final", final)
        final = cache["ln_final.normalized"]
    close(cache["unembed.out"], (final @ model.W_U + w.get("unembed.b_U", 0.0)) * config.logit_scale)
    close(logits, capped(config, cache["unembed.out"]))
    close(model.unembed_residual(cache["resid_post", -1]), logits)


def capped(config: ModelConfig, logits: torch.Tensor) -> torch.Tensor:
    """After the soft-cap, where there is one."""
    return logits if config.logit_cap is None else config.logit_cap * torch.tanh(logits / config.logit_cap)
