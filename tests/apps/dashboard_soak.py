"""Eight browser sessions on one model, each on a page and a text of its own, all at once; every number against the API.

`python tests/apps/dashboard_soak.py SECONDS` (tests and tests/apps on the path) ends with exit code 1, and says why, if
a page shows an error or a map that is not that of its own text, or if the process outgrows its budget.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from chromium import chromium
from dashboard import Dashboard, View, link, serving

from interp.apps.dashboard.options import Options
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.views import attention, attribution, memories, patching, prompt, tracing

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

SESSIONS = 8
CITIES = ("Paris", "Rome", "Berlin", "Tokyo", "London", "Moscow", "Boston", "Cairo", "Sydney", "Athens", "Madrid")
"""Of one token each, so that a pair of prompts can be aligned."""
GROWTH = 512 * 2**20  # what the server itself may need beside its budget of results
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Visit:
    """What a session does on a page: values of a text, the map that is drawn, and what the API says it must hold."""

    page: Page
    figure: str
    values: Callable[[str, str, int], Values]
    expected: Callable[["Transformer", Values], np.ndarray]


def _text(here: str, there: str, number: int) -> str:
    return f"Round {number}: from {there} we travelled to the city of {here}, and from {here} back to"


def _lens(model: "Transformer", values: Values) -> np.ndarray:
    from interp.analyses.lens import logit_lens

    found = logit_lens(model, values["text"], answers=[values["answer"]])
    return np.asarray(found["prediction_probability"])


def _pattern(model: "Transformer", values: Values) -> np.ndarray:
    """Attention of the head, [query, key]; what lies ahead is left blank."""
    point = f"blocks.{values['layer']}.attn.hook_pattern"
    _, cache = model.run_with_cache(model.to_tokens(values["text"]), point)
    pattern = cache[point][0, values["head"]].numpy().copy()
    pattern[np.triu_indices(len(pattern), 1)] = np.nan
    return pattern


def _patched(model: "Transformer", values: Values) -> np.ndarray:
    from interp.analyses.patching import sweep
    from interp.pairs import PromptPair, align

    pair = PromptPair(*(values[name] for name in ("clean", "corrupted", "answer", "foil")))
    found = sweep(model, align(model.tokenizer, [pair]), site="resid_pre", metric="logit_difference")
    return np.asarray(found["logit_difference_recovered"])


def _heads(model: "Transformer", values: Values) -> np.ndarray:
    from interp.analyses.attribution import direct_logit_attribution

    return direct_logit_attribution(model, values["text"], values["answer"], by="head").layer_map()


def _memories(model: "Transformer", values: Values) -> np.ndarray:
    """Dominance with the sign of the coefficient."""
    from interp.analyses.memories import ffn_memories

    found = ffn_memories(model, values["text"])
    return np.asarray(found["dominance"] * np.sign(found["coefficient"]))


def _traced(model: "Transformer", values: Values) -> np.ndarray:
    """[position, layer]: what restoring the residual stream brings back."""
    from interp.analyses.tracing import causal_trace

    asked = {name: values[name] for name in ("replacement", "kinds")}
    found = causal_trace(model, values["prompt"], values["subject"], answer=values["answer"], **asked)
    return np.asarray(found.at("effect", kind="resid"))


VISITS = (
    Visit(prompt.PAGE, "lens", lambda *at: {"text": _text(*at), "answer": f" {at[1]}"}, _lens),
    Visit(attention.PAGE, "head", lambda *at: {"text": _text(*at), "layer": at[2] % 30, "head": at[2] % 9}, _pattern),
    Visit(
        patching.PAGE,
        "map",
        lambda here, there, _: {
            "clean": f"From {there} to the city of {here}, and then from {here} back to",
            "corrupted": f"From {here} to the city of {there}, and then from {there} back to",
            "answer": f" {there}",
            "foil": f" {here}",
        },
        _patched,
    ),
    Visit(attribution.PAGE, "heads", lambda *at: {"text": _text(*at), "answer": f" {at[1]}", "by": "head"}, _heads),
    Visit(memories.PAGE, "memories", lambda *at: {"text": _text(*at)}, _memories),
    Visit(
        tracing.PAGE,
        "resid-map",
        lambda here, there, number: {
            "prompt": f"In round {number} we came to {here}, which is a city in",
            "subject": here,
            "answer": " the",
            "corruption": "replace",
            "replacement": there,
            "kinds": ("resid",),
            "severed": (),
        },
        _traced,
    ),
)


def soak(dashboard: Dashboard, model: "Transformer", *, seconds: float, rounds: int = 10**6) -> int:
    """Rounds until the time is up or all are done; how many pages were compared. Raises `AssertionError`."""
    end, compared, warm = time.monotonic() + seconds, 0, 0
    server = psutil.Process(dashboard.process)
    with ExitStack() as stack:
        views = [stack.enter_context(dashboard.open()) for _ in range(SESSIONS)]
        for number in range(rounds):
            compared += one_round(dashboard, model, views, number)
            held = server.memory_info().rss
            warm = warm or held
            assert held - warm < Options.cache_bytes + GROWTH, f"the server grew by {(held - warm) / 2**20:.0f} MiB"
            if time.monotonic() > end:
                break
    return compared


def one_round(dashboard: Dashboard, model: "Transformer", views: list[View], number: int) -> int:
    """Every session opens a page before the first one is waited for; the first two share one."""
    asked = []
    for session, view in enumerate(views):
        place = max(session, 1) + number * SESSIONS
        here, there = (CITIES[(place * step + place // len(CITIES)) % len(CITIES)] for step in (1, 5))
        there = there if there != here else CITIES[(place + 1) % len(CITIES)]
        visit = VISITS[(max(session, 1) + number) % len(VISITS)]
        values = visit.values(here, there, number)
        asked.append((visit, values))
        view.go(dashboard.url, visit.page.key, link(visit.page, **values))
    for view, (visit, values) in zip(views, asked, strict=True):
        view.shown()
        shown = np.array(view.figure(visit.figure).evaluate(DRAWN), dtype=np.float64)
        wrong = f"{visit.page.title} of {dict(values)}"
        np.testing.assert_allclose(shown, visit.expected(model, values), atol=1e-3, rtol=1e-3, err_msg=wrong)
    return len(views)


DRAWN = "plot => [...plot._fullData.find(trace => trace.z).z].map(row => [...row])"


def main(seconds: float) -> int:
    """The long form; the exit code."""
    import interp

    model = interp.load("smollm2-135m", device="cpu")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        runs = Path(folder) / "runs"
        with serving(runs) as (url, process):
            try:
                compared = soak(Dashboard(url, browser, runs, process), model, seconds=seconds)
            except AssertionError as error:
                print(f"The dashboard does not hold: {error}")  # noqa: T201
                return 1
    print(f"{compared} pages of {SESSIONS} sessions in {seconds:.0f} s: every number as the API gives it")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 300))
