"""The public surface: a few names, imported when they are first used."""

import ast
import subprocess
import sys

import pytest
import tree

import interp


def spelled_out_for_type_checkers() -> dict[str, str]:
    """name -> module, as the `if TYPE_CHECKING` block of the face states them."""
    face = ast.parse((tree.ROOT / "interp/__init__.py").read_text())
    block = next(node for node in face.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{node.module}" for node in imports for alias in node.names}


def test_type_checkers_and_the_interpreter_see_the_same_names() -> None:
    spelled = spelled_out_for_type_checkers()
    assert set(interp.__all__) == {*spelled, "__version__"} - {"main"}
    assert sorted(interp.__all__) == dir(interp)


@pytest.mark.parametrize("name", interp.__all__)
def test_every_name_of_the_face_exists(name: str) -> None:
    assert getattr(interp, name) is not None


@pytest.mark.parametrize(("name", "module"), spelled_out_for_type_checkers().items())
def test_a_name_of_the_face_is_that_of_its_module(name: str, module: str) -> None:
    found = getattr(interp, name)
    home = sys.modules[module]
    assert found is (sys.modules.get(f"{module}.{name}") or getattr(home, name))


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'load'"):
        interp.loda  # noqa: B018


def test_python_dash_m_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "interp", "--version"], cwd=tree.ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert interp.__version__ in done.stdout
