"""Runs of studies: whatever happens on the way, the outcome is that of an undisturbed run."""

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import study_runs
import torch

from interp.analyses.study import load_study, merge_studies, plan_study, resume_study, run_study, running, summarise
from interp.analyses.study.planning import Opened
from interp.errors import Cancelled, FailuresError, IntegrityError, UsageError
from interp.models.transformer import Transformer
from interp.runs import Batch, open_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study_runs.tiny_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def study(model: Path) -> Path:
    """Sixty items, in batches that pack themselves."""
    return study_runs.write_study(model / "study.toml", model)


@pytest.fixture(scope="module")
def undisturbed(study: Path) -> Path:
    """The run of that study."""
    outcome = run_study(load_study(study), study.parent / "undisturbed")
    assert (outcome.total, outcome.done, outcome.failed, outcome.resumed) == (60, 60, 0, 0)
    return outcome.folder


def test_a_study_becomes_a_run_that_can_be_read(undisturbed: Path) -> None:
    run = open_run(undisturbed)
    assert run.status().state == "finished"
    assert run.check() == []
    assert [job.analysis for job in run.manifest.jobs] == ["lens", "induction"]
    (lens, induction), tokens = run.jobs, {}
    for item, rows in run.frame(lens).groupby("item"):
        tokens[item] = rows["position"].nunique()
        assert len(rows) == 4 * tokens[item], "a row for the embedding and every layer"
    assert len(tokens) == 30
    assert len(run.frame(induction)) == 30 * 3 * 6
    assert set(summarise(run)) == set(run.summary()) == set(run.jobs)


def test_the_plan_of_batches_has_little_padding_and_stands_in_the_manifest(study: Path, undisturbed: Path) -> None:
    plan, manifest = plan_study(load_study(study)), open_run(undisturbed).manifest
    lens = plan.jobs[0]
    assert list(lens.lengths) == sorted(lens.lengths)
    assert [tuple(job.packing) for job in plan.jobs] == [job.packing for job in manifest.jobs]


def test_a_finished_run_loads_no_weights(study: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = study_runs.content(undisturbed)
    monkeypatch.setattr(running, "load_opened", lambda _: pytest.fail("the weights were asked for"))
    outcome = run_study(load_study(study), undisturbed)
    assert (outcome.done, outcome.resumed) == (60, 60)
    assert resume_study(undisturbed).resumed == 60
    assert study_runs.content(undisturbed) == before


class Stop(Exception):
    """Ends a run in the middle."""


def stopped_after(count: int, error: type[BaseException]) -> Callable[[object], None]:
    """A progress callback that raises once so many batches are done."""
    seen: list[object] = []

    def told(event: object) -> None:
        seen.append(event)
        if len(seen) == count:
            raise error

    return told


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(
    study: Path, undisturbed: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    for batches in (1, 2):
        with pytest.raises(error):
            run_study(load_study(study), tmp_path / "run", progress=stopped_after(1, error))
        assert open_run(tmp_path / "run").status().batches_done == batches
    outcome = resume_study(tmp_path / "run")
    assert 0 < outcome.resumed < outcome.total == outcome.done
    assert study_runs.content(outcome.folder) == study_runs.content(undisturbed)


def test_a_run_can_be_cancelled_between_batches(study: Path, undisturbed: Path, tmp_path: Path) -> None:
    answers = iter([False, False, True])
    with pytest.raises(Cancelled):
        run_study(load_study(study), tmp_path, cancelled=lambda: next(answers))
    assert open_run(tmp_path).status().state == "interrupted"
    run_study(load_study(study), tmp_path)
    assert study_runs.content(tmp_path) == study_runs.content(undisturbed)


@pytest.mark.parametrize("damage", ["torn ledger", "torn part", "no part"])
def test_what_is_damaged_is_done_again(study: Path, undisturbed: Path, tmp_path: Path, damage: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    part = sorted((run / "results").iterdir())[1]
    if damage == "torn ledger":
        ledger = run / "items.jsonl"
        ledger.write_bytes(ledger.read_bytes()[:-40])
    elif damage == "torn part":
        part.write_bytes(part.read_bytes()[:-100])
    else:
        part.unlink()
    outcome = run_study(load_study(study), run)
    assert outcome.resumed < outcome.done == 60
    assert study_runs.content(run) == study_runs.content(undisturbed)


def test_three_shards_merged_are_the_whole(study: Path, undisturbed: Path, tmp_path: Path) -> None:
    folders = [tmp_path / str(place) for place in (1, 2, 3)]
    small = ["run.batch_size=7"]
    whole = run_study(load_study(study, small), tmp_path / "whole").folder
    done = [run_study(load_study(study, small), folder, shard=(place, 3)) for place, folder in enumerate(folders, 1)]
    assert sum(outcome.done for outcome in done) == 60
    merged = merge_studies(folders, tmp_path / "merged")
    assert study_runs.content(merged.folder) == study_runs.content(whole)
    with pytest.raises(UsageError, match=r"Shard 4/3 does not exist"):
        run_study(load_study(study), tmp_path / "none", shard=(4, 3))


def test_two_workers_find_the_same_bytes(study: Path, tmp_path: Path) -> None:
    small = load_study(study, ["run.batch_size=7"])
    one = run_study(small, tmp_path / "one").folder
    told = []
    two = run_study(small, tmp_path / "two", workers=2, progress=told.append).folder
    assert study_runs.content(one) == study_runs.content(two)
    assert [event.done for event in told][-1] == 60


def test_the_size_of_a_batch_changes_no_value(study: Path, undisturbed: Path, tmp_path: Path) -> None:
    auto = open_run(undisturbed)
    for size in (1, 8):
        outcome = run_study(load_study(study, [f"run.batch_size={size}"]), tmp_path / str(size))
        run = open_run(outcome.folder)
        for job in run.jobs:
            ours, theirs = (each.frame(job).reset_index(drop=True) for each in (run, auto))
            assert list(ours["item"]) == list(theirs["item"])
            numbers = ours.select_dtypes("number").columns
            for name in numbers:
                np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-4, err_msg=name)


def test_other_settings_are_refused_with_the_difference(study: Path, undisturbed: Path, tmp_path: Path) -> None:
    for override, said in (
        ("seed=1", r"seed: 0 against 1"),
        ("analyses.1.settings.seq_len=6", r"seq_len: 5 against 6"),
        ("run.batch_size=8", r"batch_size: 'auto' against 8"),
        ("data.1.count=29", r"items"),
    ):
        with pytest.raises(IntegrityError, match=said):
            run_study(load_study(study, [override]), undisturbed)


def test_a_limit_takes_the_first_items_and_is_remembered(study: Path, tmp_path: Path) -> None:
    outcome = run_study(load_study(study), tmp_path, limit=4)
    assert (outcome.total, outcome.done) == (8, 8)
    assert resume_study(tmp_path).total == 8
    with pytest.raises(UsageError, match=r"The limit is 0"):
        run_study(load_study(study), tmp_path / "none", limit=0)


# ------------------------------------------------------------------------------------------------------ failures


BAD = """[" the cat", "LONG", "one two", {prompt = "3 birds", answer = "several tokens"}, "and saw"]"""


@pytest.fixture
def with_bad_items(study: Path) -> list[str]:
    """Overrides that put two items among the prompts that cannot be asked about."""
    return ["data.0.source=" + BAD.replace("LONG", "x " * 70), "run.batch_size=5"]


def test_a_bad_item_fails_with_its_cause_and_the_others_go_on(
    study: Path, tmp_path: Path, with_bad_items: list[str]
) -> None:
    outcome = run_study(load_study(study, with_bad_items), tmp_path / "run")
    run = open_run(outcome.folder)
    assert (outcome.done, outcome.failed) == (33, 2)
    assert run.status().state == "failed items"
    errors = run.errors().set_index("item")
    assert "the context holds 64" in errors.loc["1", "message"]
    assert "is not one token" in errors.loc["3", "message"] or "tokens, not one" in errors.loc["3", "message"]
    assert set(errors["error"]) == {"UsageError"}
    assert set(errors["exit_code"]) == {2}
    good = [text for place, text in enumerate([" the cat", "x", "one two", "3", "and saw"]) if place in (0, 2, 4)]
    alone = run_study(load_study(study, [f"data.0.source={json.dumps(good)}"]), tmp_path / "alone").folder
    ours, theirs = run.frame(run.jobs[0]), open_run(alone).frame(run.jobs[0])
    np.testing.assert_allclose(ours["entropy"], theirs["entropy"], atol=1e-5)


def test_too_many_failures_end_a_run_that_keeps_what_it_has(
    study: Path, tmp_path: Path, with_bad_items: list[str]
) -> None:
    bad = load_study(study, with_bad_items)
    with pytest.raises(FailuresError, match=r"2 items have failed, and 1 may"):
        run_study(bad, tmp_path, max_failures=1)
    assert open_run(tmp_path).status().done == 3
    assert run_study(bad, tmp_path, max_failures=2).done == 33


def test_failed_items_are_tried_again_when_asked(
    study: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = running.fill

    def clumsy(model: object, order: object, *rest: object) -> object:
        batch = order.batch  # type: ignore[attr-defined]
        broken = replace(order, task="patching") if batch.index == 0 and batch.attempt == 1 else order  # type: ignore[type-var]
        return whole(model, broken, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "fill", clumsy)
    first = run_study(load_study(study), tmp_path)
    assert first.failed > 0
    assert run_study(load_study(study), tmp_path).failed == first.failed
    again = run_study(load_study(study), tmp_path, retry_failed=True)
    assert (again.done, again.failed) == (60, 0)
    ours, theirs = (open_run(folder).frame(open_run(folder).jobs[0]) for folder in (tmp_path, undisturbed))
    assert ours.equals(theirs)


def test_numbers_that_are_none_fail_their_item(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = running.load_opened

    def spoilt(opened: Opened) -> Transformer:
        model = load(opened)
        model.weights()["embed.W_E"][model.tokenizer.encode("9")[0]] = torch.nan
        return model

    monkeypatch.setattr(running, "load_opened", spoilt)
    outcome = run_study(load_study(study, ["data.1.count=1"]), tmp_path)
    errors = open_run(outcome.folder).errors()
    lens = errors[errors["job"].str.startswith("lens")]
    assert set(lens["item"]) == {"9", "19", "29"}, "the texts that hold a 9, and no others"
    assert set(lens["error"]) == {"IntegrityError"}
    assert set(lens["exit_code"]) == {5}
    assert lens["message"].str.contains("NaN or infinity stands under").all()


def test_a_batch_is_asked_in_the_order_of_its_items(study: Path) -> None:
    plan = plan_study(load_study(study))
    items = tuple(item.id for item in plan.jobs[0].items[3:0:-1])
    order = running.order_of(plan, Batch(0, plan.jobs[0].name, items, 2))
    assert tuple(item.id for item in order.items) == items


# ---------------------------------------------------------------------------------------------------------- kills


@pytest.fixture(scope="module")
def one_by_one(model: Path) -> tuple[Path, Path]:
    """The same study in sixty batches, and its undisturbed run."""
    path = study_runs.write_study(model / "one.toml", model, batch_size=1)
    return path, run_study(load_study(path), model / "one").folder


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_ends_as_if_it_had_not_been(
    one_by_one: tuple[Path, Path], tmp_path: Path
) -> None:
    assert study_runs.killed(*one_by_one, tmp_path / "run", kills=3, seed=0) == []


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_an_interrupt_leaves_a_run_that_goes_on(
    one_by_one: tuple[Path, Path], tmp_path: Path, stop: int, workers: int
) -> None:
    study, undisturbed = one_by_one
    run = tmp_path / "run"
    assert study_runs.stop_after(study_runs.start(study, run, workers), run, 9, stop)
    assert open_run(run).status().state == "interrupted"
    assert resume_study(run).done == 60
    assert study_runs.content(run) == study_runs.content(undisturbed)
