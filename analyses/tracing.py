"""Causal tracing: at which token and layer does restoring one hidden state bring a forgotten fact back?

A fact is a prompt, a subject in it and the answer o that the model gives. Three runs (Meng et al. 2022):

    clean       the prompt as it is; every state h(t, ℓ) is kept
    corrupted   Gaussian noise, ν · N(0, 1), added to the embeddings of the subject's tokens: P*(o)
    restored    corrupted, but at token t and layer ℓ the clean state is put back: P*,h(t,ℓ)(o)

    total effect = P(o) − P*(o)        indirect effect(t, ℓ) = P*,h(t,ℓ)(o) − P*(o)

Each is the mean over noise samples of the probability, softmax first; the logit of the answer stands beside it. All
cells, and the corrupted run itself, see the same noise. `resid` restores the residual stream behind one layer; `mlp`
and `attn` restore what that sublayer adds to it over a window of layers, [ℓ − w//2, ℓ + ⌈w/2⌉ − 1] cut at both ends,
which for even w reaches one layer further down than up, as the reference code does. ν is `s3` by default: 3 standard
deviations of the embeddings of subjects of facts (`analyses/subjects.py`).

Paper: Meng et al. 2022, "Locating and editing factual associations in GPT" (arXiv 2202.05262), and its reference code.

What it does NOT tell: where a fact is stored, in the sense of where to edit it: what tracing finds does not predict
where editing succeeds (Hase et al. 2023, arXiv 2301.04213). A window is not a layer. And a restored state works inside
a corrupted run, which is unlike any run on text: another corruption can localise elsewhere (Zhang & Nanda 2024, arXiv
2309.16042).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import edits, metrics
from interp.analyses.sites import layer_window
from interp.analyses.subjects import SUBJECTS, embedding_spread
from interp.analyses.vocabulary import token_id, token_texts
from interp.errors import UsageError
from interp.hooks import Hooks
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import Progress, Replay, Sweep
from interp.models.replay_cost import Cost
from interp.prompts import Span, find_subject
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Kind = Literal["resid", "mlp", "attn"]

RESTORED: dict[Kind, str] = {"resid": "hook_resid_post", "mlp": "hook_mlp_out", "attn": "hook_attn_out"}
"""What each kind puts back."""
SAID: dict[Kind, str] = {"resid": "residual stream", "mlp": "FFN outputs", "attn": "attention outputs"}


class CausalTrace(Result, kind="tracing.causal"):
    """What restoring each state brings back, [kind, position, layer].

    `probability` and `logit` of the answer with the state restored, means over the noise samples; `effect` and
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
        """What the noise takes away: the clean probability less the corrupted one."""
        return float(self["clean_probability"] - self["corrupted_probability"])

    def peak(self, kind: str, *, position: int | None = None) -> tuple[int, int, float]:
        """(position, layer, effect) of the strongest cell of a kind, at one position or anywhere."""
        if position is not None:
            effect = self.at("effect", kind=kind, position=position)
            return position, int(effect.argmax()), float(effect.max())
        effect = self.at("effect", kind=kind)
        place, layer = np.unravel_index(int(effect.argmax()), effect.shape)
        return int(place), int(layer), float(effect[place, layer])

    @property
    def last_subject_position(self) -> int:
        return int(np.flatnonzero(self["in_subject"])[-1])

    def figure(self) -> "Figure":
        """Token × layer, one panel a kind; the subject's tokens are marked with a star."""
        from interp.plots import trace_heatmaps

        marked = zip(self["token"], self["in_subject"], strict=True)
        return trace_heatmaps(
            {self.panel(str(kind)): self.at("effect", kind=kind) for kind in self.axes["kind"]},
            title=f"{self.title}: {self.settings['answer']!r} after {self.settings['prompt']!r}",
            metric="indirect effect",
            tokens=[f"{token}*" if inside else str(token) for token, inside in marked],
        )

    def panel(self, kind: str) -> str:
        """What a kind restores, in words: `FFN outputs, 10 layers`."""
        window = 1 if kind == "resid" else self.settings["window"]
        return f"{SAID[kind]}, {window} layers" if window != 1 else SAID[kind]  # type: ignore[index]  # a Kind

    def summary(self) -> list[str]:
        """The two runs, and for each kind its strongest cell, at the subject's last token and at the last token."""
        asked = self.settings
        clean, corrupted = float(self["clean_probability"]), float(self["corrupted_probability"])
        level = f"noise {asked['noise_level']:.3f} on {asked['subject']!r}, {asked['samples']} samples"
        lines = [f"{self.title}: P({asked['answer']!r}) {clean:.3f}, with {level} {corrupted:.3f}"]
        if not asked["answer_is_prediction"]:
            lines.append(f"  the model's own answer is {asked['prediction']!r}")
        for kind in map(str, self.axes["kind"]):
            lines.append(f"  {self.panel(kind)}: restored at")
            places = {"anywhere": None, "subject's end": self.last_subject_position, "last token": -1}
            lines += [self._line(kind, name, position) for name, position in places.items()]
        return [*lines, f"  {self.caution}"]

    def _line(self, kind: str, name: str, position: int | None) -> str:
        last = len(self.axes["position"]) - 1
        place, layer, effect = self.peak(kind, position=last if position == -1 else position)
        return f"    {name:>13}  {effect:+.3f}  at layer {layer} of {self['token'][place]!r}"


@dataclass(frozen=True)
class Trace:
    """A trace that is planned and ready to run: `cost()` before it, `run()` for the result."""

    replay: Replay
    model: "Transformer"
    tokens: Int[Tensor, "1 pos"]
    span: Span
    kinds: tuple[Kind, ...]
    window: int
    clean: dict[str, float]
    settings: dict[str, object]
    facts: dict[str, object]

    def cost(self) -> Cost:
        """Rows, operations, bytes and seconds of the trace."""
        return self.replay.cost()

    def run(self, *, progress: Progress | None = None) -> CausalTrace:
        """Restore every state in turn."""
        swept = self.replay.run(progress=progress)
        arrays: dict[str, tuple[object, Sequence[str]]] = {}
        for name in swept.values:
            cells, corrupted = swept[name].values, swept.base[name].values
            effect = cells - corrupted
            arrays[name] = cells.mean(-1), CausalTrace.grid
            arrays["effect" if name == "probability" else "logit_effect"] = effect.mean(-1), CausalTrace.grid
            if name == "probability":
                arrays["effect_error"] = _standard_error(effect), CausalTrace.grid
            arrays[f"sample_{name}"] = cells, (*CausalTrace.grid, "sample")
            arrays[f"clean_{name}"] = np.float64(self.clean[name]), ()
            arrays[f"corrupted_{name}"] = corrupted.mean(-1), ()
            arrays[f"corrupted_sample_{name}"] = corrupted, ("sample",)
        return CausalTrace(
            arrays={**arrays, **self._labels()},
            axes={"kind": self.kinds},
            settings=self.settings,
            provenance=provenance(self.model.provenance, tokens=self.tokens.cpu(), **self.facts),
        )

    def _labels(self) -> dict[str, tuple[object, Sequence[str]]]:
        count = self.model.config.n_layers
        used = [[window_of(kind, layer, self.window, count) for layer in range(count)] for kind in self.kinds]
        texts = token_texts(self.model, self.tokens[0].tolist())
        return {
            "token": (texts, ("position",)),
            "in_subject": ([place in self.span.positions for place in range(len(texts))], ("position",)),
            "first_layer": ([[layers[0] for layers in kind] for kind in used], ("kind", "layer")),
            "last_layer": ([[layers[-1] for layers in kind] for kind in used], ("kind", "layer")),
        }


def _standard_error(values: np.ndarray) -> np.ndarray:
    """Of the mean over the last axis; NaN for a single sample, which says nothing of its spread."""
    count = values.shape[-1]
    return values.std(-1, ddof=1) / math.sqrt(count) if count > 1 else np.full(values.shape[:-1], np.nan)


def causal_trace(
    model: "Transformer",
    prompt: str,
    subject: str,
    *,
    answer: str | int | None = None,
    kinds: Sequence[Kind] = ("resid", "mlp", "attn"),
    noise: str | float = "s3",
    samples: int = 10,
    window: int = 10,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    occurrence: int | None = None,
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
) -> CausalTrace:
    """Trace one fact: restore each state of the clean run, at every token and layer, in runs with a noisy subject.

    `answer`: one token (its text or id); the model's own answer if None. `noise`: `"s3"` for 3 standard deviations of
    subjects' embeddings (any number after the s), or a level. `occurrence`: which one, where the prompt names the
    subject several times. Noise comes from `RandomState(seed)`, so that `seed=1` is that of the reference code.
    `budget` and `shortcuts` as in `Replay`.

    Raises `UsageError` for a subject that is absent, named several times or cut inside a token, for an answer of
    several tokens, a level that is not positive, and a prompt of one token.
    """
    trace = plan_trace(
        model,
        prompt,
        subject,
        answer=answer,
        kinds=kinds,
        noise=noise,
        samples=samples,
        window=window,
        seed=seed,
        prefix=prefix,
        occurrence=occurrence,
        budget=budget,
        shortcuts=shortcuts,
    )
    return trace.run(progress=progress)


@torch.no_grad()
def plan_trace(
    model: "Transformer",
    prompt: str,
    subject: str,
    *,
    answer: str | int | None = None,
    kinds: Sequence[Kind] = ("resid", "mlp", "attn"),
    noise: str | float = "s3",
    samples: int = 10,
    window: int = 10,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    occurrence: int | None = None,
    budget: int = 2**30,
    shortcuts: bool = True,
) -> Trace:
    """The same, planned but not run: its cost can be read first. The clean and the corrupted run are done."""
    kinds = _checked(kinds, samples, window, seed)
    tokens, span = _subject_in(model, prompt, subject, prefix, occurrence)
    rule, level, spread = noise_level(model, noise)
    # The clean run has as many rows as the corrupted one: equal shapes give equal bits before the subject, where
    # restoring is then known to change nothing.
    logits, clean = model.run_with_cache(
        tokens.expand(samples, -1), [f"blocks.*.{RESTORED[kind]}" for kind in kinds], budget=budget
    )
    prediction = int(logits[0, -1].argmax())
    chosen = prediction if answer is None else token_id(model, answer)
    measured = {"probability": metrics.probability(chosen), "logit": metrics.logit(chosen)}
    count = model.config.n_layers

    def restoring(kind: Kind, position: int, layer: int) -> Hooks:
        names = [f"blocks.{each}.{RESTORED[kind]}" for each in window_of(kind, layer, window, count)]
        return [(name, edits.replace(clean[name][:, [position]], positions=position)) for name in names]

    sweep = Sweep({"kind": kinds, "position": range(tokens.shape[1]), "layer": range(count)}, restoring)
    drawn = subject_noise(samples, len(span.positions), model.config.d_model, seed=seed)
    replay = Replay(
        model,
        tokens.expand(samples, -1),
        sweep,
        measured,
        hooks=[("hook_embed", edits.steer(level * drawn, positions=span.positions))],
        texts={"sample": samples},
        budget=budget,
        shortcuts=shortcuts,
    )
    said_answer, said_prediction = token_texts(model, [chosen, prediction])
    settings = {
        "prompt": prompt,
        "subject": subject,
        "subject_positions": span.positions,
        "answer": said_answer,
        "prediction": said_prediction,
        "answer_is_prediction": chosen == prediction,
        "noise": rule,
        "noise_level": level,
        "embedding_spread": spread,
        "noise_subjects": None if spread is None else SUBJECTS,
        "samples": samples,
        "window": window,
        "shortcuts": shortcuts,
    }
    values = {name: float(metric(logits[:1, -1:]).item()) for name, metric in measured.items()}
    return Trace(replay, model, tokens, span, kinds, window, values, settings, {"prefix": prefix, "seed": seed})


def window_of(kind: Kind, layer: int, window: int, n_layers: int) -> range:
    """The layers that are restored together around one layer: itself for `resid`, else [ℓ − w//2, ℓ + ⌈w/2⌉ − 1]."""
    return layer_window(layer, 1 if kind == "resid" else window, n_layers)


def subject_noise(samples: int, tokens: int, d_model: int, *, seed: int) -> Float[Tensor, "sample pos d_model"]:
    """Standard normal noise. It is numpy's older generator, whose seed 1 is what the reference code draws."""
    return torch.from_numpy(np.random.RandomState(seed).randn(samples, tokens, d_model)).float()


def noise_level(model: "Transformer", noise: str | float) -> tuple[str, float, float | None]:
    """(the rule as text, its level, the spread of embeddings that it multiplies if it does)."""
    factor: object = noise
    by_spread = isinstance(noise, str) and noise.startswith("s")
    if isinstance(noise, str):
        try:
            factor = float(noise.removeprefix("s"))
        except ValueError:
            factor = None
    good = isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < math.inf
    if not good:
        raise UsageError(
            f"The noise is {noise!r}; a positive level such as 0.3 was expected, or 's3' for 3 standard deviations of "
            "the embeddings of subjects."
        )
    assert isinstance(factor, int | float)
    if not by_spread:
        return f"{factor:g}", float(factor), None
    spread = embedding_spread(model)
    return f"s{factor:g}", factor * spread, spread


def _subject_in(
    model: "Transformer", prompt: str, subject: str, prefix: PrefixPolicy, occurrence: int | None
) -> tuple[Int[Tensor, "1 pos"], Span]:
    """The prompt's tokens and where the subject is. A subject that ends inside a token cannot be corrupted alone."""
    tokens = model.to_tokens(prompt, prefix=prefix)
    if len(model.tokenizer.encode(prompt)) < 2:
        raise UsageError(f"The prompt {prompt!r} is one token; a trace needs a subject and something that follows it.")
    span = find_subject(model.tokenizer, prompt, subject, prefix=prefix, occurrence=occurrence)
    if not span.exact:
        raise UsageError(
            f"The subject {subject!r} begins or ends inside a token: it lies in {list(span.pieces)}. Name it so that "
            "it covers whole tokens."
        )
    return tokens, span


def _checked(kinds: Sequence[Kind], samples: int, window: int, seed: int) -> tuple[Kind, ...]:
    known = get_args(Kind)
    chosen = tuple(kinds)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(known):
        raise UsageError(f"A trace restores some of {', '.join(known)}, each once, not {kinds!r}.")
    for name, value, least in (("samples", samples, 1), ("window", window, 1), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise UsageError(f"{name} is {value!r}; a whole number from {least} on was expected.")
    if seed >= 2**32:
        raise UsageError(f"seed is {seed}; the generator takes whole numbers below 2**32.")
    return chosen
