"""What a model is, told from its configuration: no weights are read, but for the hash that names them."""

import os
from dataclasses import dataclass

from interp.models.config import ModelConfig
from interp.models.families.registry import family_of
from interp.models.loading import known_models, open_checkpoint, preset_named
from interp.models.sources.files import Progress
from interp.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Description:
    """A model by its shape and its origin; what its files do not say is None."""

    name: str
    config: ModelConfig
    source: str
    """The file, folder or hub id, or where the figures of a preset were published."""
    is_preset: bool = False
    """Whether only the shape is known here, and there are no weights."""
    published_as: str | None = None
    published_at: str | None = None
    licence: str | None = None
    weights_sha256: str | None = None
    tokenizer: Tokenizer | None = None


def describe(
    name_or_path: str | os.PathLike[str], *, revision: str | None = None, progress: Progress | None = None
) -> Description:
    """Describe a preset, or whatever `load` takes: a known name, a `.gguf` file, a folder or a hub id.

    The hash reads every byte of the weights once, unless it is known already. Raises what `load` raises.
    """
    name = os.fspath(name_or_path)
    if revision is None and (shape := preset_named(name)) is not None:
        return Description(name=name, config=shape.config, source=shape.source, is_preset=True, licence=shape.licence)
    checkpoint = open_checkpoint(name_or_path, revision=revision, progress=progress)
    config, tokenizer = family_of(checkpoint).config(checkpoint), checkpoint.tokenizer()
    known = next((model for model in known_models() if model.name == name), None)
    stated = checkpoint.fields.get("general.license")
    return Description(
        name=name,
        config=config,
        source=checkpoint.source,
        published_as=known.description if known else None,
        published_at=known.source if known else None,
        licence=known.licence if known else stated if isinstance(stated, str) else None,
        weights_sha256=checkpoint.sha256(),
        tokenizer=None if tokenizer is None else tokenizer.padded_to(config.d_vocab),
    )
