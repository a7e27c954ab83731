"""Study files: the smallest one is enough, everything wrong is told at once, and later sources of a value win."""

import re
from pathlib import Path
from typing import get_args

import pytest
import study_mutations
import tree

from interp.analyses import ANALYSES
from interp.analyses.study import Study, StudyError, load_study, ready_studies, tasks
from interp.analyses.study.file import KINDS, NAME_RULE
from interp.analyses.study.reading import study_of
from interp.pair_builders import BUILDERS

SMALLEST = """name = "heads"
[[models]]
name = "smollm2-135m"
[[analyses]]
analysis = "induction"
"""


@pytest.fixture
def smallest(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(SMALLEST)
    return path


def problems(path: Path, *overrides: str, environment: dict[str, str] | None = None) -> list[str]:
    """What is wrong with a study, one line each."""
    with pytest.raises(StudyError) as caught:
        load_study(path, overrides, environment or {})
    return [str(problem) for problem in caught.value.problems]


def test_five_lines_are_a_study(smallest: Path) -> None:
    study = load_study(smallest)
    (analysis,) = study.analyses
    assert (analysis.name, analysis.data, study.data[0].kind) == ("induction", "repeated", "repeated")
    assert analysis.settings["seq_len"] == 50
    assert (study.seed, study.run.batch_size, study.run.prefix) == (0, "auto", "doc")


def test_a_study_survives_the_manifest(smallest: Path) -> None:
    study = load_study(smallest, ["run.workers=3", "run.max_failures=2", "outputs.folder='x'"])
    again = study_of(study.stated())
    assert again.stated() == study.stated()
    assert (again.run.workers, again.run.max_failures, again.outputs.folder) == (1, None, None)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'name = "a b"\nsed = 3\n[[models]]\nnam = "x"\ndtype = "int8"\n[[data]]\nname = "d"\nkind = "prompts"\n'
        '[[analyses]]\nanalysis = "lens"\ndata = "f"\nsettings = { top_k = 0, topk = 2 }\n'
        '[[analyses]]\nanalysis = "inductoin"\nmodels = ["y"]\n[run]\nbatch_size = "all"\n'
    )
    found = problems(path)
    assert found == [
        f"name is 'a b': expected {NAME_RULE}",
        "models.0.name is missing: expected a known name, a folder, a .gguf file or a hub id",
        "models.0.dtype is 'int8': expected one of 'float32', 'bfloat16', 'float16' or 'float64'",
        "models.0.nam is no key here: expected one of name, revision, dtype, device. Did you mean 'name'?",
        "run.batch_size is 'all': expected \"auto\", or a whole number from 1 to 1000000",
        "sed is no key here: expected one of name, seed, models, data, analyses, run, outputs. Did you mean 'seed'?",
        "data.0.source is missing: expected a file, or a list of prompts",
        "analyses.0.data is 'f': expected one of d",
        "analyses.0.settings.top_k is 0: expected 1 or more",
        "analyses.0.settings.topk is no key here: expected one of positions, top_k. Did you mean 'top_k'?",
        "analyses.1.models.0 is 'y': expected none, for there are no models",
        f"analyses.1.analysis is 'inductoin': expected one of {', '.join(tasks())}. Did you mean 'induction'?",
    ]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("analyses.0.settings.seq_len=1", "analyses.0.settings.seq_len is 1: expected 2 or more"),
        ("analyses.0.settings.seq_len='50'", "analyses.0.settings.seq_len is '50': expected a whole number"),
        ("analyses.0.settings.seed=1", "this one stands at the top of the study"),
        ("analyses.0.settings.prefix='doc'", "this one stands under [run]"),
        ("outputs.arrays=1", "outputs.arrays is 1: expected true or false"),
        ("analyses.0.data='x'", "analyses.0.data is 'x': expected none, for there are no [[data]] tables"),
        ("analyses.1.x=1", "there is no such place"),
        ("nonsense", "expected key=value, such as run.batch_size=8"),
        ("run.prefix=[", "run.prefix is set to '[': expected a value as in TOML"),
        ("data=[{name='d',kind='facts',builder='ioi'}]", "data.0.builder is 'ioi': expected no builder"),
        (
            "data=[{name='d',kind='facts',source='no.jsonl'}]",
            "data.0.source is 'no.jsonl': expected a file that exists",
        ),
        ("data=[{name='d',kind='pairs'}]", "data.0.source is missing: expected either a source"),
        ("models=[{name='a'},{name='a'}]", "models.1.name is 'a': expected another model"),
    ],
)
def test_a_problem_names_the_key_the_value_and_what_is_allowed(smallest: Path, override: str, said: str) -> None:
    assert said in "\n".join(problems(smallest, override))


@pytest.mark.parametrize("axes", ["['head', 'query_pos']", "['layer', 'layer']", "[]"])
def test_a_sweep_runs_over_axes_of_its_site(tmp_path: Path, axes: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'name = "p"\n[[models]]\nname = "m"\n[[data]]\nname = "d"\nkind = "pairs"\nbuilder = "ioi"\n'
        f'[[analyses]]\nanalysis = "patching"\nsettings = {{ site = "resid_pre", by = {axes} }}\n'
    )
    assert problems(path)[0].startswith("analyses.0.settings.by is [")


def test_broken_toml_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('name = "a"\n[[models\n')
    assert "(at line 2, column 9)" in problems(path)[0]
    path.write_bytes(b'name = "\xff"')
    assert "expected TOML in UTF-8" in problems(path)[0]
    path.write_text("x = " + "[" * 5000)
    assert "nested too deeply" in problems(path)[0]
    assert "does not exist: expected a TOML file, or a ready study: head-atlas" in problems(tmp_path / "other.toml")[0]


def test_later_sources_of_a_value_win(smallest: Path) -> None:
    assert load_study(smallest).seed == 0
    smallest.write_text("seed = 1\n" + SMALLEST + "[run]\nworkers = 2\n")
    assert load_study(smallest).seed == 1
    environment = {"INTERP_SEED": "2", "INTERP_DEVICE": "cpu", "INTERP_DTYPE": "bfloat16", "INTERP_OUT": "there"}
    environment |= {"INTERP_WORKERS": "3", "INTERP_BATCH_SIZE": "auto", "INTERP_MAX_FAILURES": "4", "INTERP_CACHE": "x"}
    study = load_study(smallest, (), environment)
    assert (study.seed, study.run.workers, study.run.max_failures, study.outputs.folder) == (2, 3, 4, "there")
    assert (study.models[0].device, study.models[0].dtype, study.run.batch_size) == ("cpu", "bfloat16", "auto")
    study = load_study(smallest, ["seed=5", "models.0.dtype=float16", "run.batch_size=8"], environment)
    assert (study.seed, study.models[0].dtype, study.run.batch_size) == (5, "float16", 8)


def test_a_value_from_the_environment_is_checked_too(smallest: Path) -> None:
    assert problems(smallest, environment={"INTERP_WORKERS": "many"}) == [
        "run.workers is 'many': expected a whole number"
    ]


def test_data_is_found_where_only_one_fits(smallest: Path) -> None:
    one = "data=[{name='few',kind='repeated',count=3},{name='facts',kind='facts'}]"
    assert load_study(smallest, [one]).analyses[0].data == "few"
    two = "data=[{name='few',kind='repeated',count=3},{name='many',kind='repeated'}]"
    assert "analyses.0.data is missing: expected the name of a [[data]] table of kind repeated" in problems(
        smallest, two
    )


def test_paths_are_those_of_the_study_file(smallest: Path) -> None:
    (smallest.parent / "prompts.txt").write_text("one\ntwo\n")
    study = load_study(smallest, ["data=[{name='p',kind='prompts',source='prompts.txt'}]", "analyses.0.analysis=lens"])
    assert study.data[0].source == str(smallest.parent / "prompts.txt")


@pytest.mark.parametrize("name", ready_studies())
def test_a_ready_study_is_found_by_its_name(name: str) -> None:
    study = load_study(name)
    assert study.name == name
    assert isinstance(study, Study)


def test_tasks_and_builders_are_those_of_the_package() -> None:
    from interp.analyses.study.file import Builder

    assert set(tasks()) <= set(ANALYSES)
    assert set(get_args(Builder)) == set(BUILDERS)


def test_malformed_studies_are_refused_in_words(tmp_path: Path) -> None:
    assert study_mutations.run(tmp_path, 500) == []


def test_the_studies_of_the_page_are_valid(tmp_path: Path) -> None:
    page = (tree.ROOT / "docs/studies.md").read_text()
    found = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    for text in found:
        path = tmp_path / "study.toml"
        path.write_text(text)
        load_study(path)
    kinds = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert kinds == set(KINDS)
    assert set(ready_studies()) == set(re.findall(r"`([a-z-]+)` \(", page.rpartition("## ")[2]))
