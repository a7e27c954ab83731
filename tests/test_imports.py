"""Arrows between the folders point one way, and heavy libraries are imported only where they are used."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tree

# folder -> the folders of ours, and the third parties, that it adds to what stands above it
ALLOWED = {
    "interp": {"torch", "einops", "jaxtyping", "numpy", "pandas", "plotly", "pyarrow", "safetensors"},
    "models": {"tokenizers", "gguf", "huggingface_hub", "platformdirs"},
    "analyses": {"pydantic", "ray"},
    "apps": {"starlette", "streamlit", "typer", "rich"},
}
FACE = Path("interp/__init__.py")  # the one file that points upward
DASHBOARD = Path("apps/dashboard")  # its modules are imported by Streamlit's server alone, and by what is lazy itself
LAZY = {"pandas", "plotly", "pyarrow", "ray", "streamlit"}


def below(folder: str) -> list[str]:
    """The folder itself and those that it may import."""
    return list(ALLOWED)[: list(ALLOWED).index(folder) + 1]


def imported(node: ast.AST) -> Iterator[str]:
    """Dotted names that an import statement asks for; `from interp import x` asks for `interp.x`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: import by the full name, not relatively"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(name: str, folder: str) -> bool:
    """Whether a module in `folder` may not import `name`."""
    top, _, rest = name.partition(".")
    if top != "interp":
        return top not in sys.stdlib_module_names.union(*(ALLOWED[lower] for lower in below(folder)))
    part = rest.partition(".")[0]
    if part in ALLOWED:
        return part not in below(folder)
    places = (tree.ROOT / "interp" / f"{part}.py", tree.ROOT / "interp" / part / "__init__.py")
    of_the_face = not part or not any(place.exists() for place in places)  # `import interp`, `from interp import load`
    return of_the_face and folder != "apps" and part != "__version__"


@pytest.mark.parametrize("path", tree.modules(), ids=str)
def test_a_module_imports_only_what_stands_below_it(path: Path) -> None:
    if path in (FACE, Path("interp/__main__.py")):
        return
    parsed = ast.parse((tree.ROOT / path).read_text())
    names = {name for node in ast.walk(parsed) for name in imported(node)}
    assert {name for name in names if forbidden(name, path.parts[0])} == set()


@pytest.mark.parametrize("path", tree.modules(), ids=str)
def test_a_module_leaves_heavy_libraries_to_the_functions_that_use_them(path: Path) -> None:
    parsed = ast.parse((tree.ROOT / path).read_text())
    names = {name.partition(".")[0] for node in parsed.body for name in imported(node)}
    assert names & (LAZY - {"streamlit"} if path.is_relative_to(DASHBOARD) else LAZY) == set()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("interp.models.config", "interp"),
        ("interp.analyses.lens", "models"),
        ("interp.apps.cli", "analyses"),
        ("interp.load", "analyses"),
        ("interp", "models"),
        ("models.config", "apps"),
        ("typer", "analyses"),
        ("transformers", "models"),
    ],
)
def test_the_table_refuses_an_arrow_that_points_up(name: str, folder: str) -> None:
    assert forbidden(name, folder)


def loaded_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after the statement."""
    code = f"import sys\n{statement}\nprint(*(name for name in sys.modules if '.' not in name))"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, cwd=tree.ROOT, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("statement", ["import interp", "import interp.apps.cli", "import interp; dir(interp)"])
def test_importing_the_face_or_the_command_line_leaves_torch_alone(statement: str) -> None:
    assert loaded_after(statement) & {"torch", "numpy", "pandas", "plotly", "pyarrow", "tokenizers", "gguf"} == set()


def test_the_first_page_of_the_dashboard_is_drawn_without_torch() -> None:
    drawn = "import interp.apps.dashboard.shell as shell; shell.address.workshop().shelf.offers()"
    assert "torch" not in loaded_after(drawn)


def test_the_attribute_load_brings_torch_but_no_table_or_figure_library() -> None:
    loaded = loaded_after("import interp; interp.load")
    assert "torch" in loaded
    assert loaded & {"pandas", "plotly", "pyarrow", "transformers", "huggingface_hub", "gguf"} == set()
