"""The two runs of a patching: their tokens, the values that are copied out of one of them, and what is measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import metrics
from interp.cache import ActivationCache
from interp.errors import UsageError, nearest
from interp.pairs import Pairs, length_difference

if TYPE_CHECKING:
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

Direction = Literal["denoise", "noise"]
Source = Literal["pair", "zero", "mean", "resample"]
Tokens = Int[Tensor, "pair pos"]
Reference = Int[Tensor, "text text_pos"]
"""Other texts, without padding, for the sources mean and resample."""
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
    first, second = (_tokens(model, each, prefix) for each in (clean, corrupted))
    if first.shape != second.shape:
        raise UsageError(f"The prompts do not fit each other: {_difference(model, first, second)}")
    return Runs(first, second, None, None, prefix if isinstance(clean, str) else "as given", direction)


def _tokens(model: "Transformer", given: str | Tokens, prefix: "PrefixPolicy") -> Tokens:
    if not isinstance(given, str | Tensor):
        raise UsageError(
            f"A text, tokens [pair, pos] or aligned pairs were expected, not {type(given).__name__}; several texts are "
            "aligned by `interp.pairs.align`."
        )
    return (model.to_tokens(given, prefix=prefix) if isinstance(given, str) else given).to(model.device)


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
    reference: Reference | None,
    seed: int,
    budget: int,
    base_too: bool,
) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor], Logits]:
    """The values to patch in, those of the base run where `base_too`, and the logits of both runs.

    Each run is done once, and only what is needed of it is recorded.
    """
    _check_source(source, reference)
    kept = points if base_too or source != "pair" else None
    base_last, base = _run(model, runs.base, runs.mask, kept, budget)
    other_last, other = _run(model, runs.other, runs.mask, points if source == "pair" else None, budget)
    logits = Logits(base_last, other_last)
    if source == "pair":
        return other, base, logits
    if source == "zero":
        return {name: _zero(model, name, base[name]) for name in points}, base, logits
    texts = base
    if reference is not None:
        _, texts = model.run_with_cache(reference.to(model.device), points, budget=budget)
    if source == "mean":
        return Means(model, runs, texts, base).of(points), base, logits
    rows = _others(len(runs.base), len(runs.base) if reference is None else len(reference), reference is None, seed)
    if not _of_one_length(runs, texts):
        raise UsageError("Resampling puts one text's values in place of another's: give texts of one length.")
    return {name: texts[name][rows] for name in points}, base, logits


def _run(
    model: "Transformer",
    tokens: Tokens,
    mask: Bool[Tensor, "pair pos"] | None,
    points: Sequence[str] | None,
    budget: int,
) -> tuple[Float[Tensor, "pair 1 d_vocab"], ActivationCache]:
    """The last position's logits, and the values at these points, if any; their embeddings alone at least."""
    logits, cache = model.run_with_cache(tokens, points or ["hook_embed"], mask=mask, budget=budget)
    return logits[:, -1:].clone(), cache


def _check_source(source: str, reference: Reference | None) -> None:
    if source not in get_args(Source):
        raise UsageError(f"The source is {source!r}; expected one of {', '.join(get_args(Source))}.")
    if reference is not None and source not in ("mean", "resample"):
        raise UsageError(f"A reference is for the sources mean and resample; {source!r} takes none.")


def _zero(model: "Transformer", name: str, base: Tensor) -> Tensor:
    """Nought; but choices of experts stay what they are: they are numbers of experts, and nought is one of them."""
    return base if model.points()[name].whole else torch.zeros_like(base)


def _of_one_length(runs: Runs, texts: ActivationCache) -> bool:
    """Whether a position is one place in the texts and in the pairs."""
    return runs.mask is None and texts.tokens.shape[1] == runs.base.shape[1]


@dataclass(frozen=True)
class Means:
    """Means over texts: by position where they are as long as the pairs, else over all positions, padding left out."""

    model: "Transformer"
    runs: Runs
    texts: ActivationCache
    base: ActivationCache

    def of(self, points: Sequence[str]) -> dict[str, Tensor]:
        """What is put in place of each point's values."""
        return {name: self._mean(name) for name in points}

    def _mean(self, name: str) -> Tensor:
        point, texts = self.model.points()[name], self.texts[name]
        if name.endswith((".hook_expert_indices", ".hook_expert_out")):
            return self._mean_of_experts(name)
        by_position = _of_one_length(self.runs, self.texts)
        if not by_position and ("key_pos" in point.axes or "hook_rot" in name):
            raise UsageError(f"The mean of {name} is by position: give texts of the pairs' length.")
        axis = point.position_axis
        dims = [0] if by_position else [0, axis]
        if self.texts.mask is None:
            return texts.mean(dims, keepdim=True)
        shape = [size if place in (0, axis) else 1 for place, size in enumerate(texts.shape)]
        real = self.texts.mask.view(shape)
        return texts.masked_fill(~real, 0).sum(dims, keepdim=True) / real.sum(dims, keepdim=True)

    def _mean_of_experts(self, name: str) -> Tensor:
        """For every slot the mean of what its expert writes where the texts choose it; −1 where they never do."""
        chosen = f"{name.rsplit('.', 1)[0]}.hook_expert_indices"
        real = torch.ones_like(self.texts[chosen], dtype=torch.bool)
        if self.texts.mask is not None:
            real &= self.texts.mask[..., None]
        theirs, here = self.texts[chosen][real], self.base[chosen]
        count = int(max(theirs.max(), here.max())) + 1
        times = torch.bincount(theirs, minlength=count)
        if name == chosen:
            return here.masked_fill(times[here] == 0, -1)
        written = self.texts[name][real]
        total = written.new_zeros(count, written.shape[-1]).index_add_(0, theirs, written)
        return (total / times.clamp(min=1)[:, None])[here]


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
    elif isinstance(metric, str | Sequence):
        names = [metric] if isinstance(metric, str) else list(metric)
        found = {name: _named(name, runs, logits) for name in names}
    else:
        raise UsageError(f"A metric is a function of logits, or the name of one, not {metric!r}.")
    if not found:
        raise UsageError("There is no metric; give one, or several by name.")
    for name, each in found.items():
        if not callable(each):
            raise UsageError(f"The metric {name!r} is {each!r}; a function of logits was expected.")
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
