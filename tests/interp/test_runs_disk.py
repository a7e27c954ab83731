"""A run whose writer is killed, or whose disk is full or read-only, ends with the bytes of an undisturbed one."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import tree
from sample_runs import at_call, contents, frame, manifest, no_space, work

import interp
from interp.errors import IntegrityError, StorageError
from interp.runs import Job, Manifest, RunWriter, write_part


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the sample run."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    work(folder)
    return contents(folder)


def test_a_writer_killed_at_any_call_of_the_system_loses_nothing(tmp_path: Path) -> None:
    places = os.pathsep.join(map(str, (tree.ROOT, tree.ROOT / "tests")))
    command = [sys.executable, str(tree.ROOT / "tests/killed_runs.py"), str(tmp_path), "3"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kills, 0 did harm" in done.stdout
    assert int(done.stdout.split()[0]) > 20


def calls_of_a_whole_run(folder: Path) -> int:
    """How often the sample run asks the system to change something."""
    with at_call(10**9, no_space) as calls:
        work(folder)
    return calls[0]


def test_a_disk_that_is_full_from_any_call_on_leaves_nothing_torn(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    total = calls_of_a_whole_run(tmp_path / "counted")
    messages = []
    for number in range(0, total, 5):
        folder = tmp_path / f"full-{number}"
        with at_call(number, no_space), pytest.raises(StorageError, match="No space left on device") as caught:
            work(folder)
        messages.append(str(caught.value))
        assert list(folder.rglob(".*.partial")) == []
        left = contents(folder)
        for name in ("items.jsonl", "errors.jsonl"):
            assert undisturbed[name].startswith(left.get(name, b""))
            assert left.get(name, b"").endswith(b"\n") or not left.get(name)
        work(folder)
        assert contents(folder) == undisturbed
    assert any("4 of 9 items are done and kept; go on with: interp resume" in message for message in messages)
    assert all("Free some space." in message for message in messages)


@pytest.mark.parametrize(
    ("code", "words"), [(errno.EDQUOT, "Free some of the quota"), (errno.EROFS, "Make it writable")]
)
def test_what_the_system_says_comes_with_what_to_do(tmp_path: Path, code: int, words: str) -> None:
    def refuse() -> None:
        raise OSError(code, os.strerror(code))

    with at_call(25, refuse), pytest.raises(StorageError, match=f"{os.strerror(code)}.*{words}") as caught:
        work(tmp_path / "run")
    assert caught.value.exit_code == 2


class SmallDisk:
    """A folder that takes 64 KiB: a file system of its own where this process may mount one, else a double of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.mounted = self._mount("size=64k,nr_inodes=200")

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        return subprocess.run(command, capture_output=True).returncode == 0

    def full(self) -> AbstractContextManager[object]:
        """While a disk is full that is none."""
        return nullcontext() if self.mounted else at_call(120, no_space)

    def read_only(self) -> AbstractContextManager[object]:
        """While nothing can be written."""

        def refuse() -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        return nullcontext() if self.mounted and self._mount("remount,ro") else at_call(0, refuse)

    def grow(self) -> None:
        """Make room."""
        if self.mounted:
            assert self._mount("remount,rw,size=8m,nr_inodes=2000")

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk."""
    made = SmallDisk(tmp_path / "disk")
    yield made
    made.close()


ITEMS = tuple(f"item {number}" for number in range(100))


def long_work(folder: Path) -> None:
    plan = Manifest(name="long", jobs=(Job("j", "m", "x", "d", {}, ITEMS, (2,) * 50),), created="now", versions={})
    with RunWriter.open(folder, plan) as writer:
        for batch in writer.pending():
            writer.commit(batch, write_part(folder, batch, {item: frame(item) for item in batch.items}))
        writer.finish()


def test_a_full_disk_keeps_what_was_done_and_more_room_lets_it_go_on(tmp_path: Path, disk: SmallDisk) -> None:
    folder = disk.folder / "run"
    with disk.full(), pytest.raises(StorageError, match=r"\d+ of 100 items are done and kept; go on with: interp resu"):
        long_work(folder)
    run = interp.open_run(folder)
    state = run.status()
    assert state.state == "interrupted"
    assert 0 < state.done < 100
    assert run.check() == []
    assert set(run.frame()["item"]) == set(ITEMS[: state.done])
    disk.grow()
    long_work(folder)
    long_work(tmp_path / "roomy")
    assert contents(folder) == contents(tmp_path / "roomy")


def test_a_run_on_a_read_only_disk_can_be_read_and_not_resumed(disk: SmallDisk) -> None:
    disk.grow()
    folder = disk.folder / "run"
    work(folder, stop=2)
    with disk.read_only():
        assert interp.open_run(folder).status().state == "interrupted"
        assert len(interp.open_run(folder).item("d", "lens")) == len(frame("d"))
        with pytest.raises(StorageError, match="Read-only file system. .* Make it writable, or choose another folder"):
            work(folder)


def tear_last_line(folder: Path) -> None:
    path = folder / "items.jsonl"
    path.write_bytes(path.read_bytes()[:-30])


def drop_last_line(folder: Path) -> None:
    path = folder / "items.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def damage_first_line(folder: Path) -> None:
    path = folder / "items.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"rows":', b'"rows":1', 1))


def repeat_lines(folder: Path) -> None:
    path = folder / "items.jsonl"
    path.write_bytes(path.read_bytes() * 2)


def tear_part(folder: Path) -> None:
    path = folder / "results/part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def flip_part(folder: Path) -> None:
    path = folder / "results/part-00000.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def remove_part(folder: Path) -> None:
    (folder / "results/part-00002.parquet").unlink()


def remove_ledger(folder: Path) -> None:
    (folder / "items.jsonl").unlink()


def remove_errors(folder: Path) -> None:
    (folder / "errors.jsonl").unlink()


def leave_files(folder: Path) -> None:
    (folder / "results/part-00004-3.parquet").write_bytes(b"PAR1")
    (folder / "results/.part-00009.parquet.0011.partial").write_bytes(b"PAR1")
    (folder / ".summary.json.0011.partial").write_bytes(b"{")
    (folder / "saved/lens/.b.partial-00112233").mkdir(parents=True)


DAMAGES = [
    tear_last_line,
    drop_last_line,
    damage_first_line,
    repeat_lines,
    tear_part,
    flip_part,
    remove_part,
    remove_ledger,
    remove_errors,
    leave_files,
]


@pytest.mark.parametrize("stop", [3, None])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_found_and_done_again(
    tmp_path: Path, undisturbed: dict[str, bytes], damage: Callable[[Path], None], stop: int | None
) -> None:
    folder = tmp_path / "run"
    work(folder, stop=stop)
    damage(folder)
    assert (interp.open_run(folder).check() != []) or damage in (drop_last_line, repeat_lines, remove_ledger)
    work(folder)
    assert contents(folder) == undisturbed
    assert list(folder.rglob(".*partial*")) == []
    assert interp.open_run(folder).check() == []


@pytest.mark.parametrize("damage", [drop_last_line, remove_ledger])
def test_whole_lines_missing_from_a_finished_run_are_noticed(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    work(tmp_path)
    damage(tmp_path)
    run = interp.open_run(tmp_path)
    for read in (run.status, run.errors, lambda: run.frame("lens")):
        with pytest.raises(IntegrityError, match="is not what it was when the run was finished. Resume the run"):
            read()


def test_what_was_damaged_is_said_in_the_log(tmp_path: Path) -> None:
    work(tmp_path, stop=3)
    tear_part(tmp_path)
    work(tmp_path, manifest())
    log = (tmp_path / "log.txt").read_text()
    assert "items.jsonl held lines that do not count, or had lost some: 5 items stand" in log
    assert "part-00001.parquet belongs to no batch that counts, and was removed" in log


def test_a_finished_run_run_again_writes_nothing_but_its_log(tmp_path: Path) -> None:
    work(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    work(tmp_path)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in after if before.get(path) != after[path]} == {"log.txt"}
