"""Activation patching against the same loop on `transformers`: one full forward pass a cell, with forward hooks."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measuring import Row, medians, ratio_row
from benchmarks.models import ours, peer
from benchmarks.sweeps import against, estimates, hooked, seconds
from interp import pair_builders, pairs
from interp.analyses import patching
from interp.analyses.attribution_patching import attribution_patching

CLEAN = "When Mary and John went to the store, John gave a drink to"
CORRUPTED = "When Mary and John went to the store, Mary gave a drink to"
ANSWER, FOIL = " Mary", " John"
MANY = 64
LENGTHS = (8, 32, 128, 512)
FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""The kernel of attention that PyTorch's counter of operations leaves out."""


def residual_sweep() -> Iterator[Row]:
    """The residual stream at every layer and position of a 14-token pair."""
    yield from _sweep("residual sweep", "resid_pre", ("layer", "pos"), _residual_loop, 1 / 60, 49e9)


def head_sweep() -> Iterator[Row]:
    """The output of every head, all positions at once."""
    yield from _sweep("head sweep", "z", ("layer", "head"), _head_loop, 1 / 15, 148e9)


def many_pairs() -> Iterator[Row]:
    """A residual sweep of many pairs at once, against as many sweeps of one pair."""
    model = ours()
    every = pairs.align(model.tokenizer, pair_builders.ioi(model.tokenizer, n=4 * MANY), prefix="none")
    every = every.of_one_length().select(slice(MANY))
    few = 4  # single sweeps are all alike

    def single() -> None:
        for place in range(few):
            patching.sweep(model, every.select([place]), site="resid_pre", metric="logit_difference")

    def together() -> object:
        return patching.sweep(model, every, site="resid_pre", metric="logit_difference")

    found = medians({"together": together, "single": single}, 3)
    alone = found["single"] * MANY / few
    yield Row(
        f"{MANY} pairs at once ÷ one by one",
        f"{found['together']:.2f} s against {alone:.2f} s",
        found["together"] / alone,
        0.7,
    )


def attribution() -> Iterator[Row]:
    """Attribution patching of every head and position, against hooks with frozen weights."""
    model, pair = ours(), _pair()
    yield ratio_row(
        "attribution patching of 30 × 9 heads × 14 positions",
        lambda: attribution_patching(
            model, pair, site="z", metric="logit_difference", by=("layer", "head", "pos"), check=None
        ),
        _attributed_by_hooks,
        1.0,
        15,
    )


def growth() -> Iterator[Row]:
    """Time and operations of the residual sweep of the last 8 positions, as prompts grow."""
    model, taken, done = ours(), [], []
    for length in LENGTHS:
        clean = torch.randint(100, 40_000, (1, length), generator=torch.Generator().manual_seed(length))
        corrupted = clean.clone()
        corrupted[0, -8:] = clean[0, -8:].flip(0)
        planned = patching.plan_sweep(
            model,
            clean,
            corrupted,
            site="resid_pre",
            metric=patching.logit_difference(260, 261),
            positions=range(length - 8, length),
        )
        planned.run()
        taken.append(seconds(planned.run, 5))
        with FlopCounterMode(display=False, custom_mapping={FUSED: _attention}) as counter:
            planned.run()
        done.append(counter.get_total_flops())
    exponents = [float(np.polyfit(np.log(LENGTHS), np.log(each), 1)[0]) for each in (taken, done)]
    measured = ", ".join(f"{n}: {s:.2f} s" for n, s in zip(LENGTHS, taken, strict=True))
    yield Row(
        "growth with length: exponent of time − of operations",
        f"{measured}; {exponents[0]:.2f}, {exponents[1]:.2f}",
        exponents[0] - exponents[1],
        0.1,
        "",
    )


def _attention(query: torch.Size, key: torch.Size, *rest: object, **more: object) -> int:
    batch, head, query_pos, d_head = query
    return 4 * batch * head * query_pos * key[2] * d_head


def _pair() -> pairs.Pairs:
    return pairs.of_texts(ours().tokenizer, CLEAN, CORRUPTED, ANSWER, FOIL, prefix="none")


def _sweep(
    what: str, site: patching.Site, by: tuple[str, ...], loop: Callable[[], np.ndarray], mark: float, operations: float
) -> Iterator[Row]:
    """Seconds, effects, operations and their estimate, of the sweep of one pair and one site."""
    model, pair = ours(), _pair()

    def run() -> patching.Patching:
        return patching.sweep(model, pair, site=site, by=by, metric="logit_difference")

    swept, looped_seconds, replayed, looped = against(run, loop, 7)
    furthest = np.abs(swept["logit_difference"][..., 0] - looped).max()
    yield Row(
        f"{what} of 14 tokens ÷ loop",
        f"{replayed:.2f} s against {looped_seconds:.1f} s",
        replayed / looped_seconds,
        mark,
    )
    yield Row(f"{what}: largest difference from the loop", f"{furthest:.1e} logit", furthest, 1e-4, "")
    replay = patching.plan_sweep(model, pair, site=site, by=by, metric="logit_difference").replay
    with FlopCounterMode(display=False) as counter:
        replay.run()
    unembedded = 2 * model.config.d_model * model.config.d_vocab  # the base run's logits are counted too
    counted = counter.get_total_flops() - unembedded
    yield Row(
        f"{what}: operations ÷ {operations / 1e9:.0f} GFLOP", f"{counted / 1e9:.1f} GFLOP", counted / operations, 1.15
    )
    yield from estimates(what, replay, counted, replay.run)


@torch.no_grad()
def _residual_loop() -> np.ndarray:
    layers, kept = peer("eager").model.layers, {}
    kept = _inputs(list(layers))

    def patch(layer: int, pos: int) -> Callable[..., Any]:
        def hook(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            patched = inputs[0].clone()
            patched[:, pos] = kept[layer][:, pos]
            return (patched, *inputs[1:])

        return hook

    return _looped((len(layers), kept[0].shape[1]), list(layers), patch)


@torch.no_grad()
def _head_loop() -> np.ndarray:
    modules = [layer.self_attn.o_proj for layer in peer("eager").model.layers]
    kept, heads = _inputs(modules), ours().config.n_heads

    def patch(layer: int, head: int) -> Callable[..., Any]:
        def hook(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            patched = inputs[0].clone()
            patched.unflatten(-1, (heads, -1))[..., head, :] = kept[layer].unflatten(-1, (heads, -1))[..., head, :]
            return (patched,)

        return hook

    return _looped((len(modules), heads), modules, patch)


def _inputs(modules: list[Any]) -> list[Tensor]:
    """What each module reads in the clean run."""
    kept: list[Tensor] = []
    keep = [module.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0].clone())) for module in modules]
    with hooked(keep):
        peer("eager")(_pair().clean, use_cache=False)
    return kept


def _looped(shape: tuple[int, int], modules: list[Any], patch: Callable[[int, int], Callable[..., Any]]) -> np.ndarray:
    """A forward pass of the corrupted prompt for each cell; the first axis says which module is hooked."""
    pair, hf, found = _pair(), peer("eager"), np.zeros(shape)
    answer, foil = pair.answers[0], (pair.foils or (0,))[0]
    for layer, place in np.ndindex(*shape):
        with hooked([modules[layer].register_forward_pre_hook(patch(layer, place))]):
            logits = hf(pair.corrupted, use_cache=False).logits[0, -1]
        found[layer, place] = float(logits[answer] - logits[foil])
    return found


def _attributed_by_hooks() -> Tensor:
    """(clean − corrupted) · gradient at the corrupted run, every head and position; weights are frozen."""
    pair, hf = _pair(), peer("sdpa")
    answer, foil = pair.answers[0], (pair.foils or (0,))[0]
    modules = [layer.self_attn.o_proj for layer in hf.model.layers]
    clean: list[Tensor] = []
    with hooked([each.register_forward_pre_hook(lambda _, inputs: clean.append(inputs[0])) for each in modules]):
        hf(pair.clean, use_cache=False)
    read: list[Tensor] = []

    def keep(module: Any, inputs: tuple[Tensor]) -> None:
        inputs[0].retain_grad()
        read.append(inputs[0])

    with torch.enable_grad(), hooked([each.register_forward_pre_hook(keep) for each in modules]):
        embedded = hf.get_input_embeddings()(pair.corrupted).detach().requires_grad_(True)
        logits = hf(inputs_embeds=embedded, use_cache=False).logits[0, -1]
        (logits[answer] - logits[foil]).backward()
    terms = [(c - z.detach()) * z.grad for c, z in zip(clean, read, strict=True)]  # type: ignore[operator]
    return torch.stack([each[0].unflatten(-1, (ours().config.n_heads, -1)).sum(-1) for each in terms])
