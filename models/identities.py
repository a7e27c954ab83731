"""The equations of the hook points, from recorded values and weights: what must hold in any model, whatever its family.

Each is yielded as `(theme, recorded, computed)`, where what is computed comes from other recorded values and from the
weights by name, not from the modules of the forward pass.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.models.config import ModelConfig
from interp.models.ffn import activate
from interp.models.transformer import Transformer, layer_of

Equation = tuple[str, Tensor, Tensor]
Values = Mapping[str, Tensor]


def identities(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> Iterator[Equation]:
    """All equations on one batch of texts without padding; one layer is recorded at a time, to keep memory small."""
    yield from _ends(model, tokens)
    for layer in range(model.config.n_layers):
        prefix = f"blocks.{layer}."
        values = recorded(model, tokens, [name for name in model.points() if name.startswith(prefix)])
        read = _Layer(model, layer, {name.removeprefix(prefix): value for name, value in values.items()})
        yield from read.equations()


def recorded(model: Transformer, tokens: Int[Tensor, "batch pos"], names: Sequence[str]) -> dict[str, Tensor]:
    """Values by full name, in float32 at least; what lies behind the last of them is not computed."""
    last = max(layer_of(name, model.config.n_layers) for name in names)
    if last < model.config.n_layers:
        _, cache = model.run_with_cache(tokens, list(names), stop_at_layer=last + 1)
    else:
        _, cache = model.run_with_cache(tokens, list(names))
    return {name: _wide(cache[name]) for name in names}


class _Layer:
    """The recorded values and the weights of one layer, by the names that they have in it."""

    def __init__(self, model: Transformer, layer: int, values: Values) -> None:
        self.config, self.layer, self.values = model.config, layer, values
        prefix = f"blocks.{layer}."
        named = model.weights().items()
        self.weights = {name.removeprefix(prefix): _wide(w) for name, w in named if name.startswith(prefix)}

    def equations(self) -> Iterator[Equation]:
        yield from self._projections()
        yield from self._attention()
        yield from self._stream()
        yield from self._experts() if self.config.layer(self.layer).moe else self._ffn()

    def _projections(self) -> Iterator[Equation]:
        before = self.config.norms in ("pre", "sandwich")
        read = self.values["ln1.hook_normalized" if before else "hook_resid_pre"]
        for letter in "qkv":
            product = torch.einsum("bpm,hmd->bphd", read, self.weights[f"attn.W_{letter.upper()}"])
            yield "attention", self.values[f"attn.hook_{letter}"], product + self._bias(f"attn.b_{letter.upper()}")

    def _attention(self) -> Iterator[Equation]:
        pattern, z = self.values["attn.hook_pattern"], self.values["attn.hook_z"]
        result, window = self.values["attn.hook_result"], self.config.layer(self.layer).window
        allowed = torch.ones(pattern.shape[-2:], device=pattern.device).tril()
        allowed = allowed if window is None else allowed - allowed.tril(-window)
        yield "attention", (pattern * allowed).sum(-1), torch.ones_like(pattern[..., 0])
        values = self.values["attn.hook_v"].repeat_interleave(self.config.queries_per_kv, 2)
        yield "attention", z, torch.einsum("bhqk,bkhd->bqhd", pattern, values)
        yield "attention", result, torch.einsum("bphd,hdm->bphm", z, self.weights["attn.W_O"])
        yield "attention", self.values["attn.hook_out"], result.sum(2) + self._bias("attn.b_O")

    def _stream(self) -> Iterator[Equation]:
        at, norms = self.values, self.config.norms
        if norms in ("output", "sandwich"):
            yield from self._norm("ln1_post", at["attn.hook_out"])
            yield from self._norm("ln2_post", at["mlp.hook_out"])
        middle = at["hook_resid_pre"] + at["hook_attn_out"]
        end = (middle if self.config.parallel else at["hook_resid_mid"]) + at["hook_mlp_out"]
        if norms == "post":
            yield from self._norm("ln1", middle)
            yield from self._norm("ln2", end)
            middle, end = at["ln1.hook_normalized"], at["ln2.hook_normalized"]
        elif norms != "output":
            yield from self._norm("ln1", at["hook_resid_pre"])
            yield from self._norm("ln2", at["hook_mlp_in"])
        if not self.config.parallel:
            yield "residual stream", at["hook_resid_mid"], middle
        yield "residual stream", at["hook_resid_post"], end

    def _ffn(self) -> Iterator[Equation]:
        at, w, config = self.values, self.weights, self.config
        read = at["ln2.hook_normalized" if config.norms in ("pre", "sandwich") else "hook_mlp_in"]
        pre, up = at["mlp.hook_pre"], read @ w["mlp.W_in"] + self._bias("mlp.b_in")
        yield "FFN", pre, read @ w["mlp.W_gate"] + self._bias("mlp.b_gate") if config.gated else up
        if config.gated:
            yield "FFN", at["mlp.hook_pre_linear"], up
        active = activate(config.activation, pre)
        yield "FFN", at["mlp.hook_post"], active * up if config.gated else active
        yield "FFN", at["mlp.hook_out"], at["mlp.hook_post"] @ w["mlp.W_out"] + self._bias("mlp.b_out")

    def _experts(self) -> Iterator[Equation]:
        at, moe = self.values, self.config.moe
        assert moe is not None
        weights = at["mlp.hook_expert_weights"]
        if moe.renormalise or moe.routing == "top_k_then_softmax":
            yield "experts", weights.sum(-1), torch.full_like(weights[..., 0], moe.scaling)
        best = at["mlp.hook_router"].topk(moe.top_k).values
        chosen = at["mlp.hook_router"].gather(-1, at["mlp.hook_expert_indices"])
        yield "experts", chosen, best
        out = (at["mlp.hook_expert_out"] * weights[..., None]).sum(-2)
        yield "experts", at["mlp.hook_out"], out if moe.d_shared is None else out + at["mlp.shared.hook_out"]

    def _norm(self, name: str, read: Tensor) -> Iterator[Equation]:
        gain, bias = self.weights[f"{name}.w"], self.weights.get(f"{name}.b")
        return _norm(self.config, read, gain, bias, self.values, name)

    def _bias(self, name: str) -> Tensor | float:
        return self.weights.get(name, 0.0)


def _ends(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> Iterator[Equation]:
    """From tokens to the first layer, between the layers, and from the last layer to logits."""
    config, w = model.config, {name: _wide(weight) for name, weight in model.weights().items() if "blocks." not in name}
    last = config.n_layers - 1
    between = [f"blocks.{n}.hook_resid_{end}" for n in range(last + 1) for end in ("pre", "post")]
    at = recorded(model, tokens, [*(name for name in model.points() if not name.startswith("blocks.")), *between])
    embedded, placed = at["hook_embed"], at.get("hook_pos_embed", 0.0)
    if not config.embed_norm:
        yield "embedding", embedded, w["embed.W_E"][tokens.to(model.device)] * config.embed_scale
    yield "residual stream", at["blocks.0.hook_resid_pre"], embedded + placed
    for layer in range(last):
        yield "residual stream", at[f"blocks.{layer + 1}.hook_resid_pre"], at[f"blocks.{layer}.hook_resid_post"]
    final = at[f"blocks.{last}.hook_resid_post"]
    if config.final_norm:
        yield from _norm(config, final, w["ln_final.w"], w.get("ln_final.b"), at, "ln_final")
        final = at["ln_final.hook_normalized"]
    logits = final @ _wide(model.W_U) + w.get("unembed.b_U", 0.0)
    yield "unembedding", at["unembed.hook_out"], logits * config.logit_scale


def _norm(
    config: ModelConfig,
    read: Float[Tensor, "batch pos d_model"],
    gain: Float[Tensor, "d_model"],
    bias: Float[Tensor, "d_model"] | None,
    values: Values,
    name: str,
) -> Iterator[Equation]:
    """The divisor of a norm, and what it returns."""
    centred = read if config.norm == "rms" else read - read.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + config.norm_eps).sqrt()
    normalized = centred / scale * (gain + float(config.norm_offset))
    yield "norms", values[f"{name}.hook_scale"], scale
    yield "norms", values[f"{name}.hook_normalized"], normalized if bias is None else normalized + bias


def _wide(value: Tensor) -> Tensor:
    """float32 at least; whole numbers stay."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
