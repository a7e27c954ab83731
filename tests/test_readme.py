"""What the README shows is true: its tree, its commands, its code."""

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import tree

from interp.apps.cli import main

README = (tree.ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language."""
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [code for named, code in fenced if named == language]


def tree_lines() -> list[tuple[str, str]]:
    """(path, what the tree says about it), a line each. Two spaces of indent a level; folders end in a slash."""
    shown, parents = [], []
    for line in blocks("")[0].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, says = line.strip().partition(" ")
        parents = [*parents[:depth], name]
        shown.append(("".join(parents), says.strip()))
    return shown


def shown_tree() -> dict[str, str]:
    """path -> what the tree says about it."""
    return dict(tree_lines())


def line_for(path: Path) -> str:
    """A line to start from, for a module that the tree does not show yet."""
    says = (tree.ROOT / path).read_text().split("\n")[0].strip('"')
    return f"{path}   {says}"


def test_the_tree_shows_every_module_and_nothing_else() -> None:
    modules = {str(path): path for path in tree.modules() if not path.name.startswith("__")}
    shown = {path for path in shown_tree() if path.endswith(".py")}
    assert [line_for(path) for name, path in modules.items() if name not in shown] == []
    assert [path for path in shown_tree() if not (tree.ROOT / path).exists()] == []


def test_the_tree_shows_nothing_twice() -> None:
    assert [path for path, count in Counter(path for path, _ in tree_lines()).items() if count > 1] == []


def test_the_tree_says_something_about_everything() -> None:
    assert [path for path, says in shown_tree().items() if not says] == []


def commands(program: str) -> list[list[str]]:
    """Words of every line of a shell block that calls the program, without what follows a `#`."""
    lines = [line.partition("#")[0] for block in blocks("sh") for line in block.splitlines()]
    return [re.findall(r'"[^"]*"|\S+', line) for line in lines if line.split()[:1] == [program]]


@pytest.mark.parametrize("target", sorted({words[1] for words in commands("make")}))
def test_a_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (tree.ROOT / "Makefile").read_text(), re.MULTILINE)


def test_what_the_makefile_runs_exists() -> None:
    makefile = (tree.ROOT / "Makefile").read_text()
    scripts = re.findall(r"(?:python|sh) ((?:docs|tests|benchmarks)/\S+)", makefile)
    modules = [name.replace(".", "/") for name in re.findall(r"-m (benchmarks\S*)", makefile)]
    places = [*scripts, *(f"{name}/__main__.py" if "/" not in name else f"{name}.py" for name in modules)]
    assert [place for place in places if not (tree.ROOT / place).exists()] == []


@cache
def help_of(*words: str) -> str:
    """What `interp … --help` prints."""
    command = [sys.executable, "-m", "interp", *words, "--help"]
    done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", commands("interp"), ids=" ".join)
def test_a_command_exists_and_knows_its_options(words: list[str]) -> None:
    names = list(takewhile(re.compile("[a-z]+").fullmatch, words[1:]))
    printed = help_of(*names)
    assert f"interp {' '.join(names)}" in printed
    assert [word for word in words if word.startswith("--") and word not in printed] == []


def test_the_study_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "capitals.toml"
    Path(name).write_text(blocks("toml")[0])
    shown = [words[1:] for words in commands("interp") if name in words or "runs/capitals" in words]
    assert [words[0] for words in shown] == ["run", "run", "status", "report"]
    assert [main([*words]) for words in shown] == [0, 0, 0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "runs"]
    assert Path("runs/capitals/report/report.html").exists()


def test_the_options_named_in_the_text_are_those_of_a_model_command() -> None:
    named = re.findall(r"`(--[a-z]+)[^`]*`", README)
    assert named
    assert [option for option in named if option not in help_of("lens")] == []


def test_the_python_code_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["induction-heads"]
    assert "heads 18.6, 17.3 and 17.4" in README
    best = names["scores"].top("prefix_matching", 3)  # type: ignore[attr-defined]
    assert [*zip(best["layer"], best["head"], strict=True)] == [(18, 6), (17, 3), (17, 4)]
