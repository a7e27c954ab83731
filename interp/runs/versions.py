"""Which code made a run: the versions of the libraries, and a hash of this package's own files."""

import functools
import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from interp import __version__

_LIBRARIES = ("torch", "numpy", "pyarrow")


def versions() -> dict[str, str]:
    """Versions of interp, Python and the libraries that compute and write, and the hash of our code."""
    libraries = {name: _version(name) for name in _LIBRARIES}
    return {"interp": __version__, "python": platform.python_version(), **libraries, "code": code_sha256()}


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


@functools.cache
def code_sha256() -> str:
    """SHA-256 over the package's Python files, the same for a wheel, an editable installation and a clone."""
    found = hashlib.sha256()
    for name, path in sorted(_modules(Path(__file__).parents[1])):
        content = path.read_bytes()
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def _modules(package: Path, prefix: str = "") -> list[tuple[str, Path]]:
    """Every Python file below a folder by its dotted place; links to folders are followed."""
    found = []
    for path in package.iterdir():
        if path.is_dir():
            found += _modules(path, f"{prefix}{path.name}.")
        elif path.suffix == ".py":
            found.append((f"{prefix}{path.stem}", path))
    return found
