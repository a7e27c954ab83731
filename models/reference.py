"""The same weights in `transformers`, where it is installed and can read what they came from.

Only `interp models verify` asks for this: nothing else in the package needs that library.
"""

import contextlib
import importlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from interp.errors import UsageError


class NoReferenceError(UsageError):
    """There is nothing to compare with; the message says why."""


def reference(source: str, *, dtype: torch.dtype, device: torch.device) -> tuple[str, torch.nn.Module]:
    """The name of the reference and its model, from a folder, a `.gguf` file or `org/name@commit` in the local cache.

    Raises `NoReferenceError` where the library is missing, or cannot read this source whole.
    """
    try:
        library: Any = importlib.import_module("transformers")  # by name: it is no dependency of ours
    except ImportError as error:
        raise NoReferenceError("transformers is not installed") from error
    where, options = _arguments(source)
    with _silence(library):
        try:
            model, report = library.AutoModelForCausalLM.from_pretrained(
                where,
                dtype=dtype,
                attn_implementation="eager",
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
        except Exception as error:  # whatever it stumbles over, it cannot read this
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise NoReferenceError(f"transformers cannot read it: {reason}") from error
    if report.get("missing_keys") or report.get("mismatched_keys"):
        raise NoReferenceError("transformers does not find all of its weights there")
    name = f"transformers {library.__version__}, {type(model).__name__}"
    return name, model.to(device).eval().requires_grad_(False)


def _arguments(source: str) -> tuple[str, dict[str, str]]:
    """How `from_pretrained` is told of a source."""
    path = Path(source)
    if not source:
        raise NoReferenceError("it does not say where its weights came from")
    if path.is_file():
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir():
        return str(path), {}
    repository, at, revision = source.partition("@")
    if not at:
        raise NoReferenceError(f"{source} is neither a file nor a folder")
    return repository, {"revision": revision}


@contextlib.contextmanager
def _silence(library: Any) -> Iterator[None]:
    """The library's progress bars and advice are not ours to print."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # bars that it draws in spite of that go to the stderr of the moment
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
