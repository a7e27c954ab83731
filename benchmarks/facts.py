"""Traces of many facts together, against as many traces of one."""

import time
from collections.abc import Iterator

from benchmarks.measuring import Row
from benchmarks.models import ours
from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_filter import filter_facts
from interp.analyses.trace_facts import trace_facts
from interp.analyses.tracing import causal_trace

SAMPLES = 3


def many_facts(count: int = 100) -> Iterator[Row]:
    """The residual streams of known facts, in one call and one by one; each takes minutes, so that it runs once.

    Known facts are those whose answer the model gives, so that a trace of its own answer is that of the fact.
    """
    model = ours()
    known = filter_facts(model, bundled_facts()).known(bundled_facts())
    chosen = [known[place * len(known) // count] for place in range(min(count, len(known)))]
    for fact in chosen[:2]:
        causal_trace(model, fact.prompt, fact.subject, kinds=("resid",), samples=SAMPLES)
    start = time.perf_counter()
    found = trace_facts(model, chosen, kinds=("resid",), samples=SAMPLES)
    together = time.perf_counter() - start
    start = time.perf_counter()
    single = [causal_trace(model, fact.prompt, fact.subject, kinds=("resid",), samples=SAMPLES) for fact in chosen]
    alone = time.perf_counter() - start
    measured = f"{together:.1f} s against {alone:.1f} s"
    yield Row(f"trace {len(chosen)} facts together ÷ one by one", measured, together / alone, 1.0)
    furthest = max(
        abs(float(effect) - trace.total_effect) for effect, trace in zip(found["total_effect"], single, strict=True)
    )
    yield Row("largest difference of their total effects", f"{furthest:.1e} probability", furthest, 1e-5, "")
