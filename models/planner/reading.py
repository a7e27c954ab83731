"""The shape of a model by any of its names; of a folder or a configuration file without any weights beside it."""

import os
import reprlib
from pathlib import Path

from interp.errors import LoadError
from interp.models.config import ModelConfig
from interp.models.loading import preset_named, read_config
from interp.models.presets import stated_shape
from interp.models.sources.files import file_of, read_json

MOST_LAYERS = 10_000
"""More than any model has: a file that states more is damaged."""
_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")


def read_shape(name_or_path: str | os.PathLike[str], *, revision: str | None = None) -> ModelConfig:
    """The shape of a preset, a config.json or the folder that holds it, a `.gguf` file, a known name or a hub id.

    Raises `LoadError` where there is no such model, or its configuration is none.
    """
    path = Path(os.path.expanduser(name_or_path))
    if revision is None and preset_named(name_or_path) is None:
        if path.suffix == ".json" and path.is_file():
            return _stated(path)
        if path.is_dir() and (config := file_of(path, "config.json")) is not None:
            return _stated(config)
    return read_config(name_or_path, revision=revision)


def _stated(path: Path) -> ModelConfig:
    fields = read_json(path)
    match fields.get("architectures"):
        case [str(architecture)]:
            _check_layers(path, fields)
            return stated_shape(str(path), architecture, fields)
        case stated:
            raise LoadError(f"{path} must name one architecture under 'architectures', not {reprlib.repr(stated)}.")


def _check_layers(path: Path, fields: dict[str, object]) -> None:
    inner = fields.get("text_config")
    for key, value in {**(inner if isinstance(inner, dict) else {}), **fields}.items():
        if key in _LAYERS and isinstance(value, int) and value > MOST_LAYERS:
            raise LoadError(f"{path} states {value} layers; at most {MOST_LAYERS:,} were expected.")
