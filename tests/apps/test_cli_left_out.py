"""Commands on `--facts`: what a model does not know is named with its reason, and one known fact has no interval."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
IN = {"relation": "place", "template": "The {} is in"}
FACTS = [
    {"subject": "Eiffel Tower", "object": "Paris", **IN},
    {"subject": "Space Needle", "object": "Paris", **IN},
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return str(tmp_path / "facts.json")


@pytest.mark.usefixtures("memory")
def test_the_lens_over_one_fact_has_no_interval(run: Run, file: str) -> None:
    code, printed, _ = run("lens", "--facts", file)
    assert code == 0
    assert "nan" not in printed
    last = printed.splitlines()[-3].split()
    assert last[2] == "–"
