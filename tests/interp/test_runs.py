"""Run directories: what is written is read back, whole or item by item, and states and errors are told."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sample_runs import ITEMS, contents, frame, manifest, numbers, work

import interp
from interp.errors import IntegrityError, LoadError, UsageError
from interp.results import Result
from interp.runs import Failure, Job, Manifest, Run, RunWriter, write_part
from interp.runs.parts import read_rows
from interp.runs.plan import Batch, folder_name
from interp.runs.sealed import document


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The sample run, finished, with one failed item."""
    work(tmp_path / "run")
    return interp.open_run(tmp_path / "run")


class TestReading:
    def test_the_rows_of_a_job_come_in_the_order_of_the_plan(self, run: Run) -> None:
        expected = pd.concat([frame(item).assign(item=item) for item in ITEMS if "bad" not in item], ignore_index=True)
        pd.testing.assert_frame_equal(run.frame("lens"), expected[["item", "layer", "value", "token"]])

    @pytest.mark.parametrize("item", [item for item in ITEMS if "bad" not in item])
    def test_the_rows_of_an_item_are_its_own(self, run: Run, item: str) -> None:
        pd.testing.assert_frame_equal(run.item(item, "lens").drop(columns="item"), frame(item))

    def test_an_item_is_found_without_its_job_where_one_job_has_it(self, run: Run) -> None:
        assert set(run.item("h")["item"]) == {"h"}
        with pytest.raises(UsageError, match="2 jobs have done the item 'a' \\(lens, heads\\)"):
            run.item("a")

    def test_columns_and_items_can_be_chosen(self, run: Run) -> None:
        chosen = run.frame("lens", items=["e", "a"], columns=["value"])
        assert list(chosen["value"]) == [*frame("e")["value"], *frame("a")["value"]]
        assert list(run.table("lens", columns=["layer", "item"]).column_names) == ["layer", "item"]

    def test_what_is_not_there_is_said_with_what_is(self, run: Run) -> None:
        for call, words in (
            (lambda: run.frame(), "No job was named. Jobs of this run: lens, heads"),
            (lambda: run.frame("lense"), "no job 'lense'. Did you mean 'lens'"),
            (lambda: run.item("aa", "lens"), "no item 'aa'"),
            (lambda: run.item("c bad", "lens"), "'c bad' of job 'lens' failed: ValueError: c bad is bad"),
            (
                lambda: run.frame("lens", columns=["valeu"]),
                "no columns \\['valeu'\\]: they have item, layer, value, token",
            ),
            (lambda: run.item("zzz"), "0 jobs have done the item 'zzz' \\(none\\)"),
        ):
            with pytest.raises(UsageError, match=words):
                call()

    def test_errors_name_the_cause(self, run: Run) -> None:
        assert run.errors().to_dict("records") == [
            {"item": "c bad", "job": "lens", "batch": 0, "attempt": 1}
            | {"error": "ValueError", "message": "c bad is bad", "exit_code": 2}
        ]

    def test_opening_reads_only_the_head_of_the_manifest(self, run: Run) -> None:
        for path in run.folder.iterdir():
            if path.name != "manifest.json" and path.is_file():
                path.unlink()
        whole = (run.folder / "manifest.json").read_bytes()
        (run.folder / "manifest.json").write_bytes(whole[: whole.index(b'"plan"')])
        opened = interp.open_run(run.folder)
        assert (opened.name, opened.kind, opened.jobs) == ("sample", "study", ("lens", "heads"))
        with pytest.raises(LoadError, match="not valid JSON"):
            opened.status()

    def test_a_manifest_larger_than_the_first_read_opens(self, tmp_path: Path) -> None:
        large = manifest(settings={"text": "x" * 200_000})
        work(tmp_path / "run", large)
        assert interp.open_run(tmp_path / "run").manifest == large

    def test_a_run_in_progress_is_read_as_far_as_it_is_committed(self, tmp_path: Path) -> None:
        work(tmp_path / "run", stop=1)
        with RunWriter.open(tmp_path / "run", manifest()) as writer:
            batch = writer.pending()[0]
            part = write_part(tmp_path / "run", batch, {item: frame(item) for item in batch.items})
            run = interp.open_run(tmp_path / "run")
            assert set(run.frame("lens")["item"]) == {"a", "b"}
            with pytest.raises(UsageError, match="'d' of job 'lens' is not done yet"):
                run.item("d", "lens")
            writer.commit(batch, part)
            assert len(run.item("d", "lens")) == len(frame("d"))
            assert set(run.frame("lens")["item"]) == {"a", "b", "d", "e"}

    def test_parts_whose_columns_differ_are_read_together(self, tmp_path: Path) -> None:
        job = Job("j", "m", "x", "d", {}, ("a", "b", "c"), (1, 1, 1))
        frames = {"a": pd.DataFrame({"x": [1]}), "b": pd.DataFrame({"x": [0.5], "y": ["t"]}), "c": pd.DataFrame()}
        with RunWriter.open(tmp_path / "run", Manifest.new("m", [job])) as writer:
            for batch in writer.pending():
                writer.commit(batch, write_part(tmp_path / "run", batch, {batch.items[0]: frames[batch.items[0]]}))
        found = interp.open_run(tmp_path / "run").frame()
        assert found.fillna("").to_dict("list") == {"item": ["a", "b"], "x": [1.0, 0.5], "y": ["", "t"]}
        assert list(interp.open_run(tmp_path / "run").frame(columns=["y", "x"])["x"]) == [1.0, 0.5]
        assert len(interp.open_run(tmp_path / "run").item("c")) == 0


class TestStatus:
    def test_the_states_of_a_run(self, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        states = []
        for stop in (0, 2, None):
            work(folder, stop=stop)
            states.append(interp.open_run(folder).status())
        with RunWriter.open(folder, manifest()):
            states.append(interp.open_run(folder).status())
        work(folder, retry=True)
        states.append(interp.open_run(folder).status())
        assert [each.state for each in states] == ["planned", "interrupted", "failed items", "running", "finished"]
        assert [(each.done, each.failed, each.remaining) for each in states] == [
            (0, 0, 9),
            (4, 1, 4),
            (8, 1, 0),
            (8, 1, 0),
            (9, 0, 0),
        ]
        assert states[0].total == 9
        assert [states[1].batches, states[1].batches_done] == [5, 2]
        assert states[3].locked_by is not None
        assert states[4].locked_by is None
        assert states[0].started == "2026-01-02T03:04:05+00:00" <= states[0].updated <= states[4].updated

    def test_a_run_whose_summary_is_missing_is_not_finished(self, run: Run) -> None:
        (run.folder / "summary.json").unlink()
        assert run.status().state == "interrupted"
        assert run.summary() == {}
        work(run.folder)
        assert run.status().state == "failed items"
        assert run.summary() == {"lens": {"lines": ["three"]}}


class TestRetries:
    def test_failed_items_return_as_batches_of_their_own(self, run: Run) -> None:
        with RunWriter.open(run.folder, manifest()) as writer:
            assert writer.pending() == []
            assert writer.pending(retry_failed=True) == [Batch(0, "lens", ("c bad",), 2)]
        work(run.folder, retry=True)
        assert run.errors().empty
        assert list(dict.fromkeys(run.frame("lens")["item"])) == list(ITEMS)
        assert (run.folder / "results/part-00000-2.parquet").exists()
        assert run.check() == []

    def test_an_item_may_fail_again(self, run: Run) -> None:
        for attempt in (2, 3):
            with RunWriter.open(run.folder, manifest()) as writer:
                (batch,) = writer.pending(retry_failed=True)
                writer.commit(batch, None, [Failure("c bad", "KeyError", f"attempt {attempt}")])
                writer.finish()
        assert run.errors()[["attempt", "message"]].to_dict("list") == {"attempt": [3], "message": ["attempt 3"]}
        assert run.status().state == "failed items"
        with RunWriter.open(run.folder, manifest()) as writer:
            assert writer.pending(retry_failed=True) == [Batch(0, "lens", ("c bad",), 4)]


class TestRefusals:
    def test_a_folder_that_is_no_run_says_what_was_expected(self, tmp_path: Path) -> None:
        for place in (tmp_path, tmp_path / "absent"):
            with pytest.raises(LoadError, match="is not a run: expected a folder with manifest.json"):
                interp.open_run(place)
        numbers().save(tmp_path / "result")
        with pytest.raises(LoadError, match='not the manifest of a run: expected "format": "interp-run"'):
            interp.open_run(tmp_path / "result")

    @pytest.mark.parametrize(
        ("schema", "words"), [(2, "A newer interp wrote it"), ("x", "Use the version of interp that")]
    )
    def test_another_schema_is_refused_in_a_sentence(self, run: Run, schema: object, words: str) -> None:
        path = run.folder / "manifest.json"
        path.write_text(json.dumps({"format": "interp-run", "schema": schema, "something": "else"}))
        with pytest.raises(LoadError, match=f"schema {schema!r}, this interp reads schema 1. {words}"):
            interp.open_run(run.folder)

    def test_a_changed_manifest_is_refused(self, run: Run) -> None:
        path = run.folder / "manifest.json"
        whole = path.read_text()
        path.write_text(whole.replace('"batch_size":3', '"batch_size":4'))
        with pytest.raises(IntegrityError, match="was changed after it was written"):
            interp.open_run(run.folder)
        path.write_text(whole.replace('"packing":[3,2,2]', '"packing":[2,3,2]'))
        with pytest.raises(IntegrityError, match="was changed after it was written"):
            interp.open_run(run.folder).status()

    @pytest.mark.parametrize("change", [{"jobs": 1.5}, {"jobs": ["a"]}, {"jobs": [{}]}, {"name": None}, {"kind": 1}])
    def test_a_head_that_cannot_be_is_refused_though_its_hash_fits(self, run: Run, change: dict[str, object]) -> None:
        path = run.folder / "manifest.json"
        facts = json.loads(path.read_text())
        plan = facts.pop("plan")
        head = {name: value for name, value in facts.items() if name not in ("head_sha256", "sha256")}
        path.write_bytes(document({**head, **change}, {"plan": plan}))
        with pytest.raises(LoadError, match="does not say what the run and its jobs are called"):
            interp.open_run(run.folder)

    def test_another_plan_is_refused_with_every_difference(self, run: Run) -> None:
        before = contents(run.folder)
        job = Job("lens", "tiny", "lens", "texts", {"top_k": 4}, ITEMS, (2, 3, 2))
        models = ({"name": "tiny", "weights_sha256": "v" * 64},)
        other = manifest(seed=1, jobs=(job,), models=models, versions={"interp": "0", "code": "d"})
        with pytest.raises(IntegrityError) as caught:
            RunWriter.open(run.folder, other)
        for words in (
            "seed: 0 against 1",
            "jobs.lens.settings.top_k: 3 against 4",
            "jobs.lens.packing: (3, 2, 2) against (2, 3, 2)",
            "jobs.heads: ",
            "models.tiny.weights_sha256: 'www",
            "versions.code: 'ccc",
        ):
            assert words in str(caught.value)
        assert contents(run.folder) == before

    def test_a_folder_with_other_files_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(UsageError, match="it holds other files \\(notes.txt\\)"):
            RunWriter.open(tmp_path, manifest())
        with pytest.raises(UsageError, match="a file is there"):
            RunWriter.open(tmp_path / "notes.txt", manifest())
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_commits_that_do_not_fit_the_plan_are_refused(self, tmp_path: Path) -> None:
        with RunWriter.open(tmp_path / "run", manifest()) as writer:
            first, second = writer.pending()[:2]
            part = write_part(writer.folder, first, {"a": frame("a"), "b": frame("b")})
            failure = Failure("c bad", "ValueError", "no")
            for batch, failures in ((first, []), (second, [failure]), (first, [failure, Failure("a", "E", "")])):
                with pytest.raises(UsageError, match="expected each item once"):
                    writer.commit(batch, part, failures)
            writer.commit(first, part, [failure])
            with pytest.raises(UsageError, match="is not one that is left"):
                writer.commit(first, part, [failure])
            with pytest.raises(UsageError, match="4 batches are left"):
                writer.finish()

    def test_frames_that_cannot_be_a_part_are_refused(self, tmp_path: Path) -> None:
        batch = Batch(0, "j", ("a", "b"))
        for frames, words in (
            ({}, "no item"),
            ({"z": frame("z")}, "\\['z'\\]"),
            ({"a": pd.DataFrame({"item": [1]})}, "has a column 'item'"),
            ({"a": pd.DataFrame({"x": [1]}), "b": pd.DataFrame({"x": ["t"]})}, "do not fit each other"),
            ({"a": pd.DataFrame({"x": [object()]})}, "cannot be written"),
        ):
            with pytest.raises(UsageError, match=words):
                write_part(tmp_path, batch, frames)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"name": "../x"}, "cannot name a folder"),
            ({"items": ("a", "a")}, "'a' twice"),
            ({"items": ("a", "")}, "at least one character"),
            ({"items": ("a", "\ud800")}, "in UTF-8"),
            ({"packing": (1,)}, "packs 1 items into 1 batches and has 2"),
            ({"packing": (2, 0)}, "sizes of at least 1"),
            ({"settings": {"x": float("nan")}}, "finite numbers only"),
        ],
    )
    def test_a_job_that_cannot_be_is_refused(self, changes: dict[str, object], words: str) -> None:
        facts = {"name": "j", "model": "m", "analysis": "a", "data": "d", "items": ("a", "b"), "packing": (2,)}
        with pytest.raises(UsageError, match=words):
            Job(**{**facts, **changes})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"jobs": ()}, "at least one"),
            ({"jobs": (Job("a", "m", "x", "d"), Job("A", "m", "x", "d"))}, "each of another name"),
            ({"kind": "party"}, "expected one of study, analysis"),
            ({"shard": (4, 3)}, "Shard 4/3 does not exist"),
            ({"shard": (0, 3)}, "Shard 0/3 does not exist"),
        ],
    )
    def test_a_manifest_that_cannot_be_is_refused(self, changes: dict[str, object], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            manifest(**changes)


class TestSavedResults:
    def test_whole_results_come_back(self, run: Run) -> None:
        assert run.results() == [("lens", "a"), ("heads", "a")]
        assert run.result("a", "lens").identical(numbers())
        with pytest.raises(
            UsageError, match="keeps 2 results that may be meant, of 2: expected one. It has lens/a, head"
        ):
            run.result("a")
        with pytest.raises(UsageError, match="keeps 0 results"):
            run.result("b", "lens")

    def test_a_run_with_several_results_names_them_when_loaded_as_one(self, run: Run) -> None:
        with pytest.raises(UsageError, match="It has lens/a, heads/a"):
            Result.load(run.folder)

    def test_folders_of_items_stay_inside_and_differ(self) -> None:
        names = [
            folder_name(item) for item in ("a", "A", "../a", "..", "/", "con/aux", "x" * 300, "ü", "a~b", "🙂", "\0")
        ]
        assert len({name.lower() for name in names}) == len(names)
        assert all("/" not in name and not name.startswith(".") and len(name) < 100 for name in names)


def test_a_manifest_is_read_back_as_it_was() -> None:
    for each in (manifest(), manifest(shard=(2, 3), prefix="doc", dtype="float32")):
        assert Manifest.from_json(each.to_json(), Path("manifest.json")) == each


def test_a_new_manifest_names_the_versions_of_now() -> None:
    made = Manifest.new("x", [Job("j", "m", "a", "d")])
    assert made.versions["interp"] == interp.__version__
    assert set(made.versions) == {"interp", "python", "torch", "numpy", "pyarrow", "code"}
    assert len(made.versions["code"]) == 64


@pytest.mark.parametrize("span", [(0, 3), (9, 2), (3014, 5), (10, 1999 + 2)])
def test_rows_that_are_not_the_items_own_are_refused(tmp_path: Path, span: tuple[int, int]) -> None:
    batch = Batch(0, "j", ("a", "b"))
    part = write_part(tmp_path, batch, {"a": pa.table({"x": range(10)}), "b": pa.table({"x": range(2000)})})
    assert read_rows(tmp_path, part.file, part.sha256, "b", (10, 2000)).num_rows == 2000
    with pytest.raises(IntegrityError, match="does not hold the rows of 'b' where the ledger says"):
        read_rows(tmp_path, part.file, part.sha256, "b", span)


def test_a_large_part_is_read_by_its_pages_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(0, "j", ("a", "b"))
    tables = {item: pa.table({"x": np.random.default_rng(0).random(5000)}) for item in "ab"}
    part = write_part(tmp_path, batch, tables)
    monkeypatch.setattr("interp.runs.parts.VERIFIED", 1000)
    content = bytearray((tmp_path / part.file).read_bytes())
    content[30_000] ^= 1  # within the rows of "a"
    (tmp_path / part.file).write_bytes(content)
    assert read_rows(tmp_path, part.file, part.sha256, "b", (5000, 5000)).num_rows == 5000
    with pytest.raises(IntegrityError, match="cannot be read as Parquet"):
        read_rows(tmp_path, part.file, part.sha256, "a", (0, 5000))


def test_rows_of_other_items_are_not_read_with_those_of_a_long_one(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    batch = Batch(0, "j", tuple("abcdef"))
    lengths = {"a": 10, "b": 2000, "c": 999, "d": 1, "e": 5, "f": 0}
    tables = {item: pa.table({"x": list(range(length))}) for item, length in lengths.items()}
    part = write_part(tmp_path, batch, tables)
    meta = pq.ParquetFile(tmp_path / part.file).metadata
    assert [meta.row_group(group).num_rows for group in range(meta.num_row_groups)] == [2010, 1000, 5]
    assert part.spans["d"] == (3009, 1)
