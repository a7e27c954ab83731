"""What a study's parts must have to do with each other: names that exist, data that fits, settings that are known."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from interp.analyses.study.file import AnalysisSpec, DataSpec, ModelSpec, Study
from interp.analyses.study.problems import FileProblem, misspelt, of_validation, shown
from interp.analyses.study.registry import tasks
from interp.analyses.study.task import Task

_ELSEWHERE = {"seed": "at the top of the study", "prefix": "under [run]", "max_bytes": "nowhere: memory is planned"}
_BELONGS = {"relations": ("facts",), "builder": ("pairs",), "seed": ("pairs", "repeated")}
_MADE = ("facts", "documents", "repeated", "model")
"""Kinds of data that are there without a file."""


def checked(raw: Mapping[str, Any], folder: Path) -> tuple[Study | None, list[FileProblem]]:
    """The study, resolved: defaults filled in, data named, paths absolute; and everything that is wrong with it."""
    problems: list[FileProblem] = []
    study = None
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        problems += of_validation(error, Study)
    data, analyses = _tables(raw, "data"), _tables(raw, "analyses")
    problems += _twice("data", data) + _data_problems(data, folder)
    problems += _twice("analyses", analyses, "analysis") + _models_twice(_tables(raw, "models"))
    for place, table in analyses:
        problems += _analysis_problems(f"analyses.{place}", table, data, _tables(raw, "models"))
    unique = list(dict.fromkeys(problems))
    return (None if study is None or unique else _resolved(study, folder)), unique


def _tables(raw: Mapping[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    """The tables of a list with their places; what is none is a problem that pydantic tells."""
    found = raw.get(key)
    return (
        [(place, each) for place, each in enumerate(found) if isinstance(each, dict)] if isinstance(found, list) else []
    )


def _twice(key: str, tables: Sequence[tuple[int, dict[str, Any]]], instead: str = "name") -> list[FileProblem]:
    """Names that stand for two tables."""
    first: dict[str, int] = {}
    problems = []
    for place, table in tables:
        name = table.get("name", table.get(instead))
        if isinstance(name, str) and first.setdefault(name, place) != place:
            other = f"{key}.{first[name]}"
            problems.append(FileProblem(f"{key}.{place}.name", shown(name), f"another name than {other} has"))
    return problems


def _models_twice(tables: Sequence[tuple[int, dict[str, Any]]]) -> list[FileProblem]:
    first: dict[str, int] = {}
    problems = []
    for place, table in tables:
        asked = repr([table.get(name) for name in ("name", "revision", "dtype", "device")])
        if "name" in table and first.setdefault(asked, place) != place:
            allowed = f"another model, revision, dtype or device than models.{first[asked]}"
            problems.append(FileProblem(f"models.{place}.name", shown(table["name"]), allowed))
    return problems


def _data_problems(tables: Sequence[tuple[int, dict[str, Any]]], folder: Path) -> list[FileProblem]:
    problems = []
    for place, table in tables:
        kind, key = table.get("kind"), f"data.{place}"
        for name, kinds in _BELONGS.items():
            if (
                name in table
                and kind in ("prompts", "pairs", "facts", "documents", "repeated", "model")
                and kind not in kinds
            ):
                problems.append(FileProblem(f"{key}.{name}", shown(table[name]), f"no {name} for data of kind {kind}"))
        problems += _source_problems(key, table, folder)
    return problems


def _source_problems(key: str, table: Mapping[str, Any], folder: Path) -> list[FileProblem]:
    """Whether there is something to read, and one thing only."""
    kind, source, builder = table.get("kind"), table.get("source"), table.get("builder")
    if kind in ("repeated", "model") and source is not None:
        return [FileProblem(f"{key}.source", shown(source), f"no source for data of kind {kind}")]
    if kind == "pairs" and (source is None) == (builder is None):
        came = "is missing" if source is None else f"{shown(source)} beside a builder"
        return [FileProblem(f"{key}.source", came, "either a source, a file or a list of pairs, or a builder")]
    if kind == "prompts" and source is None:
        return [FileProblem(f"{key}.source", "is missing", "a file, or a list of prompts")]
    if source == "bundled" and kind not in ("facts", "documents"):
        return [FileProblem(f"{key}.source", shown(source), "a file or a list: only facts and documents are bundled")]
    if (
        isinstance(source, str)
        and source
        and "\0" not in source
        and source != "bundled"
        and not _exists(folder, source)
    ):
        return [FileProblem(f"{key}.source", shown(source), f"a file that exists, from {folder} on")]
    return []


def _exists(folder: Path, source: str) -> bool:
    try:
        return (folder / Path(source).expanduser()).exists()
    except (OSError, RuntimeError, ValueError):  # too long, no home of that name, or no name at all
        return False


def _analysis_problems(
    key: str,
    table: Mapping[str, Any],
    data: Sequence[tuple[int, dict[str, Any]]],
    models: Sequence[tuple[int, dict[str, Any]]],
) -> list[FileProblem]:
    name, problems = table.get("analysis"), []
    chosen, known = table.get("models"), [each.get("name") for _, each in models]
    if isinstance(chosen, list):
        names = [each for each in known if isinstance(each, str)]
        wrong = [(place, each) for place, each in enumerate(chosen) if isinstance(each, str) and each not in names]
        problems += [misspelt(f"{key}.models.{place}", each, names, "models") for place, each in wrong]
    if not isinstance(name, str):
        return problems
    if name not in tasks():
        return [*problems, misspelt(f"{key}.analysis", name, tasks(), "analyses")]
    task = tasks()[name]
    problems += _data_of(key, table, task, data)
    settings = table.get("settings", {})
    return [*problems, *(_settings_problems(f"{key}.settings", settings, task) if isinstance(settings, dict) else [])]


def _settings_problems(key: str, settings: dict[str, Any], task: Task) -> list[FileProblem]:
    try:
        task.settings.model_validate(settings)
    except ValidationError as error:
        return [_moved(problem, key) for problem in of_validation(error, task.settings, key)]
    return []


def _moved(problem: FileProblem, key: str) -> FileProblem:
    """Settings that have their place elsewhere in a study say where."""
    where = _ELSEWHERE.get(problem.key.removeprefix(f"{key}."))
    if where is None or problem.value != "is no key here":
        return problem
    return FileProblem(problem.key, problem.value, f"{problem.allowed.rstrip('.')}; this one stands {where}")


def _data_of(
    key: str, table: Mapping[str, Any], task: Task, data: Sequence[tuple[int, dict[str, Any]]]
) -> list[FileProblem]:
    """Whether the data that is named, or the only data that fits, is there."""
    named, kinds = table.get("data"), " or ".join(task.kinds)
    names = [str(each["name"]) for _, each in data if isinstance(each.get("name"), str)]
    if isinstance(named, str):
        found = [each for _, each in data if each.get("name") == named]
        if not found:
            return [misspelt(f"{key}.data", named, names, "[[data]] tables")]
        if isinstance(found[0].get("kind"), str) and found[0]["kind"] not in task.kinds:
            return [FileProblem(f"{key}.data", f"is {named!r}, of kind {found[0]['kind']}", f"data of kind {kinds}")]
        return []
    if named is not None:
        return []
    fitting = [each for _, each in data if each.get("kind") in task.kinds]
    if len(fitting) > 1 or (not fitting and task.kinds[0] not in _MADE):
        return [FileProblem(f"{key}.data", "is missing", f"the name of a [[data]] table of kind {kinds}")]
    return []


# ------------------------------------------------------------------------------------------------------- resolved


def _resolved(study: Study, folder: Path) -> Study:
    """The same study with everything said that it leaves open."""
    data = [_absolute(each, folder) for each in study.data]
    analyses = []
    for spec in study.analyses:
        task = tasks()[spec.analysis]
        chosen = spec.data or _chosen(data, task)
        settings = task.settings.model_validate(spec.settings).model_dump(mode="json")
        analyses.append(spec.model_copy(update={"name": spec.label, "data": chosen, "settings": settings}))
    return study.model_copy(update={"data": data, "analyses": analyses})


def _absolute(spec: DataSpec, folder: Path) -> DataSpec:
    if not isinstance(spec.source, str) or spec.source == "bundled":
        return spec
    return spec.model_copy(update={"source": str(folder / Path(spec.source).expanduser())})


def _chosen(data: list[DataSpec], task: Task) -> str:
    """The only data that fits; or the data that is there without a file, which is added."""
    fitting = [each.name for each in data if each.kind in task.kinds]
    if not fitting:
        taken = {each.name for each in data}
        name = next(
            name for name in (task.kinds[0], *(f"{task.kinds[0]}-{n}" for n in range(2, 99))) if name not in taken
        )
        data.append(DataSpec(name=name, kind=task.kinds[0]))
        fitting = [name]
    return fitting[0]


def models_of(study: Study, spec: AnalysisSpec) -> list[ModelSpec]:
    """The models that an analysis is put to."""
    return [model for model in study.models if spec.models is None or model.name in spec.models]
