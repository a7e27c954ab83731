"""Every file of a run held against what is known of it."""

from collections.abc import Iterator
from pathlib import Path

from interp.errors import InterpError
from interp.runs.contents import read_errors, read_summary
from interp.runs.ledger import ERRORS, FAILED, LEDGER, counted, entry, read_lines
from interp.runs.manifest import Manifest, read_manifest
from interp.runs.parts import RESULTS, part_intact
from interp.runs.repair import key
from interp.runs.saved import saved_results
from interp.runs.sealed import digest


def check(folder: Path) -> list[str]:
    """What is damaged or does not belong there, one sentence each."""
    try:
        manifest = read_manifest(folder)
    except InterpError as error:
        return [str(error)]
    return [*_lines(folder), *_parts(folder, manifest), *_summary(folder), *_results(folder, manifest)]


def _lines(folder: Path) -> Iterator[str]:
    for name in (LEDGER, ERRORS):
        for number, (_, facts) in enumerate(read_lines(folder / name), 1):
            if facts is None:
                yield f"Line {number} of {name} is torn or was changed."


def _parts(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Parts that are missing or changed, or that no batch has; items that failed without an error."""
    entries = [found for _, facts in read_lines(folder / LEDGER) if (found := entry(facts))]
    attempts = counted(manifest.of_shard(), entries).values()
    counting = [each for tries in attempts for attempt in tries for each in attempt]
    known = dict.fromkeys((each.part, each.sha256) for each in counting if each.part and each.sha256)
    for file, sha256 in known:
        if not part_intact(folder, file, sha256):
            yield f"{file} is missing, or is not what was written."
    names = {file for file, _ in known}
    for path in sorted((folder / RESULTS).glob("*")):
        if f"{RESULTS}/{path.name}" not in names:
            yield f"{RESULTS}/{path.name} belongs to no batch that counts."
    explained = read_errors(folder)
    for each in counting:
        if each.status == FAILED and key(each) not in explained:
            yield f"Item {each.item!r} of job {each.job!r} failed, and {ERRORS} does not say why."


def _summary(folder: Path) -> Iterator[str]:
    try:
        summary = read_summary(folder)
    except InterpError as error:
        yield str(error)
        return
    path = folder / LEDGER
    if summary and summary.get("ledger_sha256") != digest(path.read_bytes() if path.exists() else b""):
        yield f"{LEDGER} is not what it was when the run was finished."


def _results(folder: Path, manifest: Manifest) -> Iterator[str]:
    from interp.results import Result

    for job, item, place in saved_results(folder, manifest):
        try:
            Result.load(place)
        except InterpError as error:
            yield f"The result of item {item!r} of job {job!r}: {error}"
