"""Published models by their shape: for counting parameters, bytes and points before any weights are here.

Their figures stand in `preset_shapes.py`, in the words of the published configurations, and are read by the family that
would load such a model.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from interp.errors import UsageError, nearest
from interp.models.config import ModelConfig
from interp.models.families.registry import family_named
from interp.models.preset_shapes import SHAPES
from interp.models.sources.checkpoint import Checkpoint


@dataclass(frozen=True)
class Preset:
    """One published shape. `repository` is where its configuration file is published."""

    name: str
    architecture: str
    repository: str
    licence: str
    fields: Mapping[str, object] = field(repr=False)

    @property
    def source(self) -> str:
        """Where the figures come from."""
        return f"config.json of {self.repository}"

    @property
    def config(self) -> ModelConfig:
        """The shape, as loading the published files would give it."""
        return stated_shape(f"the preset {self.name}", self.architecture, self.fields)


def stated_shape(source: str, architecture: str, fields: Mapping[str, object]) -> ModelConfig:
    """The shape that a published configuration states, without any weights.

    Raises `LoadError` for an architecture that no family reads, and for a configuration that is none.
    """
    checkpoint = Checkpoint(
        source=source,
        layout="hf",
        architecture=architecture,
        fields=fields,
        shapes={},
        read=_nothing_to_read,
        tokenizer=lambda: None,
        sha256=lambda: "",
    )
    return family_named(checkpoint).config(checkpoint)


@functools.cache
def presets() -> Mapping[str, Preset]:
    """All presets by name."""
    return {
        name: Preset(name, architecture, repository, licence, fields)
        for (architecture, licence), named in SHAPES.items()
        for name, (repository, fields) in named.items()
    }


def preset(name: str) -> Preset:
    """The preset of that name; `UsageError` with the nearest where there is none."""
    if name not in presets():
        raise UsageError(f"No preset is called {name!r}.{nearest(name, presets())} There are {', '.join(presets())}.")
    return presets()[name]


def _nothing_to_read(name: str, rows: slice | None = None) -> Tensor:
    raise UsageError(f"A preset is a shape without weights, so {name} cannot be read from it.")
