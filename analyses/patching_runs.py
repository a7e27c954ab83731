"""The two runs of a patching: their tokens, the values that are copied out of one of them, and what is measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import metrics
from interp.analyses.sites import Values
from interp.errors import UsageError, nearest
from interp.pairs import Pairs, length_difference

if TYPE_CHECKING:
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

Direction = Literal["denoise", "noise"]
Source = Literal["pair", "zero", "mean", "resample"]
Tokens = Int[Tensor, "pair pos"]
MetricFn = Callable[[Float[Tensor, "batch read d_vocab"]], Float[Tensor, "batch"]]
Metrics = MetricFn | Mapping[str, MetricFn] | str | Sequence[str]
"""Functions from logits to one number a pair, or names from `METRICS`, which take the pairs' own answers and foils."""

METRICS = ("logit_difference", "logit", "probability", "log_probability", "rank", "loss", "kl_divergence")


@dataclass(frozen=True)
class Runs:
    """The two runs of every pair; `direction` says which of them is edited."""

    clean: Tokens
    corrupted: Tokens
    mask: Bool[Tensor, "pair pos"] | None
    pairs: Pairs | None
    prefix: str
    direction: Direction

    @property
    def base(self) -> Tokens:
        """The run that is edited."""
        return self.corrupted if self.direction == "denoise" else self.clean

    @property
    def other(self) -> Tokens:
        """The run that values come from, unless another source is named."""
        return self.clean if self.direction == "denoise" else self.corrupted

    def said(self, what: str) -> list[str] | None:
        """The answers or foils as text; None where pairs have none."""
        if self.pairs is None or getattr(self.pairs.prompts[0], what) is None:
            return None
        return [str(getattr(pair, what)) for pair in self.pairs.prompts]


@dataclass(frozen=True)
class Logits:
    """Those of the last position of every pair, [pair, 1, d_vocab], in both runs."""

    base: Tensor
    other: Tensor


def runs_of(
    model: "Transformer",
    clean: Pairs | str | Tokens,
    corrupted: str | Tokens | None,
    *,
    prefix: "PrefixPolicy",
    direction: Direction,
) -> Runs:
    """Both runs of aligned pairs, or of two texts or token grids; `UsageError` where lengths differ."""
    if direction not in get_args(Direction):
        raise UsageError(f"The direction is {direction!r}; expected denoise (clean into corrupted) or noise.")
    if isinstance(clean, Pairs):
        if corrupted is not None:
            raise UsageError("Pairs bring their corrupted prompts along; leave `corrupted` out.")
        mask = None if clean.mask is None else clean.mask.to(model.device)
        both = clean.clean.to(model.device), clean.corrupted.to(model.device)
        return Runs(*both, mask, clean, clean.prefix, direction)
    if corrupted is None:
        raise UsageError("One prompt came; give `corrupted` too, or aligned pairs (`interp.pairs.align`).")
    rows = [model.to_tokens(each, prefix=prefix) if isinstance(each, str) else each for each in (clean, corrupted)]
    first, second = (tokens.to(model.device) for tokens in rows)
    if first.shape != second.shape:
        raise UsageError(f"The prompts do not fit each other: {_difference(model, first, second)}")
    return Runs(first, second, None, None, prefix if isinstance(clean, str) else "as given", direction)


def _difference(model: "Transformer", first: Tensor, second: Tensor) -> str:
    if model.has_tokenizer and len(first) == len(second) == 1:
        return length_difference(model.tokenizer, first[0].tolist(), second[0].tolist())
    return f"their tokens have the shapes {tuple(first.shape)} and {tuple(second.shape)}; give equal ones."


def recorded(
    model: "Transformer",
    runs: Runs,
    points: Sequence[str],
    *,
    source: Source,
    reference: Tokens | None,
    seed: int,
    budget: int,
) -> tuple[Values, Logits]:
    """The values to patch in, and the logits of both runs. Each run is done once, with only these points recorded."""
    if source not in get_args(Source):
        raise UsageError(f"The source is {source!r}; expected one of {', '.join(get_args(Source))}.")
    if reference is not None and source not in ("mean", "resample"):
        raise UsageError(f"A reference is for the sources mean and resample; {source!r} takes none.")
    base_logits, base = model.run_with_cache(runs.base, points, mask=runs.mask, budget=budget)
    kept = points if source == "pair" else []
    other_logits, other = model.run_with_cache(runs.other, kept, mask=runs.mask, budget=budget)
    logits = Logits(base_logits[:, -1:].clone(), other_logits[:, -1:].clone())
    if source == "pair":
        return Values(other, base), logits
    if source == "zero":
        return Values({name: torch.zeros_like(base[name]) for name in points}, base), logits
    texts = base
    if reference is not None:
        _, texts = model.run_with_cache(reference.to(model.device), points, budget=budget)
    of_one_length = runs.mask is None and (reference is None or reference.shape[1] == runs.base.shape[1])
    if source == "mean":
        return Values(
            {name: _mean(texts[name], base[name], of_one_length, model, name) for name in points}, base
        ), logits
    rows = _others(len(runs.base), len(runs.base) if reference is None else len(reference), reference is None, seed)
    if not of_one_length:
        raise UsageError("Resampling puts one text's values in place of another's: give texts of one length.")
    return Values({name: texts[name][rows] for name in points}, base), logits


def _mean(texts: Tensor, like: Tensor, by_position: bool, model: "Transformer", name: str) -> Tensor:
    """The mean over texts, by position where they have the pairs' length; else over all positions too."""
    point = model.points()[name]
    if point.whole:
        return like  # numbers of experts have no mean
    if "key_pos" in point.axes and not by_position:
        raise UsageError(f"The mean of {name} is by position: give a reference of the pairs' length.")
    mean = texts.mean(0, keepdim=True)
    mean = mean if by_position else mean.mean(point.position_axis, keepdim=True)
    return mean.expand_as(like).clone()


def _others(pairs: int, texts: int, own: bool, seed: int) -> Tensor:
    """For every pair the text that it is given instead: never its own, where the texts are the pairs' own."""
    if texts < (2 if own else 1):
        raise UsageError(f"Resampling needs other texts than the pair's own; {texts} came. Give a reference, or pairs.")
    order = torch.randperm(texts, generator=torch.Generator().manual_seed(seed))
    if not own:
        return order[torch.arange(pairs) % texts]
    source = torch.empty_like(order)
    source[order] = order.roll(1)
    return source


def measures(metric: Metrics, runs: Runs, logits: Logits) -> dict[str, MetricFn]:
    """The metrics by name, each tried on the base run's logits."""
    if isinstance(metric, Mapping):
        found = dict(metric)
    elif callable(metric):
        found = {str(getattr(metric, "name", getattr(metric, "__name__", "metric"))): metric}
    else:
        names = [metric] if isinstance(metric, str) else list(metric)
        found = {name: _named(name, runs, logits) for name in names}
    if not found:
        raise UsageError("There is no metric; give one, or several by name.")
    for name, each in found.items():
        tried = each(logits.base)
        if not isinstance(tried, Tensor) or tuple(tried.shape) != (len(runs.base),):
            came = tuple(tried.shape) if isinstance(tried, Tensor) else type(tried).__name__
            raise UsageError(f"The metric {name!r} gave {came}; one number a pair, ({len(runs.base)},), was expected.")
    return found


def _named(name: str, runs: Runs, logits: Logits) -> MetricFn:
    """A metric of `METRICS`, for the pairs' own answers."""
    if name not in METRICS:
        raise UsageError(f"There is no metric {name!r}.{nearest(str(name), METRICS)} Metrics are {', '.join(METRICS)}.")
    if name == "kl_divergence":  # from the clean run's distribution, whichever run is edited
        clean = logits.other if runs.direction == "denoise" else logits.base
        return metrics.kl_divergence(clean[:, 0])
    if runs.pairs is None:
        raise UsageError(f"The metric {name!r} needs answers: give pairs, or a metric such as logit(token).")
    answers, foils = list(runs.pairs.answers), runs.pairs.foils
    if name == "logit_difference":
        if foils is None:
            raise UsageError("The logit difference needs a foil beside each answer; give foils, or choose logit.")
        return metrics.logit_difference(answers, list(foils))
    if name == "loss":
        return metrics.loss(torch.tensor(answers)[:, None])
    made = {
        "logit": metrics.logit,
        "probability": metrics.probability,
        "log_probability": metrics.log_probability,
        "rank": metrics.rank,
    }
    return made[name](answers)
