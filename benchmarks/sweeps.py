"""Causal traces against the reference's loop on `transformers`, and what all sweeps are measured by.

A loop is one full forward pass a cell, with forward hooks. It takes about a minute, so it runs once; ours runs before
and after it, several times.
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
from interp.analyses import tracing
from interp.analyses.corruption import noise_of
from interp.analyses.trace_settings import window_of
from interp.models.replay import Replay

FACT, SUBJECT = "The Eiffel Tower is located in the city of", "The Eiffel Tower"
NOISE, SAMPLES, WINDOW = 0.1, 10, 10


def traces() -> Iterator[Row]:
    """Causal traces of a 10-token fact, 10 noise samples, against a loop over tokens and layers."""
    for kind, mark in (("resid", 1 / 5.5), ("mlp", 1 / 4.5)):
        found, loop, traced, looped = against(partial(_traced, kind), partial(_tracing_loop, kind), 3)
        furthest = np.abs(found.at("probability", kind=kind) - looped).max()
        yield Row(f"trace, {kind} ÷ loop", f"{traced:.1f} s against {loop:.1f} s", traced / loop, mark)
        yield Row(f"trace, {kind}: largest difference", f"{furthest:.1e} probability", furthest, 1e-5, "")
    trace = _planned("resid")
    with FlopCounterMode(display=False) as counter:
        trace.run()
    base = SAMPLES * 2 * ours().config.d_model * ours().config.d_vocab
    yield from estimates("trace, resid", trace.replay, counter.get_total_flops() - base, trace.run)


def budgets() -> Iterator[Row]:
    """How much of its memory budget a trace takes."""
    for budget in (3 * 10**8, 10**9, 4 * 10**9):
        trace = _planned("resid", budget=budget)
        peak = peak_bytes(trace.run)
        walks = len(trace.replay.walks)
        measured = f"{peak / 1e6:.0f} MB in {walks} walks"
        yield Row(f"peak of a trace ÷ its budget of {budget / 1e9:.1f} GB", measured, peak / budget, 1.0)


def estimates(what: str, replay: Replay, counted: int, run: Callable[[], object]) -> Iterator[Row]:
    start = time.perf_counter()
    cost = replay.cost()
    calibration = time.perf_counter() - start
    yield Row(f"{what}: estimate takes", f"{calibration:.2f} s", calibration, 2.0, "s")
    off = abs(cost.flops / counted - 1)
    yield Row(f"{what}: operations estimated", f"{cost.flops / 1e9:.1f} of {counted / 1e9:.1f} GFLOP", off, 0.05, "")
    taken = seconds(run, 3)
    ratio = max(cost.seconds / taken, taken / cost.seconds)
    yield Row(f"{what}: seconds estimated", f"{cost.seconds:.2f} of {taken:.2f} s", ratio, 1.5)


def against(run: Callable[[], Any], loop: Callable[[], Any], repeats: int) -> tuple[Any, float, float, Any]:
    """(our result, seconds of the loop, our median seconds, the loop's result)."""
    found = run()
    before = [seconds(run, 1) for _ in range(repeats)]
    start = time.perf_counter()
    looped = loop()
    taken = time.perf_counter() - start
    after = [seconds(run, 1) for _ in range(repeats)]
    return found, taken, statistics.median(before + after), looped


def seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _planned(kind: Any, budget: int = 2**30) -> tracing.Trace:
    return tracing.plan_trace(
        ours(), FACT, SUBJECT, kinds=(kind,), noise=NOISE, samples=SAMPLES, seed=1, prefix="none", budget=budget
    )


def _traced(kind: Any) -> tracing.CausalTrace:
    return _planned(kind).run()


@contextmanager
def hooked(handles: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _tracing_loop(kind: str) -> np.ndarray:
    """The reference's loop: a forward pass of a clean and the corrupted rows for every token and layer."""
    model, hf = ours(), peer("eager")
    tokens = model.to_tokens(FACT, prefix="none")
    rows, subject = tokens.repeat(SAMPLES + 1, 1), len(model.tokenizer.encode(SUBJECT))
    noise = noise_of(model, NOISE).draw(SAMPLES, subject, model.config.d_model, seed=1)
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
        window = [layer] if kind == "resid" else window_of("mlp", layer, WINDOW, count)
        blocks = [hf.model.layers[each] for each in window]
        modules = blocks if kind == "resid" else [block.mlp for block in blocks]
        handles = [module.register_forward_hook(restore(position)) for module in modules]
        with hooked([hf.model.embed_tokens.register_forward_hook(corrupt), *handles]):
            logits = hf(rows, use_cache=False).logits[1:, -1]
        found[position, layer] = float(logits.softmax(-1)[:, answer].mean())
    return found
