"""Transformers once more, from their papers: one text, one head, one query, one token at a time, in float64.

Slow and plain on purpose, and with nothing of the package but a model's weights and its configuration. Rotary positions
are complex numbers, distances of ALiBi are subtracted as in the paper, and every expert is asked for by name.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from interp.models.config import LayerConfig, ModelConfig, RotaryConfig
from interp.models.transformer import Transformer

SLOPES_OF_SIX = (2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3)
"""ALiBi's slopes for six heads: those of four, then every other of those of eight."""

ACTIVATIONS = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "relu": lambda x: x.clamp(min=0),
}


def logits_by_hand(model: Transformer, tokens: Tensor) -> Tensor:
    """Logits of one text [pos], [pos, d_vocab]."""
    config, w = model.config, {name: weight.double() for name, weight in model.weights().items()}
    x = embedding(config, w, tokens)
    for layer in range(config.n_layers):
        x = block(config, w, layer, x)
    if config.final_norm:
        x = norm(config, w, "ln_final", x)
    out = x @ (w["embed.W_E"].T if config.tied_embeddings else w["unembed.W_U"]) + w.get("unembed.b_U", 0)
    out = out * config.logit_scale
    return out if config.logit_cap is None else config.logit_cap * torch.tanh(out / config.logit_cap)


def embedding(config: ModelConfig, w: dict[str, Tensor], tokens: Tensor) -> Tensor:
    x = torch.stack([w["embed.W_E"][token] for token in tokens.tolist()]) * config.embed_scale
    if config.embed_norm:
        x = norm(config, w, "ln_embed", x)
    for position in range(len(tokens)):
        if config.learned_positions:
            x[position] += w["pos_embed.W_pos"][position + config.position_offset]
        if config.sinusoidal:
            for pair in range(config.d_model // 2):
                angle = position / 10_000 ** (2 * pair / config.d_model)
                x[position, 2 * pair] += math.sin(angle)
                x[position, 2 * pair + 1] += math.cos(angle)
    return x


def block(config: ModelConfig, w: dict[str, Tensor], layer: int, x: Tensor) -> Tensor:
    """One layer, for each place where norms may stand."""
    at, ffn = f"blocks.{layer}.", experts if config.layer(layer).moe else feed_forward

    def before(name: str, value: Tensor) -> Tensor:
        return norm(config, w, at + name, value) if config.norms in ("pre", "sandwich") else value

    def behind(name: str, value: Tensor) -> Tensor:
        return norm(config, w, at + name, value) if config.norms in ("output", "sandwich") else value

    def after_sum(name: str, value: Tensor) -> Tensor:
        return norm(config, w, at + name, value) if config.norms == "post" else value

    heads = behind("ln1_post", attention(config, w, layer, before("ln1", x)))
    if config.parallel:
        return x + heads + behind("ln2_post", ffn(config, w, at + "mlp.", before("ln2", x)))
    middle = after_sum("ln1", x + heads)
    return after_sum("ln2", middle + behind("ln2_post", ffn(config, w, at + "mlp.", before("ln2", middle))))


def norm(config: ModelConfig, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    if config.norm == "layer":
        return F.layer_norm(x, (x.shape[-1],), w[f"{name}.w"] + config.norm_offset, w[f"{name}.b"], config.norm_eps)
    return rms_norm(config, w[f"{name}.w"], x)


def rms_norm(config: ModelConfig, gain: Tensor, x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), gain + config.norm_offset, config.norm_eps)


def attention(config: ModelConfig, w: dict[str, Tensor], layer: int, read: Tensor) -> Tensor:
    at, this = f"blocks.{layer}.attn.", config.layer(layer)
    q, k, v = (projected(w, at, letter, read) for letter in "QKV")
    if config.qk_norm != "none":
        q, k = (heads_normed(config, w[f"{at}{which}_norm.w"], x) for which, x in (("q", q), ("k", k)))
    if this.rotary is not None:
        q, k = turned(this.rotary, q), turned(this.rotary, k)
    out = torch.zeros_like(read)
    for head in range(config.n_heads):
        group = head // (config.n_heads // config.n_kv_heads)
        for query in range(len(read)):
            keys = [key for key in range(query + 1) if this.window is None or query - key < this.window]
            scores = torch.stack(
                [score(config, this, head, q[head, query], k[group, key], query - key) for key in keys]
            )
            z = sum(weight * v[group, key] for weight, key in zip(scores.softmax(0), keys, strict=True))
            out[query] += z @ w[at + "W_O"][head]
    return out + w.get(at + "b_O", 0)


def projected(w: dict[str, Tensor], at: str, letter: str, read: Tensor) -> Tensor:
    """Queries, keys or values, [head, pos, d_head]."""
    heads = w[f"{at}W_{letter}"]
    bias = w.get(f"{at}b_{letter}", torch.zeros(len(heads), heads.shape[-1]))
    return torch.stack([read @ matrix + offset for matrix, offset in zip(heads, bias, strict=True)])


def heads_normed(config: ModelConfig, gain: Tensor, x: Tensor) -> Tensor:
    """Each head by itself, or all heads of a token in one row."""
    if config.qk_norm == "head":
        return rms_norm(config, gain, x)
    rows = rms_norm(config, gain, x.transpose(0, 1).flatten(1))
    return rows.unflatten(1, (x.shape[0], -1)).transpose(0, 1)


def turned(rotary: RotaryConfig, x: Tensor) -> Tensor:
    """Each pair of numbers as a complex one, times e^(i · position · frequency)."""
    assert rotary.scaling == "default"
    out, count = x.clone(), rotary.rotated or x.shape[-1]
    for pair in range(count // 2):
        first, second = (pair, pair + count // 2) if rotary.pairs == "halves" else (2 * pair, 2 * pair + 1)
        angles = torch.arange(x.shape[1]) * rotary.theta ** (-2 * pair / count)
        product = torch.complex(x[..., first], x[..., second]) * torch.exp(1j * angles.double())
        out[..., first], out[..., second] = product.real, product.imag
    return out


def score(config: ModelConfig, this: LayerConfig, head: int, query: Tensor, key: Tensor, distance: int) -> Tensor:
    value = query @ key * (this.score_scale or config.score_scale or 1 / math.sqrt(config.d_head))
    if config.score_cap is not None:
        value = config.score_cap * torch.tanh(value / config.score_cap)
    return value - SLOPES_OF_SIX[head] * distance if config.alibi else value


def feed_forward(config: ModelConfig, w: dict[str, Tensor], at: str, read: Tensor) -> Tensor:
    act, up = ACTIVATIONS[config.activation], read @ w[at + "W_in"] + w.get(at + "b_in", 0)
    post = act(read @ w[at + "W_gate"] + w.get(at + "b_gate", 0)) * up if config.gated else act(up)
    return post @ w[at + "W_out"] + w.get(at + "b_out", 0)


def experts(config: ModelConfig, w: dict[str, Tensor], at: str, read: Tensor) -> Tensor:
    """Token by token: the best experts, weighted, and the shared one."""
    moe, rows = config.moe, []
    assert moe is not None
    for token in read:
        logits = token @ w[at + "W_router"]
        best = sorted(range(moe.n_experts), key=lambda expert: -float(logits[expert]))[: moe.top_k]
        weights = logits[best].softmax(0) if moe.routing == "top_k_then_softmax" else logits.softmax(0)[best]
        if moe.renormalise:
            weights = weights / weights.sum()
        parts = [{key: w[f"{at}{key}"][expert] for key in ("W_gate", "W_in", "W_out")} for expert in best]
        row = sum(weight * feed_forward(config, part, "", token) for weight, part in zip(weights, parts, strict=True))
        row = row * moe.scaling
        if moe.d_shared is not None:
            shared = feed_forward(config, w, at + "shared.", token)
            row = row + (shared * torch.sigmoid(token @ w[at + "W_shared_gate"]) if moe.shared_gate else shared)
        rows.append(row)
    return torch.stack(rows)
