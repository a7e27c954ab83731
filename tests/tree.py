"""Where the code stands: the four folders of the repository and the module names that they map to."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("interp", "models", "analyses", "apps")


def files(folder: str) -> list[Path]:
    """Every file of one top-level folder, relative to the repository; links are not followed, caches left out."""
    found = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path.relative_to(ROOT) for path in found if not path.name.startswith("."))


def modules() -> list[Path]:
    """Every Python module of the package."""
    return [path for folder in FOLDERS for path in files(folder) if path.suffix == ".py"]


def installed_as(path: Path) -> str:
    """The place of a repository file inside site-packages: `models/rope.py` becomes `interp/models/rope.py`."""
    return str(path if path.parts[0] == "interp" else Path("interp", path))


def dotted(path: Path) -> str:
    """The name a module is imported by: `models/rope.py` is `interp.models.rope`."""
    parts = Path(installed_as(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def local_links(markdown: str) -> list[str]:
    """Targets of links and pictures that lead to files of the repository, without their anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"", markdown)
    links = [(first or second).partition("#")[0] for first, second in targets]
    return [link for link in links if link and "://" not in link]
