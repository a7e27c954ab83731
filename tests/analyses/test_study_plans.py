"""Plans: data from every kind of source, and what can be known of a study before it runs."""

import json
from pathlib import Path

import pytest
import study_runs

from interp.analyses.study import load_study, plan_study, ready_studies, validate_study
from interp.analyses.study.costs import job_cost
from interp.analyses.study.data import items_of, sha256_of
from interp.analyses.study.file import DataSpec
from interp.errors import LoadError, UsageError
from interp.models.planner.accelerators import accelerator
from interp.models.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study_runs.tiny_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def study(model: Path) -> Path:
    return study_runs.write_study(model / "study.toml", model)


def data(kind: str, **fields: object) -> DataSpec:
    return DataSpec.model_validate({"name": "d", "kind": kind, **fields})


def test_prompts_come_from_lists_lines_and_tables(tmp_path: Path) -> None:
    lines, table = tmp_path / "a.txt", tmp_path / "a.jsonl"
    lines.write_text(" one\n\n two \n")
    table.write_text('{"prompt": "one", "answer": " b"}\n{"prompt": "two", "id": "x"}\n')
    assert [item.value.text for item in items_of(data("prompts", source=str(lines)), None, 0)] == [" one", " two "]
    found = items_of(data("prompts", source=str(table)), None, 0)
    assert [(item.id, item.value.answer) for item in found] == [("0", " b"), ("x", None)]
    assert len(items_of(data("prompts", source=["a", {"prompt": "b"}], count=1), None, 0)) == 1


def test_facts_pairs_and_documents_may_be_written_out() -> None:
    fact = {"subject": "France", "relation": "capital", "template": "The capital of {} is", "object": "Paris"}
    assert items_of(data("facts", source=[fact]), None, 0)[0].value.prompt == "The capital of France is"
    pair = {"clean": "a b", "corrupted": "a c", "answer": " d"}
    assert items_of(data("pairs", source=[pair]), None, 0)[0].value.answer == " d"
    assert [item.id for item in items_of(data("documents", source=["a", {"name": "n", "text": "b"}]), None, 0)] == [
        "0",
        "n",
    ]
    assert {item.value.relation for item in items_of(data("facts", relations=["capital"]), None, 0)} == {"capital"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (data("facts", relations=["captial"]), "Did you mean 'capital'"),
        (data("facts", source=[{"subject": "x"}]), "there is no 'relation'"),
        (data("prompts", source=[{"answer": "x"}]), "Prompt 0 has none under 'prompt'"),
        (data("prompts", source=[{"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}]), "two items 'x'"),
        (data("documents", source=[{"name": "x"}]), "Document 0 has no 'text'"),
        (data("pairs", builder="ioi"), "has no tokenizer"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_words(spec: DataSpec, said: str) -> None:
    with pytest.raises((LoadError, UsageError), match=said):
        items_of(spec, None, 0)


def test_the_hash_of_data_depends_on_all_that_items_hold(model: Path) -> None:
    tokenizer = Tokenizer.from_file(model)
    hashes = {
        sha256_of(items_of(spec, tokenizer, seed))
        for spec, seed in (
            *((data("prompts", source=source), 0) for source in (["a"], ["b"], [{"prompt": "a", "answer": "c"}])),
            *((data("repeated", count=2), seed) for seed in (0, 1)),
            *((data("facts", count=count), 0) for count in (1, 2)),
        )
    }
    assert len(hashes) == 7


def test_a_study_without_faults_is_found_to_have_none(study: Path) -> None:
    found = validate_study(load_study(study))
    assert found.ok
    assert found.plan is not None
    assert found.notes[1].endswith("30 items in 1 batches, 11 to 11 tokens")


def test_what_would_fail_is_told_before_it_runs(study: Path, model: Path) -> None:
    fact = f'{{subject="on", relation="r", template="{{}} {"x " * 70}is", object="two"}}'
    overrides = [
        f'data=[{{name="p",kind="prompts",source=["one","{"x " * 70}",{{prompt="a",answer="several tokens"}}]}},'
        f'{{name="f",kind="facts",source=[{fact}]}}]',
        'analyses=[{analysis="lens",data="p"},{analysis="tracing"},{analysis="head-ablation",settings={heads=["9.0"]}},'
        '{analysis="composition",settings={layers=[0,7]}}]',
    ]
    found = validate_study(load_study(study, overrides))
    said = {problem.item or problem.job: problem.message for problem in found.problems}
    assert "the context of" in said["1"]
    assert "not one" in said["2"]
    assert "the context of" in said["r/on"]
    assert any("there is no head 9.0" in message for message in said.values())
    assert any("the setting layers has 7" in message for message in said.values())
    assert len(found.problems) == 5


def test_a_study_that_cannot_be_planned_says_why(study: Path) -> None:
    found = validate_study(load_study(study, ["models.0.name=/nowhere"]))
    assert not found.ok
    assert "is neither a known model, a file" in found.problems[0].message


def test_items_without_tokens_are_packed_alone_and_cost_nothing(study: Path) -> None:
    plan = plan_study(load_study(study, ['data.0.source=["", "one two", "x"]']))
    job = plan.jobs[0]
    assert job.lengths[-1] is None
    assert job.packing == [2, 1]
    assert job_cost(job, "doc").cells == 2


def test_models_that_are_called_alike_have_jobs_of_their_own(study: Path, model: Path) -> None:
    models = json.dumps([{"name": str(model)}, {"name": str(model), "dtype": "bfloat16"}]).replace('": ', '" = ')
    plan = plan_study(load_study(study, [f"models={models}"]))
    assert len({job.name for job in plan.jobs}) == 4
    manifest = plan.manifest()
    assert manifest.dtype == "several"
    assert len({each["weights_sha256"] for each in manifest.models}) == 1


@pytest.mark.usefixtures("models_here")
@pytest.mark.parametrize("name", ready_studies())
def test_a_ready_study_has_a_plan_and_a_cost(name: str) -> None:
    found = validate_study(load_study(name), limit=3)
    assert found.problems == []
    assert found.plan is not None
    cost = found.plan.cost(accelerator("h200"))
    assert cost.flops > 0
    assert cost.seconds
