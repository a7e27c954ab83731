"""The registry of analyses says what the functions take, without importing any of them."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import get_args, get_type_hints

import pytest
import tree

from interp.analyses import ANALYSES, Analysis


def keywords_of(function: Callable[..., object]) -> set[str]:
    """Keyword-only parameters, and those that a function takes as one `**group: Unpack[Group]`."""
    found = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            found.add(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD:
            (group,) = get_args(parameter.annotation)
            found |= set(get_type_hints(group))
    return found


@pytest.mark.parametrize("analysis", ANALYSES.values(), ids=ANALYSES)
def test_the_settings_in_words_are_those_of_the_function(analysis: Analysis) -> None:
    keywords = keywords_of(analysis.function)
    assert set(analysis.settings) == keywords - {"progress", "so_far"}
    assert analysis.question.endswith("?")


@pytest.mark.parametrize("analysis", ANALYSES.values(), ids=ANALYSES)
def test_an_analysis_has_its_place_in_the_documentation(analysis: Analysis) -> None:
    page = (tree.ROOT / "docs/analyses.md").read_text()
    assert f"`{analysis.module}.{analysis.function_name}`" in page
    assert analysis.question in page


def test_the_registry_imports_no_torch() -> None:
    code = "import sys, interp.analyses; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
