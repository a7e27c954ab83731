"""The default model twice: ours, and `transformers`' from the same file."""

import functools
from typing import Any

import torch

import interp
from interp.models.transformer import Transformer


@functools.cache
def ours() -> Transformer:
    """SmolLM2-135M, float32, on the CPU."""
    return interp.load("smollm2-135m", device="cpu")


@functools.cache
def peer(attention: str) -> Any:
    """The same weights, dequantised by `transformers` itself; `attention` is "sdpa" (fused) or "eager"."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    path = interp.pull("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation=attention
    )
    return model.eval().requires_grad_(False)


def random_tokens(batch: int, length: int) -> torch.Tensor:
    """Token ids without special ones."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(100, ours().config.d_vocab - 100, (batch, length), generator=generator)
