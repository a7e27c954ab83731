"""How two runs differ in what they were asked: settings, models, data, code, items, packing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interp.named import jsonable
from interp.runs.manifest import Manifest

_LONGEST = 60
_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same: what it is, as a path such as `settings.seed`, and both values in words."""

    what: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.what}: {self.ours} against {self.theirs}"


def differences(ours: Manifest, theirs: Manifest) -> list[Difference]:
    """Every difference but that of the dates; none if one run can go on with what the other did."""
    return list(_between("", _comparable(ours), _comparable(theirs)))


def _comparable(manifest: Manifest) -> dict[str, Any]:
    """What is compared, with jobs, models and data by name."""
    facts = ("name", "kind", "seed", "prefix", "dtype", "device", "shard", "settings", "versions")
    found = {name: jsonable(getattr(manifest, name)) for name in facts}
    for part in ("models", "data"):
        found[part] = {
            str(each.get("name", place)): jsonable(each) for place, each in enumerate(getattr(manifest, part))
        }
    found["jobs"] = {job.name: {**asdict(job), "settings": jsonable(job.settings)} for job in manifest.jobs}
    found["order of the jobs"] = [job.name for job in manifest.jobs]
    return found


def _between(where: str, ours: object, theirs: object) -> Iterator[Difference]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in dict.fromkeys([*ours, *theirs]):
            inner = f"{where}.{key}" if where else str(key)
            yield from _between(inner, ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
    elif _is_list(ours) and _is_list(theirs) and ours != theirs:
        yield _of_lists(where, ours, theirs)  # type: ignore[arg-type]  # the line above
    elif ours != theirs or type(ours) is not type(theirs):
        yield Difference(where, _words(ours), _words(theirs))


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _of_lists(where: str, ours: Sequence[object], theirs: Sequence[object]) -> Difference:
    """Two lists, by their lengths and the first place where they part."""
    shorter = min(len(ours), len(theirs))
    place = next((place for place in range(shorter) if ours[place] != theirs[place]), shorter)
    if max(len(ours), len(theirs)) <= 6:
        return Difference(where, _words(ours), _words(theirs))
    sides = [f"{len(side)} entries, number {place} {_words([*side[place : place + 1]])}" for side in (ours, theirs)]
    return Difference(where, sides[0], sides[1])


def _words(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 12]}…{text[-11:]}"
