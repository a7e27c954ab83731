"""The soak test works; `make soak` runs it for longer."""

from collections.abc import Iterator
from pathlib import Path

import fuzz
import fuzz_runs
import killed_runs
import pytest
import soak


def test_a_short_soak_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(seconds=3) == 0
    assert "memory steady" in capsys.readouterr().out


def test_damage_that_does_harm_ends_the_soak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: Path, count: int, first: int) -> Iterator[tuple[str, fuzz.Outcome, list[str]]]:
        assert folder.is_dir()
        for seed in range(first, first + count):
            yield f"seed {seed}", fuzz.Outcome("refused", "no"), ["opened /etc/passwd"] if seed == 12 else []

    monkeypatch.setattr("fuzz.run", run)
    assert soak.damaged(5, 0) == 0
    assert "5 damaged models: 5 refused, 0 as they were" in capsys.readouterr().out
    assert soak.damaged(5, 10) == 1
    assert "seed 12: opened /etc/passwd" in capsys.readouterr().err


def test_a_damaged_or_killed_run_that_ends_otherwise_ends_the_soak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(home: Path, count: int, first: int) -> Iterator[tuple[str, list[str]]]:
        for seed in range(first, first + count):
            yield f"seed {seed}", ["another answer"] if seed == 12 else []

    monkeypatch.setattr(fuzz_runs, "run", run)
    monkeypatch.setattr(killed_runs, "main", lambda home: 0)
    assert soak.runs(5, 0) == 0
    assert soak.runs(5, 10) == 1
    assert "seed 12: another answer" in capsys.readouterr().err
    monkeypatch.setattr(killed_runs, "main", lambda home: 2)
    assert soak.runs(5, 0) == 1
