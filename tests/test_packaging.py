"""What is installed is what stands in the tree, under one name, wherever it is used from."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import tree

SOURCES = ("pyproject.toml", "README.md", "LICENSE", *tree.FOLDERS)


def test_the_listed_packages_are_those_of_the_tree() -> None:
    listed = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {tree.dotted(path.parent / "__init__.py") for path in tree.modules()}
    assert set(listed) == found
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("folder", sorted({path.parent for path in tree.modules()}), ids=str)
def test_a_folder_with_modules_is_a_package_with_a_docstring(folder: Path) -> None:
    init = tree.ROOT / folder / "__init__.py"
    assert init.read_text().startswith('"""')


@pytest.mark.parametrize("folder", ["models", "analyses", "apps"])
def test_the_links_are_relative_and_lead_to_the_folders(folder: str) -> None:
    assert os.readlink(tree.ROOT / "interp" / folder) == f"../{folder}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, so that nothing left over from an earlier build gets in."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (tree.ROOT / name).is_dir():
            shutil.copytree(tree.ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(tree.ROOT / name, copy / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(copy))
    return next(out.glob("interp-*.whl"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, and nothing else, is installed."""
    target = tmp_path_factory.mktemp("site")
    pip("install", "--no-deps", "--target", str(target), str(wheel))
    return target


def pip(*arguments: str) -> None:
    """Run pip quietly; show what it said if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_exactly_the_files_of_the_tree(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == {tree.installed_as(path) for folder in tree.FOLDERS for path in tree.files(folder)}


def test_installing_puts_one_name_into_site_packages(site: Path) -> None:
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert names - {"bin"} == {"interp"}


def run_in(folder: Path, site: Path, code: str) -> str:
    """What a fresh interpreter prints that runs in `folder` and finds our wheel first."""
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = "import interp, interp.models.config as config; print(interp.__file__, config.__file__, sep='\\n')"


def test_the_wheel_works_in_an_empty_folder(site: Path, tmp_path: Path) -> None:
    assert run_in(tmp_path, site, ASK).split("\n") == [
        str(site / "interp/__init__.py"),
        str(site / "interp/models/config.py"),
    ]


def test_the_wheel_works_beside_foreign_folders_of_the_same_names(site: Path, tmp_path: Path) -> None:
    for name in ("models", "analyses", "apps"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'the researcher'\n")
    printed = run_in(tmp_path, site, f"{ASK}; import models; print(models.OWNER)")
    assert printed.split("\n")[1:] == [str(site / "interp/models/config.py"), "the researcher"]


def test_the_version_is_written_in_one_place(wheel: Path) -> None:
    import interp

    assert wheel.name.split("-")[1] == interp.__version__
    assert interp.__version__ not in (tree.ROOT / "pyproject.toml").read_text().split("[tool")[0]


def test_the_constraints_pin_every_dependency_exactly() -> None:
    pins = (tree.ROOT / "constraints.txt").read_text().split()
    assert all(len(pin.split("==")) == 2 for pin in pins)
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["project"]
    named = {requirement.split(">=")[0] for requirement in project["dependencies"]}
    named |= {requirement.split(">=")[0] for requirement in project["optional-dependencies"]["dev"]}
    assert {name.lower() for name in named} <= {pin.split("==")[0].lower() for pin in pins}
