"""Shards of a study become the run that was never sharded; single analyses become runs of their own."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from sample_runs import Numbers, at_call, contents, manifest, no_space, numbers, work

import interp
from interp.errors import IntegrityError, LoadError, StorageError, UsageError
from interp.results import Result
from interp.runs import Job, RunWriter, check_target, differences, merge_runs, record


def shards(home: Path, count: int) -> list[Path]:
    """The sample run as so many shards."""
    folders = [home / f"shard-{place}" for place in range(1, count + 1)]
    for place, folder in enumerate(folders, 1):
        work(folder, manifest(shard=(place, count)))
    return folders


class TestMerging:
    @pytest.mark.parametrize("count", [1, 3, 7])
    def test_merged_shards_have_the_bytes_of_the_whole(self, tmp_path: Path, count: int) -> None:
        folders = shards(tmp_path, count)
        assert sum(interp.open_run(folder).status().total for folder in folders) == 9
        run = merge_runs(folders[::-1], tmp_path / "merged")
        assert run.status().state == "interrupted"
        work(tmp_path / "merged")
        work(tmp_path / "whole")
        assert contents(tmp_path / "merged") == contents(tmp_path / "whole")
        assert run.status().state == "failed items"

    def test_what_is_no_set_of_shards_is_refused(self, tmp_path: Path) -> None:
        folders = shards(tmp_path, 3)
        work(tmp_path / "whole")
        work(tmp_path / "other", manifest(shard=(3, 3), seed=4))
        shutil.copytree(folders[0], tmp_path / "copy")
        for given, kind, words in (
            ([], UsageError, "No runs were given"),
            (folders[:2], UsageError, "Shards 1/3, 2/3 were given: expected each of 1/2 to 2/2, once"),
            ([*folders, tmp_path / "copy"], UsageError, "1/3, 2/3, 3/3, 1/3 were given"),
            ([tmp_path / "whole"], UsageError, "Shards no shard were given"),
            ([*folders[:2], tmp_path / "other"], IntegrityError, "not shards of one study:\n  seed: 0 against 4"),
            ([*folders[:2], tmp_path], LoadError, "is not a run"),
        ):
            with pytest.raises(kind, match=words):
                merge_runs(given, tmp_path / "merged")
            assert not (tmp_path / "merged").exists()

    def test_a_shard_that_is_not_done_or_damaged_is_refused(self, tmp_path: Path) -> None:
        folders = shards(tmp_path, 2)
        (folders[0] / "results/part-00002.parquet").write_bytes(b"PAR1")
        with pytest.raises(IntegrityError, match="is damaged: results/part-00002.parquet is missing, or is not"):
            merge_runs(folders, tmp_path / "merged")
        shutil.rmtree(folders[0])
        work(folders[0], manifest(shard=(1, 2)), stop=1)
        with pytest.raises(UsageError, match=r"is not done \(interrupted, 3 items left\). Resume it first"):
            merge_runs(folders, tmp_path / "merged")

    def test_a_folder_that_holds_something_is_not_written_over(self, tmp_path: Path) -> None:
        folders = shards(tmp_path, 2)
        with pytest.raises(UsageError, match="holds other files"):
            merge_runs(folders, folders[0])
        assert interp.open_run(folders[0]).check() == []

    def test_a_shard_of_a_shard_resumes_only_as_itself(self, tmp_path: Path) -> None:
        (folder,) = shards(tmp_path, 1)
        with pytest.raises(IntegrityError, match="shard: "):
            RunWriter.open(folder, manifest())


class TestRecording:
    def test_a_single_analysis_is_a_finished_run(self, tmp_path: Path) -> None:
        run = record(tmp_path / "out", {"scores": numbers()}, analysis="induction", settings={"top_k": 3})
        assert (run.kind, run.name, run.jobs) == ("analysis", "induction", ("scores",))
        assert run.status().state == "finished"
        assert (run.manifest.seed, run.manifest.prefix, run.manifest.dtype) == (1, "doc", "float32")
        assert run.manifest.models[0]["name"] == "tiny"
        assert run.manifest.models[0]["weights_sha256"] == "w" * 64
        assert run.result().identical(numbers())
        assert Numbers.load(tmp_path / "out").identical(numbers())
        pd.testing.assert_frame_equal(run.frame().drop(columns="item"), numbers().to_frame())
        page = (tmp_path / "out/figures/scores.html").read_text()
        assert "figure-scores" in page
        assert run.check() == []

    def test_the_same_results_give_the_same_bytes(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            record(tmp_path / name, {"a": numbers("a"), "b": numbers("b")}, analysis="x")
        found = [contents(tmp_path / name) for name in ("one", "two")]
        for files in found:
            files.pop("manifest.json")
        assert found[0] == found[1]
        assert len(found[0]) == 15

    def test_an_earlier_one_is_replaced_and_anything_else_refused(self, tmp_path: Path) -> None:
        record(tmp_path / "out", {"a": numbers("a"), "b": numbers("b")}, analysis="x")
        record(tmp_path / "out", {"b": numbers("b")}, analysis="y", figures={})
        assert interp.open_run(tmp_path / "out").results() == [("b", "result")]
        assert not (tmp_path / "out/figures").exists()
        work(tmp_path / "study")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/notes.txt").write_text("mine")
        before = contents(tmp_path)
        for name in ("study", "mine"):
            with pytest.raises(UsageError, match="the folder holds other files"):
                record(tmp_path / name, {"a": numbers()}, analysis="x")
            with pytest.raises(UsageError, match="the folder holds other files"):
                check_target(tmp_path / name)
        check_target(tmp_path / "out")
        assert contents(tmp_path) == before

    def test_several_results_are_named_when_one_is_loaded(self, tmp_path: Path) -> None:
        run = record(tmp_path / "out", {"a": numbers("a"), "b": numbers("b")}, analysis="x")
        with pytest.raises(UsageError, match="It has a/result, b/result"):
            Result.load(tmp_path / "out")
        assert run.result(job="b").identical(numbers("b"))

    def test_a_disk_that_fills_meanwhile_leaves_what_was_there(self, tmp_path: Path) -> None:
        record(tmp_path / "out", {"a": numbers("a")}, analysis="x")
        before = contents(tmp_path)
        with at_call(10**9, no_space) as calls:
            record(tmp_path / "counted", {"b": numbers("b")}, analysis="y")
        shutil.rmtree(tmp_path / "counted")
        for number in range(0, calls[0], 6):
            with at_call(number, no_space), pytest.raises(StorageError, match="No space left on device") as caught:
                record(tmp_path / "out", {"b": numbers("b")}, analysis="y")
            assert "partial" not in str(caught.value)
            assert contents(tmp_path) == before
            assert [path.name for path in tmp_path.iterdir()] == ["out"]


class TestDifferences:
    def test_equal_manifests_have_none_whatever_their_dates(self) -> None:
        assert differences(manifest(), manifest(created="another day")) == []

    def test_each_is_named_by_its_path(self) -> None:
        items = tuple(f"item {number}" for number in range(500))
        one = manifest(settings={"a": [1, 2], "b": {"c": 1}}, jobs=(Job("j", "m", "x", "d", {}, items, (500,)),))
        two = manifest(
            settings={"a": [1, 3], "b": {"c": 1.0}}, jobs=(Job("j", "m", "x", "d", {}, items[:499], (499,)),)
        )
        assert [str(each) for each in differences(one, two)] == [
            "settings.a: [1, 2] against [1, 3]",
            "settings.b.c: 1 against 1.0",
            "jobs.j.items: 500 entries, number 499 ['item 499'] against 499 entries, number 499 []",
            "jobs.j.packing: (500,) against (499,)",
        ]

    def test_what_only_one_has_is_told(self) -> None:
        data = ({"name": "facts", "sha256": "a"},)
        assert [str(each) for each in differences(manifest(), manifest(data=data))] == [
            "data.facts: nothing against {'name': 'facts', 'sha256': 'a'}"
        ]
