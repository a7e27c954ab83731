"""`interp run`, `validate`, `resume` and the exit codes of the whole program, as real commands on a tiny model."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from published import write_folder, write_tokenizer
from tiny import BASE

import interp

Run = Callable[..., tuple[int, str, str]]

TINY = replace(BASE, d_vocab=300, n_ctx=64)
STUDY = """\
name = "towers"
seed = 3

[[models]]
name = "{model}"

[[data]]
name = "texts"
kind = "prompts"
source = {texts}

[[analyses]]
analysis = "lens"
data = "texts"

[run]
batch_size = 2
"""
TEXTS = ["the tower of the city", "a store, a drink", "12 planets", "the the of of", "the city"]
TOO_LONG = "the tower of the city " * 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_folder(folder, TINY)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def study(model: Path, tmp_path: Path) -> Path:
    return written(tmp_path / "study.toml", model)


@pytest.fixture
def failing(model: Path, tmp_path: Path) -> Path:
    """A study of which one item cannot be read."""
    return written(tmp_path / "failing.toml", model, [*TEXTS, TOO_LONG])


def written(path: Path, model: Path, texts: list[str] | None = None) -> Path:
    path.write_text(STUDY.format(model=model, texts=json.dumps(texts or TEXTS)))
    return path


def shell(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`interp words…` as its own process."""
    return subprocess.run([sys.executable, "-m", "interp", *map(str, words)], capture_output=True, text=True)


# ------------------------------------------- exit codes: what `main` returns, and that a process of its own ends so


def test_a_study_that_is_complete_ends_with_0_and_again_does_nothing(study: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    done = shell("run", study, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "5 of 5 items done." in done.stdout
    assert done.stderr.splitlines()[0] == "Running towers …"
    assert done.stderr.splitlines()[-1] == f"Run: {out}"
    before = contents(out)
    code, printed, _ = run("run", str(study), "--out", str(out))
    assert code == 0
    assert "5 of 5 items done, 5 of them earlier." in printed
    assert contents(out) == before


def contents(folder: Path) -> dict[str, bytes]:
    """What a run holds, but for the log and the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("log.txt", "lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_fault_of_ours_ends_with_1_and_no_traceback(
    run: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr("interp.analyses.study.run_study", fail)
    code, _, complaint = run("run", str(study), "--out", str(tmp_path / "x"))
    assert code == 1
    assert "Internal error: ZeroDivisionError: one over nothing" in complaint
    assert "Traceback" not in complaint


def test_a_wrong_study_ends_with_2_and_tells_all_that_is_wrong(run: Run, study: Path) -> None:
    study.write_text(study.read_text().replace("batch_size = 2", 'batch_sise = 2\nworkers = "two"'))
    code, printed, complaint = run("run", str(study))
    assert (code, printed) == (2, "")
    assert "run.batch_sise" in complaint
    assert "batch_size" in complaint
    assert "run.workers" in complaint
    assert "Traceback" not in complaint


def test_failed_items_end_with_3_unless_they_are_allowed(failing: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    done = shell("run", failing, "--out", out)
    assert done.returncode == 3, done.stderr
    assert "5 of 6 items done, 1 failed." in done.stdout
    assert "Failed lens-tiny" in done.stdout
    assert f"interp resume {out} --retry-failed" in done.stderr
    assert run("resume", str(out), "--allow-failures", "-q")[0] == 0
    assert run("resume", str(out), "--retry-failed", "-q")[0] == 3


def test_a_model_that_cannot_be_loaded_ends_with_4(run: Run, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, printed, complaint = run("run", str(study), "--set", "models.0.name=nowhere.gguf", "--out", str(out))
    assert (code, printed) == (4, "")
    assert "nowhere.gguf" in complaint
    assert not out.exists()


def test_another_setting_in_the_same_folder_ends_with_5_and_shows_the_difference(
    study: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "out"
    assert run("run", str(study), "--out", str(out), "-q")[0] == 0
    before = contents(out)
    others = ("--set", "analyses.0.settings.top_k=3", "--set", "seed=4")
    code, printed, complaint = run("run", str(study), "--out", str(out), *others)
    assert (code, printed) == (5, "")
    assert "top_k" in complaint
    assert "seed: 3 against 4" in complaint
    assert contents(out) == before


def test_more_failures_than_allowed_end_with_6_and_keep_what_is_there(run: Run, failing: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, _, complaint = run("run", str(failing), "--out", str(out), "--max-failures", "0")
    assert code == 6, complaint
    assert f"To go on: interp resume {out}" in complaint
    assert interp.open_run(out).status().failed == 1


@pytest.fixture
def under_way(model: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run of many batches, after the first of them."""
    many = written(tmp_path / "many.toml", model, [f"the city {n}" for n in range(120)])
    command = [
        sys.executable,
        "-m",
        "interp",
        "run",
        str(many),
        "--set",
        "run.batch_size=1",
        "--out",
        str(tmp_path / "out"),
        "-v",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " of 120 items" in line:
                break
        yield process
        with contextlib.suppress(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "Interrupted."), (signal.SIGTERM, 143, "Terminated.")]
)
def test_a_run_that_is_stopped_says_how_to_go_on_and_can(
    under_way: "subprocess.Popen[str]", tmp_path: Path, run: Run, number: signal.Signals, code: int, said: str
) -> None:
    out = tmp_path / "out"
    under_way.send_signal(number)
    printed, complaint = under_way.communicate(timeout=60)
    assert (under_way.returncode, printed) == (code, "")
    assert f"To go on: interp resume {out}" in complaint
    assert complaint.splitlines()[-1] == said
    assert "Traceback" not in complaint
    status = interp.open_run(out).status()
    assert status.state == "interrupted"
    assert 0 < status.done < 120
    code, printed, _ = run("resume", str(out))
    assert code == 0
    assert f"120 of 120 items done, {status.done} of them earlier." in printed


# ------------------------------------------------------------------------------------------ what cannot be asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nowhere.toml"], "nowhere.toml"),
        (["run", "inductoin"], "induction"),
        (["run", "STUDY", "--shard", "4/3"], "--shard is '4/3'; expected I/N with I from 1 to N"),
        (["run", "STUDY", "--shard", "half"], "--shard is 'half'"),
        (["run", "STUDY", "--limit", "0"], "--limit"),
        (["run", "STUDY", "--workers", "0"], "--workers"),
        (["run", "STUDY", "--set", "run.batch_size"], "key=value"),
        (["run", "STUDY", "--set", "analyses.0.settings.topk=3"], "top_k"),
        (["run", "STUDY", "--on", "h200"], "--on belongs to --dry-run"),
        (["run", "STUDY", "--dry-run", "--on", "h2000"], "h200"),
        (["run", "STUDY", "--progress", "loud"], "'auto', 'json', 'plain', 'none'"),
        (["validate", "STUDY", "--set", "models.0.dtype=int3"], "models.0.dtype"),
        (["merge", "--out", "x"], "Missing argument"),
        (["diff", "x", "y", "--tolerance", "-1"], "--tolerance"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_ends_with_2_and_a_message(run: Run, study: Path, words: list[str], said: str) -> None:
    code, printed, complaint = run(*(str(study) if word == "STUDY" else word for word in words))
    assert (code, printed) == (2, "")
    assert said in complaint
    assert "Traceback" not in complaint


def test_what_is_no_toml_is_refused_with_line_and_column(run: Run, study: Path) -> None:
    study.write_text('name = "x"\n\nmodels = = 3')
    code, printed, complaint = run("run", str(study))
    assert (code, printed) == (2, "")
    assert "line 3" in complaint


@pytest.mark.parametrize(("out", "said"), [("file", "file"), ("file/x", "file"), ("/proc/x", "/proc/x")])
def test_a_folder_that_cannot_be_written_is_refused(run: Run, study: Path, tmp_path: Path, out: str, said: str) -> None:
    (tmp_path / "file").write_text("mine")
    code, printed, complaint = run("run", str(study), "--out", str(tmp_path / out))
    assert (code, printed) == (2, "")
    assert said in complaint.splitlines()[-1]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_other_files_is_refused(run: Run, study: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("mine")
    code, _, complaint = run("run", str(study), "--out", str(tmp_path / "mine"))
    assert code == 2
    assert "thesis.tex" in complaint
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_run_that_another_process_works_on_is_refused(study: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    assert run("run", str(study), "--out", str(out), "-q")[0] == 0
    holder = "import sys, time; from interp.runs.lock import Lock; from pathlib import Path\n"
    holder += f"lock = Lock(Path({str(out)!r})); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        code, printed, complaint = run("resume", str(out), "--retry-failed")
        assert str(other.pid) in run("status", str(out))[1]
        other.kill()
    assert (code, printed) == (2, "")
    assert str(other.pid) in complaint


# ---------------------------------------------------------------------------------- plans, shards, limits, output


def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(run: Run, study: Path, tmp_path: Path) -> None:
    code, printed, complaint = run("run", str(study), "--dry-run", "--out", str(tmp_path / "out"))
    assert (code, complaint) == (0, "Timing this machine …\n")
    row = next(line.split() for line in printed.splitlines() if line.startswith("lens-tiny"))
    assert row[:6] == ["lens-tiny", "lens", "tiny", "texts", "5", "3"]
    assert "time on this machine" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]
    assert "time on h200" in run("run", str(study), "--dry-run", "--on", "h200", "-q")[1]
    told = json.loads(run("run", str(study), "--dry-run", "--json", "--limit", "3")[1])
    assert told["kind"] == "study.plan"
    assert [(job["name"], job["items"], job["batches"]) for job in told["jobs"]] == [("lens-tiny", 3, 2)]
    assert told["cost"]["flops"] == told["jobs"][0]["cost"]["flops"] > 0
    assert told["cost"]["seconds"] > 0


def test_a_valid_study_is_valid(run: Run, study: Path, tmp_path: Path) -> None:
    code, printed, _ = run("validate", str(study))
    assert code == 0
    assert "No problems" in printed
    told = json.loads(run("validate", str(study), "--json")[1])
    assert (told["valid"], told["problems"]) == (True, [])
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def test_an_item_that_cannot_be_read_is_found_before_it_is_run(run: Run, failing: Path) -> None:
    code, printed, _ = run("validate", str(failing))
    assert code == 2
    assert "lens-tiny" in printed
    told = json.loads(run("validate", str(failing), "--json")[1])
    assert told["valid"] is False
    assert len(told["problems"]) == 1


def test_shards_merged_are_the_whole_run(run: Run, study: Path, tmp_path: Path) -> None:
    whole, merged = tmp_path / "whole", tmp_path / "merged"
    parts = [tmp_path / f"part-{number}" for number in (1, 2)]
    assert run("run", str(study), "--out", str(whole), "-q")[0] == 0
    for number, part in enumerate(parts, 1):
        assert run("run", str(study), "--shard", f"{number}/2", "--out", str(part), "-q")[0] == 0
    assert run("merge", *map(str, parts), "--out", str(merged))[0] == 0
    assert run("diff", str(whole), str(merged))[0] == 0
    assert interp.open_run(merged).status().state == "finished"
    assert interp.open_run(merged).summary() == interp.open_run(whole).summary()


def test_progress_as_json_is_all_that_stands_on_stderr(run: Run, study: Path, tmp_path: Path) -> None:
    code, printed, logged = run("run", str(study), "--out", str(tmp_path / "out"), "--progress", "json", "--json")
    events = [json.loads(line) for line in logged.splitlines()]
    assert code == 0
    assert {event["event"] for event in events} == {"progress"}
    assert (events[-1]["done"], events[-1]["total"]) == (5, 5)
    told = json.loads(printed)
    assert (told["state"], told["done"], told["failed"], told["errors"]) == ("finished", 5, 0, [])


def test_the_environment_beats_the_file_and_a_flag_beats_that(
    run: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("run", str(study), "-q")[0] == 0
    assert interp.open_run("runs/towers").manifest.seed == 3
    monkeypatch.setenv("INTERP_SEED", "5")
    monkeypatch.setenv("INTERP_OUT", "from-environment")
    assert run("run", str(study), "-q")[0] == 0
    assert interp.open_run("from-environment").manifest.seed == 5
    assert run("run", str(study), "-q", "--out", "from-flag", "--set", "seed=6")[0] == 0
    assert interp.open_run("from-flag").manifest.seed == 6


def test_failures_of_a_study_may_come_from_file_or_flag(run: Run, failing: Path, tmp_path: Path) -> None:
    words = ("run", str(failing), "--set", "run.max_failures=0", "-q", "--out")
    assert run(*words, str(tmp_path / "a"))[0] == 6
    assert run(*words, str(tmp_path / "b"), "--max-failures", "1")[0] == 3


def test_a_report_of_a_study_has_its_summary_figures_and_failures(run: Run, failing: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("run", str(failing), "--out", str(out), "-q")
    code, printed, _ = run("report", str(out), "-q", "--out", str(tmp_path / "report"))
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        "lens-tiny.csv", "lens-tiny.summary.csv", "report.html",
    ]  # fmt: skip
    page = Path(printed.strip()).read_text(encoding="utf-8")
    assert "Items that failed" in page
    assert "lens of tiny" in page


def test_the_ready_studies_are_those_that_the_help_names(run: Run) -> None:
    from interp.analyses.study.ready import ready_studies
    from interp.apps.cli.run import READY

    assert tuple(ready_studies()) == READY
    assert ", ".join(READY) in " ".join(run("run", "--help")[1].split())
