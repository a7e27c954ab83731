"""What a study will do, from tokenizers and configurations alone: jobs, their items in order, and how these are packed.

Items stand in the order of their lengths, the shortest first and equals as they came, so that a batch has little
padding. "auto" packs so many of them as have about `tokens_at_once` tokens together and as the values of a layer have
room for; it depends on nothing but lengths and configuration, and stands in the manifest, item by item.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from interp.analyses.costs import AnalysisCost
from interp.analyses.last_logits import texts_that_fit
from interp.analyses.study.checks import models_of
from interp.analyses.study.data import items_of, sha256_of
from interp.analyses.study.file import AnalysisSpec, DataSpec, ModelSpec, Study
from interp.analyses.study.registry import tasks
from interp.analyses.study.task import Item, Task
from interp.errors import InterpError, UsageError
from interp.models.config import ModelConfig
from interp.models.families.registry import family_of
from interp.models.loading import DTYPES, open_checkpoint, resolved_device
from interp.models.sources.checkpoint import Checkpoint
from interp.runs import Job, Manifest

if TYPE_CHECKING:
    from interp.models.planner.speed import Speed
    from interp.models.tokenizer import Tokenizer

BYTES = 256 * 2**20
"""Memory that a batch which packs itself may take for its largest values."""
LONGEST_JOB = 100
MODEL_TOKENS = 1024  # what a whole model counts for, in place of a text


@dataclass(frozen=True)
class Opened:
    """A model of a study, opened and not loaded."""

    spec: ModelSpec
    key: str
    config: ModelConfig
    tokenizer: "Tokenizer | None"
    checkpoint: Checkpoint
    device: str

    @property
    def load_arguments(self) -> dict[str, Any]:
        """What `interp.load` is given."""
        spec = self.spec
        return {"name_or_path": spec.name, "revision": spec.revision, "dtype": spec.dtype, "device": self.device}

    def facts(self) -> dict[str, Any]:
        """What the manifest says of it. The hash of the weights reads them once, unless it is known."""
        tokenizer = None if self.tokenizer is None else self.tokenizer.sha256
        stated = {"name": self.key, "model": self.spec.name, "revision": self.spec.revision, "dtype": self.spec.dtype}
        return {
            **stated,
            "device": self.device,
            "weights_sha256": self.checkpoint.sha256(),
            "tokenizer_sha256": tokenizer,
        }


@dataclass(frozen=True)
class PlannedJob:
    """One analysis of one model: its items in the order in which they are done, and their lengths in tokens.

    The length of an item that has none, since it cannot be tokenized, is None, and `problems` say why.
    """

    name: str
    task: Task
    spec: AnalysisSpec
    settings: Any
    model: Opened
    items: Sequence[Item]
    lengths: Sequence[int | None]
    packing: Sequence[int]
    problems: Mapping[str, str] = field(default_factory=dict)

    def job(self) -> Job:
        """The job of a manifest."""
        ids = tuple(item.id for item in self.items)
        data = str(self.spec.data)
        return Job(self.name, self.model.key, self.task.name, data, self.spec.settings, ids, tuple(self.packing))


@dataclass(frozen=True)
class StudyPlan:
    """A study with its jobs. `data`: name → kind, hash and number of items, over all models."""

    study: Study
    jobs: Sequence[PlannedJob]
    data: Sequence[Mapping[str, object]]
    limit: int | None = None
    shard: tuple[int, int] | None = None

    def job(self, name: str) -> PlannedJob:
        """The job of this name."""
        return next(job for job in self.jobs if job.name == name)

    def cost(self, speed: "Speed | None" = None) -> AnalysisCost:
        """What the whole study will take: cells, operations, bytes, and seconds at a speed that is named."""
        from interp.analyses.study.costs import cost_of

        return cost_of(self, speed)

    def manifest(self) -> Manifest:
        """What a run directory is begun with. Hashes weights, tokenizers and data."""
        models = {job.model.key: job.model for job in self.jobs}
        dtypes, devices = {each.spec.dtype for each in models.values()}, {each.device for each in models.values()}
        return Manifest.new(
            self.study.name,
            [job.job() for job in self.jobs],
            settings={**self.study.stated(), "limit": self.limit},
            seed=self.study.seed,
            prefix=self.study.run.prefix,
            dtype=_only(dtypes),
            device=_only(devices),
            models=tuple(model.facts() for model in models.values()),
            data=tuple(self.data),
            shard=self.shard,
        )


def _only(values: Collection[str]) -> str:
    return next(iter(values)) if len(values) == 1 else "several"


def plan_study(study: Study, *, limit: int | None = None, shard: tuple[int, int] | None = None) -> StudyPlan:
    """The jobs of a study: each analysis of each of its models, over the first `limit` items of its data.

    Reads tokenizers, configurations and data, and no weights. Raises `LoadError` and `UsageError` for models and data
    that cannot be had, and where a shard does not exist.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"The limit is {limit}; expected a number of items from 1 on.")
    opened = [_opened(spec, key) for spec, key in zip(study.models, _keys(study.models), strict=True)]
    sources = {spec.name: spec for spec in study.data}
    hashes: dict[str, dict[str, tuple[str, int]]] = {}
    jobs, taken = [], set[str]()
    for model in opened:
        for spec in study.analyses:
            if model.spec not in models_of(study, spec):
                continue
            source = sources[str(spec.data)]
            items = items_of(source, model.tokenizer, study.seed)
            hashes.setdefault(source.name, {})[model.key] = sha256_of(items), len(items)
            jobs.append(_planned(study, spec, model, items[:limit], taken))
    return StudyPlan(study, jobs, [_data_facts(sources[name], each) for name, each in hashes.items()], limit, shard)


def _data_facts(spec: DataSpec, found: Mapping[str, tuple[str, int]]) -> dict[str, object]:
    """Name, kind, hash and number of items; items that differ from model to model are hashed together."""
    hashes = sorted({sha256 for sha256, _ in found.values()})
    together = hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    return {"name": spec.name, "kind": spec.kind, "sha256": together, "items": max(n for _, n in found.values())}


def _keys(models: Sequence[ModelSpec]) -> list[str]:
    """A name for each model that is safe in paths and stands for no other."""
    keys: list[str] = []
    for spec in models:
        stem = spec.name.rstrip("/").rsplit("/", 1)[-1] or "model"
        words = [stem, *([spec.revision] if spec.revision else []), *([spec.dtype] if spec.dtype != "float32" else [])]
        keys.append(_fresh(_safe("-".join(words)), {key.lower() for key in keys}))
    return keys


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:40] or "model"


def _fresh(name: str, taken: set[str]) -> str:
    """The name, or the name with a number behind it that nothing has yet; letters of both sizes count alike."""
    name = name[: LONGEST_JOB - 4]
    return next(
        each for each in (name, *(f"{name}-{number}" for number in range(2, 1000))) if each.lower() not in taken
    )


def _opened(spec: ModelSpec, key: str) -> Opened:
    checkpoint = open_checkpoint(spec.name, revision=spec.revision)
    # weights are hashed, and a vocabulary is read, once for plan, manifest and model
    checkpoint = replace(checkpoint, tokenizer=cache(checkpoint.tokenizer), sha256=cache(checkpoint.sha256))
    config, tokenizer = family_of(checkpoint).config(checkpoint), checkpoint.tokenizer()
    padded = None if tokenizer is None else tokenizer.padded_to(config.d_vocab)
    return Opened(spec, key, config, padded, checkpoint, str(resolved_device(spec.device)))


def _planned(study: Study, spec: AnalysisSpec, model: Opened, items: Sequence[Item], taken: set[str]) -> PlannedJob:
    task = tasks()[spec.analysis]
    settings = task.settings.model_validate(spec.settings)
    name = _fresh(f"{spec.label}-{model.key}", taken)
    taken.add(name.lower())
    lengths, problems = _lengths(study, task, settings, model, items)
    order = sorted(range(len(items)), key=lambda place: (lengths[place] is None, lengths[place] or 0))
    items, lengths = [items[place] for place in order], [lengths[place] for place in order]
    packing = list(_packing(study.run.batch_size, task, model, lengths))
    return PlannedJob(name, task, spec, settings, model, items, lengths, packing, problems)


def _lengths(
    study: Study, task: Task, settings: object, model: Opened, items: Sequence[Item]
) -> tuple[list[int | None], dict[str, str]]:
    """The tokens of each item, and why some have none."""
    if task.length is None:
        return [MODEL_TOKENS] * len(items), {}
    if model.tokenizer is None and study.run.prefix == "none" and task.kinds == ("repeated",):
        return [settings.seq_len * settings.repeats] * len(items), {}  # type: ignore[attr-defined]
    if model.tokenizer is None:
        raise UsageError(f"The model {model.spec.name!r} has no tokenizer, which {task.name} needs here.")
    lengths: list[int | None] = []
    problems = {}
    for item in items:
        try:
            lengths.append(task.length(model.tokenizer, item.value, settings, study.run.prefix))
        except InterpError as error:
            lengths.append(None)
            problems[item.id] = str(error)
    return lengths, problems


def _packing(batch_size: int | str, task: Task, model: Opened, lengths: Sequence[int | None]) -> Iterator[int]:
    """The sizes of the batches. An item without a length is alone."""
    if isinstance(batch_size, int):
        yield from (min(batch_size, len(lengths) - start) for start in range(0, len(lengths), batch_size))
        return
    size, itemsize = 0, DTYPES[model.spec.dtype].itemsize
    for length in lengths:
        longest = length or task.tokens_at_once  # lengths ascend, so that this one is the longest
        room = min(task.tokens_at_once // longest, texts_that_fit(model.config, itemsize, longest, BYTES))
        if size and size + 1 > room:
            yield size
            size = 0
        size += 1
    if size:
        yield size
