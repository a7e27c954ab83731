"""Memory of loading a large model from several files, which no two of them may stand in at once."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.measuring import Row, in_fresh_process

SHARD_SIZE = "200MB"
_PEAK = (
    "import interp, torch; load = interp.load; from benchmarks.measuring import peak_bytes; kept = [];"
    "peak = peak_bytes(lambda: kept.append(load({folder!r}, device='cpu', dtype={dtype!r})));"
    "print(peak / sum(p.nbytes for p in kept[0].parameters()))"
)


def sharded() -> Iterator[Row]:
    """Peak memory of loading a gigabyte of bfloat16 weights from shards, kept as they are and widened to float32."""
    with tempfile.TemporaryDirectory() as folder:
        n_bytes, n_files = _write(Path(folder))
        for dtype in ("bfloat16", "float32"):
            ratio = in_fresh_process(_PEAK.format(folder=folder, dtype=dtype))
            measured = f"{n_bytes / 2**30:.2f} GiB in {n_files} files"
            yield Row(f"peak memory of loading shards as {dtype} ÷ weights", measured, ratio, 1.3)


def _write(folder: Path) -> tuple[int, int]:
    """Write a Llama with random weights; bytes of weights, number of files."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32_000, hidden_size=1536, intermediate_size=4096, num_hidden_layers=16, num_attention_heads=24,
        num_key_value_heads=8, tie_word_embeddings=False, dtype="bfloat16",
    )  # fmt: skip
    model = LlamaForCausalLM(config).bfloat16()
    model.save_pretrained(folder, max_shard_size=SHARD_SIZE)
    return sum(p.nbytes for p in model.parameters()), len(list(folder.glob("*.safetensors")))
