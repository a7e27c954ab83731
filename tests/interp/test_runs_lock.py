"""One process writes a run at a time; who is dead holds nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tree
from sample_runs import manifest, work

import interp
from interp.errors import LockedError, StorageError
from interp.runs import RunWriter
from interp.runs.lock import Holder, Lock, holder

HOLD = """
import sys
from pathlib import Path
from interp.runs.lock import Lock
Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run's lock until it is killed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(tree.ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


BAD_PID = json.dumps({"pid": "x", "host": "h", "started": "s", "boot": "b"})


def test_a_second_process_is_refused_and_told_who_holds_the_run(tmp_path: Path) -> None:
    work(tmp_path, stop=1)
    with held_elsewhere(tmp_path) as other:
        with pytest.raises(LockedError, match=f"is being written by process {other.pid} on .*, since 20") as caught:
            work(tmp_path)
        assert caught.value.exit_code == 2
        state = interp.open_run(tmp_path).status()
        assert state.state == "running"
        assert state.locked_by is not None
        assert state.locked_by.pid == other.pid
        assert len(interp.open_run(tmp_path).item("a", "lens")) > 0


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    work(tmp_path, stop=1)
    with held_elsewhere(tmp_path) as other:
        other.kill()
        other.wait()
        assert (tmp_path / "lock").exists()
        assert interp.open_run(tmp_path).status().state == "interrupted"
        work(tmp_path)
    assert interp.open_run(tmp_path).status().state == "failed items"
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"pid": 1}', json.dumps(["x"] * 9), BAD_PID])
def test_a_torn_lock_file_holds_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock").write_text(content)
    work(tmp_path)
    assert not (tmp_path / "lock").exists()


def test_a_second_writer_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with RunWriter.open(tmp_path, manifest()), pytest.raises(LockedError, match=f"process {os.getpid()} "):
        RunWriter.open(tmp_path, manifest())
    assert holder(tmp_path) is None


def test_a_writer_that_is_refused_leaves_no_lock(tmp_path: Path) -> None:
    work(tmp_path)
    with pytest.raises(interp.InterpError, match="seed"):
        RunWriter.open(tmp_path, manifest(seed=5))
    assert not (tmp_path / "lock").exists()
    work(tmp_path)


class TestWithoutLocksOfTheSystem:
    """Some network file systems know none."""

    @pytest.fixture(autouse=True)
    def no_locks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("interp.runs.lock._try", lambda descriptor, kind: None)

    def test_a_process_that_lives_holds_it(self, tmp_path: Path) -> None:
        lock = Lock(tmp_path)
        assert holder(tmp_path) is not None
        with pytest.raises(LockedError, match=f"process {os.getpid()}"):
            Lock(tmp_path)
        lock.release()
        assert holder(tmp_path) is None

    def test_a_dead_process_or_one_before_a_boot_holds_nothing(self, tmp_path: Path) -> None:
        lock = Lock(tmp_path)
        mine = json.loads((tmp_path / "lock").read_text())
        os.close(lock._descriptor)
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        for changes in ({"pid": child.pid}, {"boot": "another"}):
            (tmp_path / "lock").write_text(json.dumps(mine | changes))
            assert holder(tmp_path) is None
            Lock(tmp_path).release()

    def test_a_process_on_another_machine_may_live(self, tmp_path: Path) -> None:
        stated = {"pid": 1, "host": "elsewhere", "started": "2026-01-01", "boot": "b"}
        (tmp_path / "lock").write_text(json.dumps(stated))
        with pytest.raises(LockedError, match="process 1 on elsewhere, since 2026-01-01"):
            Lock(tmp_path)
        assert holder(tmp_path) == Holder(**stated)  # type: ignore[arg-type]


def test_a_lock_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        Lock(tmp_path)
