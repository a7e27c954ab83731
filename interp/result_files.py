"""Results as folders of files: `manifest.json`, `arrays.safetensors`, `text.json` and `table.parquet`.

The manifest names everything and holds the SHA-256 of the other files and of itself. Numbers are read back from
safetensors and text from JSON, so a round trip keeps every bit; the Parquet table is the default long table, for
other tools. Nothing is pickled, and nothing that a file says is run: a kind's class comes from this package or
from a module that is imported already.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from interp.atomic import fresh_folder
from interp.errors import LoadError, UsageError
from interp.named import NamedArray, jsonable
from interp.results import Result, kind_class

FORMAT = "interp-result"
VERSION = 1
MANIFEST, ARRAYS, TEXT, TABLE = "manifest.json", "arrays.safetensors", "text.json", "table.parquet"
ADVICE = "The folder is damaged or incomplete: take it from a backup or compute the result again."


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _seal(manifest: dict[str, Any]) -> str:
    """The hash of everything in the manifest but the hash itself."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return _digest(json.dumps(body, sort_keys=True).encode())


def is_result(folder: Path) -> bool:
    """True if the folder holds a manifest of ours (whether or not the rest is intact)."""
    return _format(folder) == FORMAT


def _format(folder: Path) -> object:
    """What the manifest in a folder calls itself; None where there is none."""
    try:
        return json.loads((folder / MANIFEST).read_bytes()).get("format")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def _manifest(result: Result, files: dict[str, bytes]) -> dict[str, Any]:
    shapes = {
        name: {"axes": list(array.axes), "dtype": array.values.dtype.name, "shape": list(array.values.shape)}
        for name, array in result.arrays.items()
    }
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "kind": result.kind,
        "module": type(result).__module__,
        "title": result.title,
        "arrays": shapes,
        "axes": jsonable(result.axes),
        "settings": jsonable(result.settings),
        "provenance": jsonable(result.provenance),
        "files": {name: {"bytes": len(content), "sha256": _digest(content)} for name, content in files.items()},
    }
    return {**manifest, "sha256": _seal(manifest)}


def write(result: Result, folder: Path) -> Path:
    """Save a result; see `Result.save`."""
    from io import BytesIO

    numbers = {name: array.values for name, array in result.arrays.items() if not array.is_text}
    text = {name: list(array.values.flat) for name, array in result.arrays.items() if array.is_text}
    table = BytesIO()
    result.to_frame().to_parquet(table, index=False)
    files = {ARRAYS: save_arrays(numbers), TEXT: json.dumps(text).encode(), TABLE: table.getvalue()}
    manifest = json.dumps(_manifest(result, files), indent=1).encode()
    with fresh_folder(folder, is_result) as fresh:
        for name, content in {**files, MANIFEST: manifest}.items():
            (fresh / name).write_bytes(content)
    return folder


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise LoadError(
            f"{folder} is not a saved result: expected a folder with {MANIFEST} in it, as Result.save writes."
        )
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise LoadError(f"{path} is not valid JSON ({error}). {ADVICE}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise LoadError(f'{path} is not the manifest of a result: expected "format": "{FORMAT}" in it.')
    if manifest.get("version") != VERSION:
        raise LoadError(
            f"{path} has format version {manifest.get('version')!r}, this interp reads version {VERSION}. "
            "Use the version of interp that wrote it."
        )
    if manifest.get("sha256") != _seal(manifest):
        raise LoadError(f"{path} was changed after it was written: its hash does not fit its content. {ADVICE}")
    return manifest


def _in_run(folder: Path) -> Path:
    """The folder itself, or where it is a run that keeps one result, the folder of that."""
    from interp.runs.manifest import FORMAT as RUN

    if _format(folder) != RUN:
        return folder
    from interp.runs.saved import only_result

    return only_result(folder)


def _read_file(folder: Path, name: str, manifest: dict[str, Any]) -> bytes:
    path, expected = folder / name, manifest["files"][name]
    if not path.is_file():
        raise LoadError(f"{path} is missing. {ADVICE}")
    content = path.read_bytes()
    if len(content) != expected["bytes"] or _digest(content) != expected["sha256"]:
        raise LoadError(
            f"{path} is not what was written: {len(content)} bytes came, {expected['bytes']} of a given hash were "
            f"expected. {ADVICE}"
        )
    return content


def read(folder: Path) -> dict[str, Any]:
    """The class and the constructor arguments of a saved result; see `Result.load`."""
    folder = _in_run(folder)
    manifest = _read_manifest(folder)
    contents = {name: _read_file(folder, name, manifest) for name in (ARRAYS, TEXT, TABLE)}
    text = json.loads(contents[TEXT])
    try:
        numbers = load_arrays(contents[ARRAYS])
        arrays = {name: _array(name, facts, numbers, text) for name, facts in manifest["arrays"].items()}
    except (SafetensorError, KeyError, ValueError, UsageError) as error:
        raise LoadError(f"The arrays in {folder} do not fit its manifest ({error}). {ADVICE}") from error
    parts = {part: manifest[part] for part in ("axes", "settings", "provenance")}
    return {"class": kind_class(manifest["kind"], manifest["module"]), "arrays": arrays, **parts}


def _array(name: str, facts: dict[str, Any], numbers: dict[str, np.ndarray], text: dict[str, list[str]]) -> NamedArray:
    if facts["dtype"] != "object":
        return NamedArray(numbers[name], facts["axes"])
    cells = np.empty(len(text[name]), dtype=object)
    cells[:] = text[name]
    return NamedArray(cells.reshape(facts["shape"]), facts["axes"])
