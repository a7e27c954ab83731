"""Damaged run directories, read and resumed: what comes out is our error or what was written, never anything else.

Each damage follows from its seed. `soak.py` does more of them than the tests do.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from sample_runs import contents, manifest, work

import interp
from interp.errors import IntegrityError, InterpError, LoadError, UsageError
from interp.runs.sealed import digest, document, line

LONGEST_MESSAGE = 2100


@dataclass(frozen=True)
class Damage:
    """One damage: what is done, to which file, with the seed of what it leaves to chance."""

    kind: str
    seed: int

    def apply(self, folder: Path) -> str:
        """Do it; the name of the file."""
        chance = random.Random(self.seed)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "log.txt")
        suffixes = {"reseal": ".json", "retype": ".jsonl", "repeat": ".jsonl", "shuffle": ".jsonl"}
        files = [path for path in files if path.parent.name != "a" and path.name.endswith(suffixes.get(self.kind, ""))]
        path = chance.choice(files)
        KINDS[self.kind](path, chance)
        return f"{self.kind} {path.relative_to(folder)}"


def _truncate(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def _empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def _garbage(path: Path, chance: random.Random) -> None:
    words = (
        b"[]",
        b"null",
        b"{}",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b"9" * 10_000,
        b"\0" * 64,
        b"NaN",
        b"PAR1PAR1",
    )
    path.write_bytes(chance.choice(words))


def _insert(path: Path, chance: random.Random) -> None:
    content, at = path.read_bytes(), chance.randrange(path.stat().st_size)
    path.write_bytes(content[:at] + chance.randbytes(chance.randint(1, 40)) + content[at:])


def _folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _repeat(path: Path, chance: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, *chance.sample(lines, chance.randint(1, len(lines)))]))


def _shuffle(path: Path, chance: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(chance.sample(lines, chance.randint(1, len(lines)))))


VALUES = (None, 0, -1, 10**30, 1.5, "", "x", "../../etc/passwd", [], {}, True, ["a"], {"a": {}}, "\ud800")


def _retype(path: Path, chance: random.Random) -> None:
    """A line with another value, whose checksum fits: not damage of a disk, but of somebody's script."""
    lines = path.read_bytes().splitlines(keepends=True)
    place = chance.randrange(len(lines))
    facts = json.loads(lines[place])
    facts.pop("crc")
    name = chance.choice(list(facts))
    if chance.random() < 0.2:
        facts.pop(name)
    else:
        facts[name] = chance.choice(VALUES)
    lines[place] = line(facts)
    path.write_bytes(b"".join(lines))


def _reseal(path: Path, chance: random.Random) -> None:
    """A document with another value, whose hashes fit."""
    facts = json.loads(path.read_bytes())
    plan = {name: facts.pop(name) for name in ("plan",) if name in facts}
    for name in ("head_sha256", "sha256"):
        facts.pop(name)
    where = chance.choice(
        [each for each in (facts, plan, *facts.values(), *plan.values()) if isinstance(each, dict) and each]
    )
    name = chance.choice(list(where))
    if chance.random() < 0.2:
        where.pop(name)
    else:
        where[name] = chance.choice(VALUES)
    path.write_bytes(document(facts or {"x": 1}, plan))


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "truncate": _truncate,
    "flip": _flip,
    "delete": _delete,
    "empty": _empty,
    "garbage": _garbage,
    "insert": _insert,
    "folder": _folder,
    "repeat": _repeat,
    "shuffle": _shuffle,
    "retype": _retype,
    "reseal": _reseal,
}


def readings(folder: Path) -> dict[str, Callable[[], object]]:
    """What is asked of a run, by name."""

    def opened(ask: Callable[[interp.Run], object]) -> Callable[[], object]:
        return lambda: ask(interp.open_run(folder))

    return {
        "name": opened(lambda run: (run.name, run.kind)),
        "frame": opened(lambda run: run.frame("lens")),
        "heads": opened(lambda run: run.frame("heads")),
        "columns": opened(lambda run: run.frame("lens", columns=["value"])),
        "item": opened(lambda run: run.item("../f", "lens")),
        "some item": opened(lambda run: run.item("h")),
        "errors": opened(lambda run: run.errors()),
        "summary": opened(lambda run: run.summary()),
        "results": opened(lambda run: run.results()),
        "manifest": opened(lambda run: run.manifest),
        "jobs": opened(lambda run: run.jobs),
    }


def _same(found: object, expected: object) -> bool:
    if isinstance(expected, pd.DataFrame):
        return isinstance(found, pd.DataFrame) and found.equals(expected)
    return found == expected


def _complaints(folder: Path, expected: dict[str, object], trusted: bool) -> Iterator[str]:
    """What a run says that it should not. Of one that no hash speaks against, only that it raises nothing else."""
    unfinished = False
    try:
        unfinished = interp.open_run(folder).status().state not in ("finished", "failed items")
        interp.open_run(folder).check()
    except (LoadError, IntegrityError):
        unfinished = True
    except Exception as error:  # noqa: BLE001 – whatever else comes out is what is looked for
        yield f"status or check: {error!r}"
    for name, ask in readings(folder).items():
        try:
            found = ask()
        except (LoadError, IntegrityError) as error:
            if len(str(error)) > LONGEST_MESSAGE:
                yield f"{name}: a message of {len(str(error))} characters"
        except UsageError as error:
            if not unfinished and trusted:
                yield f"{name}: {error}"
        except Exception as error:  # noqa: BLE001
            yield f"{name}: {error!r}"
        else:
            if trusted and not unfinished and not _same(found, expected[name]):
                yield f"{name}: another answer, without a word"


def _resumed(folder: Path, whole: dict[str, bytes], trusted: bool) -> Iterator[str]:
    """What is wrong after the run is resumed: it ends as it was, or says why not."""
    try:
        work(folder)
    except InterpError:
        return
    except Exception as error:  # noqa: BLE001
        yield f"resume: {error!r}"
        return
    found = contents(folder)
    changed = {name for name in {*found, *whole} if found.get(name) != whole.get(name)}
    if trusted and {name for name in changed if not name.startswith("saved/")}:
        yield f"resumed with other files: {sorted(changed)}"


def run(home: Path, count: int, first: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Damages `first` to `first + count`, each with what is wrong with what came of it."""
    original, kinds = home / "original", sorted(KINDS)
    work(original)
    expected = {name: ask() for name, ask in readings(original).items()}
    whole = contents(original)
    assert expected["manifest"] == manifest()
    for seed in range(first, first + count):
        damage, folder = Damage(kinds[seed % len(kinds)], seed), home / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        what = damage.apply(folder)
        trusted = damage.kind not in ("retype", "reseal")
        complaints = [*_complaints(folder, expected, trusted), *_resumed(folder, whole, trusted)]
        yield f"{what} (seed {seed}, {digest(str(seed).encode())[:4]})", complaints
