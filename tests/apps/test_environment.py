"""What is not said on the command line comes from the environment, where an option names a variable."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interp
from interp.apps.cli.options import Common, RunOptions

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `interp.load` was asked for; it loads nothing."""
    seen: dict[str, Any] = {}

    def load(name: str, **how: object) -> None:
        seen.update(how, model=name)
        raise interp.errors.LoadError("no model here")

    monkeypatch.setattr(interp, "load", load, raising=False)
    return seen


@pytest.mark.parametrize(
    ("variable", "option", "name", "values"),
    [
        ("INTERP_MODEL", "--model", "model", ("smollm2-135m", "from-environment", "from-flag")),
        ("INTERP_DEVICE", "--device", "device", (None, "cuda:7", "cuda:8")),
        ("INTERP_DTYPE", "--dtype", "dtype", (None, "bfloat16", "float16")),
    ],
)
def test_a_flag_beats_the_environment_and_that_the_default(
    run: Run,
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    option: str,
    name: str,
    values: tuple[str, ...],
) -> None:
    default, environment, flag = values
    run("lens", "x", "-q")
    assert asked[name] == default
    monkeypatch.setenv(variable, environment)
    run("lens", "x", "-q")
    assert asked[name] == environment
    run("lens", "x", "-q", option, flag)
    assert asked[name] == flag


@pytest.mark.usefixtures("memory")
def test_seed_prefix_and_folder_come_from_the_environment_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PREFIX": "none", "SEED": "7", "OUT": str(tmp_path / "out")}.items():
        monkeypatch.setenv(f"INTERP_{name}", value)
    words = ("induction", "--seq-len", "3", "--n-seqs", "2", "--ablate-top", "0", "--json", "-q")
    code, printed, complaint = run(*words)
    assert (code, complaint) == (0, "")
    assert json.loads(printed)["settings"]["prefix"] == "none"
    manifest = interp.open_run(tmp_path / "out").manifest
    assert (manifest.seed, manifest.prefix) == (7, "none")


def test_a_wrong_variable_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERP_DTYPE", "int8")
    code, _, complaint = run("lens", "x")
    assert code == 2
    assert "INTERP_DTYPE" in complaint


def test_an_empty_variable_is_none(run: Run, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERP_DEVICE", "")
    run("lens", "x", "-q")
    assert asked["device"] is None


def test_every_variable_stands_in_the_help_and_on_the_page(run: Run) -> None:
    from typing import get_type_hints

    import tree

    page = (tree.ROOT / "docs/command-line.md").read_text()
    printed = run("--help")[1]
    hints = [
        *get_type_hints(Common, include_extras=True).values(),
        *get_type_hints(RunOptions, include_extras=True).values(),
    ]
    names = {one.envvar for hint in hints for one in getattr(hint, "__metadata__", ()) if one.envvar}
    assert "INTERP_DEVICE" in names
    assert {name for name in names if name not in printed or f"`{name}`" not in page} == set()


@pytest.mark.usefixtures("memory")
def test_a_folder_for_all_commands_does_not_contradict_an_estimate(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERP_OUT", str(tmp_path / "out"))
    asked = ("trace", "w1 w2 w3 w4", "--subject", "w2 w3", "--estimate", "-q")
    code, printed, complaint = run(*asked)
    assert (code, complaint) == (0, "")
    assert "cells" in printed
    assert not (tmp_path / "out").exists()
    code, _, complaint = run(*asked, "--out", str(tmp_path / "other"))
    assert code == 2
    assert "--out has nothing to save" in complaint
