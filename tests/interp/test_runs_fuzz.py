"""Damaged run directories give our errors or what was written; `make soak` damages more of them."""

from pathlib import Path

import fuzz_runs
import pytest


@pytest.mark.parametrize("first", [0, 33])
def test_a_damaged_run_is_refused_or_mended(tmp_path: Path, first: int) -> None:
    outcomes = list(fuzz_runs.run(tmp_path, 33, first))
    assert [outcome for outcome in outcomes if outcome[1]] == []
    assert len({what.split()[0] for what, _ in outcomes}) == len(fuzz_runs.KINDS)
