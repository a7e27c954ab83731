"""What can be known of a study before it runs: data, spans, alignments, lengths, layers and heads. No weights are read.

What it does NOT tell: which facts a model knows, and what only its numbers show.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp.analyses.documents import Document
from interp.analyses.sites import stands_in
from interp.analyses.study.file import Study
from interp.analyses.study.planning import PlannedJob, StudyPlan, plan_study
from interp.analyses.study.prompts import PromptItem
from interp.errors import InterpError, UsageError
from interp.facts import Fact, answer_ids, exact_span
from interp.models.transformer import Transformer
from interp.pairs import align
from interp.prompt_pairs import PromptPair

if TYPE_CHECKING:
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Problem:
    """What would fail. `item` is empty where it is the whole job."""

    job: str
    item: str
    message: str

    def __str__(self) -> str:
        where = f"{self.job}, item {self.item}" if self.item else self.job
        return f"{where}: {self.message}" if where else self.message


@dataclass(frozen=True)
class Validation:
    """What was found: problems, remarks, and the plan, where there is one."""

    problems: list[Problem]
    notes: list[str]
    plan: StudyPlan | None

    @property
    def ok(self) -> bool:
        """Whether nothing was found that would fail."""
        return not self.problems


def validate_study(study: Study, *, limit: int | None = None, shard: tuple[int, int] | None = None) -> Validation:
    """All that can be known without running a model. Raises nothing for what is wrong with the study."""
    try:
        plan = plan_study(study, limit=limit, shard=shard)
    except InterpError as error:
        return Validation([Problem("", "", str(error))], [], None)
    problems = [problem for job in plan.jobs for problem in _of_job(job, study.run.prefix)]
    return Validation(problems, [_note(job) for job in plan.jobs], plan)


def _note(job: PlannedJob) -> str:
    known = [length for length in job.lengths if length is not None]
    span = f", {min(known)} to {max(known)} tokens" if known and job.task.length is not None else ""
    return f"{job.name}: {len(job.items)} items in {len(job.packing)} batches{span}"


def _of_job(job: PlannedJob, prefix: "PrefixPolicy") -> Iterator[Problem]:
    yield from (Problem(job.name, "", why) for why in _of_settings(job))
    context = job.model.config.n_ctx
    for item, length in zip(job.items, job.lengths, strict=True):
        try:
            if item.id in job.problems:
                raise UsageError(job.problems[item.id])
            if job.task.length is not None and length is not None and length > context:
                raise UsageError(f"it has {length} tokens, and the context of {job.model.spec.name} holds {context}.")
            if job.model.tokenizer is not None:
                _check_item(job, item.value, prefix)
        except InterpError as error:
            yield Problem(job.name, item.id, str(error))


def _check_item(job: PlannedJob, value: object, prefix: "PrefixPolicy") -> None:
    """Raises `UsageError` where spans, answers, alignments or lengths are not what the analysis needs."""
    tokenizer = job.model.tokenizer
    assert tokenizer is not None
    if isinstance(value, Fact):
        exact_span(tokenizer, value.template, value.subject, prefix=prefix)
        answer_ids(tokenizer, value.prompt, value.answer)
    elif isinstance(value, PromptPair):
        pairs = align(tokenizer, [value], prefix=prefix)
        if getattr(job.settings, "metric", "") == "logit_difference" and pairs.foils is None:
            raise UsageError("it has no foil, which the logit difference needs.")
    elif isinstance(value, PromptItem):
        _check_prompt(tokenizer, value, needs_answer=job.task.name == "attribution")
    elif isinstance(value, Document) and job.task.length is not None:
        least = job.task.length(tokenizer, value, job.settings, prefix) - len(tokenizer.prefix_ids(prefix))
        if (count := len(tokenizer.encode(value.text))) < least:
            raise UsageError(f"it has {count} tokens; {least} are read of each document.")


def _check_prompt(tokenizer: "Tokenizer", value: PromptItem, *, needs_answer: bool) -> None:
    for text in (value.answer, value.foil):
        if text is not None:
            tokenizer.single_token(text)
    if needs_answer and value.answer is None:
        raise UsageError("it has no answer, and attribution asks what writes one.")


def _of_settings(job: PlannedJob) -> Iterator[str]:
    """Layers, heads and sites that the model does not have."""
    config, settings = job.model.config, job.settings
    for name in ("layers", "layer"):
        chosen: Sequence[int] = getattr(settings, name, None) or ()
        if outside := [layer for layer in chosen if layer >= config.n_layers]:
            yield f"the setting {name} has {outside[0]}; this model has layers 0 to {config.n_layers - 1}."
    for head in getattr(settings, "heads", ()):
        layer, number = map(int, head.split("."))
        if layer >= config.n_layers or number >= config.n_heads:
            yield f"there is no head {head}: this model has {config.n_layers} layers of {config.n_heads} heads."
    site = getattr(settings, "site", None)
    if site is not None:
        shape = Transformer(config, device="meta")
        if not any(stands_in(shape, site, layer) for layer in range(config.n_layers)):
            yield f"this model has no site {site}."
