"""Malformed study files, made from a valid one by seeded mutations: keys lost or misspelt, values of other types.

`run(folder, count, first)` loads so many of them, and tells what was neither refused in words nor a valid study.
"""

import copy
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interp.analyses.study import Study, StudyError, load_study

VALID: dict[str, Any] = {
    "name": "all-of-it",
    "seed": 3,
    "models": [
        {"name": "smollm2-135m", "dtype": "float32"},
        {"name": "org/other", "revision": "step1", "device": "cpu"},
    ],
    "data": [
        {"name": "texts", "kind": "prompts", "source": ["a text", {"prompt": "another", "answer": " b", "id": "x"}]},
        {"name": "pairs", "kind": "pairs", "builder": "ioi", "count": 4, "seed": 1},
        {"name": "facts", "kind": "facts", "relations": ["capital"]},
        {"name": "sequences", "kind": "repeated", "count": 5},
    ],
    "analyses": [
        {"analysis": "lens", "data": "texts", "settings": {"positions": [-1, 0], "top_k": 3}},
        {"analysis": "patching", "name": "heads", "settings": {"site": "z", "by": ["layer", "head"], "layers": [0]}},
        {"analysis": "tracing", "settings": {"kinds": ["mlp"], "samples": 2, "noise": "s3", "window": 3}},
        {"analysis": "induction", "models": ["smollm2-135m"], "settings": {"seq_len": 9, "repeats": 3}},
        {"analysis": "head-ablation", "settings": {"heads": ["1.2"], "alone": False}},
        {"analysis": "knowledge-neurons", "settings": {"threshold": 0.3}},
    ],
    "run": {"batch_size": 8, "prefix": "none", "max_failures": 3, "workers": 2},
    "outputs": {"folder": "out", "arrays": True, "figures": False},
}

VALUES: list[Any] = [
    *(0, -1, 2**70, 1.5, -0.0, math.inf, math.nan, True, "", " ", "auto", "x" * 500, "\x1b[31m", "a\x00b", "é\u202e"),
    *(
        [],
        [[]],
        {},
        [1, "a"],
        {"a": 1},
        [{}],
        "smollm2-135m",
        "facts",
        "../..",
        "~nobody/x",
        [True],
        [-1, -1],
        {"name": 3},
    ),
]

Mutation = Callable[[random.Random, dict[str, Any]], None]


def toml(value: object) -> str:
    """A value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value)
    return json.dumps(value)


def written(study: dict[str, Any]) -> str:
    """A study as TOML, a key a line."""
    return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in study.items())


def _places(value: object, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (table or list, key or place) in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found.append((value, key))
        _places(each, found)
    return found


def _somewhere(rng: random.Random, study: dict[str, Any]) -> tuple[Any, Any]:
    return rng.choice(_places(study, []))


def delete(rng: random.Random, study: dict[str, Any]) -> None:
    holder, key = _somewhere(rng, study)
    del holder[key]


def retype(rng: random.Random, study: dict[str, Any]) -> None:
    holder, key = _somewhere(rng, study)
    holder[key] = copy.deepcopy(rng.choice(VALUES))


def misspell(rng: random.Random, study: dict[str, Any]) -> None:
    holder, key = rng.choice([(holder, key) for holder, key in _places(study, []) if isinstance(key, str)])
    place = rng.randrange(len(key))
    changed = rng.choice(
        [key[:place] + key[place + 1 :], key[:place] + rng.choice("xyz_- ") + key[place:], key.upper()]
    )
    holder[changed] = holder.pop(key)


def double(rng: random.Random, study: dict[str, Any]) -> None:
    holder, key = _somewhere(rng, study)
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[key] = [copy.deepcopy(holder[key])] * 2


def swap(rng: random.Random, study: dict[str, Any]) -> None:
    (one, first), (other, second) = _somewhere(rng, study), _somewhere(rng, study)
    one[first], other[second] = copy.deepcopy(other[second]), copy.deepcopy(one[first])


MUTATIONS: list[Mutation] = [delete, retype, misspell, double, swap]


def broken(rng: random.Random, text: str) -> bytes:
    """The text with some characters lost, doubled or foreign."""
    content = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(content))
        change = rng.choice(
            [b"", b"[", b'"', b"=", b"\n", b"\xff", b"\x00", b"{", b"#", bytes(content[place : place + 9])]
        )
        content[place : place + rng.choice([0, 1, 20])] = change
    return bytes(content)


def malformed(seed: int) -> tuple[bytes, list[str]]:
    """A study file, and the names of what was done to it."""
    rng, study, names = random.Random(seed), copy.deepcopy(VALID), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        mutation = rng.choice(MUTATIONS)
        names.append(mutation.__name__)
        mutation(rng, study)
    text = written(study)
    if rng.random() < 0.25:
        return broken(rng, text), [*names, "broken"]
    return text.encode("utf-8", "surrogatepass"), names


def run(folder: Path, count: int, first: int = 0) -> list[str]:
    """What went wrong with so many malformed studies; nothing, if all were refused in words or are valid."""
    path, complaints = folder / "study.toml", []
    for seed in range(first, first + count):
        content, names = malformed(seed)
        path.write_bytes(content)
        complaints += [f"{seed} {names}: {complaint}" for complaint in _complaints(path)]
    return complaints


def _complaints(path: Path) -> list[str]:
    try:
        study = load_study(path)
    except StudyError as error:
        unclear = [str(each) for each in error.problems if not (each.key and each.value and each.allowed)]
        vague = [each for each in map(str, error.problems) if ": expected " not in each]
        spoken = all(character.isprintable() or character == "\n" for character in str(error))
        return [*unclear, *vague, *([] if error.problems and spoken else ["a message that is no text"])]
    except Exception as error:  # noqa: BLE001  # whatever else comes is what is looked for
        return [f"{type(error).__name__}: {error}"]
    return (
        []
        if isinstance(study, Study) and Study.model_validate(study.model_dump(mode="json")) == study
        else ["not whole"]
    )
