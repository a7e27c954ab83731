"""`interp status`, `ls`, `report` and `merge` on runs without a model: whole, half-done, failed, damaged, foreign."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import small_runs

import interp

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return small_runs.write(tmp_path / "whole")


@pytest.fixture
def half(tmp_path: Path) -> Path:
    return small_runs.write(tmp_path / "half", batches=1)


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    return small_runs.write(tmp_path / "failed", failing=["Italy"])


# --------------------------------------------------------------------------------------------------- status


def test_a_finished_run_says_so(run: Run, whole: Path) -> None:
    code, printed, complaint = run("status", str(whole))
    assert (code, complaint) == (0, "")
    assert "finished" in printed
    assert "8 of 8 done, 0 to do" in printed
    assert "interp resume" not in printed


def test_a_run_that_was_stopped_says_how_to_go_on(run: Run, half: Path) -> None:
    printed = run("status", str(half))[1]
    assert "interrupted" in printed
    assert "3 of 8 done, 5 to do" in printed
    assert f"To go on: interp resume {half}" in printed


def test_failed_items_are_counted_and_can_be_tried_again(run: Run, failed: Path) -> None:
    printed = run("status", str(failed))[1]
    assert "6 of 8 done, 2 failed, 0 to do" in printed
    assert "--retry-failed" in printed


def test_as_json_status_has_counts_and_jobs(run: Run, half: Path) -> None:
    code, printed, _ = run("status", str(half), "--json")
    told = json.loads(printed)
    assert code == 0
    assert [told[name] for name in ("state", "total", "done", "failed", "remaining")] == ["interrupted", 8, 3, 0, 5]
    assert told["jobs"][0] == {
        "name": "lens-tiny", "model": "tiny", "analysis": "lens", "data": "countries", "items": 4,
    }  # fmt: skip
    assert told["locked_by"] is None


@pytest.mark.parametrize("command", ["status", "report", "resume", "diff"])
def test_a_folder_that_is_no_run_ends_with_4_and_a_sentence(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, printed, complaint = run(command, *[str(folder)] * (2 if command == "diff" else 1))
        assert (code, printed) == (4, "")
        assert complaint.splitlines()[-1].startswith("Error: ")
        assert str(folder) in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("command", ["status", "report", "resume"])
def test_a_run_of_a_newer_schema_is_refused_with_a_sentence(run: Run, whole: Path, command: str) -> None:
    path = whole / "manifest.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2').replace('"schema":1', '"schema":2'))
    code, printed, complaint = run(command, str(whole))
    assert (code, printed) == (4, "")
    assert "schema" in complaint
    assert "2" in complaint


# ------------------------------------------------------------------------------------------------------- ls


def test_runs_are_found_in_folders_of_folders(run: Run, tmp_path: Path, whole: Path, half: Path) -> None:
    small_runs.write(tmp_path / "deep/er/third", small_runs.manifest(name="third"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.json").write_text('{"format": "another"}')
    code, printed, _ = run("ls", str(tmp_path))
    assert code == 0
    rows = {line.split()[0]: line for line in printed.splitlines() if "tiny" in line}
    assert set(rows) == {"whole", "half", "deep/er/third"}
    assert "3 of 8" in rows["half"]
    assert "third" in rows["deep/er/third"].split()[1]
    listed = json.loads(run("ls", str(tmp_path), "--json")[1])["runs"]
    assert [(Path(row["folder"]).name, row["state"]) for row in listed] == [
        ("third", "finished"), ("half", "interrupted"), ("whole", "finished"),
    ]  # fmt: skip


def test_a_damaged_run_is_listed_with_what_is_wrong(run: Run, tmp_path: Path, whole: Path) -> None:
    path = whole / "manifest.json"
    path.write_bytes(path.read_bytes()[:300])
    small_runs.write(tmp_path / "second")
    code, printed, _ = run("ls", str(tmp_path))
    assert code == 0
    assert "unreadable" in printed
    assert "8 of 8" in printed


def test_where_there_are_no_runs_that_is_said(run: Run, tmp_path: Path) -> None:
    assert run("ls", str(tmp_path)) == (0, f"No runs below {tmp_path}.\n", "")
    code, _, complaint = run("ls", str(tmp_path / "nowhere"))
    assert code == 4
    assert "nowhere" in complaint


# ---------------------------------------------------------------------------------------------------- merge


def test_a_shard_that_is_missing_is_named_and_nothing_written(run: Run, tmp_path: Path) -> None:
    part = small_runs.write(tmp_path / "part", small_runs.manifest(shard=(1, 2)))
    code, _, complaint = run("merge", str(part), "--out", str(tmp_path / "merged"))
    assert code in (2, 5)
    assert "2" in complaint
    assert not (tmp_path / "merged").exists()


# --------------------------------------------------------------------------------------------------- report


def test_a_report_that_cannot_be_written_ends_with_2(run: Run, tmp_path: Path, whole: Path) -> None:
    (tmp_path / "file").write_text("mine")
    code, printed, complaint = run("report", str(whole), "--out", str(tmp_path / "file"))
    assert (code, printed) == (2, "")
    assert "is a file" in complaint


def test_every_row_of_every_job_stands_in_a_csv(run: Run, whole: Path) -> None:
    code, printed, _ = run("report", str(whole), "-q")
    assert code == 0
    page = Path(printed.strip())
    assert page == whole / "report" / "report.html"
    frame = pd.read_csv(page.parent / "lens-tiny.csv")
    assert list(frame.columns) == ["item", "layer", "token", "rank", "final_probability"]
    assert len(frame) == 12
    assert list(dict.fromkeys(frame["item"])) == list(small_runs.ITEMS)


def test_a_report_leaves_the_run_as_it_was(run: Run, whole: Path) -> None:
    run("report", str(whole), "-q")
    assert interp.open_run(whole).check() == []
    assert run("status", str(whole))[0] == 0


def test_paths_are_quoted_where_advice_names_them(run: Run, tmp_path: Path) -> None:
    folder = small_runs.write(tmp_path / "two words", batches=1)
    assert f"interp resume '{folder}'" in run("status", str(folder))[1]
    assert os.fspath(folder) in run("status", str(folder), "--json")[1]


# ------------------------------------------------------------------------------------ --out of single analyses


@pytest.mark.usefixtures("unloadable")
def test_a_study_or_other_files_are_never_replaced_by_a_single_analysis(run: Run, tmp_path: Path, whole: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("mine")
    for folder in (whole, tmp_path / "mine"):
        before = sorted(folder.rglob("*"))
        code, printed, complaint = run("lens", "x", "--out", str(folder), "-q")
        assert (code, printed) == (2, "")
        assert str(folder) in complaint
        assert sorted(folder.rglob("*")) == before


@pytest.mark.usefixtures("memory")
def test_a_single_analysis_writes_a_run_like_any_other(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("induction", "--seq-len", "3", "--n-seqs", "2", "--ablate-top", "0", "-q", "--out", str(out))
    assert run(*words)[0] == 0
    assert run(*words)[0] == 0, "an earlier one is replaced"
    found = interp.open_run(out)
    assert (found.kind, found.status().state, found.check()) == ("analysis", "finished", [])
    assert len(found.frame("induction")) > 0
    assert set(found.manifest.settings) == set(found.jobs)
    for command in ("status", "report"):
        assert run(command, str(out))[0] == 0
    assert run("diff", str(out), str(out))[0] == 0
    code, _, complaint = run("resume", str(out))
    assert code in (2, 5)
    assert "nothing to resume" in complaint
