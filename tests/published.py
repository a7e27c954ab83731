"""Tiny published models on disk, written by the libraries that define the formats: `transformers` and `gguf`."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tiny import reference, tiny
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from interp.models.config import ModelConfig, RotaryConfig

QUANTISABLE = ModelConfig(
    n_layers=2, d_model=96, n_heads=4, n_kv_heads=2, d_head=16, d_mlp=160, d_vocab=67, n_ctx=512,
    rotary=RotaryConfig(theta=3000.0),
)  # fmt: skip
"""Every row is a multiple of the 32 values of a storage block; still no two sizes coincide."""

CORPUS = ["the tower of the city", "a store, a drink", "12 planets in 1997", "  spaces\n\nand lines", "the the of of"]
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@contextmanager
def parsed_once() -> Iterator[None]:
    """Within, `gguf` parses each file once, however often `transformers` asks: a vocabulary takes it many seconds.

    It cuts a file into a million pieces; of a plain array rather than a `memmap` that takes half as long.
    """
    mapped = np.memmap
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(np, "memmap", lambda *file, **how: mapped(*file, **how).view(np.ndarray))
        patched.setattr(gguf, "GGUFReader", functools.cache(gguf.GGUFReader))
        yield


def greedy(hf: torch.nn.Module, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """What a published model writes where the last `count` tokens stand, if it chooses the likeliest each time.

    One pass tells all: where it chooses otherwise, its choice differs from the token that stands there.
    """
    before = tokens[:, :-1]
    return hf(before, use_cache=False, logits_to_keep=count).logits.argmax(-1)


def small_tokenizer() -> Tokenizer:
    """A byte-level vocabulary of a few hundred tokens, markers first, as SmolLM2 orders its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        special_tokens=[AddedToken(marker, special=True, normalized=False) for marker in MARKERS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def write_folder(folder: Path, config: ModelConfig, *, shard_bytes: int | None = None) -> torch.nn.Module:
    """Write a tiny model in Hugging Face layout, and return the model written."""
    hf = reference(tiny(config))
    hf.save_pretrained(folder, max_shard_size=shard_bytes or "5GB")
    return hf


def write_tokenizer(folder: Path) -> None:
    """Put the small tokenizer into a model folder."""
    small_tokenizer().save(str(folder / "tokenizer.json"))
    roles = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "unk_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))


def write_gguf(
    path: Path,
    config: ModelConfig,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    *,
    tokenizer: Tokenizer | None = None,
    pre: str = "smollm",
    rope_factors: np.ndarray | None = None,
    extra: dict[str, int] | None = None,
) -> torch.nn.Module:
    """Write a tiny model as a GGUF with matrices stored as `kind`; returns it with the values that were stored."""
    hf = reference(tiny(config))
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, config)
    for key, value in (extra or {}).items():
        writer.add_uint32(key, value)
    if tokenizer is not None:
        _write_vocabulary(writer, tokenizer, pre)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors.astype(np.float32))
    for name, values in hf.state_dict().items():
        if name == "lm_head.weight" and config.tied_embeddings:
            continue
        stored = gguf.GGMLQuantizationType.F32 if values.dim() == 1 else kind
        rows = gguf.quantize(values.numpy(), stored)
        values.copy_(torch.from_numpy(gguf.dequantize(rows, stored)).view(values.shape))
        for letter, heads in (("q", config.n_heads), ("k", config.n_kv_heads)):
            if f"self_attn.{letter}_proj" in name:
                rows = _pairs_side_by_side(rows, heads)
        writer.add_tensor(_gguf_name(name), rows, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return hf


def _write_metadata(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_name("tiny")
    writer.add_block_count(config.n_layers)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.d_mlp)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.d_head)
    writer.add_value_length(config.d_head)
    writer.add_rope_dimension_count(config.d_head)
    writer.add_rope_freq_base(config.rotary.theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    if config.rotary.scaling == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rotary.factor)


def _write_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer, pre: str) -> None:
    stated = json.loads(tokenizer.to_str())
    tokens = sorted(stated["model"]["vocab"], key=stated["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in MARKERS else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in stated["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{_GGUF_NAMES[part]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


def _pairs_side_by_side(rows: np.ndarray, heads: int) -> np.ndarray:
    """The order in which GGUF files keep query and key rows: (head, half, pair) becomes (head, pair, half)."""
    by_half = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(by_half.swapaxes(1, 2)).reshape(rows.shape)
