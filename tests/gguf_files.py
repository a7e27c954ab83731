"""Tiny models of `transformers` as GGUF files, converted as published files were; names are the `gguf` package's."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind

ARCHITECTURES = {arch_name: arch for arch, arch_name in gguf.MODEL_ARCH_NAMES.items()}
_JOINED = "mlp.experts.gate_up_proj"


class Stored(NamedTuple):
    """One tensor of a file: a view into the model's weights, and how many heads' rows lie pair by pair (0: none)."""

    name: str
    values: torch.Tensor
    turned_heads: int = 0


def write(
    path: Path,
    hf: torch.nn.Module,
    architecture: str,
    kind: Kind = Kind.F32,
    *,
    separate_experts: bool = False,
    stated: Mapping[str, Any] | None = None,
    leave_out: str = "",
) -> None:
    """Write a model with its matrices stored as `kind`; `hf` gets the values that were stored.

    `stated` has more metadata, or other; None takes a key out. `leave_out` names a tensor that is not written.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (metadata(hf, architecture) | (stated or {})).items():
        _add(writer, key if key.startswith("split.") else f"{architecture}.{key}", value)
    for tensor in _stored(hf, architecture, separate_experts):
        rows, stored_as = _quantised(tensor, kind)
        if tensor.name != leave_out:
            writer.add_tensor(tensor.name, rows, raw_dtype=stored_as)
    for name, factors in _divisors(hf, architecture).items():
        writer.add_tensor(f"{name}.weight", np.array(factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case None:
            return
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)


# ------------------------------------------------------------------------------------------------ metadata


def metadata(hf: torch.nn.Module, architecture: str) -> dict[str, Any]:
    """What converters write for a configuration, without the architecture before the keys."""
    config = hf.config
    if architecture == "gpt2":
        return {
            "block_count": config.n_layer,
            "context_length": config.n_positions,
            "embedding_length": config.n_embd,
            "feed_forward_length": 4 * config.n_embd,
            "attention.head_count": config.n_head,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        }
    found = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": config.rope_parameters["rope_theta"],
    }
    if architecture == "phi3":
        return found | _of_phi3(config)
    if (d_head := getattr(config, "head_dim", None)) is not None:
        found |= {"attention.key_length": d_head, "attention.value_length": d_head}
    if architecture == "llama":
        found |= {"vocab_size": config.vocab_size, "rope.dimension_count": _d_head(config)}
    return found | _scaling(config.rope_parameters) | _of_experts(config)


def _d_head(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any]:
    kind = rope["rope_type"]
    if kind not in ("linear", "yarn"):
        return {}
    found = {"rope.scaling.type": kind, "rope.scaling.factor": float(rope["factor"])}
    if kind == "linear":
        return found
    names = {
        "rope.scaling.original_context_length": "original_max_position_embeddings",
        "rope.scaling.yarn_attn_factor": "attention_factor",
        "rope.scaling.yarn_beta_fast": "beta_fast",
        "rope.scaling.yarn_beta_slow": "beta_slow",
    }
    return found | {key: rope.get(name) for key, name in names.items()}


def _of_experts(config: Any) -> dict[str, Any]:
    """Nothing says whether the weights of the chosen experts are divided by their sum."""
    n_experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if n_experts is None:
        return {}
    return {
        "expert_count": n_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": getattr(config, "moe_intermediate_size", None),
        "expert_shared_feed_forward_length": getattr(config, "shared_expert_intermediate_size", None),
    }


def _of_phi3(config: Any) -> dict[str, Any]:
    rope, original = config.rope_parameters, config.original_max_position_embeddings
    found = {
        "rope.scaling.original_context_length": original,
        "rope.dimension_count": int(rope.get("partial_rotary_factor", 1.0) * _d_head(config)),
        "attention.sliding_window": config.sliding_window or 0,
    }
    if rope["rope_type"] == "longrope":
        scale = config.max_position_embeddings / original
        found["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(scale) / math.log(original))
    return found


def _divisors(hf: torch.nn.Module, architecture: str) -> dict[str, list[float]]:
    rope = getattr(hf.config, "rope_parameters", {})
    if architecture != "phi3" or rope["rope_type"] != "longrope":
        return {}
    return {"rope_factors_long": rope["long_factor"], "rope_factors_short": rope["short_factor"]}


# ------------------------------------------------------------------------------------------------- tensors


def _stored(hf: torch.nn.Module, architecture: str, separate_experts: bool) -> Iterator[Stored]:
    """The tensors of a file."""
    n_layers = hf.config.num_hidden_layers
    names = gguf.get_tensor_name_map(ARCHITECTURES[architecture], n_layers)
    for name, values in _published(hf, architecture):
        stem, _, suffix = name.rpartition(".")
        found = names.get_name(stem)
        assert found is not None, name
        tensor = Stored(f"{found}.{suffix}", values)
        if separate_experts and "_exps." in tensor.name:
            for expert, each in enumerate(values):
                yield Stored(f"{found.removesuffix('_exps')}.{expert}.{suffix}", each)
        elif architecture == "llama" and ".attn_q." in tensor.name:
            yield tensor._replace(turned_heads=hf.config.num_attention_heads)
        elif architecture == "llama" and ".attn_k." in tensor.name:
            yield tensor._replace(turned_heads=hf.config.num_key_value_heads)
        else:
            yield tensor


def _published(hf: torch.nn.Module, architecture: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values as in a checkpoint of the time, one matrix each, output axis first."""
    for name, values in hf.state_dict().items():
        if name == "lm_head.weight" and hf.config.tie_word_embeddings:
            continue
        if name.endswith(_JOINED):
            stem, width = name.removesuffix("gate_up_proj"), values.shape[1] // 2
            yield f"{stem}gate_proj.weight", values[:, :width]
            yield f"{stem}up_proj.weight", values[:, width:]
        elif name.endswith("mlp.experts.down_proj"):
            yield f"{name}.weight", values
        elif name.endswith("shared_expert_gate.weight"):
            yield name, values[0]
        elif architecture == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            yield name, values.T
        else:
            yield name, values


def _quantised(tensor: Stored, kind: Kind) -> tuple[np.ndarray, Kind]:
    """Rows in a storage type: vectors and routers always float32. The values stored go back into the model."""
    whole = tensor.values.dim() == 1 or "ffn_gate_inp" in tensor.name
    stored_as = Kind.F32 if whole else kind
    rows = gguf.quantize(np.ascontiguousarray(tensor.values.numpy()), stored_as)
    tensor.values.copy_(torch.from_numpy(gguf.dequantize(rows, stored_as)).view(tensor.values.shape))
    if tensor.turned_heads:
        by_half = rows.reshape(tensor.turned_heads, 2, -1, *rows.shape[1:])
        rows = np.ascontiguousarray(by_half.swapaxes(1, 2)).reshape(rows.shape)
    return rows, stored_as
