"""What a run is: everything that its outcome follows from, written before the work and never changed.

The JSON document names the jobs, without their items, in its head, and items and packing at its end, under `plan`: a
run of a hundred thousand items opens as quickly as one of three.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from interp.errors import IntegrityError, LoadError, UsageError
from interp.named import jsonable, plain
from interp.runs.plan import Batch, Job, batches_of
from interp.runs.sealed import document, read_document, read_head
from interp.runs.versions import versions

FORMAT, SCHEMA = "interp-run", 1
MANIFEST = "manifest.json"
KINDS = ("study", "analysis")
_FIRST = 1 << 16
_RECORDS = ("settings", "models", "data", "versions", "jobs", "shard")
_FACTS = ("name", "kind", "created", "seed", "prefix", "dtype", "device")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Manifest:
    """The plan of a run and where everything in it comes from. All parts are frozen, and hold JSON values only.

    `models` and `data` are records with at least a `name`; `shard` is (i, n) where the run does only each n-th batch.
    Raises `UsageError` where parts do not fit together.
    """

    name: str
    jobs: tuple[Job, ...]
    kind: str = "study"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    prefix: str | None = None
    dtype: str | None = None
    device: str | None = None
    models: tuple[Mapping[str, Any], ...] = ()
    data: tuple[Mapping[str, Any], ...] = ()
    shard: tuple[int, int] | None = None
    versions: Mapping[str, str] = field(default_factory=versions)
    created: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        for part in ("settings", "models", "data", "versions"):
            object.__setattr__(self, part, plain(getattr(self, part), part))
        object.__setattr__(self, "jobs", tuple(self.jobs))
        _check(self)

    @classmethod
    def new(cls, name: str, jobs: Sequence[Job], **facts: Any) -> Self:
        """A manifest of now: the date and the versions are those of this process. `facts` are the class's fields."""
        return cls(name=name, jobs=tuple(jobs), **facts)

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Every batch of the study in its global order, those of other shards too."""
        return batches_of(self.jobs)

    def of_shard(self) -> tuple[Batch, ...]:
        """The batches that this run does: all, or those of its shard."""
        if self.shard is None:
            return self.batches
        mine, shards = self.shard
        return tuple(batch for batch in self.batches if batch.index % shards == mine - 1)

    @property
    def settings_sha256(self) -> str:
        """A hash of the resolved settings."""
        text = json.dumps(jsonable(self.settings), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def job(self, name: str) -> Job:
        """The job of this name."""
        return next(job for job in self.jobs if job.name == name)

    def unsharded(self) -> "Manifest":
        """The manifest of the whole study."""
        return replace(self, shard=None)

    def to_json(self) -> bytes:
        """The content of `manifest.json`."""
        head: dict[str, object] = {"format": FORMAT, "schema": SCHEMA}
        head |= {name: getattr(self, name) for name in _FACTS}
        head |= {"settings_sha256": self.settings_sha256, "shard": self.shard}
        head |= {name: jsonable(getattr(self, name)) for name in ("settings", "versions", "models", "data")}
        head["jobs"] = [_job_facts(job) for job in self.jobs]
        plan = {job.name: {"items": job.items, "packing": job.packing} for job in self.jobs}
        return document(head, {"plan": plan})

    @classmethod
    def from_json(cls, content: bytes, path: Path) -> Self:
        """Read what `to_json` wrote; `path` is for messages. Raises `LoadError`, and `IntegrityError` for changes."""
        try:
            facts, intact = read_document(content)
        except ValueError as error:
            raise LoadError(f"{path} is not valid JSON ({error}). {_ADVICE}") from error
        check_format(facts, path)
        if not intact:
            raise IntegrityError(f"{path} was changed after it was written: its hash does not fit. {_ADVICE}")
        try:
            jobs = [Job(**job, **facts["plan"][job["name"]]) for job in facts["jobs"]]
            kept = {name: facts[name] for name in (*_FACTS, "settings", "versions", "models", "data")}
            shard = None if facts["shard"] is None else tuple(facts["shard"])
            return cls(jobs=tuple(jobs), shard=shard, **kept)
        except (KeyError, TypeError, AttributeError, UsageError) as error:
            raise LoadError(f"{path} lacks parts of a manifest, or they do not fit ({error}). {_ADVICE}") from error


_ADVICE = "Take the run from a backup, or start a new one in another folder."


def _job_facts(job: Job) -> dict[str, object]:
    names = ("name", "model", "analysis", "data")
    return {**{name: getattr(job, name) for name in names}, "settings": jsonable(job.settings)}


_TEXT, _MAYBE_TEXT = (str,), (str, type(None))
_TYPES: dict[str, tuple[type, ...]] = {
    "name": _TEXT,
    "kind": _TEXT,
    "created": _TEXT,
    "seed": (int, type(None)),
    "prefix": _MAYBE_TEXT,
    "dtype": _MAYBE_TEXT,
    "device": _MAYBE_TEXT,
    "settings": (Mapping,),
    "versions": (Mapping,),
}


def _check_types(manifest: Manifest) -> None:
    """A manifest may come from a file, whose values can be anything."""
    wrong = [name for name, types in _TYPES.items() if not isinstance(getattr(manifest, name), types)]
    for name in ("models", "data"):
        records = getattr(manifest, name)
        if not isinstance(records, tuple) or not all(isinstance(each, Mapping) for each in records):
            wrong.append(name)
    shard = manifest.shard
    if shard is not None and not (isinstance(shard, tuple) and [type(each) for each in shard] == [int, int]):
        wrong.append("shard")
    if wrong:
        raise UsageError(f"These parts of the manifest have values of another type than expected: {', '.join(wrong)}.")


def _check(manifest: Manifest) -> None:
    _check_types(manifest)
    names = [job.name.lower() for job in manifest.jobs]
    if not names or len(set(names)) != len(names):
        raise UsageError(f"The run has the jobs {names}: expected at least one, each of another name.")
    if manifest.kind not in KINDS:
        raise UsageError(f"The run's kind is {manifest.kind!r}: expected one of {', '.join(KINDS)}.")
    if manifest.shard is not None:
        mine, shards = manifest.shard
        if not 1 <= mine <= shards:
            raise UsageError(f"Shard {mine}/{shards} does not exist: expected 1/{shards} to {shards}/{shards}.")


def check_format(facts: Mapping[str, Any], path: Path) -> None:
    """Raises `LoadError` where the facts are not those of a run, or of a schema that is not known here."""
    if facts.get("format") != FORMAT:
        raise LoadError(f'{path} is not the manifest of a run: expected "format": "{FORMAT}" in it.')
    if facts.get("schema") != SCHEMA:
        found = facts.get("schema")
        newer = isinstance(found, int) and found > SCHEMA
        advice = "A newer interp wrote it: update interp." if newer else "Use the version of interp that wrote it."
        raise LoadError(f"{path} has schema {found!r}, this interp reads schema {SCHEMA}. {advice}")


def read_manifest(folder: Path) -> Manifest:
    """The whole manifest of a run directory."""
    path = folder / MANIFEST
    return Manifest.from_json(_bytes(path), path)


def read_manifest_head(folder: Path) -> dict[str, Any]:
    """The manifest without its plan, checked; the file is read no further than that."""
    path = folder / MANIFEST
    content = _bytes(path, _FIRST)
    try:
        facts, intact = read_head(content)
    except ValueError:
        try:
            facts, intact = read_head(_bytes(path))
        except ValueError as error:
            raise LoadError(f"{path} is not valid JSON ({error}). {_ADVICE}") from error
    check_format(facts, path)
    if not intact:
        raise IntegrityError(f"{path} was changed after it was written: its hash does not fit. {_ADVICE}")
    if not all(isinstance(facts.get(name), str) for name in ("name", "kind")) or not _named(facts.get("jobs")):
        raise LoadError(f"{path} does not say what the run and its jobs are called. {_ADVICE}")
    return facts


def _named(jobs: object) -> bool:
    """Whether these are jobs with names; the rest of them is checked when the whole manifest is read."""
    return isinstance(jobs, list) and all(isinstance(job, dict) and isinstance(job.get("name"), str) for job in jobs)


def _bytes(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LoadError(
            f"{path.parent} is not a run: expected a folder with {MANIFEST} in it, as `interp run` and --out write."
        ) from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from error
