"""The settings that a study may give to an analysis, one model each: what is misspelt or out of range is refused early.

They carry the names of the analysis' own keywords. Seed and prefix stand in the study itself, so that they hold for
everything in it, and what depends on which items share a batch (means over a batch, partners from it) is not here.
"""

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from interp.analyses.attribution_runs import By
from interp.analyses.knockout import Block
from interp.analyses.knowledge_neurons import Position
from interp.analyses.lens_facts import At
from interp.analyses.lens_parts import Of
from interp.analyses.patching_runs import Direction
from interp.analyses.projection import FinalNorm
from interp.analyses.removal import Method
from interp.analyses.sites import SITES, Site
from interp.analyses.study.file import Table, Text, refused
from interp.analyses.sublayer_knockout import ReplacedBy
from interp.analyses.trace_settings import Kind, Sublayer

Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Budget = Annotated[int, Field(ge=2**20, description="bytes, a whole number from 1048576 on")]
HeadName = Annotated[str, Field(pattern=r"^\d{1,6}\.\d{1,6}$", description='a head such as "18.6"')]
Layers = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None


def _positions(value: object) -> list[int] | None:
    if value is None or value == "all":
        return None
    if isinstance(value, list) and value and all(type(each) is int for each in value) and len(set(value)) == len(value):
        return value
    raise refused('"all", or a list of different whole numbers; -1 is the last token')


Positions = Annotated[list[int] | None, PlainValidator(_positions)]


class LensSettings(Table):
    """Where the stream is read, and how many of the likeliest tokens are kept."""

    positions: Positions = Field(default=[-1])
    top_k: Annotated[int, Field(ge=1, le=1000)] = 1


class LensPartsSettings(LensSettings):
    """The same of parts of the stream."""

    of: Of = "sublayer"


class RepeatedSettings(Table):
    """The layout of repeated random texts, and which tokens these never hold."""

    seq_len: Annotated[int, Field(ge=2, le=1_000_000)] = 50
    repeats: Annotated[int, Field(ge=2, le=1000)] = 2
    exclude_most: Count = 0
    exclude_least: Count = 0


class AtlasSettings(RepeatedSettings):
    """What of a model's heads is measured, on which texts."""

    exclude_most: Literal[0] = 0
    exclude_least: Literal[0] = 0
    n_seqs: Positive = 16
    n_documents: Positive = 8
    doc_len: Positive = 256
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.1
    copying: bool = True


class CompositionSettings(Table):
    """Which layers compose, and what stands for chance."""

    fold: bool = True
    layers: Layers = None
    baseline_draws: Annotated[int, Field(ge=2, le=10_000)] = 20


class HeadAblationSettings(RepeatedSettings):
    """Which heads are taken away, by what, and how many others stand beside each."""

    heads: Annotated[list[HeadName], Field(min_length=1, description='a list of heads such as ["18.6", "17.3"]')]
    method: Method = "mean"
    controls: Count = 20
    alone: bool = True
    seq_len: Annotated[int, Field(ge=2, le=1_000_000)] = 25
    n_seqs: Annotated[int, Field(ge=2, le=1_000_000)] = 8


class PatchingSettings(Table):
    """What is patched between the runs of a pair, and what is measured."""

    site: Site
    by: Annotated[list[Text], Field(min_length=1)] | None = None
    direction: Direction = "denoise"
    metric: Literal["logit_difference", "logit", "probability", "log_probability"] = "logit_difference"
    window: Positive = 1
    layers: Layers = None
    budget: Budget = 2**30

    @field_validator("by")
    @classmethod
    def _of_the_site(cls, value: list[str] | None, info: ValidationInfo) -> list[str] | None:
        there = SITES[info.data["site"]].axes if "site" in info.data else ()
        if value is not None and there and (not set(value) <= set(there) or len(set(value)) < len(value)):
            raise refused(f"some of {', '.join(there)}, each once: the axes of the site {info.data['site']}")
        return value

    @property
    def axes(self) -> tuple[str, ...]:
        """What the sweep runs over."""
        return SITES[self.site].usual if self.by is None else tuple(self.by)


class AttributionPatchingSettings(PatchingSettings):
    """The same, estimated from a gradient; sublayers are patched one layer at a time."""

    window: Literal[1] = 1


class TracingSettings(Table):
    """What is restored, under which noise."""

    kinds: list[Kind] = Field(default=["resid", "mlp", "attn"], min_length=1)
    severed: list[Sublayer] = Field(default=[])
    noise: Annotated[str, Field(pattern=r"^u?s?\d+(\.\d+)?$", description='noise such as "s3", "us3", "0.3"')] = "s3"
    samples: Positive = 10
    window: Positive = 10
    budget: Budget = 2**30


class KnockoutSettings(Table):
    """What the last token cannot read, in how many layers at once."""

    blocks: list[Block] = Field(default=["subject", "non_subject", "last", "random"], min_length=1)
    window: Positive = 5
    layers: Layers = None
    draws: Positive = 3
    budget: Budget = 2**30


class SublayerKnockoutSettings(Table):
    """Which sublayers are replaced at the subject, by what."""

    sublayers: list[Sublayer] = Field(default=["mlp", "attn"], min_length=1)
    methods: list[ReplacedBy] = Field(default=["mean", "zero"], min_length=1)
    window: Positive = 5
    layers: Layers = None
    budget: Budget = 2**30


class FactLensSettings(Table):
    """At which token of a fact the stream is read."""

    at: At = "last"


class NoSettings(Table):
    """For analyses that have nothing to set beside seed and prefix."""


class AttributionSettings(Table):
    """What the logit is taken apart into."""

    by: By = "head"


class MemoriesSettings(Table):
    """Which neurons of which layers are told, and how many words of each."""

    layer: Layers = None
    position: int = -1
    top_k: Positive = 10
    words: Positive = 5
    final_norm: FinalNorm = "gain"


class KnowledgeNeuronsSettings(Table):
    """Whose neurons are looked at, and which count as carrying a fact."""

    position: Position = "last"
    steps: Positive = 20
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.2
    share: Annotated[float, Field(gt=0, le=1)] = 0.7
    layers: Layers = None


class InContextSettings(Table):
    """Which tokens of a document are compared."""

    early: Positive = 50
    late: Positive = 500
    width: Positive = 1
