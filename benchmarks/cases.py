"""What is measured, one function a theme; each yields rows with the mark that they should reach."""

import time
from collections.abc import Callable, Iterator

import torch

from benchmarks.dashboard import dashboard
from benchmarks.experts import mixture
from benchmarks.facts import many_facts
from benchmarks.induction import atlas, detected_heads, head_scores
from benchmarks.measuring import Row, fresh_medians, in_fresh_process, medians, peak_bytes, ratio_row
from benchmarks.models import ours, peer, random_tokens
from benchmarks.patching import attribution, growth, head_sweep, many_pairs, residual_sweep
from benchmarks.sharded import sharded
from benchmarks.sweeps import budgets, traces
from benchmarks.triggers import triggers
from interp.hooks import HookPoint, recorders_active


def forward() -> Iterator[Row]:
    """A plain forward pass with all logits, against fused attention."""
    model, hf = ours(), peer("sdpa")
    for batch, length, mark, repeats in ((1, 16, 0.75, 41), (1, 512, 0.97, 15), (8, 128, 0.97, 11)):
        tokens = random_tokens(batch, length)
        yield ratio_row(
            f"forward {batch} × {length}",
            lambda tokens=tokens: model(tokens),
            lambda tokens=tokens: hf(tokens, use_cache=False).logits,
            mark,
            repeats,
        )


def recording() -> Iterator[Row]:
    """Every point of a forward pass recorded, against our own forward pass with explicit attention."""
    model, tokens = ours(), random_tokens(1, 128)

    def everything() -> object:
        return model.run_with_cache(tokens)

    def watched(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        return value

    def explicit_attention() -> torch.Tensor:
        with recorders_active(watched, model.points().resolve("blocks.*.attn.hook_pattern")):
            return model(tokens)

    yield ratio_row("record every point 1 × 128", everything, explicit_attention, 1.25, 25)
    plain, recorded = peak_bytes(lambda: model(tokens)), model.cache_bytes(1, 128)
    peak = peak_bytes(everything)
    measured = f"{peak / 2**20:.0f} MiB, recorded {recorded / 2**20:.0f}, plain forward {plain / 2**20:.0f}"
    yield Row("peak of that ÷ (recorded × 1.1 + plain)", measured, peak / (1.1 * recorded + plain), 1.0)


def idle_points() -> Iterator[Row]:
    """What hook points cost while nobody listens, as a share of the smallest forward pass."""
    model, tokens = ours(), random_tokens(1, 16)
    point, value = model.hook_embed, torch.zeros(1)
    calls = 100_000

    def loop(function: Callable[[torch.Tensor], torch.Tensor]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            function(value)
        return (time.perf_counter() - start) / calls

    each = min(loop(point) for _ in range(5))
    whole = medians({"forward": lambda: model(tokens)}, 15)["forward"]
    measured = f"{each * 1e9:.0f} ns × {len(model.points())} points of {whole * 1e3:.1f} ms"
    yield Row("idle hook points", measured, 100 * each * len(model.points()) / whole, 2.0, "%")


def generation() -> Iterator[Row]:
    """Greedy decoding of 64 tokens from 16, with a KV cache on both sides."""
    model, hf = ours(), peer("sdpa")
    for batch, mark in ((1, 1 / 2.8), (8, 1 / 1.8)):
        tokens = random_tokens(batch, 16)
        real = torch.ones_like(tokens)
        yield ratio_row(
            f"generate {batch} × (16 + 64)",
            lambda tokens=tokens: model.generate(tokens, 64),
            lambda tokens=tokens, real=real: hf.generate(
                tokens, attention_mask=real, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=2
            ),
            mark,
            5,
        )
    tokens = random_tokens(1, 16)
    yield ratio_row(
        "generate with all residuals recorded ÷ without",
        lambda: model.generate(tokens, 64, return_cache=True, names="blocks.*.hook_resid_*"),
        lambda: model.generate(tokens, 64),
        1.1,
        5,
    )


def loading() -> Iterator[Row]:
    """Import and load, each in new interpreters."""
    clock = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
    found = fresh_medians({"torch": clock.format("import torch"), "interp": clock.format("import interp; interp.load")})
    measured = f"{found['interp']:.2f} s against {found['torch']:.2f} s"
    yield Row("import interp; interp.load ÷ import torch", measured, found["interp"] / found["torch"], 1.5)
    load = "import interp; load = interp.load; " + clock.format("load('smollm2-135m', device='cpu')")
    seconds = fresh_medians({"load": load}, 5)["load"]
    yield Row("load the GGUF, after import", f"{seconds:.2f} s", seconds, 3.0, "s")
    memory = (
        "import interp, torch; load = interp.load; from benchmarks.measuring import peak_bytes; kept = [];"
        "peak = peak_bytes(lambda: kept.append(load('smollm2-135m', device='cpu')));"
        "print(peak / sum(p.nbytes for p in kept[0].parameters()))"
    )
    ratio = in_fresh_process(memory)
    yield Row("peak memory of loading ÷ weights", f"{ratio:.2f}", ratio, 1.3)


def command_line() -> Iterator[Row]:
    """How soon `interp --help` answers."""
    code = (
        "import subprocess, sys, time; start = time.perf_counter();"
        "subprocess.run([sys.executable, '-m', 'interp', '--help'], stdout=subprocess.DEVNULL, check=True);"
        "print(time.perf_counter() - start)"
    )
    seconds = fresh_medians({"help": code}, 9)["help"]
    yield Row("interp --help", f"{seconds:.2f} s", seconds, 0.5, "s")


CASES: dict[str, Callable[[], Iterator[Row]]] = {
    "forward": forward,
    "recording": recording,
    "idle_points": idle_points,
    "head_scores": head_scores,
    "detected_heads": detected_heads,
    "atlas": atlas,
    "generation": generation,
    "residual_sweep": residual_sweep,
    "head_sweep": head_sweep,
    "many_pairs": many_pairs,
    "attribution": attribution,
    "growth": growth,
    "traces": traces,
    "many_facts": many_facts,
    "budgets": budgets,
    "triggers": triggers,
    "moe": mixture,
    "loading": loading,
    "sharded": sharded,
    "command_line": command_line,
    "dashboard": dashboard,
}
