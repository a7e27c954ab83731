"""GGUF files of every architecture compute what `transformers` computes from the weights that they were made of."""

from pathlib import Path
from typing import Any

import pytest
import torch
from families import llama_like, older, sparse
from families.case import Case
from gguf import GGMLQuantizationType as Kind
from gguf_files import metadata, write
from tiny import random_tokens

from interp.errors import LoadError
from interp.models.config import ModelConfig
from interp.models.families.registry import family_of
from interp.models.loading import from_transformers, load
from interp.models.sources.checkpoint import Checkpoint
from interp.models.transformer import Transformer

TIED, RENORMALISED = {"tie_word_embeddings": True}, {"norm_topk_prob": True}


def of(case: Case, **fields: Any) -> Case:
    """A case of another module with other fields; None takes one out."""
    merged = case.fields | fields
    return Case(case.model, {key: value for key, value in merged.items() if value is not None}, case.lengths)


_MOE = sparse.CASES["qwen2_moe"]
CASES: dict[str, tuple[str, Case]] = {
    "llama": ("llama", llama_like.CASES["llama"]),
    "llama_tied": ("llama", llama_like.CASES["llama_tied"]),
    "llama_biases": ("llama", of(llama_like.CASES["llama"], attention_bias=True, mlp_bias=True)),
    "llama_linear": ("llama", llama_like.CASES["llama_linear"]),
    "llama_yarn": ("llama", llama_like.CASES["llama_yarn"]),
    "llama_yarn_turns": ("llama", llama_like.CASES["llama_yarn_turns"]),
    "mistral": ("llama", llama_like.CASES["mistral_no_window"]),
    "mixtral": ("llama", sparse.CASES["mixtral"]),
    "qwen2": ("qwen2", llama_like.CASES["qwen2"]),
    "qwen2_tied": ("qwen2", of(llama_like.CASES["qwen2"], **TIED)),
    "qwen2_yarn": ("qwen2", of(llama_like.CASES["qwen2"], **llama_like.rope("yarn", **llama_like.YARN))),
    "qwen3": ("qwen3", llama_like.CASES["qwen3"]),
    "qwen3_biases": ("qwen3", llama_like.CASES["qwen3_biases"]),
    "qwen2moe": ("qwen2moe", _MOE),
    "qwen2moe_all_chosen": ("qwen2moe", sparse.CASES["qwen2_moe_all_chosen"]),
    "qwen3moe": ("qwen3moe", of(sparse.CASES["qwen3_moe"], **RENORMALISED)),
    "qwen3moe_tied_yarn": (
        "qwen3moe",
        of(sparse.CASES["qwen3_moe"], **RENORMALISED, **TIED, **sparse.rope("yarn", **llama_like.YARN)),
    ),
    "phi3": ("phi3", of(sparse.CASES["phi3"], head_dim=None)),
    "phi3_partial": ("phi3", sparse.CASES["phi3_partial"]),
    "phi3_longrope": ("phi3", sparse.CASES["phi3_longrope"]),
    "gpt2": ("gpt2", older.CASES["gpt2"]),
    "gpt2_untied": ("gpt2", of(older.CASES["gpt2"], tie_word_embeddings=False)),
}
every_case = pytest.mark.parametrize("name", CASES)

_BLOCKS = {"hidden_size": 64, "intermediate_size": 160, "head_dim": 16}
_EXPERT_BLOCKS = _BLOCKS | {"moe_intermediate_size": 32}
QUANTISABLE: dict[str, tuple[str, Case]] = {
    "llama": ("llama", of(llama_like.CASES["llama"], **_BLOCKS | {"hidden_size": 192})),
    "mixtral": ("llama", of(sparse.CASES["mixtral"], **_BLOCKS)),
    "qwen2": ("qwen2", of(llama_like.CASES["qwen2"], **_BLOCKS)),
    "qwen3": ("qwen3", of(llama_like.CASES["qwen3"], **_BLOCKS)),
    "qwen2moe": ("qwen2moe", of(_MOE, **_EXPERT_BLOCKS, shared_expert_intermediate_size=128)),
    "qwen3moe": ("qwen3moe", of(sparse.CASES["qwen3_moe"], **RENORMALISED, **_EXPERT_BLOCKS)),
    "phi3": ("phi3", of(sparse.CASES["phi3"], hidden_size=96, intermediate_size=160, head_dim=None)),
    "gpt2": ("gpt2", of(older.CASES["gpt2"], n_embd=96)),
}
"""Every row is a multiple of the 32 values of a storage block."""


def assert_same_weights(ours: Transformer, hf: torch.nn.Module) -> None:
    theirs = from_transformers(hf, device="cpu").weights()
    for name, weight in ours.weights().items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=0, msg=name)


def assert_same_logits(ours: Transformer, hf: torch.nn.Module, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        tokens = random_tokens(ours.config, 2, length)
        expected = hf(tokens, use_cache=False).logits
        torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@every_case
def test_a_file_becomes_the_model_it_was_made_of(name: str, tmp_path: Path) -> None:
    architecture, case = CASES[name]
    hf = case.build()
    write(tmp_path / "tiny.gguf", hf, architecture)
    model = load(tmp_path / "tiny.gguf", device="cpu")
    assert_same_weights(model, hf)
    assert_same_logits(model, hf, case.lengths)


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.F16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", QUANTISABLE)
def test_a_quantised_file_becomes_the_model_of_its_decoded_values(name: str, kind: Kind, tmp_path: Path) -> None:
    architecture, case = QUANTISABLE[name]
    hf = case.build()
    write(tmp_path / "tiny.gguf", hf, architecture, kind)
    model = load(tmp_path / "tiny.gguf", device="cpu")
    assert_same_weights(model, hf)
    assert_same_logits(model, hf, (7,))


@pytest.mark.parametrize("name", [name for name in QUANTISABLE if name != "mixtral"])
def test_transformers_reads_the_same_model_from_the_file(name: str, tmp_path: Path) -> None:
    """With its own table of names and its own turning of rows; given the configuration, which it reads in part only."""
    from transformers import AutoModelForCausalLM

    architecture, case = QUANTISABLE[name]
    hf = case.build()
    write(tmp_path / "tiny.gguf", hf, architecture, Kind.Q8_0)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", config=hf.config, dtype=torch.float32, attn_implementation="eager"
    )
    assert_same_logits(load(tmp_path / "tiny.gguf", device="cpu"), theirs.eval().requires_grad_(False), case.lengths)


def test_a_file_with_a_tensor_for_each_expert_becomes_the_same_model(tmp_path: Path) -> None:
    hf = sparse.CASES["mixtral"].build()
    write(tmp_path / "tiny.gguf", hf, "llama", separate_experts=True)
    model = load(tmp_path / "tiny.gguf", device="cpu")
    assert_same_weights(model, hf)
    assert_same_logits(model, hf, (7,))


@pytest.mark.parametrize("name", QUANTISABLE)
def test_files_that_lack_a_tensor_or_have_another_are_refused(name: str, tmp_path: Path) -> None:
    architecture, case = CASES[name]
    hf = case.build()
    write(tmp_path / "lacks.gguf", hf, architecture, leave_out="blk.1.attn_output.weight")
    with pytest.raises(LoadError, match=r"1 missing \(blk\.1\.attn_output\.weight\)"):
        load(tmp_path / "lacks.gguf", device="cpu")
    write(tmp_path / "more.gguf", hf, architecture, stated={"block_count": 2})
    with pytest.raises(LoadError, match=r"unused \(blk\.2\."):
        load(tmp_path / "more.gguf", device="cpu")


# ------------------------------------------------------------------------------------------------ metadata


def config_of(name: str, stated: dict[str, Any] | None = None) -> ModelConfig:
    """The configuration read from the metadata of a case, some of them changed, None left out."""
    architecture, case = CASES[name]
    merged = metadata(case.build(), architecture) | (stated or {})
    checkpoint = Checkpoint(
        source="here",
        layout="gguf",
        architecture=architecture,
        fields={f"{architecture}.{key}": value for key, value in merged.items()},
        shapes={"token_embd.weight": (67, 48)} | {f"blk.{layer}.attn_norm.weight": (48,) for layer in range(3)},
        read=lambda name, rows=None: torch.ones(4),
        tokenizer=lambda: None,
        sha256=lambda: "",
    )
    return family_of(checkpoint).config(checkpoint)


@pytest.mark.parametrize("name", QUANTISABLE)
def test_metadata_that_nobody_reads_are_refused(name: str) -> None:
    with pytest.raises(LoadError, match=r"not known here .*: attention\.clamp_kqv = 8\.0"):
        config_of(name, {"attention.clamp_kqv": 8.0})


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("mixtral", {"expert_gating_func": 2}, "expert_gating_func is 2; only 1"),
        ("mixtral", {"expert_used_count": None}, "does not state expert_used_count"),
        ("llama", {"expert_used_count": 2}, "expert_used_count is 2; only 0"),
        ("qwen3moe", {"expert_count": 0}, "moe n_experts is 0, it must be a positive whole number"),
        ("qwen2", {"attention.sliding_window": 64}, "sliding_window is 64; only 0"),
        ("qwen2", {"rope.dimension_count": 4}, "dimension_count is 4; only 10"),
        ("qwen2", {"rope.scaling.attn_factor": 1.5}, "attn_factor is 1.5; only 1.0"),
        ("qwen2", {"rope.scaling.type": "longrope"}, "does not hold rope_factors_long.weight and rope_factors_short"),
        ("qwen2_yarn", {"rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is 0.5; only 1.0"),
        ("qwen2_yarn", {"rope.scaling.yarn_attn_factor": 0.8}, "yarn_attn_factor = 0.8"),
        ("phi3", {"rope.dimension_count": 40}, "a head of 8 cannot be turned"),
        ("gpt2", {"attention.head_count_kv": 1}, "head_count_kv is 1; only 3"),
        ("gpt2", {"attention.layer_norm_epsilon": None}, "does not state attention.layer_norm_epsilon"),
    ],
)
def test_settings_that_are_not_understood_are_refused_by_key(name: str, stated: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        config_of(name, stated)


def test_sizes_of_experts_that_older_files_leave_out_follow_from_the_ffn() -> None:
    """In Qwen 2 the experts that are chosen together are as wide as the shared one; in Mixtral each is that wide."""
    silent = {"expert_feed_forward_length": None, "expert_shared_feed_forward_length": None}
    qwen, mixtral = config_of("qwen2moe", silent).moe, config_of("mixtral", silent).moe
    assert qwen is not None
    assert mixtral is not None
    assert (qwen.top_k, qwen.d_expert, qwen.d_shared) == (4, 11, 44)
    assert (mixtral.d_expert, mixtral.d_shared) == (44, None)


def test_weights_of_experts_are_normalised_and_scaled_as_stated_or_as_in_the_published_models() -> None:
    published = {name: config_of(name).moe for name in ("mixtral", "qwen2moe", "qwen3moe")}
    assert [moe.renormalise for moe in published.values() if moe is not None] == [True, False, True]
    stated = {"expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_gating_func": 1}
    other = config_of("qwen2moe", stated).moe
    assert other is not None
    assert (other.renormalise, other.scaling) == (True, 2.5)
    unscaled = config_of("qwen2moe", {"expert_weights_scale": 0.0}).moe
    assert unscaled is not None
    assert unscaled.scaling == 1.0


@pytest.mark.parametrize(
    ("stated", "window"),
    [
        ({}, 5),
        ({"attention.sliding_window": 0}, None),
        ({"attention.sliding_window": None, "context_length": 4096}, 2047),
        ({"attention.sliding_window": None, "context_length": 131_072}, None),
    ],
)
def test_phi3_reads_as_far_back_as_is_stated_or_as_its_models_of_the_time_did(
    stated: dict[str, Any], window: int | None
) -> None:
    assert config_of("phi3", stated).window == window


@pytest.mark.parametrize(
    ("weights", "stated"),
    [
        ({"mscale": 1.0, "mscale_all_dim": 0.7}, {"rope.scaling.yarn_log_multiplier": 0.7}),
        ({}, {"rope.scaling.yarn_log_multiplier": 0.0, "rope.scaling.yarn_ext_factor": 1.0}),
        (
            {"attention_factor": 0.8},
            {"rope.scaling.yarn_attn_factor": None, "rope.scaling.attn_factor": 0.8 / 1.1386294361},
        ),
    ],
)
def test_what_yarn_multiplies_scores_with_is_what_the_reference_does(
    weights: dict[str, float], stated: dict[str, Any], tmp_path: Path
) -> None:
    """1 + 0.1 ln 4 = 1.1386… is the paper's factor, which attn_factor comes on top of."""
    hf = of(llama_like.CASES["qwen2"], **llama_like.rope("yarn", **llama_like.YARN, **weights)).build()
    write(tmp_path / "tiny.gguf", hf, "qwen2", stated=stated)
    assert_same_logits(load(tmp_path / "tiny.gguf", device="cpu"), hf, (23,))


def test_longrope_without_a_stated_factor_has_that_of_its_paper(tmp_path: Path) -> None:
    hf = sparse.CASES["phi3_longrope"].build()
    write(tmp_path / "tiny.gguf", hf, "phi3", stated={"rope.scaling.attn_factor": None})
    assert_same_logits(load(tmp_path / "tiny.gguf", device="cpu"), hf, sparse.CASES["phi3_longrope"].lengths)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_positions_that_are_stretched_by_metadata_and_by_tensors_are_refused(kind: str, tmp_path: Path) -> None:
    twice = {"rope.scaling.type": kind, "rope.scaling.factor": 2.0}
    write(tmp_path / "tiny.gguf", sparse.CASES["phi3_longrope"].build(), "phi3", stated=twice)
    with pytest.raises(LoadError, match=f"twice: {kind}, and by rope_factors_long.weight, rope_factors_short.weight"):
        load(tmp_path / "tiny.gguf", device="cpu")


def test_a_part_of_a_file_that_was_split_up_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", older.CASES["gpt2"].build(), "gpt2", stated={"split.count": 3})
    with pytest.raises(LoadError, match="split.count is 3; only 1"):
        load(tmp_path / "tiny.gguf", device="cpu")
