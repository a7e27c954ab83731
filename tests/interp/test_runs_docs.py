"""The page about runs shows code that runs, and files that are there."""

import re
from pathlib import Path

import pytest
import tree

import interp

PAGE = (tree.ROOT / "docs/runs.md").read_text()


def test_the_code_of_the_page_runs_and_makes_the_files_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reading, making = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for code in (making, making, reading):
        exec(compile(code, "docs/runs.md", "exec"), {})
    run = interp.open_run("out/probe")
    assert run.jobs == ("lens",)
    assert list(run.errors()["item"]) == ["atlantis"]
    named = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert {path.name for path in Path("out/probe").iterdir()} == {
        name.partition("/")[0] for name in named if name not in ("lock", "figures/", "saved/<job>/<item>/")
    }
