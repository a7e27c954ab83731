"""What a study file holds: models, data, analyses, how to run and what to write, as checked and frozen values.

    name = "who-reads-what"

    [[models]]
    name = "smollm2-135m"

    [[analyses]]
    analysis = "induction"

Everything else has a default. Unknown keys are refused, and so are values of another type: "8" is no number. What the
settings of an analysis may be, its task says (`interp.analyses.study.settings`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from interp.models.prompt_formats import PrefixPolicy

Kind = Literal["prompts", "pairs", "facts", "documents", "repeated", "model"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Builder = Literal["ioi", "greater-than", "capitals", "country-swap", "agreement", "gender"]
Dtype = Literal["float32", "bfloat16", "float16", "float64"]

LONGEST_NAME = 60
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}", re.ASCII)
NAME_RULE = f"a name of letters, digits, dots, hyphens and underscores, {LONGEST_NAME} at most, a letter or digit first"


def refused(allowed: str) -> ValueError:
    """The error of a value that a rule of ours refuses; `allowed` says what would have been taken."""
    return ValueError(allowed)


def _name(value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise refused(NAME_RULE)


def _batch_size(value: object) -> int | str:
    if value == "auto" or (type(value) is int and 1 <= value <= 1_000_000):
        return value
    raise refused('"auto", or a whole number from 1 to 1000000')


def _source(value: object) -> str | list[str | dict[str, object]] | None:
    """A path, "bundled", or items written out: texts, or tables of texts."""
    if value is None or (isinstance(value, str) and value and "\0" not in value):
        return value
    if isinstance(value, list) and value and all(map(_is_item, value)):
        return value
    raise refused('a path, "bundled", or a list of texts or of tables of texts that is not empty')


def _is_item(item: object) -> bool:
    fields = item.values() if isinstance(item, Mapping) else [item]
    lists = (each for field in fields for each in (field if isinstance(field, list) and field is not item else [field]))
    return bool(fields) and all(isinstance(each, str) for each in lists)


Name = Annotated[str, PlainValidator(_name)]
BatchSize = Annotated[int | str, PlainValidator(_batch_size)]
Source = Annotated[str | list[str | dict[str, object]] | None, PlainValidator(_source)]
Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Table(BaseModel):
    """A table of a study file: no keys but its own, no values of another type, nothing infinite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ModelSpec(Table):
    """One model, by the names that `interp.load` takes."""

    name: Annotated[Text, Field(description="a known name, a folder, a .gguf file or a hub id")]
    revision: Text | None = None
    dtype: Dtype = "float32"
    device: Text | None = None


class DataSpec(Table):
    """Where items come from.

    `source`: a file, by its path relative to the study file; a list of the items themselves; or "bundled", the default
    where there is something bundled. `relations` picks facts, `builder` makes `count` pairs, and of all else the first
    `count` are taken.
    """

    name: Annotated[Name, Field(description=NAME_RULE)]
    kind: Annotated[Kind, Field(description=f"one of {', '.join(KINDS)}")]
    source: Source = None
    relations: Annotated[list[Text], Field(min_length=1)] | None = None
    builder: Builder | None = None
    count: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    seed: Seed | None = None


class AnalysisSpec(Table):
    """One question: which analysis, of which data, with which settings, put to all models or to some."""

    analysis: Annotated[Text, Field(description="the name of an analysis")]
    name: Name | None = None
    data: Text | None = None
    models: Annotated[list[Text], Field(min_length=1)] | None = None
    settings: dict[str, object] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """What its jobs are called: its own name, or that of the analysis."""
        return self.name or self.analysis


class RunSpec(Table):
    """How the work is done. `workers` and `max_failures` change nothing of what is found."""

    batch_size: BatchSize = "auto"
    prefix: PrefixPolicy = "doc"
    max_failures: Annotated[int, Field(ge=0)] | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 1


class OutputSpec(Table):
    """What is written beside the tables: whole results with their arrays, and figures."""

    folder: Text | None = None
    arrays: bool = False
    figures: bool = False


class Study(Table):
    """A study as its file states it, defaults filled in; paths of data are absolute."""

    name: Annotated[Name, Field(description=NAME_RULE)]
    seed: Seed = 0
    models: Annotated[list[ModelSpec], Field(min_length=1, description="a list of tables, [[models]]")]
    data: list[DataSpec] = Field(default_factory=list)
    analyses: Annotated[list[AnalysisSpec], Field(min_length=1, description="a list of tables, [[analyses]]")]
    run: RunSpec = RunSpec()
    outputs: OutputSpec = OutputSpec()

    def stated(self) -> dict[str, object]:
        """All of it that what is found depends on, as plain values: what a run's manifest keeps."""
        whole = self.model_dump(mode="json")
        for name in ("workers", "max_failures"):
            del whole["run"][name]
        del whole["outputs"]["folder"]
        return whole
