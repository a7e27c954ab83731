"""Two runs compared: what was asked, and every value over the cells that both have."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import small_runs

import interp
from interp.apps.run_diff import ColumnDifference, JobDifference, compare
from interp.runs import Job

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return small_runs.write(tmp_path / "first")


def compared(first: Path, second: Path) -> JobDifference:
    """The first job of both."""
    return compare(interp.open_run(first), interp.open_run(second)).jobs[0]


def column(job: JobDifference, name: str) -> ColumnDifference:
    return next(column for column in job.columns if column.column == name)


def test_a_run_equals_itself(run: Run, first: Path) -> None:
    code, printed, complaint = run("diff", str(first), str(first))
    assert (code, complaint) == (0, "")
    assert printed.endswith("No value differs by more than 0.\n")
    assert [one.column for one in compared(first, first).columns] == ["token", "rank", "final_probability"]


def test_the_largest_difference_of_a_column_is_found_and_where_it_is(run: Run, first: Path, tmp_path: Path) -> None:
    second = small_runs.write(
        tmp_path / "second", table=lambda item: small_runs.table(item, 0.25 if item == "Italy" else 0.0)
    )
    found = column(compared(first, second), "final_probability")
    assert (found.cells, found.different, found.item) == (12, 3, "Italy")
    assert found.largest == pytest.approx(0.25)
    assert column(compared(first, second), "rank").different == 0
    assert run("diff", str(first), str(second))[0] == 3
    assert run("diff", str(first), str(second), "--tolerance", "0.26")[0] == 0
    code, printed, _ = run("diff", str(first), str(second), "--tolerance", "0.2", "--json")
    assert code == 3
    document = json.loads(printed)
    assert document["equal"] is False
    assert document["jobs"][0]["columns"][2]["largest"] == pytest.approx(0.25)


def test_rows_in_another_order_are_the_same_rows(first: Path, tmp_path: Path) -> None:
    second = small_runs.write(
        tmp_path / "second", table=lambda item: small_runs.table(item)[::-1].reset_index(drop=True)
    )
    assert compared(first, second).within(0)


def test_where_no_column_tells_rows_apart_their_order_does(tmp_path: Path) -> None:
    def table(item: str, last: float = 2.0) -> pd.DataFrame:
        return pd.DataFrame({"value": [1.0, 1.0, last]})

    first = small_runs.write(tmp_path / "first", table=table)
    second = small_runs.write(tmp_path / "second", table=lambda item: table(item, 4.0))
    assert column(compared(first, second), "value").largest == 2
    assert compared(first, first).within(0)


def test_what_is_no_number_on_one_side_alone_differs_without_bound(first: Path, tmp_path: Path) -> None:
    def broken(item: str) -> pd.DataFrame:
        return small_runs.table(item).assign(final_probability=np.nan)

    second, third = (small_runs.write(tmp_path / name, table=broken) for name in ("second", "third"))
    assert column(compared(first, second), "final_probability").largest == np.inf
    assert compared(second, third).within(0)


def test_items_and_jobs_of_one_run_alone_are_named(run: Run, first: Path, tmp_path: Path) -> None:
    whole = small_runs.manifest()
    job = whole.jobs[0]
    less = Job(job.name, job.model, job.analysis, job.data, job.settings, job.items[:2], (2,))
    second = small_runs.write(tmp_path / "second", small_runs.manifest(jobs=[less]))
    found = compare(interp.open_run(first), interp.open_run(second))
    assert found.jobs[0].only_ours == ("Côte d'Ivoire", "Japan")
    assert found.only_ours == ("more-tiny",)
    code, printed, _ = run("diff", str(first), str(second))
    assert code == 3
    assert "Only in the first: Côte d'Ivoire, Japan" in printed
    assert "Only in the first: job more-tiny" in printed


def test_settings_and_models_that_differ_are_shown_and_do_not_count(run: Run, first: Path, tmp_path: Path) -> None:
    model = {"name": "tiny", "weights_sha256": "00" * 32, "tokenizer_sha256": "cd" * 32}
    second = small_runs.write(tmp_path / "second", small_runs.manifest(models=[model], seed=4))
    code, printed, _ = run("diff", str(first), str(second))
    assert code == 0
    assert "seed" in printed
    assert "abab" in printed


def test_jobs_of_two_models_are_paired_where_they_ask_the_same(first: Path, tmp_path: Path) -> None:
    jobs = [
        Job(job.name.replace("tiny", "other"), "other", job.analysis, job.data, job.settings, job.items, job.packing)
        for job in small_runs.manifest().jobs
    ]
    second = small_runs.write(tmp_path / "second", small_runs.manifest(jobs=jobs))
    found = compare(interp.open_run(first), interp.open_run(second))
    assert [(job.ours, job.theirs) for job in found.jobs] == [
        ("lens-tiny", "lens-other"),
        ("more-tiny", "more-other"),
    ]
    assert found.within(0)
