"""Configurations of Gemma 1, 2 and 3: what files state, in the old words and in the new, and what is refused."""

from typing import Any

import pytest

from interp.errors import LoadError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.families import gemma
from interp.models.families.family import Family
from interp.models.sources.checkpoint import Checkpoint

SIZES: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 44, "num_hidden_layers": 7, "num_attention_heads": 16, "vocab_size": 67,
}  # fmt: skip


def read(family: Family, **fields: Any) -> ModelConfig:
    """What a family makes of a configuration."""
    checkpoint = Checkpoint(
        source="here",
        layout="hf",
        architecture=family.architectures[0],
        fields=fields,
        shapes={},
        read=lambda name, rows=None: pytest.fail("no weights are read"),
        tokenizer=lambda: None,
        sha256=lambda: "",
    )
    return family.config(checkpoint)


def windows(config: ModelConfig) -> list[int | None]:
    return [config.layer(layer).window for layer in range(config.n_layers)]


def test_what_files_leave_out_is_as_in_the_published_classes() -> None:
    one, two, three = (read(family, **SIZES) for family in (gemma.GEMMA, gemma.GEMMA2, gemma.GEMMA3))
    assert [config.d_head for config in (one, two, three)] == [256, 256, 256]
    assert [config.n_kv_heads for config in (one, two, three)] == [16, 4, 4]
    assert [config.n_ctx for config in (one, two, three)] == [8192, 8192, 131_072]
    assert (two.score_cap, two.logit_cap, two.score_scale) == (50.0, 30.0, 1 / 16)
    assert (three.score_cap, three.logit_cap, three.score_scale) == (None, None, 1 / 16)
    assert one.windows == {None}
    assert windows(two) == [4096, None, 4096, None, 4096, None, 4096]
    assert windows(three) == [4096] * 5 + [None, 4096]
    assert all(config.tied_embeddings and config.norm_offset and config.embed_scale == 48**0.5 for config in (one, two))


def test_rotations_of_gemma_3_may_be_stated_in_the_old_words_or_the_new() -> None:
    stretched = {"rope_type": "linear", "factor": 8.0}
    old = read(gemma.GEMMA3, **SIZES, rope_theta=500.0, rope_local_base_freq=20.0, rope_scaling=stretched)
    tables = {"full_attention": stretched | {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 20.0}}
    assert old == read(gemma.GEMMA3, **SIZES, rope_parameters=tables)
    assert old.layer(5).rotary == RotaryConfig(theta=500.0, scaling="linear", factor=8.0)
    assert old.layer(0).rotary == RotaryConfig(theta=20.0)
    with pytest.raises(LoadError, match="contradicts itself: rope_theta is both 20.0 and 30.0"):
        read(gemma.GEMMA3, **SIZES, rope_parameters=tables, rope_local_base_freq=30.0)


def test_which_layers_have_a_window_may_be_stated_or_counted() -> None:
    assert windows(read(gemma.GEMMA3, **SIZES, sliding_window=9, sliding_window_pattern=3)) == [9, 9, None] * 2 + [9]
    kinds = ["full_attention"] + ["sliding_attention"] * 6
    assert windows(read(gemma.GEMMA2, **SIZES, sliding_window=9, layer_types=kinds)) == [None] + [9] * 6


def test_gelu_in_the_first_files_meant_its_approximation() -> None:
    assert read(gemma.GEMMA, **SIZES, hidden_act="gelu").activation == "gelu_tanh"
    assert read(gemma.GEMMA2, **SIZES, hidden_activation="gelu").activation == "gelu"


def test_null_says_that_nothing_is_bounded() -> None:
    config = read(gemma.GEMMA2, **SIZES, attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (config.score_cap, config.logit_cap) == (None, None)


def test_of_a_model_that_sees_images_the_text_part_is_read() -> None:
    outer = {"model_type": "gemma3", "vision_config": {"image_size": 8}, "image_token_index": 5}
    config = read(gemma.GEMMA3_WITH_IMAGES, text_config={**SIZES, "model_type": "gemma3_text"}, **outer)
    assert config == read(gemma.GEMMA3, **SIZES)
    without = {key: value for key, value in SIZES.items() if key not in ("num_attention_heads", "vocab_size")}
    config = read(gemma.GEMMA3_WITH_IMAGES, text_config=without, **outer)
    assert (config.n_heads, config.d_vocab) == (8, 262_208), "published files leave these out"


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (gemma.GEMMA, {"use_bidirectional_attention": True}, "use_bidirectional_attention is True; only False"),
        (gemma.GEMMA, {"hidden_activation": "relu"}, "hidden_activation is 'relu'; only 'gelu_pytorch_tanh'"),
        (gemma.GEMMA, {"model_type": "gemma2"}, "model_type is 'gemma2'"),
        (gemma.GEMMA2, {"hidden_act": "relu"}, "hidden_act is 'relu'; only 'gelu_pytorch_tanh'"),
        (gemma.GEMMA2, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0.0; it must be a positive number"),
        (gemma.GEMMA2, {"sliding_window": None}, "layers have a sliding window, but there is none"),
        (gemma.GEMMA2, {"sliding_window_size": 9}, "sliding_window_size is 9; only 4096"),
        (gemma.GEMMA2, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is stated; Gemma turns whole heads"),
        (gemma.GEMMA3, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is stated"),
        (gemma.GEMMA3, {"sliding_window_pattern": 0}, "sliding_window_pattern is 0; it must be a positive number"),
        (gemma.GEMMA3, {"rope_parameters": {"rope_theta": 5.0}}, "not known here .*rope_theta = 5.0"),
        (gemma.GEMMA3, {"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        (gemma.GEMMA3, {"laurel_rank": 64}, "laurel_rank = 64"),
        (gemma.GEMMA3_WITH_IMAGES, {"audio_config": {}}, "audio_config = {}"),
    ],
)
def test_what_would_compute_something_else_is_refused(family: Family, fields: dict[str, Any], message: str) -> None:
    stated = {"text_config": SIZES} if family is gemma.GEMMA3_WITH_IMAGES else SIZES
    with pytest.raises(LoadError, match=message):
        read(family, **{**stated, **fields})
