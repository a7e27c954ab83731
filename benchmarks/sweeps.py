"""Sweeps against the same loop on `transformers`: one full forward pass a cell, with forward hooks.

The loops take about a minute each, so they run once; ours runs before and after them, several times.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measuring import Row, peak_bytes
from benchmarks.models import ours, peer
from interp import edits, metrics
from interp.analyses import tracing
from interp.models.replay import Replay, Sweep

CLEAN = "When Mary and John went to the store, John gave a drink to"
CORRUPTED = "When Mary and John went to the store, Mary gave a drink to"
FACT, SUBJECT = "The Eiffel Tower is located in the city of", "The Eiffel Tower"
NOISE, SAMPLES, WINDOW = 0.1, 10, 10


def residual_sweep() -> Iterator[Row]:
    """Patching the residual stream at every layer and position of a 14-token pair."""
    model = ours()
    swept, loop, replayed, looped = _against(_patched, _patching_loop, 7)
    effects = np.abs(swept["logit_difference"].values[..., 0] - looped).max()
    yield Row("residual sweep of 14 tokens ÷ loop", f"{replayed:.2f} s against {loop:.1f} s", replayed / loop, 1 / 60)
    yield Row("its largest difference from the loop", f"{effects:.1e} logit", effects, 1e-4, "")
    replay = _patching(model)
    with FlopCounterMode(display=False) as counter:
        replay.run()
    unembedded = 2 * model.config.d_model * model.config.d_vocab  # the base run's logits are counted too
    counted = counter.get_total_flops() - unembedded
    yield Row("its operations ÷ 49 GFLOP", f"{counted / 1e9:.1f} GFLOP", counted / 49e9, 1.15)
    yield from _estimates("residual sweep", replay, counted, replay.run)


def traces() -> Iterator[Row]:
    """Causal traces of a 10-token fact, 10 noise samples, against a loop over tokens and layers."""
    for kind, mark in (("resid", 1 / 5.5), ("mlp", 1 / 4.5)):
        found, loop, traced, looped = _against(partial(_traced, kind), partial(_tracing_loop, kind), 3)
        furthest = np.abs(found.at("probability", kind=kind) - looped).max()
        yield Row(f"trace, {kind} ÷ loop", f"{traced:.1f} s against {loop:.1f} s", traced / loop, mark)
        yield Row(f"trace, {kind}: largest difference", f"{furthest:.1e} probability", furthest, 1e-5, "")
    trace = _planned("resid")
    with FlopCounterMode(display=False) as counter:
        trace.run()
    base = SAMPLES * 2 * ours().config.d_model * ours().config.d_vocab
    yield from _estimates("trace, resid", trace.replay, counter.get_total_flops() - base, trace.run)


def budgets() -> Iterator[Row]:
    """How much of its memory budget a trace takes."""
    for budget in (3 * 10**8, 10**9, 4 * 10**9):
        trace = _planned("resid", budget=budget)
        peak = peak_bytes(trace.run)
        walks = len(trace.replay.walks)
        measured = f"{peak / 1e6:.0f} MB in {walks} walks"
        yield Row(f"peak of a trace ÷ its budget of {budget / 1e9:.1f} GB", measured, peak / budget, 1.0)


def _estimates(what: str, replay: Replay, counted: int, run: Callable[[], object]) -> Iterator[Row]:
    start = time.perf_counter()
    cost = replay.cost()
    calibration = time.perf_counter() - start
    yield Row(f"{what}: estimate takes", f"{calibration:.2f} s", calibration, 2.0, "s")
    off = abs(cost.flops / counted - 1)
    yield Row(f"{what}: operations estimated", f"{cost.flops / 1e9:.1f} of {counted / 1e9:.1f} GFLOP", off, 0.05, "")
    seconds = _seconds(run, 3)
    ratio = max(cost.seconds / seconds, seconds / cost.seconds)
    yield Row(f"{what}: seconds estimated", f"{cost.seconds:.2f} of {seconds:.2f} s", ratio, 1.5)


def _against(run: Callable[[], Any], loop: Callable[[], Any], repeats: int) -> tuple[Any, float, float, Any]:
    """(our result, seconds of the loop, our median seconds, the loop's result)."""
    found = run()
    before = [_seconds(run, 1) for _ in range(repeats)]
    start = time.perf_counter()
    looped = loop()
    seconds = time.perf_counter() - start
    after = [_seconds(run, 1) for _ in range(repeats)]
    return found, seconds, statistics.median(before + after), looped


def _seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _patching(model: Any) -> Replay:
    clean, corrupted = (model.to_tokens(text, prefix="none") for text in (CLEAN, CORRUPTED))
    mary, john = model.to_single_token(" Mary"), model.to_single_token(" John")
    _, cache = model.run_with_cache(clean, "blocks.*.hook_resid_pre")
    sweep = Sweep(
        {"layer": range(model.config.n_layers), "pos": range(corrupted.shape[1])},
        lambda layer, pos: [
            (f"blocks.{layer}.hook_resid_pre", edits.replace(cache["resid_pre", layer][:, [pos]], positions=pos))
        ],
    )
    return Replay(model, corrupted, sweep, metrics.logit_difference(mary, john))


def _patched() -> Any:
    return _patching(ours()).run()


def _planned(kind: Any, budget: int = 2**30) -> tracing.Trace:
    return tracing.plan_trace(
        ours(), FACT, SUBJECT, kinds=(kind,), noise=NOISE, samples=SAMPLES, seed=1, prefix="none", budget=budget
    )


def _traced(kind: Any) -> tracing.CausalTrace:
    return _planned(kind).run()


@contextmanager
def _hooked(handles: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _patching_loop() -> np.ndarray:
    model, hf = ours(), peer("eager")
    clean, corrupted = (model.to_tokens(text, prefix="none") for text in (CLEAN, CORRUPTED))
    mary, john = model.to_single_token(" Mary"), model.to_single_token(" John")
    layers = hf.model.layers
    kept: dict[int, Tensor] = {}

    def keep(layer: int) -> Callable[..., None]:
        return lambda module, inputs: kept.__setitem__(layer, inputs[0].clone())

    with _hooked([block.register_forward_pre_hook(keep(layer)) for layer, block in enumerate(layers)]):
        hf(clean, use_cache=False)

    def patch(layer: int, pos: int) -> Callable[..., tuple[Any, ...]]:
        def hook(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            patched = inputs[0].clone()
            patched[:, pos] = kept[layer][:, pos]
            return (patched, *inputs[1:])

        return hook

    found = np.zeros((len(layers), corrupted.shape[1]))
    for layer, pos in np.ndindex(*found.shape):
        with _hooked([layers[layer].register_forward_pre_hook(patch(layer, pos))]):
            logits = hf(corrupted, use_cache=False).logits[0, -1]
        found[layer, pos] = float(logits[mary] - logits[john])
    return found


@torch.no_grad()
def _tracing_loop(kind: str) -> np.ndarray:
    """The reference's loop: a forward pass of a clean and the corrupted rows for every token and layer."""
    model, hf = ours(), peer("eager")
    tokens = model.to_tokens(FACT, prefix="none")
    rows, subject = tokens.repeat(SAMPLES + 1, 1), len(model.tokenizer.encode(SUBJECT))
    noise = NOISE * tracing.subject_noise(SAMPLES, subject, model.config.d_model, seed=1)
    answer = int(hf(tokens, use_cache=False).logits[0, -1].argmax())
    count = len(hf.model.layers)

    def corrupt(module: Any, inputs: Any, embedded: Tensor) -> Tensor:
        embedded[1:, :subject] += noise
        return embedded

    def restore(position: int) -> Callable[..., Any]:
        def hook(module: Any, inputs: Any, output: Any) -> Any:
            hidden = output[0] if isinstance(output, tuple) else output
            hidden[1:, position] = hidden[0, position]
            return output

        return hook

    found = np.zeros((tokens.shape[1], count))
    for position, layer in np.ndindex(*found.shape):
        window = [layer] if kind == "resid" else tracing.window_of("mlp", layer, WINDOW, count)
        blocks = [hf.model.layers[each] for each in window]
        modules = blocks if kind == "resid" else [block.mlp for block in blocks]
        handles = [module.register_forward_hook(restore(position)) for module in modules]
        with _hooked([hf.model.embed_tokens.register_forward_hook(corrupt), *handles]):
            logits = hf(rows, use_cache=False).logits[1:, -1]
        found[position, layer] = float(logits.softmax(-1)[:, answer].mean())
    return found
