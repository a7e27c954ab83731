"""The studies that come along, by name: files in `interp.analyses.studies`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from interp.analyses import studies


@cache
def ready_studies() -> Mapping[str, Path]:
    """Name → file, ordered by name."""
    files = [file for folder in studies.__path__ for file in Path(folder).glob("*.toml")]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}
