"""A mixture of experts against `transformers`' Mixtral with the same weights."""

from collections.abc import Iterator

import torch

import interp
from benchmarks.measuring import Row, medians

EXPERTS = ("eager", "grouped_mm")
"""The ways in which `transformers` runs experts. A third, `batched_mm`, copies matrices for each token: 4 GB here."""


def mixture() -> Iterator[Row]:
    """A forward pass through 8 experts, 2 for each token, against the faster of two settings with fused attention."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=2048, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    peer = MixtralForCausalLM(config).eval().requires_grad_(False)
    model, tokens = interp.from_transformers(peer, device="cpu"), torch.randint(0, 2048, (1, 512))

    def theirs(experts: str) -> torch.Tensor:
        peer.set_experts_implementation(experts)
        logits: torch.Tensor = peer(tokens, use_cache=False).logits
        return logits

    runs = {name: lambda name=name: theirs(name) for name in EXPERTS}
    found = medians({"ours": lambda: model(tokens), **runs}, 21)
    fastest = min(EXPERTS, key=lambda name: found[name])
    measured = f"{found['ours'] * 1e3:.1f} ms against {found[fastest] * 1e3:.1f} ms ({fastest})"
    yield Row("8 experts, 2 chosen, 1 × 512", measured, found["ours"] / found[fastest], 1.0)
