"""Rotary positions turn as in `transformers`, whatever the scaling; waves and distance penalties are as published."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from interp.errors import UsageError
from interp.models.config import RotaryConfig
from interp.models.positions import Rotation, alibi_bias, alibi_slopes, rotation, row_positions, sinusoidal
from interp.models.rotary import attention_scaling, rotary_frequencies

D_HEAD = 18
FAR = torch.tensor([[0, 1, 7, 255, 2048, 8191]])
NEAR = FAR[:, :4]
SHORT = tuple(1.0 + 0.1 * pair for pair in range(D_HEAD // 2))
LONG = tuple(1.0 + 1.7 * pair for pair in range(D_HEAD // 2))
YARN = RotaryConfig(theta=5000.0, scaling="yarn", factor=4.0, original_context=2048)
CONTEXT = 16_384
LONGROPE = RotaryConfig(
    scaling="longrope", factor=CONTEXT / 2048, original_context=2048, short_factor=SHORT, long_factor=LONG
)
SCALINGS = {
    "default": RotaryConfig(theta=500_000.0),
    "linear": RotaryConfig(theta=500.0, scaling="linear", factor=3.7),
    "dynamic": RotaryConfig(scaling="dynamic", factor=3.7, original_context=2048),
    "llama3": RotaryConfig(
        theta=5000.0, scaling="llama3", factor=8.0, low_freq_factor=1.5, high_freq_factor=4.0, original_context=512
    ),
    "yarn": YARN,
    "yarn_untruncated": replace(YARN, truncate=False, beta_fast=20.0, beta_slow=2.0),
    "yarn_every_pair_turns_often": replace(YARN, theta=15.0),
    "yarn_first_pair_turns_rarely": replace(YARN, original_context=64),
    "yarn_no_pair_turns_often": replace(YARN, original_context=6),
    "yarn_weighted": replace(YARN, mscale=1.3, mscale_all_dim=0.6),
    "yarn_stated": replace(YARN, attention_factor=1.21),
    "longrope": LONGROPE,
    "longrope_factor": replace(LONGROPE, factor=3.0),
    "longrope_not_stretched": replace(LONGROPE, factor=1.0),
    "longrope_shortened": replace(LONGROPE, factor=0.5),
    "longrope_stated": replace(LONGROPE, attention_factor=1.21),
}


def published(config: RotaryConfig) -> LlamaConfig:
    """The same rotation as a configuration of `transformers`."""
    rope: dict[str, object] = {"rope_type": config.scaling, "rope_theta": config.theta}
    if config.scaling != "default":
        rope["factor"] = config.factor
    if config.scaling in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = config.original_context
    if config.scaling == "llama3":
        rope |= {"low_freq_factor": config.low_freq_factor, "high_freq_factor": config.high_freq_factor}
    if config.scaling == "yarn":
        rope |= {"beta_fast": config.beta_fast, "beta_slow": config.beta_slow, "truncate": config.truncate}
        rope |= {"mscale": config.mscale, "mscale_all_dim": config.mscale_all_dim}
    if config.scaling == "longrope":
        rope |= {"short_factor": list(config.short_factor), "long_factor": list(config.long_factor)}
    if config.attention_factor is not None:
        rope["attention_factor"] = config.attention_factor
    context = config.original_context if config.scaling == "dynamic" else CONTEXT
    return LlamaConfig(
        hidden_size=6 * D_HEAD, num_attention_heads=6, head_dim=D_HEAD, max_position_embeddings=context,
        rope_parameters=rope,
    )  # fmt: skip


def unsigned(turn: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines as `transformers` keeps them for halves: [batch, pos, d], no sign."""
    half = turn.sin.shape[-1] // 2
    return turn.cos[:, :, 0], torch.cat([turn.sin[:, :, 0, half:]] * 2, -1)


@pytest.mark.parametrize("positions", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("name", SCALINGS)
def test_cosines_and_sines_are_those_of_transformers_to_the_bit(name: str, positions: torch.Tensor) -> None:
    # to the bit, because the order of operations is the same; any other order is off by 1e-3 at position 8191
    cos, sin = LlamaRotaryEmbedding(published(SCALINGS[name]))(torch.zeros(1), positions)
    ours = unsigned(rotation(SCALINGS[name], D_HEAD, positions))
    assert torch.equal(ours[0], cos)
    assert torch.equal(ours[1], sin)


@pytest.mark.parametrize("length", [1, 2048, 2049, 8192])
@pytest.mark.parametrize("name", [name for name in SCALINGS if name != "default"])
def test_frequencies_and_attention_scaling_are_those_of_transformers(name: str, length: int) -> None:
    config = SCALINGS[name]
    expected, factor = ROPE_INIT_FUNCTIONS[config.scaling](published(config), torch.device("cpu"), seq_len=length)
    found = rotary_frequencies(config, D_HEAD, length=length)
    # the base of `dynamic` is float64 there when the length is a number, float32 in a forward pass: follow the latter
    torch.testing.assert_close(found, expected, rtol=1e-6 if config.scaling == "dynamic" else 0, atol=0)
    assert attention_scaling(config) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("name", SCALINGS)
def test_queries_in_bfloat16_turn_by_float32_tables_and_stay_bfloat16(name: str) -> None:
    turn = rotation(SCALINGS[name], D_HEAD, FAR)
    x = torch.randn(2, 6, 3, D_HEAD, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    turned = turn(x)
    assert turned.dtype == torch.bfloat16
    cos, sin = (table.to(torch.float64) for table in unsigned(turn))
    expected, _ = apply_rotary_pos_emb(x.double(), x.double(), cos, sin, unsqueeze_dim=2)
    torch.testing.assert_close(turned.double(), expected, rtol=2**-8, atol=1e-6)


def test_ntk_keeps_the_fastest_pair_and_slows_the_slowest_by_the_factor() -> None:
    config = RotaryConfig(scaling="ntk", factor=5.0)
    plain = rotary_frequencies(RotaryConfig(), D_HEAD, length=1)
    found = rotary_frequencies(config, D_HEAD, length=1)
    assert found[0] == plain[0] == 1
    assert float(plain[-1] / found[-1]) == pytest.approx(5.0, rel=1e-5)
    raised = RotaryConfig(theta=10_000.0 * 5.0 ** (D_HEAD / (D_HEAD - 2)))
    assert torch.equal(found, rotary_frequencies(raised, D_HEAD, length=1))
    assert torch.equal(rotary_frequencies(config, 2, length=1), torch.ones(1))


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_a_stated_length_replaces_the_largest_position(name: str) -> None:
    config = SCALINGS[name]
    near, far = rotation(config, D_HEAD, NEAR), rotation(config, D_HEAD, FAR)
    stated = rotation(config, D_HEAD, NEAR, length=8192)
    assert not torch.equal(near.cos, stated.cos)
    assert torch.equal(stated.cos, far.cos[:, :4])
    assert torch.equal(near.cos, rotation(config, D_HEAD, NEAR, length=256).cos)


def test_a_short_text_is_turned_by_the_plain_base_under_dynamic_scaling() -> None:
    turn = rotation(SCALINGS["dynamic"], D_HEAD, torch.tensor([[0, 2047]]))
    assert torch.equal(turn.cos, rotation(RotaryConfig(), D_HEAD, torch.tensor([[0, 2047]])).cos)


def test_longrope_needs_a_factor_for_each_pair() -> None:
    with pytest.raises(UsageError, match="9 factors for 5 rotated pairs"):
        rotation(LONGROPE, 10, NEAR)


def test_the_first_numbers_of_a_head_turn_as_in_gpt_neox_and_the_rest_stays() -> None:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 8 / D_HEAD}
    theirs = GPTNeoXConfig(hidden_size=6 * D_HEAD, num_attention_heads=6, rope_parameters=rope)
    x = torch.randn(1, 6, 3, D_HEAD, generator=torch.Generator().manual_seed(0))
    tables = modeling_gpt_neox.GPTNeoXRotaryEmbedding(theirs)(x, FAR)
    expected, _ = modeling_gpt_neox.apply_rotary_pos_emb(x, x, *tables, unsqueeze_dim=2)
    turned = rotation(RotaryConfig(rotated=8), D_HEAD, FAR)(x)
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-6)
    assert torch.equal(turned[..., 8:], x[..., 8:])
    assert (turned[:, 1:, :, :8] != x[:, 1:, :, :8]).all()


@pytest.mark.parametrize("rotated", [None, 8])
def test_adjacent_pairs_turn_as_in_gpt_j(rotated: int | None) -> None:
    width = rotated or D_HEAD
    theirs = GPTJConfig(n_embd=6 * D_HEAD, n_head=6, rotary_dim=width, n_positions=8192)
    x = torch.randn(1, 6, 3, D_HEAD, generator=torch.Generator().manual_seed(0))
    tables = modeling_gptj.GPTJRotaryEmbedding(theirs)(x, FAR)
    turned = rotation(RotaryConfig(rotated=rotated, pairs="adjacent"), D_HEAD, FAR)(x)
    expected = modeling_gptj.apply_rotary_pos_emb(x[..., :width], *tables)
    torch.testing.assert_close(turned[..., :width], expected, rtol=0, atol=1e-6)
    assert torch.equal(turned[..., width:], x[..., width:])


TURNS = {
    "halves": RotaryConfig(),
    "adjacent": RotaryConfig(pairs="adjacent"),
    "part_of_halves": RotaryConfig(rotated=8),
    "part_of_adjacent": RotaryConfig(rotated=8, pairs="adjacent"),
}


def random_heads(seed: int, positions: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, positions, 3, D_HEAD, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", TURNS)
def test_turning_keeps_lengths_and_position_zero_turns_nothing(name: str) -> None:
    x = random_heads(1)
    turned = rotation(TURNS[name], D_HEAD, FAR)(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=0)
    assert torch.equal(turned[:, 0], x[:, 0])
    assert not torch.isclose(turned[:, 1:], x[:, 1:]).all(-1).any()


@pytest.mark.parametrize("name", TURNS)
def test_scores_depend_on_the_distance_alone(name: str) -> None:
    q, k = random_heads(1), random_heads(2)
    scores = []
    for shift in (0, 57, 1000):
        turn = rotation(TURNS[name], D_HEAD, torch.arange(6)[None] + shift)
        scores.append(torch.einsum("bqhd,bkhd->bhqk", turn(q), turn(k)))
    torch.testing.assert_close(scores[1], scores[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(scores[2], scores[0], rtol=0, atol=1e-3)
    assert not torch.isclose(scores[0], torch.einsum("bqhd,bkhd->bhqk", q, k), atol=1e-2).all()


@pytest.mark.parametrize("name", TURNS)
def test_the_gradient_is_turned_back(name: str) -> None:
    x, upstream = random_heads(1).requires_grad_(), random_heads(2)
    rotation(TURNS[name], D_HEAD, FAR)(x).backward(upstream)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, rotation(TURNS[name], D_HEAD, -FAR, length=1)(upstream), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TURNS)
def test_what_is_turned_is_left_as_it_was(name: str) -> None:
    x = random_heads(1)
    before = x.clone()
    rotation(TURNS[name], D_HEAD, FAR)(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", TURNS)
def test_chosen_rows_of_a_rotation_turn_as_their_positions_do(name: str) -> None:
    rows = torch.tensor([4, 0, 4, 2])
    x = random_heads(1, 4)
    found = rotation(TURNS[name], D_HEAD, torch.arange(6)[None]).at(rows)(x)
    assert torch.equal(found, rotation(TURNS[name], D_HEAD, rows[None])(x))


@pytest.mark.parametrize("name", SCALINGS)
def test_tables_are_the_same_on_every_device(name: str, device: str) -> None:
    turn = rotation(SCALINGS[name], D_HEAD, NEAR.to(device), length=8192)
    assert turn.cos.device.type == device
    expected = rotation(SCALINGS[name], D_HEAD, NEAR, length=8192)
    torch.testing.assert_close(turn.cos.cpu(), expected.cos, rtol=0, atol=1e-4)
    torch.testing.assert_close(turn.sin.cpu(), expected.sin, rtol=0, atol=1e-4)


def test_waves_are_those_of_the_formula() -> None:
    positions = torch.tensor([[0, 1, 2], [7, 255, 8191]])
    table = sinusoidal(positions, 6)
    for row in range(2):
        for column in range(3):
            for pair in range(3):
                angle = int(positions[row, column]) / 10_000 ** (2 * pair / 6)
                expected = torch.tensor([math.sin(angle), math.cos(angle)])
                found = table[row, column, 2 * pair : 2 * pair + 2]
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("d_model", [0, 7])
def test_waves_come_in_pairs(d_model: int) -> None:
    with pytest.raises(UsageError, match="even d_model"):
        sinusoidal(FAR, d_model)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6, 8, 12, 16, 20, 32, 71, 112])
def test_distance_penalties_are_those_of_bloom_to_the_bit(n_heads: int) -> None:
    mask = torch.ones(2, 300, dtype=torch.int64)
    mask[1, :5] = 0
    positions = row_positions(2, 0, 300, mask.bool(), mask.device)
    found = alibi_bias(alibi_slopes(n_heads), positions)
    assert torch.equal(found.flatten(0, 1), build_alibi_tensor(mask, n_heads, torch.float32))


def test_slopes_halve_from_head_to_head_of_eight() -> None:
    torch.testing.assert_close(alibi_slopes(8), torch.tensor([0.5**head for head in range(1, 9)]), rtol=1e-6, atol=0)


def test_a_model_without_heads_has_no_slopes() -> None:
    with pytest.raises(UsageError, match="at least one head"):
        alibi_slopes(0)


def test_a_penalty_on_keys_gives_the_pattern_of_a_penalty_on_distances() -> None:
    slopes, positions = alibi_slopes(6), torch.arange(9)
    scores = torch.randn(1, 6, 9, 9, generator=torch.Generator().manual_seed(0))
    ahead = torch.ones(9, 9, dtype=torch.bool).triu(1)
    distances = (positions[:, None] - positions[None, :]).float()
    expected = (scores - slopes[:, None, None] * distances).masked_fill(ahead, -torch.inf).softmax(-1)
    found = (scores + alibi_bias(slopes, positions[None])).masked_fill(ahead, -torch.inf).softmax(-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
