"""The soak test works; `make soak` runs it for longer."""

import pytest
import soak


def test_a_short_soak_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(seconds=3) == 0
    assert "memory steady" in capsys.readouterr().out
