"""A metric is one number per example, equal to torch's own loss functions, and refuses ids that cannot be meant."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from interp import metrics
from interp.errors import UsageError
from interp.metrics import Metric

BATCH, READ, D_VOCAB = 4, 3, 50
ANSWERS, FOILS = [7, 0, 49, 7], [3, 1, 2, 8]
ROWS = torch.arange(BATCH)


def random_logits(*, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(BATCH, READ, D_VOCAB, generator=generator, dtype=torch.float64)).to(dtype)


LOGITS = random_logits()
LAST = LOGITS[:, -1]
REFERENCE = random_logits(seed=1)[:, -1]
TARGETS = torch.randint(0, D_VOCAB, (BATCH, READ), generator=torch.Generator().manual_seed(2))

EACH = {
    "logit": (metrics.logit(ANSWERS), lambda logits: logits[ROWS, -1, ANSWERS]),
    "probability": (metrics.probability(ANSWERS), lambda logits: logits.softmax(-1)[ROWS, -1, ANSWERS]),
    "log_probability": (metrics.log_probability(ANSWERS), lambda logits: logits.log_softmax(-1)[ROWS, -1, ANSWERS]),
    "logit_difference": (
        metrics.logit_difference(ANSWERS, FOILS),
        lambda logits: logits[ROWS, -1, ANSWERS] - logits[ROWS, -1, FOILS],
    ),
    "rank": (
        metrics.rank(ANSWERS),
        lambda logits: torch.searchsorted((-logits[:, -1]).sort(-1)[0], -logits[ROWS, -1, ANSWERS][:, None])[:, 0].to(
            logits.dtype
        ),
    ),
    "kl_divergence": (
        metrics.kl_divergence(REFERENCE),
        lambda logits: F.kl_div(logits[:, -1].log_softmax(-1), REFERENCE.to(logits).softmax(-1), reduction="none").sum(
            -1
        ),
    ),
    "loss": (
        metrics.loss(TARGETS),
        lambda logits: F.cross_entropy(logits.mT, TARGETS.to(logits.device), reduction="none").mean(-1),
    ),
}


@pytest.mark.parametrize("name", EACH)
def test_a_metric_is_what_torch_computes(name: str) -> None:
    metric, by_torch = EACH[name]
    assert metric.name == name
    torch.testing.assert_close(metric(LOGITS), by_torch(LOGITS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EACH)
def test_low_precision_is_measured_in_float32(name: str) -> None:
    """On bf16 logits the numbers are those of the same logits written in float32: nothing more is rounded."""
    metric, by_torch = EACH[name]
    for dtype in (torch.bfloat16, torch.float16):
        logits = random_logits(dtype=dtype)
        assert metric(logits).dtype == torch.float32
        torch.testing.assert_close(metric(logits), by_torch(logits.float()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EACH)
def test_float64_stays_float64(name: str) -> None:
    metric, by_torch = EACH[name]
    logits = random_logits(dtype=torch.float64)
    assert metric(logits).dtype == torch.float64
    tolerance = 1e-5 if name == "kl_divergence" else 1e-12  # its reference was given in float32
    torch.testing.assert_close(metric(logits), by_torch(logits), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", EACH)
def test_numbers_lie_where_the_logits_are(name: str, device: str) -> None:
    measured = EACH[name][0](LOGITS.to(device))
    assert measured.device.type == device
    torch.testing.assert_close(measured.cpu(), EACH[name][0](LOGITS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in EACH if name != "rank"])
def test_a_metric_has_the_gradient_that_torch_finds(name: str) -> None:
    metric, by_torch = EACH[name]
    logits = LOGITS.clone().requires_grad_()
    (ours,) = torch.autograd.grad(metric(logits).sum(), logits)
    (theirs,) = torch.autograd.grad(by_torch(logits).sum(), logits)
    assert theirs.abs().max() > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", EACH)
def test_an_example_does_not_see_the_others(name: str) -> None:
    changed = LOGITS.clone()
    changed[1:] = -changed[1:]
    before, after = EACH[name][0](LOGITS), EACH[name][0](changed)
    assert before[0] == after[0]
    assert (before[1:] != after[1:]).all()


@pytest.mark.parametrize("make", [metrics.logit, metrics.probability, metrics.log_probability])
def test_one_answer_serves_all_examples(make: Callable[..., Metric]) -> None:
    assert torch.equal(make(7)(LOGITS), make([7] * BATCH)(LOGITS))


def test_one_foil_serves_all_examples() -> None:
    one, each = metrics.logit_difference(ANSWERS, 5), metrics.logit_difference(ANSWERS, [5] * BATCH)
    assert torch.equal(one(LOGITS), each(LOGITS))
    assert torch.equal(metrics.logit_difference(5, FOILS)(LOGITS), LAST[:, 5] - LAST[ROWS, FOILS])


@pytest.mark.parametrize("answers", [torch.tensor(ANSWERS), torch.tensor(ANSWERS, dtype=torch.uint8), tuple(ANSWERS)])
def test_answers_come_in_any_row_of_integers(answers: Tensor | tuple[int, ...]) -> None:
    assert torch.equal(metrics.logit(answers)(LOGITS), LAST[ROWS, ANSWERS])
    assert torch.equal(metrics.logit(torch.tensor(7))(LOGITS), LAST[:, 7])
    assert torch.equal(metrics.logit(np.array(ANSWERS))(LOGITS), LAST[ROWS, ANSWERS])


def test_another_of_the_read_positions_is_measured_where_it_is_named() -> None:
    for read in (0, 1, -2):
        assert torch.equal(metrics.logit(7, read=read)(LOGITS), LOGITS[:, read, 7])
        assert torch.equal(
            metrics.kl_divergence(REFERENCE, read=read)(LOGITS), metrics.kl_divergence(REFERENCE)(LOGITS[:, [read]])
        )


def test_a_distribution_is_at_no_distance_from_itself_and_at_some_from_others() -> None:
    assert metrics.kl_divergence(LAST)(LOGITS).abs().max() < 1e-6
    assert (metrics.kl_divergence(REFERENCE)(LOGITS) > 0.1).all()


def test_the_distance_weighs_by_the_reference() -> None:
    """Reference (1/2, 1/2), model (1/4, 3/4): ½ ln 2 + ½ ln ⅔; the other direction is another number."""
    half, quarter = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[[0.25, 0.75]]]).log()
    expected = 0.5 * np.log(2) + 0.5 * np.log(2 / 3)
    assert metrics.kl_divergence(half)(quarter).item() == pytest.approx(expected, rel=1e-5)
    assert metrics.kl_divergence(quarter[:, 0])(half[:, None]).item() != pytest.approx(expected, rel=1e-2)


def test_one_reference_serves_all_examples() -> None:
    one, each = metrics.kl_divergence(REFERENCE[:1]), metrics.kl_divergence(REFERENCE[:1].expand(BATCH, -1))
    torch.testing.assert_close(one(LOGITS), each(LOGITS))


def test_a_token_that_both_exclude_adds_nothing_to_the_distance() -> None:
    excluded = torch.full((BATCH, 1), -torch.inf)
    reference, logits = torch.cat([REFERENCE, excluded], -1), torch.cat([LAST, excluded], -1)[:, None]
    torch.testing.assert_close(metrics.kl_divergence(reference)(logits), metrics.kl_divergence(REFERENCE)(LOGITS))
    allowed = torch.cat([REFERENCE, torch.zeros(BATCH, 1)], -1)
    assert (metrics.kl_divergence(allowed)(logits) == torch.inf).all()


def test_the_reference_is_a_constant() -> None:
    reference = REFERENCE.clone().requires_grad_()
    metric = metrics.kl_divergence(reference)
    assert not metric(LOGITS).requires_grad
    before = metric(LOGITS)
    with torch.no_grad():
        reference.zero_()
    assert torch.equal(metric(LOGITS), before)


def test_improbable_answers_keep_their_log_probability() -> None:
    """Where the probability underflows, the log-probability is still exact: it is not the logarithm of the former."""
    logits = torch.tensor([[[0.0, 200.0]]])
    assert metrics.probability(0)(logits).item() == 0
    assert metrics.log_probability(0)(logits).item() == -200


@pytest.mark.parametrize(
    ("metric", "written"),
    [
        (metrics.logit(7), "logit(answer=7)"),
        (metrics.probability([7, 8], read=0), "probability(answer=(7, 8), read=0)"),
        (metrics.logit(list(range(1000))), "logit(answer=(0, 1, 2, 3, 4, 5, ...))"),
        (metrics.logit_difference(7, [1, 2]), "logit_difference(answer=7, foil=(1, 2))"),
        (metrics.kl_divergence(REFERENCE), "kl_divergence(reference of shape (4, 50))"),
        (metrics.loss(TARGETS), "loss(targets of shape (4, 3))"),
    ],
)
def test_a_metric_says_what_it_was_made_with(metric: Metric, written: str) -> None:
    assert repr(metric) == written


@pytest.mark.parametrize("make", [metrics.logit, metrics.probability, metrics.log_probability])
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (-1, "negative one, -1"),
        ([3, -2, 4, 4], "negative one, -2"),
        (True, "not True"),
        ([True, 1, 2, 3], "token id"),
        (1.0, "not 1.0"),
        ([1, 2, 3, 4.5], "token id"),
        (torch.tensor([1.0, 2.0]), "token id"),
        (torch.tensor([True, False]), "token id"),
        (torch.tensor([[1, 2], [3, 4]]), "token id"),
        (" Paris", "to_single_token"),
        (None, "not None"),
        ([], "none was given"),
    ],
)
def test_what_is_no_id_is_refused_at_once(make: Callable[..., Metric], answer: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make(answer)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: metrics.logit_difference(7, 7), "example 0 are the same token, 7"),
        (lambda: metrics.logit_difference([1, 2, 3], [3, 2, 1]), "example 1 are the same token, 2"),
        (lambda: metrics.logit_difference([1, 2, 3], 3), "example 2 are the same token, 3"),
        (lambda: metrics.logit_difference([1, 2, 3], [4, 5]), "3 answers have 2 foils"),
        (lambda: metrics.logit_difference(1, -5), "foil.*negative one, -5"),
        (lambda: metrics.logit(1, read=True), "index among those read"),
        (lambda: metrics.logit(1, read=[0, 1]), "index among those read"),
        (lambda: metrics.loss(-TARGETS - 1), "negative"),
        (lambda: metrics.loss(TARGETS[:, :0]), "Targets are token ids"),
    ],
)
def test_metrics_that_cannot_be_meant_are_refused(make: Callable[[], Metric], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (metrics.logit(D_VOCAB), "answer 50 is no token.*0 to 49"),
        (metrics.probability([1, 2, 3, D_VOCAB]), "answer 50 is no token"),
        (metrics.log_probability(D_VOCAB), "answer 50 is no token"),
        (metrics.logit_difference(1, 60), "foil 60 is no token"),
        (metrics.logit([1, 2, 3]), "3 answers for 4 examples"),
        (metrics.logit([1]), "1 answers for 4 examples"),
        (metrics.logit_difference(1, [2, 3]), "2 foils for 4 examples"),
        (metrics.logit(1, read=READ), "3 lies outside; there are 0 to 2"),
        (metrics.kl_divergence(REFERENCE[:2]), "do not fit"),
        (metrics.kl_divergence(REFERENCE[:, 1:]), "do not fit"),
        (metrics.loss(TARGETS[:, 1:]), "do not fit"),
        (metrics.loss(TARGETS[:1]), "do not fit"),
        (metrics.loss(TARGETS.clamp(min=0) + D_VOCAB), "is no token"),
    ],
    ids=repr,
)
def test_logits_that_do_not_fit_are_refused(metric: Metric, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        metric(LOGITS)


@pytest.mark.usefixtures("shapes_unchecked")
def test_what_is_no_grid_of_logits_is_refused() -> None:
    for wrong in (LAST, LOGITS.long(), [[1.0]]):
        with pytest.raises(UsageError, match="measured on logits"):
            metrics.logit(1)(wrong)
    for reference in (LOGITS, LAST.long(), LAST.tolist()):
        with pytest.raises(UsageError, match="Reference logits are"):
            metrics.kl_divergence(reference)
    for targets in (TARGETS.float(), TARGETS.bool(), TARGETS[0], TARGETS.tolist()):
        with pytest.raises(UsageError, match="Targets are token ids"):
            metrics.loss(targets)
