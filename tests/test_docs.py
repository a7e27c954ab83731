"""Pages that are written from the code say what the code says."""

import importlib.util
from types import ModuleType

import pytest
import tree


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The module `docs/generate.py`, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("generate", tree.ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_hook_points_is_the_registry(generate: ModuleType) -> None:
    assert (tree.ROOT / "docs/hook-points.md").read_text() == generate.hook_points(), "run `make docs`"


def test_the_table_of_families_is_the_registry(generate: ModuleType) -> None:
    readme = (tree.ROOT / "README.md").read_text()
    assert generate.families() in readme, "run `make docs`"
    stated = {name for family in generate.FAMILIES if family.layout == "gguf" for name in family.architectures}
    assert set(generate.GGUF.values()) == stated


def test_every_local_link_in_a_page_leads_to_a_file() -> None:
    pages = [*tree.ROOT.glob("*.md"), *tree.ROOT.glob("docs/**/*.md")]
    links = [(page, link) for page in pages for link in tree.local_links(page.read_text())]
    assert links, "the pages link to each other"
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
