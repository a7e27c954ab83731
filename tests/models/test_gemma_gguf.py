"""GGUF files of Gemma compute what `transformers` computes from the weights that they were made of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from families.case import Case
from families.gemmas import FULL_FIRST, GEMMA, GEMMA2, GEMMA3, SIZES, by_kind, rope
from tiny import random_tokens

from interp.errors import LoadError
from interp.models.config import ModelConfig
from interp.models.loading import load, read_config

_ARCHITECTURES = {GEMMA: "gemma", GEMMA2: "gemma2", GEMMA3: "gemma3"}
_WINDOW = {"sliding_window": 5, "query_pre_attn_scalar": 10}  # files do not state the scalar: it is the width of a head
_FAST = rope("default", rope_theta=10_000.0)

CASES = {
    "gemma": (GEMMA, {}, {}),
    "gemma2": (GEMMA2, _WINDOW | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}, {}),
    "gemma3": (GEMMA3, _WINDOW | {"num_hidden_layers": 7}, {}),
    "gemma3_stretched": (GEMMA3, _WINDOW | {"num_hidden_layers": 7} | by_kind(rope("linear", factor=8.0), _FAST), {}),
    "gemma3_stated_pattern": (
        GEMMA3,
        _WINDOW | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
        | by_kind(_FAST, rope("default", rope_theta=9.0)),
        {"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 9.0},
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


def write(path: Path, hf: torch.nn.Module, stated: dict[str, Any]) -> None:
    """What converters make of a model: one is added to the gains, the scale of scores and the kinds of layers go."""
    config, architecture = hf.config, _ARCHITECTURES[type(hf).__name__]
    found = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }
    if architecture == "gemma2":
        found |= {key: getattr(config, key) for key in ("attn_logit_softcapping", "final_logit_softcapping")}
    if architecture != "gemma":
        found["attention.sliding_window"] = config.sliding_window
    if architecture == "gemma3":
        turns = config.rope_parameters["full_attention"]
        found["rope.freq_base"] = turns["rope_theta"]
        if turns["rope_type"] == "linear":
            found |= {"rope.scaling.type": "linear", "rope.scaling.factor": turns["factor"]}
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (found | stated).items():
        if value is not None:
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
            add(f"{architecture}.{key}", value)
    add_tensors(writer, hf, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensors(writer: gguf.GGUFWriter, hf: torch.nn.Module, architecture: str) -> None:
    arch = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(arch, hf.config.num_hidden_layers)
    for name, values in hf.state_dict().items():
        if name != "lm_head.weight" or not hf.config.tie_word_embeddings:
            stored = values + 1 if name.endswith("norm.weight") else values
            writer.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", stored.numpy())


def built(name: str, path: Path) -> torch.nn.Module:
    """The model of a case, written to `path`."""
    model, fields, stated = CASES[name]
    hf = Case(model, SIZES | fields, offset_norms=True).build()
    write(path, hf, stated)
    return hf


@every_case
def test_logits_are_the_references(name: str, tmp_path: Path) -> None:
    hf = built(name, tmp_path / "tiny.gguf")
    ours = load(tmp_path / "tiny.gguf", device="cpu")
    tokens = random_tokens(ours.config, 2, 23)
    expected = hf(tokens, use_cache=False).logits
    torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def config_with(tmp_path: Path, model: str, stated: dict[str, Any], **fields: Any) -> ModelConfig:
    """What is read where a file states more, or other; None: not at all."""
    hf = Case(model, SIZES | _WINDOW | FULL_FIRST | {"num_hidden_layers": 3} | fields).build()
    write(tmp_path / "other.gguf", hf, stated)
    return read_config(tmp_path / "other.gguf")


@pytest.mark.parametrize(("model", "n_layers"), [(GEMMA2, 46), (GEMMA3, 62)])
def test_the_largest_models_scale_scores_by_the_width_that_heads_share(
    model: str, n_layers: int, tmp_path: Path
) -> None:
    assert config_with(tmp_path, model, {}).score_scale is None
    sizes = {"hidden_size": 6, "intermediate_size": 2, "layer_types": None, "num_hidden_layers": n_layers}
    assert config_with(tmp_path, model, {}, **sizes).score_scale == pytest.approx((6 / 6) ** -0.5)


def test_bounds_that_files_leave_out_are_those_of_every_gemma_2(tmp_path: Path) -> None:
    config = config_with(tmp_path, GEMMA3, {})
    assert (config.score_cap, config.logit_cap) == (None, None)
    assert config_with(tmp_path, GEMMA3, {"final_logit_softcapping": 3.0}).logit_cap == 3.0
    zero = config_with(tmp_path, GEMMA2, {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 0.0})
    assert (zero.score_cap, zero.logit_cap) == (None, None)
    silent = config_with(tmp_path, GEMMA2, {"attn_logit_softcapping": None, "final_logit_softcapping": None})
    assert silent == replace(zero, score_cap=50.0, logit_cap=30.0)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"attention.sliding_window_pattern": 0}, "sliding_window_pattern is 0; it must be a positive number"),
        ({"attention.value_length": 9}, "attention.value_length is 9; only 10 is supported"),
        ({"rope.scaling.type": "twisted"}, "rope.scaling.type is 'twisted'; known are"),
        ({"altup.count": 2}, "altup.count = 2"),
    ],
)
def test_what_is_not_known_is_refused(stated: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=message):
        config_with(tmp_path, GEMMA3, stated)
