"""Examples in docstrings are run, so that they stay true."""

import doctest
import importlib
from pathlib import Path

import pytest
import tree


def with_examples() -> list[Path]:
    """Modules that hold at least one example."""
    return [path for path in tree.modules() if ">>> " in (tree.ROOT / path).read_text()]


@pytest.mark.parametrize("path", with_examples(), ids=str)
def test_the_examples_of_a_module_hold(path: Path) -> None:
    outcome = doctest.testmod(importlib.import_module(tree.dotted(path)))
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize("path", tree.modules(), ids=str)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    first = (tree.ROOT / path).read_text().split("\n", 1)[0]
    assert first.startswith(('"""', 'r"""'))
