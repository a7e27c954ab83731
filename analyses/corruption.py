"""How the subject of a prompt is hidden from the model: noise on its embeddings, or another subject in its place.

Noise is added to the embeddings of the subject's tokens, and to no others:

    normal     ν · N(0, 1)              "s3": ν = 3 σ, "0.3": ν = 0.3
    uniform    ν · U(−1, 1)             "us3": ν = 3 σ, "u0.3": ν = 0.3; its standard deviation is ν / √3

σ is the spread of subjects' embeddings in this model (`analyses/subjects.py`). The generator, `RandomState(seed)`, is
made anew for every prompt, as in the reference code: a prompt's noise depends on the seed and on how many tokens its
subject has, not on what is traced beside it. With another subject of as many tokens there is no noise and one run, on a
text that somebody could have written.

Papers: Meng et al. 2022 (ROME, arXiv 2202.05262), for the noise; Zhang & Nanda 2024 (arXiv 2309.16042), for replacing
tokens, which leaves the model on familiar ground.

What it does NOT tell: that what one of them localises is what the other would; report which it was.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import edits
from interp.analyses.subjects import bundled_subjects, embedding_spread
from interp.analyses.trace_settings import TraceSettings
from interp.errors import UsageError
from interp.hooks import Hooks
from interp.prompts import PromptTokenizer, Span

if TYPE_CHECKING:
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

Corruption = Literal["noise", "replace"]
Shape = Literal["normal", "uniform"]


@dataclass(frozen=True)
class Noise:
    """The noise of a trace. `spread` is the σ that its rule multiplies, and `subjects` says of what, where it does."""

    rule: str
    shape: Shape
    level: float
    spread: float | None = None
    subjects: str | tuple[str, ...] | None = None

    def draw(self, samples: int, tokens: int, d_model: int, *, seed: int) -> Float[Tensor, "sample pos d_model"]:
        """Independent noise for every sample. It is numpy's older generator: seed 1 is what the reference draws."""
        generator, size = np.random.RandomState(seed), (samples, tokens, d_model)
        drawn = generator.uniform(-1, 1, size) if self.shape == "uniform" else generator.randn(*size)
        return self.level * torch.from_numpy(drawn).float()

    def stated(self) -> dict[str, object]:
        """What a result says of it."""
        return {
            "noise": self.rule,
            "noise_shape": self.shape,
            "noise_level": self.level,
            "embedding_spread": self.spread,
            "noise_subjects": self.subjects,
        }


def noise_of(model: "Transformer", rule: str | float, subjects: Sequence[str] | None = None) -> Noise:
    """The noise that a rule means in this model; σ is measured on the subjects, those of the bundled facts if None.

    Raises `UsageError` for a rule that is none.
    """
    uniform, by_spread, factor = _parsed(rule)
    shape: Shape = "uniform" if uniform else "normal"
    text = f"{'u' * uniform}{'s' * by_spread}{factor:g}"
    if not by_spread:
        return Noise(text, shape, factor)
    measured = bundled_subjects() if subjects is None else tuple(subjects)
    spread = embedding_spread(model, measured)
    whose = f"all {len(measured)} of the bundled facts" if subjects is None else measured
    return Noise(text, shape, factor * spread, spread, whose)


def _parsed(rule: str | float) -> tuple[bool, bool, float]:
    """(uniform, in units of the spread, number)."""
    found = None if isinstance(rule, bool) else re.fullmatch(r"(u?)(s?)([0-9.e+-]+)", str(rule))
    try:
        factor = float(found[3]) if found else math.nan
    except ValueError:
        factor = math.nan
    if found is None or not 0 < factor < math.inf:
        raise UsageError(
            f"The noise is {rule!r}; a positive level such as 0.3 was expected, or 's3' for 3 standard deviations of "
            "the embeddings of subjects; 'u0.3' and 'us3' for uniform noise in ± as much."
        )
    return bool(found[1]), bool(found[2]), factor


@dataclass(frozen=True)
class Case:
    """A prompt as tokens, where its subject stands, and the same prompt about another subject, if that hides it."""

    clean: tuple[int, ...]
    span: Span
    other: tuple[int, ...] | None = None


def case_of(
    tokenizer: PromptTokenizer, prompt: str, span: Span, prefix: "PrefixPolicy", other: str | None = None
) -> Case:
    """The case of a prompt, and of the prompt about another subject.

    Raises `UsageError` for a prompt of one token, a span that ends inside one, and another subject that does not take
    this one's place token for token.
    """
    if len(tokenizer.encode_with_offsets(prompt)[0]) < 2:
        raise UsageError(f"The prompt {prompt!r} is one token; a trace needs a subject and something that follows it.")
    span.must_be_exact()
    clean = tuple(tokenizer.prompt_ids(prompt, prefix))
    if other is None:
        return Case(clean, span)
    replaced = tuple(tokenizer.prompt_ids(other, prefix))
    _check_replaced(tokenizer, Case(clean, span, replaced))
    return Case(clean, span, replaced)


def _check_replaced(tokenizer: PromptTokenizer, case: Case) -> None:
    """Refuse a prompt that is of another length, differs outside the subject, or not at all."""
    clean, other, start, stop = case.clean, case.other or (), case.span.start, case.span.stop
    outside = (clean[:start], clean[stop:]) == (other[:start], other[stop:])
    if len(clean) != len(other) or not outside or clean == other:
        raise UsageError(
            f"The other subject does not take the place of {case.span.text!r} token for token: "
            f"{tokenizer.str_tokens(clean)} against {tokenizer.str_tokens(other)}. Expected another subject of "
            f"{stop - start} tokens, and all else the same."
        )


def corrupted(
    cases: Sequence[Case], noise: Noise | None, settings: TraceSettings, d_model: int
) -> tuple[Int[Tensor, "row pos"], Hooks]:
    """The corrupted run of cases of one length: its tokens, sample by sample of each case, and its edits."""
    if noise is None:
        assert all(case.other is not None for case in cases)
        return torch.tensor([case.other for case in cases]), []
    start, stop = min(case.span.start for case in cases), max(case.span.stop for case in cases)
    added = torch.zeros(len(cases), settings.samples, stop - start, d_model)
    for place, case in enumerate(cases):
        span, own = case.span, len(case.span.positions)
        drawn = noise.draw(settings.samples, own, d_model, seed=settings.seed)
        added[place, :, span.start - start : span.stop - start] = drawn
    tokens = torch.tensor([case.clean for case in cases]).repeat_interleave(settings.samples, 0)
    return tokens, [("hook_embed", edits.steer(added.flatten(0, 1), positions=range(start, stop)))]
