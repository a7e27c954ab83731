"""The registry of analyses says what the functions take, without importing any of them."""

import inspect
import subprocess
import sys

import pytest
import tree

from interp.analyses import ANALYSES, Analysis


@pytest.mark.parametrize("analysis", ANALYSES.values(), ids=ANALYSES)
def test_the_settings_in_words_are_those_of_the_function(analysis: Analysis) -> None:
    parameters = inspect.signature(analysis.function).parameters.values()
    keywords = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    assert set(analysis.settings) == keywords - {"progress"}
    assert analysis.question.endswith("?")


@pytest.mark.parametrize("analysis", ANALYSES.values(), ids=ANALYSES)
def test_an_analysis_has_its_place_in_the_documentation(analysis: Analysis) -> None:
    page = (tree.ROOT / "docs/analyses.md").read_text()
    assert f"`{analysis.module}.{analysis.function_name}`" in page
    assert analysis.question in page


def test_the_registry_imports_no_torch() -> None:
    code = "import sys, interp.analyses; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
