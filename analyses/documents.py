"""Texts as people write them, for what random tokens cannot show: documents of ours, or a user's files.

The bundled documents were written for this package, so that no model older than it has read them: essays, stories,
letters, minutes, a recipe, the rules of a game and others, each of at least 640 tokens of SmolLM2 and 600 of Gemma.

What they do NOT stand for: language at large. They are English prose of one hand, so that a loss on them compares
places, heads or models, and is no measure of how good a model is.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from interp.errors import LoadError

SUFFIX = ".txt"


@dataclass(frozen=True)
class Document:
    """One text and the name that tables show it under."""

    name: str
    text: str


def bundled() -> tuple[Document, ...]:
    """The documents that come with this package, ordered by name."""
    folder = resources.files("interp.analyses.texts") / "documents"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(SUFFIX)), key=lambda file: file.name)
    return tuple(Document(file.name.removesuffix(SUFFIX), file.read_text(encoding="utf-8")) for file in files)


def read_documents(path: str | Path) -> tuple[Document, ...]:
    """The documents in a `.txt` file, or in all those of a folder (not of folders inside it), ordered by name.

    Raises `LoadError` for what is absent, empty or no UTF-8, for a folder without such a file, and for other suffixes.
    """
    path = Path(path)
    if not path.exists():
        raise LoadError(f"There is no file or folder {path}; expected a {SUFFIX} file or a folder of them.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == SUFFIX and file.is_file())
        if not files:
            raise LoadError(f"The folder {path} holds no {SUFFIX} file; put a document a file there, as UTF-8.")
        return tuple(map(_read, files))
    if path.suffix != SUFFIX:
        raise LoadError(f"{path} is no {SUFFIX} file; save the document as plain text in UTF-8 under such a name.")
    return (_read(path),)


def _read(file: Path) -> Document:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadError(f"The document {file} is not UTF-8 ({error.reason} at byte {error.start}).") from error
    except OSError as error:
        raise LoadError(f"The document {file} cannot be read: {error}.") from error
    if not text.strip():
        raise LoadError(f"The document {file} is empty.")
    return Document(file.stem, text)


def sha256_of(documents: Iterable[Document]) -> str:
    """One hash of all texts in their order; names do not count."""
    each = (hashlib.sha256(document.text.encode()).digest() for document in documents)
    return hashlib.sha256(b"".join(each)).hexdigest()
