"""Metrics: what is measured of the model's output, one number per example and never a mean over the batch.

    metric = metrics.logit_difference(model.to_single_token(" Mary"), model.to_single_token(" John"))
    metric(logits)  # [batch]

A metric is called with logits [batch, read, d_vocab], `read` being the positions that were asked for, often only the
last. All but `loss` read one of them, the last unless `read=` says otherwise. Nothing here knows of padding: in texts
of different lengths the last position is the last token of each only if they are padded on the left.

A token is given by its id, one for all examples or one an example. Numbers come in float32, or in float64 where the
logits are that; they can be differentiated, and lie on the device of the logits. Logs are natural.

Which one is asked for changes what is found: probabilities saturate and are moved by every other token, the logit
difference sees only what tells answer from foil (Zhang & Nanda 2024, "Towards best practices of activation patching").
"""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.selection import indices, whole_numbers

MetricFn = Callable[[Float[Tensor, "batch read d_vocab"]], Float[Tensor, "batch"]]
"""`metric(logits)`: one number per example."""

Answers = int | Sequence[int] | Tensor
"""A token id for all examples; or one an example, in a list or an integer tensor [batch]."""


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """A named function from logits to one number per example; its repr says what it was made with."""

    name: str
    settings: str
    measure: MetricFn

    def __call__(self, logits: Float[Tensor, "batch read d_vocab"]) -> Float[Tensor, "batch"]:
        """Raises `UsageError` for logits that are no such grid, or do not fit the answers."""
        if not isinstance(logits, Tensor) or logits.ndim != 3 or not logits.is_floating_point():
            raise UsageError(f"{self.name} is measured on logits [batch, read, d_vocab], not on {_named(logits)}.")
        return self.measure(logits)

    def __repr__(self) -> str:
        return f"{self.name}({self.settings})"


def logit(answer: Answers, *, read: int = -1) -> Metric:
    """The answer's logit. It is comparable only within one model: the softmax ignores what all tokens gain."""
    ids = _ids(answer, "answer")
    return _at_one("logit", f"answer={_shown(ids)}", read, lambda logits: _wide(_cells(logits, ids, "answer")))


def probability(answer: Answers, *, read: int = -1) -> Metric:
    """The answer's probability, exp(logit − logsumexp): the measure of causal tracing (Meng et al. 2022)."""
    ids = _ids(answer, "answer")
    return _at_one("probability", f"answer={_shown(ids)}", read, lambda logits: _log_probability(logits, ids).exp())


def log_probability(answer: Answers, *, read: int = -1) -> Metric:
    """The answer's log-probability, in nats."""
    ids = _ids(answer, "answer")
    return _at_one("log_probability", f"answer={_shown(ids)}", read, lambda logits: _log_probability(logits, ids))


def logit_difference(answer: Answers, foil: Answers, *, read: int = -1) -> Metric:
    """logit(answer) − logit(foil): the log-odds of the two, blind to all other tokens (Wang et al. 2022, IOI)."""
    right, wrong = _ids(answer, "answer"), _ids(foil, "foil")
    _refuse_equal(right, wrong)

    def measure(logits: Float[Tensor, "batch d_vocab"]) -> Float[Tensor, "batch"]:
        return _wide(_cells(logits, right, "answer")) - _wide(_cells(logits, wrong, "foil"))

    return _at_one("logit_difference", f"answer={_shown(right)}, foil={_shown(wrong)}", read, measure)


def rank(answer: Answers, *, read: int = -1) -> Metric:
    """How many tokens have a higher logit than the answer: 0 where it is what the model would say."""
    ids = _ids(answer, "answer")

    def measure(logits: Float[Tensor, "batch d_vocab"]) -> Float[Tensor, "batch"]:
        answers = _cells(logits, ids, "answer")
        return (logits > answers[:, None]).sum(-1).to(_wide(answers).dtype)

    return _at_one("rank", f"answer={_shown(ids)}", read, measure)


def kl_divergence(reference_logits: Float[Tensor, "batch d_vocab"], *, read: int = -1) -> Metric:
    """KL(P_reference ‖ P), in nats: what is lost where P is taken for the reference, over the whole vocabulary.

    A single row is the reference of all examples. The reference is a constant: no gradient reaches it. Rounding may
    leave a divergence of nought slightly below it.
    """
    given = reference_logits
    if not isinstance(given, Tensor) or given.ndim != 2 or not given.is_floating_point():
        raise UsageError(f"Reference logits are floats [batch, d_vocab], not {_named(given)}.")
    reference = _wide(given.detach()).log_softmax(-1)
    weights = reference.exp()

    def measure(logits: Float[Tensor, "batch d_vocab"]) -> Float[Tensor, "batch"]:
        came, wanted = tuple(reference.shape), tuple(logits.shape)
        if came not in (wanted, (1, wanted[1])):
            raise UsageError(f"Reference logits of shape {came} do not fit logits [batch, d_vocab] = {wanted}.")
        p = weights.to(logits.device)
        terms = p * (reference.to(logits.device) - _wide(logits).log_softmax(-1))
        return terms.masked_fill(p == 0, 0).sum(-1)  # 0 · log 0 is 0, where both exclude a token

    return _at_one("kl_divergence", f"reference of shape {tuple(reference.shape)}", read, measure)


def loss(targets: Int[Tensor, "batch read"]) -> Metric:
    """The mean of −log P(target) over all read positions, in nats: `targets[b, r]` follows what was read at r.

    For the loss of a text, read positions 0 to n − 2 and give tokens 1 to n − 1.
    """
    whole = isinstance(targets, Tensor) and targets.dtype != torch.bool and not targets.is_floating_point()
    if not whole or targets.ndim != 2 or not targets.numel():
        raise UsageError(f"Targets are token ids [batch, read], not {_named(targets)}.")
    wanted = targets.long()
    lowest, highest = (int(bound) for bound in wanted.aminmax())  # once, here: on a GPU it waits for the device
    if lowest < 0:
        raise UsageError(f"Targets are token ids from 0 on: there is a negative one, {lowest}.")

    def measure(logits: Float[Tensor, "batch read d_vocab"]) -> Float[Tensor, "batch"]:
        _check_range(highest, logits.shape[-1], "target")
        if wanted.shape != logits.shape[:2]:
            came, read = tuple(wanted.shape), tuple(logits.shape[:2])
            raise UsageError(f"Targets of shape {came} do not fit logits read at [batch, read] = {read}.")
        chosen = logits.gather(-1, wanted.to(logits.device)[..., None])[..., 0]
        return (_wide(logits).logsumexp(-1) - _wide(chosen)).mean(-1)

    return Metric("loss", f"targets of shape {tuple(targets.shape)}", measure)


RowMetric = Callable[[Float[Tensor, "batch d_vocab"]], Float[Tensor, "batch"]]
Ids = int | tuple[int, ...]


def _at_one(name: str, settings: str, read: int, measure: RowMetric) -> Metric:
    """A metric of one of the read positions."""
    if type(read) is not int:
        raise UsageError(f"{name} reads one position: `read` is an index among those read, not {read!r}.")

    def at_one(logits: Float[Tensor, "batch read d_vocab"]) -> Float[Tensor, "batch"]:
        (place,) = indices(read, logits.shape[1], f"`read` of {name}")
        return measure(logits[:, place])

    return Metric(name, settings if read == -1 else f"{settings}, read={read}", at_one)


def _shown(ids: Ids) -> str:
    """The ids as they stand in a repr: of many only the first few."""
    return reprlib.repr(ids)


def _ids(answer: Answers, what: str) -> Ids:
    """One id, or several as a tuple; refuses what cannot be an id in any vocabulary."""
    try:
        ids = whole_numbers(answer, what)
    except UsageError:
        raise UsageError(
            f"The {what} is a token id, or one an example, not {answer!r}; `model.to_single_token` turns text into one."
        ) from None
    if not ids or min(ids) < 0:
        problem = f"there is a negative one, {min(ids)}" if ids else "none was given"
        raise UsageError(f"The {what} is a token id from 0 on, or one an example: {problem}.")
    single = answer.ndim == 0 if isinstance(answer, Tensor) else not isinstance(answer, Iterable)
    return ids[0] if single else tuple(ids)


def _refuse_equal(answer: Ids, foil: Ids) -> None:
    count = max(len(ids) if isinstance(ids, tuple) else 1 for ids in (answer, foil))
    right, wrong = (ids if isinstance(ids, tuple) else (ids,) * count for ids in (answer, foil))
    if len(right) != len(wrong):
        raise UsageError(f"{len(right)} answers have {len(wrong)} foils; give one each, or one foil for all.")
    for example, (one, other) in enumerate(zip(right, wrong, strict=True)):
        if one == other:
            raise UsageError(f"Answer and foil of example {example} are the same token, {one}; they never differ.")


def _log_probability(logits: Float[Tensor, "batch d_vocab"], ids: Ids) -> Float[Tensor, "batch"]:
    return _wide(_cells(logits, ids, "answer")) - _wide(logits).logsumexp(-1)


def _cells(logits: Float[Tensor, "batch d_vocab"], ids: Ids, what: str) -> Float[Tensor, "batch"]:
    """Each example's logit of its own token."""
    batch, d_vocab = logits.shape
    each = ids if isinstance(ids, tuple) else (ids,) * batch
    if len(each) != batch:
        raise UsageError(f"There are {len(each)} {what}s for {batch} examples; give one for all, or one an example.")
    _check_range(max(each), d_vocab, what)
    return logits.gather(-1, torch.tensor(each, device=logits.device)[:, None])[:, 0]


def _check_range(highest: int, d_vocab: int, what: str) -> None:
    if highest >= d_vocab:
        raise UsageError(f"The {what} {highest} is no token of this model; expected ids from 0 to {d_vocab - 1}.")


def _named(value: object) -> str:
    """What came, for an error: dtype and shape of a tensor, the type of anything else."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _wide(values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """In float32 at least: bf16 keeps three digits, too few for differences and for sums over a vocabulary."""
    return values if values.dtype == torch.float64 else values.float()
