"""Every family computes what `transformers` computes from the same weights, in every variant of its class.

The variants are data: `families/*.py`. Each is a tiny model with random weights, which we read from memory and from the
folder that `save_pretrained` writes.
"""

import copy
import functools
import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from families.case import Case
from identities import check_identities
from tiny import random_tokens

import interp
from interp.hooks import HookPoint
from interp.models.kv_cache import KVCache
from interp.models.transformer import Transformer


def all_cases() -> dict[str, Case]:
    """The cases of every module in `families`, by name."""
    found: dict[str, Case] = {}
    for path in sorted((Path(__file__).parent / "families").glob("*.py")):
        cases: dict[str, Case] = getattr(importlib.import_module(f"families.{path.stem}"), "CASES", {})
        assert found.keys().isdisjoint(cases), f"{path.name} repeats a name"
        found |= cases
    return found


CASES = all_cases()
every_case = pytest.mark.parametrize("name", CASES)


@functools.cache
def built(name: str) -> tuple[torch.nn.Module, Transformer]:
    """The published model and ours, made once. Leave both as they are."""
    hf = CASES[name].build()
    return hf, interp.from_transformers(hf, device="cpu")


def theirs(name: str, tokens: torch.Tensor, mask: torch.Tensor | None = None, **more: Any) -> Any:
    """The reference's answer, from a copy: rotary tables that grow with the text remember the longest."""
    hf = copy.deepcopy(built(name)[0])
    if mask is not None:
        more["attention_mask"] = mask.long()
        if "position_ids" in inspect.signature(hf.forward).parameters:
            more["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return hf(tokens, **{"use_cache": False} | more)


def assert_logits_agree(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-5 of the largest logit; same argmax wherever it is not a near tie."""
    tolerance = 1e-5 * float(expected.abs().max())
    torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance)
    top = expected.topk(2, -1).values
    clear = top[..., 0] - top[..., 1] > 2 * tolerance
    assert torch.equal(ours.argmax(-1)[clear], expected.argmax(-1)[clear])


@every_case
def test_a_saved_folder_and_a_model_in_memory_become_the_same(name: str, tmp_path: Path) -> None:
    hf, ours = built(name)
    hf.save_pretrained(tmp_path)
    loaded = interp.load(tmp_path, device="cpu")
    assert loaded.config == ours.config
    for weight, expected in zip(loaded.weights().items(), ours.weights().items(), strict=True):
        assert weight[0] == expected[0]
        assert torch.equal(weight[1], expected[1]), weight[0]


@every_case
def test_logits_are_the_references(name: str) -> None:
    _, ours = built(name)
    for length in CASES[name].lengths:
        tokens = random_tokens(ours.config, 2, length)
        assert_logits_agree(ours(tokens), theirs(name, tokens).logits)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.padded])
def test_a_batch_padded_on_the_left_gives_the_references_logits(name: str) -> None:
    _, ours = built(name)
    longest = max(CASES[name].lengths)
    tokens, mask = random_tokens(ours.config, 2, longest), torch.ones(2, longest, dtype=torch.bool)
    mask[0, : longest - 9] = False
    assert_logits_agree(ours(tokens, mask)[mask], theirs(name, tokens, mask).logits[mask])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.decode])
def test_reading_in_pieces_equals_reading_at_once(name: str) -> None:
    """The first tokens one by one, then a stretch, then some more one by one."""
    _, ours = built(name)
    longest = max(CASES[name].lengths)
    tokens, cache = random_tokens(ours.config, 2, longest), KVCache.for_model(ours, batch=2)
    steps = [1] * 9 + [longest - 13] + [1] * 4
    logits = torch.cat([ours(piece, kv_cache=cache) for piece in tokens.split(steps, 1)], 1)
    assert_logits_agree(logits, in_pieces(name, tokens, steps) if CASES[name].per_call else ours(tokens))


def in_pieces(name: str, tokens: torch.Tensor, steps: list[int]) -> torch.Tensor:
    """The reference's logits, with its own cache."""
    from transformers import DynamicCache

    hf = copy.deepcopy(built(name)[0])
    takes = inspect.signature(hf.forward).parameters  # the argument has had two names
    argument = {"cache" if "cache" in takes else "past_key_values": DynamicCache(), "use_cache": True}
    return torch.cat([hf(piece, **argument).logits for piece in tokens.split(steps, 1)], 1)


@every_case
def test_fused_attention_equals_explicit_attention(name: str) -> None:
    _, ours = built(name)
    tokens = random_tokens(ours.config, 2, max(CASES[name].lengths))
    explicit, _ = ours.run_with_cache(tokens, "blocks.*.attn.hook_pattern")
    assert_logits_agree(ours(tokens), explicit)


@every_case
def test_every_equation_of_the_hook_points_holds(name: str) -> None:
    _, ours = built(name)
    check_identities(ours, random_tokens(ours.config, 2, max(CASES[name].lengths)))


@every_case
def test_every_point_fires_once_with_the_promised_shape(name: str) -> None:
    _, ours = built(name)
    seen: list[tuple[str, tuple[int, ...]]] = []

    def look(value: torch.Tensor, point: HookPoint) -> None:
        seen.append((point.name, tuple(value.shape)))

    ours.run_with_hooks(random_tokens(ours.config, 2, 5), [("*", look)])
    points = ours.points()
    promised = {name: point.shape({**points.sizes, "batch": 2, "pos": 5}) for name, point in points.items()}
    assert dict(seen) == promised
    assert len(seen) == len(promised), "once each"


@dataclass(frozen=True)
class Rounding:
    """What bfloat16 does to several models of one case: [ours, the reference's]."""

    squared_error: torch.Tensor
    """Of the logits against float32, over the tokens before which no expert was chosen that float32 does not choose."""
    switched: torch.Tensor
    """Tokens of a layer for which other experts were chosen than in float32."""
    compared: float
    """The part of all tokens that the error is over."""


@functools.cache
def rounded(name: str) -> Rounding:
    """Each model in float32, then in bfloat16 by both."""
    error, switched, compared = torch.zeros(2), torch.zeros(2), 0.0
    for seed in range(CASES[name].seeds):
        hf = CASES[name].build(seed)
        model = interp.from_transformers(hf, device="cpu")
        tokens = random_tokens(model.config, 4, max(CASES[name].lengths), seed=seed)
        exact, wanted = our_answer(model, tokens)
        for parameter in hf.parameters():  # rotary tables stay as they are, in float32
            parameter.data = parameter.data.to(torch.bfloat16)
        answers = our_answer(model.to(torch.bfloat16), tokens), their_answer(hf, tokens)
        same = torch.stack([(chosen == wanted).all(-1) for _, chosen in answers])  # [whose, layer, batch, pos]
        alike = same.all(0).all(0).long().cumprod(-1).bool()
        error += torch.stack([(logits.float() - exact)[alike].square().sum() for logits, _ in answers])
        switched += (~same).sum((1, 2, 3))
        compared += float(alike.float().mean()) / CASES[name].seeds
    return Rounding(error, switched, compared)


def our_answer(model: Transformer, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and the experts chosen, in the order of their numbers: [layer, batch, pos, slot]."""
    chosen: list[torch.Tensor] = []
    names = [name for name in model.points() if name.endswith("hook_expert_indices")]
    logits = model.run_with_hooks(tokens, [(name, lambda value, point: chosen.append(value)) for name in names])
    return logits, in_order(chosen, tokens)


def their_answer(hf: torch.nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    chosen: list[torch.Tensor] = []
    routers = [module for module in hf.modules() if type(module).__name__.endswith("TopKRouter")]
    for router in routers:
        router.register_forward_hook(lambda module, given, answer: chosen.append(answer[2]))
    return hf(tokens, use_cache=False).logits, in_order(chosen, tokens)


def in_order(chosen: list[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """The chosen experts of all layers; none where every layer is dense."""
    rows = [layer.view(*tokens.shape, -1).sort(-1).values for layer in chosen]
    return torch.stack(rows) if rows else torch.zeros(1, *tokens.shape, 0)


@every_case
def test_bfloat16_is_as_accurate_as_the_references(name: str) -> None:
    """RMS error against float32 at most 1.1 times that of `transformers` in bfloat16, over several models.

    In a mixture, rounding settles near ties between experts, and a token that took another expert is wrong by far more
    than by rounding, in either implementation: those tokens, and those that read them, are counted in the next test.
    """
    found = rounded(name)
    ours, theirs = found.squared_error.sqrt().tolist()
    assert found.compared > 0.25, "enough tokens were left"
    assert ours <= 1.1 * theirs, f"{ours / theirs:.2f} times the error"


def test_bfloat16_chooses_other_experts_no_more_often_than_in_the_reference() -> None:
    """Over all mixtures, in which rounding does so for a few hundred tokens."""
    ours, theirs = sum((rounded(name).switched for name in CASES), torch.zeros(2)).tolist()
    assert theirs > 300
    assert ours <= 1.1 * theirs, f"{ours:.0f} tokens, {theirs:.0f} in the reference"
