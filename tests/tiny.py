"""Tiny models in which no two sizes coincide, so that a mixed-up axis cannot go unnoticed; and their references."""

from dataclasses import fields, replace

import torch

from interp.models.config import LayerConfig, ModelConfig, MoEConfig, RotaryConfig
from interp.models.transformer import Transformer

BASE = ModelConfig(
    n_layers=3,
    d_model=30,
    n_heads=6,
    n_kv_heads=2,
    d_head=10,
    d_mlp=44,
    d_vocab=67,
    n_ctx=8192,
    norm_eps=1e-5,
    rotary=RotaryConfig(theta=10_000.0),
)

LLAMA_CONFIGS: dict[str, ModelConfig] = {
    "grouped_query": BASE,
    "multi_head": replace(BASE, n_kv_heads=6),
    "multi_query": replace(BASE, n_kv_heads=1),
    "untied": replace(BASE, tied_embeddings=False),
    "biases": replace(BASE, qkv_bias=True, o_bias=True, mlp_bias=True, tied_embeddings=False),
    "rotary_linear": replace(BASE, rotary=RotaryConfig(theta=500.0, scaling="linear", factor=4.0)),
    "rotary_llama3": replace(
        BASE,
        rotary=RotaryConfig(
            theta=5000.0, scaling="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=256
        ),
    ),
    "relu": replace(BASE, activation="relu"),
    "gelu_exact": replace(BASE, activation="gelu"),
    "gelu_one_layer": replace(BASE, activation="gelu_tanh", n_layers=1, n_heads=2),
}
"""What Llama's class in `transformers` can express, so that `reference` can make it."""

_TURNED = LayerConfig(RotaryConfig(theta=500.0))
_EXPERTS = MoEConfig(n_experts=7, top_k=2, d_expert=22)

MECHANISMS: dict[str, ModelConfig] = {
    "learned_positions": replace(BASE, rotary=None, learned_positions=True, position_offset=2, n_ctx=48),
    "sinusoidal": replace(
        BASE, rotary=None, sinusoidal=True, norm="layer", norms="post", final_norm=False, gated=False,
        activation="relu", qkv_bias=True, o_bias=True, mlp_bias=True,
    ),
    "alibi": replace(BASE, rotary=None, alibi=True),
    "no_positions_on_some_layers": replace(BASE, layers=(_TURNED, LayerConfig(), _TURNED)),
    "partial_rotary": replace(BASE, rotary=RotaryConfig(theta=500.0, rotated=6)),
    "adjacent_pairs": replace(BASE, rotary=RotaryConfig(theta=500.0, rotated=8, pairs="adjacent")),
    "sliding_window": replace(BASE, window=3),
    "mixed_windows": replace(
        BASE, layers=(replace(_TURNED, window=3), LayerConfig(RotaryConfig(theta=9.0)), LayerConfig(window=5))
    ),
    "qk_norm_head": replace(BASE, qk_norm="head"),
    "qk_norm_width": replace(BASE, qk_norm="width", qkv_bias=True),
    "score_cap": replace(BASE, score_cap=2.0, logit_cap=3.0),
    "custom_scale": replace(BASE, score_scale=0.11, layers=(_TURNED, replace(_TURNED, score_scale=0.5), _TURNED)),
    "ungated": replace(BASE, gated=False, activation="gelu", mlp_bias=True),
    "layer_norm": replace(BASE, norm="layer"),
    "norm_offset": replace(BASE, norm_offset=True, qk_norm="head"),
    "post_norm": replace(BASE, norms="post"),
    "output_norm": replace(BASE, norms="output", qk_norm="width"),
    "sandwich_norm": replace(BASE, norms="sandwich"),
    "parallel": replace(BASE, parallel=True, norm="layer"),
    "embed_norm_and_scale": replace(BASE, embed_norm=True, embed_scale=30**0.5),
    "logit_scale_and_bias": replace(BASE, logit_scale=0.25, unembed_bias=True, tied_embeddings=False),
    "moe_top2": replace(BASE, n_kv_heads=3, moe=_EXPERTS),
    "moe_shared_gated": replace(
        BASE, n_kv_heads=3, moe=replace(_EXPERTS, renormalise=False, scaling=1.5, d_shared=26, shared_gate=True)
    ),
    "moe_mixed_layers": replace(
        BASE, n_kv_heads=3, moe=replace(_EXPERTS, routing="top_k_then_softmax"),
        layers=(_TURNED, replace(_TURNED, moe=True), _TURNED),
    ),
}  # fmt: skip
"""One mechanism each that Llama does not have."""

CONFIGS: dict[str, ModelConfig] = LLAMA_CONFIGS | MECHANISMS


def tiny(
    config: ModelConfig = BASE, *, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Transformer:
    """A model with random weights of standard deviation 0.3, gains around one: 0.02, the usual, would hide errors."""
    model = Transformer(config, device=device, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.weights().items():
        values = 0.3 * torch.randn(weight.shape, generator=generator)
        weight.copy_(1 + values if name.endswith(".w") and not config.norm_offset else values)
    return model


def random_tokens(config: ModelConfig, batch: int, pos: int, *, seed: int = 1) -> torch.Tensor:
    """Uniform token ids."""
    return torch.randint(0, config.d_vocab, (batch, pos), generator=torch.Generator().manual_seed(seed))


_LLAMA_FIELDS = (
    *("n_layers", "d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "d_vocab", "n_ctx", "norm_eps", "activation"),
    *("rotary", "qkv_bias", "o_bias", "mlp_bias", "tied_embeddings"),
)


def _check_llama(config: ModelConfig) -> None:
    """Everything but Llama's own settings must be as it is in Llama."""
    others = [
        field.name
        for field in fields(config)
        if field.name not in _LLAMA_FIELDS and getattr(config, field.name) != getattr(BASE, field.name)
    ]
    rotary = config.rotary
    if rotary is None or rotary.scaling not in ("default", "linear", "llama3") or rotary.rotated:
        others.append("rotary")
    elif rotary.pairs != "halves":
        others.append("rotary.pairs")
    if others:
        raise ValueError(f"Llama's class cannot express {', '.join(others)}; compare those of LLAMA_CONFIGS only.")


def reference(model: Transformer, attention: str = "eager") -> torch.nn.Module:
    """The same weights in `transformers`' own Llama; `ValueError` for what Llama's class cannot express."""
    from transformers import LlamaConfig, LlamaForCausalLM

    c = model.config
    _check_llama(c)
    rope: dict[str, object] = {"rope_theta": c.rotary.theta, "rope_type": c.rotary.scaling}
    if c.rotary.scaling != "default":
        rope["factor"] = c.rotary.factor
    if c.rotary.scaling == "llama3":
        rope |= {"low_freq_factor": c.rotary.low_freq_factor, "high_freq_factor": c.rotary.high_freq_factor}
        rope["original_max_position_embeddings"] = c.rotary.original_context
    assert c.qkv_bias == c.o_bias, "Llama has one switch for all four attention biases"
    names = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu"}
    config = LlamaConfig(
        vocab_size=c.d_vocab, hidden_size=c.d_model, intermediate_size=c.d_mlp, num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads, num_key_value_heads=c.n_kv_heads, head_dim=c.d_head,
        max_position_embeddings=c.n_ctx, rms_norm_eps=c.norm_eps, hidden_act=names[c.activation],
        attention_bias=c.qkv_bias, mlp_bias=c.mlp_bias, tie_word_embeddings=c.tied_embeddings, rope_parameters=rope,
        attn_implementation=attention, pad_token_id=None,
    )  # fmt: skip
    hf = LlamaForCausalLM(config).eval().requires_grad_(False)
    w, state = model.weights(), hf.state_dict()

    def put(published: str, values: torch.Tensor) -> None:
        assert state[published].shape == values.shape, published
        state[published].copy_(values)

    put("model.embed_tokens.weight", w["embed.W_E"])
    put("model.norm.weight", w["ln_final.w"])
    if not c.tied_embeddings:
        put("lm_head.weight", w["unembed.W_U"].T)
    for layer in range(c.n_layers):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        put(theirs + "input_layernorm.weight", w[ours + "ln1.w"])
        put(theirs + "post_attention_layernorm.weight", w[ours + "ln2.w"])
        for letter in "QKV":
            put(theirs + f"self_attn.{letter.lower()}_proj.weight", w[ours + f"attn.W_{letter}"].mT.flatten(0, 1))
            if c.qkv_bias:
                put(theirs + f"self_attn.{letter.lower()}_proj.bias", w[ours + f"attn.b_{letter}"].flatten())
        put(theirs + "self_attn.o_proj.weight", w[ours + "attn.W_O"].flatten(0, 1).T)
        if c.o_bias:
            put(theirs + "self_attn.o_proj.bias", w[ours + "attn.b_O"])
        for name, weight, bias in (("gate", "W_gate", "b_gate"), ("up", "W_in", "b_in"), ("down", "W_out", "b_out")):
            put(theirs + f"mlp.{name}_proj.weight", w[ours + f"mlp.{weight}"].T)
            if c.mlp_bias:
                put(theirs + f"mlp.{name}_proj.bias", w[ours + f"mlp.{bias}"])
    return hf
