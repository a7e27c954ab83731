"""Causal tracing: at which token and layer does restoring one hidden state bring a forgotten fact back?

A fact is a prompt, a subject in it and the answer o that the model gives. Three runs (Meng et al. 2022):

    clean       the prompt as it is; every state h(t, ℓ) is kept
    corrupted   noise added to the embeddings of the subject's tokens, or another subject in its place: P*(o)
    restored    corrupted, but at token t and layer ℓ the clean state is put back: P*,h(t,ℓ)(o)

    total effect = P(o) − P*(o)        indirect effect(t, ℓ) = P*,h(t,ℓ)(o) − P*(o)

Each is the mean over noise samples of the probability, softmax first; the logit of the answer stands beside it. All
cells, and the corrupted run itself, see the same noise. `resid` restores the residual stream behind one layer; `mlp`
and `attn` restore what that sublayer adds to it over a window of layers, [ℓ − w//2, ℓ + ⌈w/2⌉ − 1] cut at both ends,
which for even w reaches one layer further down than up, as the reference code does. `severed_mlp` and `severed_attn`
restore the residual stream while what that sublayer adds at t stays as it was in the corrupted run, in all layers: the
part of the effect that does without it. How the subject is hidden stands in `analyses/corruption.py`.

Paper: Meng et al. 2022, "Locating and editing factual associations in GPT" (arXiv 2202.05262), and its reference code,
of which one thing is left out: its severed runs take their held values from a run with other noise.

What it does NOT tell: where a fact is stored, in the sense of where to edit it: what tracing finds does not predict
where editing succeeds (Hase et al. 2023, arXiv 2301.04213). A window is not a layer. And a restored state works inside
a corrupted run, which is unlike any run on text: another corruption can localise elsewhere (Zhang & Nanda 2024, arXiv
2309.16042).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.analyses.corruption import Case, case_of, noise_of
from interp.analyses.intervals import standard_error
from interp.analyses.restoring import Measures, Restoring, plan_restoring
from interp.analyses.trace_settings import TraceOptions, TraceSettings, said, severed_bars, window_arrays
from interp.analyses.vocabulary import token_id, token_texts
from interp.models.replay import Progress, Replay, SoFar, made_of
from interp.models.replay_cost import Cost
from interp.prompts import Span, find_subject, replaced
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer


class CausalTrace(Result, kind="tracing.causal"):
    """What restoring each state brings back, [kind, position, layer].

    `probability` and `logit` of the answer with the state restored, means over the samples; `effect` and
    `logit_effect` less those of the corrupted run; `effect_error` the standard error of `effect` over samples.
    `sample_probability` and `sample_logit` have the sample axis too. `clean_*` and `corrupted_*` are the two runs that
    cells are compared with, `corrupted_sample_*` by sample. `first_layer` and `last_layer` [kind, layer] say which
    layers were restored together; `token` [position] and `in_subject` [position] what stands where.
    """

    grid = ("kind", "position", "layer")
    title = "Causal trace"
    caution = "Where restoring a state brings an answer back is not where an edit of the weights would change it."

    @property
    def total_effect(self) -> float:
        """What hiding the subject takes away: the clean probability less the corrupted one."""
        return float(self["clean_probability"] - self["corrupted_probability"])

    def peak(self, kind: str, *, position: int | None = None) -> tuple[int, int, float]:
        """(position, layer, effect) of the strongest cell of a kind, at one position or anywhere."""
        where = {} if position is None else {"position": position}
        effect = np.atleast_2d(self.at("effect", kind=kind, **where))
        known = np.where(np.isnan(effect), -np.inf, effect)  # a trace has gaps where it is shown before its end
        place, layer = np.unravel_index(int(known.argmax()), effect.shape)
        return int(place) if position is None else position, int(layer), float(effect[place, layer])

    @property
    def last_subject_position(self) -> int:
        return int(np.flatnonzero(self["in_subject"])[-1])

    def figure(self) -> "Figure":
        """Token × layer, one panel a kind; the subject's tokens are marked with a star."""
        from interp.plots import trace_heatmaps

        marked = zip(self["token"], self["in_subject"], strict=True)
        return trace_heatmaps(
            {self.panel(str(kind)): self.at("effect", kind=kind) for kind in self.axes["kind"]},
            title=self._headline(),
            metric="indirect effect",
            tokens=[f"{token}*" if inside else str(token) for token, inside in marked],
        )

    def severed_figure(self, position: int | None = None) -> "Figure":
        """The residual stream restored at a position, whole and with sublayers severed, by layer.

        `position`: the subject's last token, if None.
        """
        at = self.last_subject_position if position is None else position
        effects = {str(kind): self.at("effect", kind=kind, position=at) for kind in self.axes["kind"]}
        return severed_bars(effects, f"{self._headline()}, at {str(self['token'][at])!r}")

    def panel(self, kind: str) -> str:
        """What a kind restores, in words: `FFN outputs, 10 layers`."""
        return said(kind, int(str(self.settings["window"])))

    def summary(self) -> list[str]:
        """The two runs, and for each kind its strongest cell, at the subject's last token and at the last token."""
        asked = self.settings
        clean, corrupted = float(self["clean_probability"]), float(self["corrupted_probability"])
        lines = [f"{self.title}: P({asked['answer']!r}) {clean:.3f}, {self._hidden()} {corrupted:.3f}"]
        if not asked["answer_is_prediction"]:
            lines.append(f"  the model's own answer is {asked['prediction']!r}")
        for kind in map(str, self.axes["kind"]):
            lines.append(f"  {self.panel(kind)}: restored at")
            places = {"anywhere": None, "subject's end": self.last_subject_position, "last token": -1}
            lines += [self._line(kind, name, position) for name, position in places.items()]
        return [*lines, f"  {self.caution}"]

    def _headline(self) -> str:
        return f"{self.title}: {self.settings['answer']!r} after {self.settings['prompt']!r}"

    def _hidden(self) -> str:
        """What hides the subject."""
        asked = self.settings
        if asked["corruption"] == "replace":
            return f"with {asked['replacement']!r} for {asked['subject']!r}"
        shape = "uniform noise ±" if asked["noise_shape"] == "uniform" else "noise "
        return f"with {shape}{asked['noise_level']:.3f} on {asked['subject']!r}, {asked['samples']} samples"

    def _line(self, kind: str, name: str, position: int | None) -> str:
        last = len(self.axes["position"]) - 1
        place, layer, effect = self.peak(kind, position=last if position == -1 else position)
        return f"    {name:>13}  {effect:+.3f}  at layer {layer} of {self['token'][place]!r}"


@dataclass(frozen=True)
class Trace:
    """A trace that is planned and ready to run: `cost()` before it, `run()` for the result."""

    restoring: Restoring
    model: "Transformer"
    case: Case
    asked: TraceSettings
    settings: dict[str, object]

    @property
    def replay(self) -> Replay:
        """The sweep."""
        return self.restoring.replay

    @property
    def span(self) -> Span:
        """Where the subject stands."""
        return self.case.span

    @property
    def tokens(self) -> Int[Tensor, "1 pos"]:
        """The prompt."""
        return torch.tensor([self.case.clean])

    def cost(self) -> Cost:
        """Rows, operations, bytes and seconds of the trace."""
        return self.replay.cost()

    def run(self, *, progress: Progress | None = None, so_far: SoFar[CausalTrace] | None = None) -> CausalTrace:
        """Restore every state in turn; `so_far` may ask for the maps by then, as in `Replay.run`."""
        return self._result(self.restoring.run(progress=progress, so_far=made_of(so_far, self._result)))

    def _result(self, restored: Measures) -> CausalTrace:
        arrays: dict[str, tuple[object, Sequence[str]]] = {}
        for name, found in restored.items():
            cells, corrupted = found.cells[..., 0, :], found.corrupted[0]
            effect = cells - corrupted
            arrays[name] = cells.mean(-1), CausalTrace.grid
            arrays["effect" if name == "probability" else "logit_effect"] = effect.mean(-1), CausalTrace.grid
            if name == "probability":
                arrays["effect_error"] = standard_error(effect), CausalTrace.grid
            arrays[f"sample_{name}"] = cells, (*CausalTrace.grid, "sample")
            arrays[f"clean_{name}"] = np.float64(found.clean[0]), ()
            arrays[f"corrupted_{name}"] = corrupted.mean(-1), ()
            arrays[f"corrupted_sample_{name}"] = corrupted, ("sample",)
        return CausalTrace(
            arrays={**arrays, **self._labels()},
            axes={"kind": self.asked.rows},
            settings=self.settings,
            provenance=provenance(
                self.model.provenance, tokens=self.tokens, prefix=self.asked.prefix, seed=self.asked.seed
            ),
        )

    def _labels(self) -> dict[str, tuple[object, Sequence[str]]]:
        texts = token_texts(self.model, list(self.case.clean))
        return {
            "token": (texts, ("position",)),
            "in_subject": ([place in self.span.positions for place in range(len(texts))], ("position",)),
            **window_arrays(self.asked, self.model.config.n_layers),
        }


def causal_trace(
    model: "Transformer",
    prompt: str,
    subject: str,
    *,
    answer: str | int | None = None,
    occurrence: int | None = None,
    replacement: str | None = None,
    progress: Progress | None = None,
    **options: Unpack[TraceOptions],
) -> CausalTrace:
    """Trace one fact: restore each state of the clean run, at every token and layer, in runs with a hidden subject.

    `answer`: one token (its text or id); the model's own answer if None. `occurrence`: which one, where the prompt
    names the subject several times. `replacement`: another subject of as many tokens, which then hides this one instead
    of noise, in a single run. `options` are the fields of `TraceSettings`, by keyword.

    Raises `UsageError` for a subject that is absent, named several times or cut inside a token, for an answer of
    several tokens, a replacement that does not fit token for token, and a prompt of one token.
    """
    planned = plan_trace(
        model, prompt, subject, answer=answer, occurrence=occurrence, replacement=replacement, **options
    )
    return planned.run(progress=progress)


def plan_trace(
    model: "Transformer",
    prompt: str,
    subject: str,
    *,
    answer: str | int | None = None,
    occurrence: int | None = None,
    replacement: str | None = None,
    **options: Unpack[TraceOptions],
) -> Trace:
    """The same, planned but not run: its cost can be read first. The clean and the corrupted run are done."""
    asked = TraceSettings(**options)
    model.to_tokens(prompt, prefix=asked.prefix)  # refuses what no prompt can be made of
    span = find_subject(model.tokenizer, prompt, subject, prefix=asked.prefix, occurrence=occurrence)
    other = None if replacement is None else replaced(prompt, subject, replacement, occurrence=occurrence)
    case = case_of(model.tokenizer, prompt, span, asked.prefix, other)
    noise = noise_of(model, asked.noise, asked.noise_subjects) if other is None else None
    answers = None if answer is None else [token_id(model, answer)]
    restoring = plan_restoring(model, [case], asked, noise, answers=answers)
    chosen, prediction = restoring.answers[0], restoring.predictions[0]
    said_answer, said_prediction = token_texts(model, [chosen, prediction])
    settings = {
        "prompt": prompt,
        "subject": subject,
        "subject_positions": span.positions,
        "answer": said_answer,
        "prediction": said_prediction,
        "answer_is_prediction": chosen == prediction,
        "corruption": "noise" if other is None else "replace",
        "replacement": replacement,
        **({} if noise is None else noise.stated()),
        "samples": restoring.replay.texts["sample"],
        **asked.stated(),
    }
    return Trace(restoring, model, case, asked, settings)
