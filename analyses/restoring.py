"""Runs with a hidden subject in which one state after the other is put back: the sweep behind causal tracing.

Cases are prompts of one length. Each is run clean once and corrupted once a sample; the cells of the sweep, [kind,
position, layer], then restore in all corrupted runs at once what stood there in the clean run of the same case.

A severed cell restores the residual stream h(t, ℓ), and holds what one kind of sublayer adds at t behind layer ℓ at
its values in the corrupted run, which saw the same noise: what h(t, ℓ) then does, it does without them. In the layers
up to ℓ nothing at t has changed, so that holding the sublayers there would be idle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp import edits, metrics
from interp.analyses.corruption import Case, Noise, corrupted
from interp.analyses.trace_settings import RESTORED, SEVERED, TraceSettings, window_of
from interp.hooks import Hooks
from interp.models.replay import Progress, Replay, SoFar, Sweep, Swept, made_of
from interp.models.replay_cost import TOKENS_A_WALK

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


@dataclass(frozen=True)
class Restored:
    """One measure of the answers, in every cell and in the two runs that cells are compared with."""

    cells: Float[np.ndarray, "kind position layer case sample"]
    corrupted: Float[np.ndarray, "case sample"]
    clean: Float[np.ndarray, "case"]


Measures = dict[str, Restored]


@dataclass(frozen=True)
class Restoring:
    """Cases that are planned and ready to run; their clean and their corrupted runs are done."""

    replay: Replay
    answers: list[int]
    predictions: list[int]
    clean: Mapping[str, np.ndarray]

    def run(self, *, progress: Progress | None = None, so_far: SoFar[Measures] | None = None) -> Measures:
        """Restore every state in turn: the probability of the answers, and their logit; `so_far` as in `Replay.run`."""
        return self._found(self.replay.run(progress=progress, so_far=made_of(so_far, self._found)))

    def _found(self, swept: Swept) -> Measures:
        return {name: Restored(swept[name].values, swept.base[name].values, self.clean[name]) for name in swept.values}


@torch.no_grad()
def plan_restoring(
    model: "Transformer",
    cases: Sequence[Case],
    settings: TraceSettings,
    noise: Noise | None,
    *,
    answers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
) -> Restoring:
    """The sweep over cases of one length, at some positions or all; the model's own answers are measured if None.

    Without noise the subject is hidden by the cases' other prompts, one run each.
    """
    tokens, hooks = corrupted(cases, noise, settings, model.config.d_model)
    samples, count = len(tokens) // len(cases), model.config.n_layers
    clean, predictions, logits = _clean_runs(model, cases, samples, settings)
    chosen = list(predictions if answers is None else answers)
    measured = _measures(chosen, samples)
    restoring = partial(_restoring, clean, _held(model, tokens, hooks, settings), settings.window, count)
    places = range(tokens.shape[1]) if positions is None else positions
    replay = Replay(
        model,
        tokens,
        Sweep({"kind": settings.rows, "position": places, "layer": range(count)}, restoring),
        measured,
        hooks=hooks,
        texts={"case": len(cases), "sample": samples},
        budget=settings.budget,
        shortcuts=settings.shortcuts,
    )
    found = {name: metric(logits).float().cpu().numpy() for name, metric in _measures(chosen, 1).items()}
    return Restoring(replay, chosen, predictions, found)


def cases_at_once(model: "Transformer", length: int, settings: TraceSettings, samples: int) -> int:
    """How many cases of a length share a sweep: as many as fill a walk through the layers, and half the budget."""
    kept = [*_recorded(settings), *_held_names(settings), "blocks.*.attn.hook_rot_k", "blocks.*.attn.hook_v"]
    logits = 3 * model.config.d_vocab * model.dtype.itemsize
    each = samples * (model.cache_bytes(1, length, list(dict.fromkeys(kept))) + logits)
    return max(1, min(TOKENS_A_WALK // (samples * length), settings.budget // (2 * each)))


def severing(held: Mapping[str, Tensor], position: int) -> Hooks:
    """Edits that hold what sublayers add at a position at given values: by point, [row, pos, d_model]."""
    return [(name, edits.replace(value[:, [position]], positions=position)) for name, value in held.items()]


def _restoring(
    clean: Mapping[str, Tensor],
    held: Mapping[str, Tensor],
    window: int,
    count: int,
    kind: str,
    position: int,
    layer: int,
) -> Hooks:
    """The edits of one cell."""
    names = [f"blocks.{each}.{RESTORED[kind]}" for each in window_of(kind, layer, window, count)]
    restored = [(name, edits.replace(clean[name][:, [position]], positions=position)) for name in names]
    if kind not in SEVERED:
        return restored
    behind = [f"blocks.{each}.{RESTORED[SEVERED[kind]]}" for each in range(layer + 1, count)]
    return [*restored, *severing({name: held[name] for name in behind}, position)]


def _clean_runs(
    model: "Transformer", cases: Sequence[Case], samples: int, settings: TraceSettings
) -> tuple[Mapping[str, Tensor], list[int], Tensor]:
    """What can be restored, [row, pos, d_model]; and by case what the model says, and the logits at its last token.

    There are as many rows as in the corrupted run: equal shapes give equal bits before the subject, where restoring is
    then known to change nothing.
    """
    tokens = torch.tensor([case.clean for case in cases]).repeat_interleave(samples, 0)
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    names = [*_recorded(settings), last]
    _, cache = model.run_with_cache(tokens, names, stop_at_layer=model.config.n_layers, budget=settings.budget)
    logits = model.unembed_rows(cache[last][::samples, -1:])
    return cache, logits[:, -1].argmax(-1).tolist(), logits


def _held(model: "Transformer", tokens: Tensor, hooks: Hooks, settings: TraceSettings) -> Mapping[str, Tensor]:
    """What severed sublayers add in the corrupted run, [row, pos, d_model]."""
    if not settings.severed:
        return {}
    last = model.config.n_layers
    with model.hooks(hooks):
        _, cache = model.run_with_cache(tokens, _held_names(settings), stop_at_layer=last, budget=settings.budget)
    return cache


def _recorded(settings: TraceSettings) -> list[str]:
    return list(dict.fromkeys(f"blocks.*.{RESTORED[row]}" for row in settings.rows))


def _held_names(settings: TraceSettings) -> list[str]:
    return [f"blocks.*.{RESTORED[sublayer]}" for sublayer in settings.severed or ()]


def _measures(answers: Sequence[int], samples: int) -> dict[str, metrics.Metric]:
    """One answer for every sample of each case."""
    ids = [answer for answer in answers for _ in range(samples)]
    return {"probability": metrics.probability(ids), "logit": metrics.logit(ids)}
