"""Weights from the Hugging Face hub: the local hub cache first, the network only for what is not there."""

from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils.tqdm import tqdm

from interp.errors import LoadError
from interp.models.sources.checkpoint import Checkpoint
from interp.models.sources.safetensors import open_folder

_FILES = [
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
]


class _Silent(tqdm):
    """The hub's progress bar, kept off the terminal: drawing is for apps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]


def open_hub(repository: str, revision: str | None = None) -> Checkpoint:
    """Open `org/name` at a branch, tag or commit (default: main). Raises `LoadError` if it cannot be had."""
    folder = _cached(repository, revision)
    if folder is None or not (folder / "tokenizer.json").is_file():
        folder = _fetched(repository, revision, folder)
    source = f"{repository}@{folder.name}"  # a snapshot's folder is named after its commit
    if not any(folder.glob("model*.safetensors")):
        raise LoadError(
            f"{source} has no complete safetensors weights in the local cache: either they could not be fetched "
            "without a network, or the repository holds only pickles, which are never opened here. Convert those with "
            "transformers: AutoModelForCausalLM.from_pretrained(name).save_pretrained(folder); then load that folder."
        )
    return open_folder(folder, source=source)


def _cached(repository: str, revision: str | None) -> Path | None:
    """The snapshot in the local cache, if its weights are complete."""
    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=_FILES, local_files_only=True))
        open_folder(folder)
    except (OSError, ValueError, LoadError):
        return None
    return folder


def _fetched(repository: str, revision: str | None, fallback: Path | None) -> Path:
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=_FILES, tqdm_class=_Silent))
    except (OSError, ValueError, HfHubHTTPError) as error:
        if fallback is not None:
            return fallback
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        raise LoadError(
            f"{repository}{f' at {revision}' if revision else ''} is not in the local Hugging Face cache and could "
            f"not be fetched: {reason}. To provide it by hand, download its config.json, safetensors and "
            "tokenizer.json where there is a network, and load that folder."
        ) from error
