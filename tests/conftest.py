"""Shared fixtures. Shapes and types of every annotated function in `interp` are checked while the tests run."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jaxtyping
import pytest
import torch
import typechecking

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may wait for a hub
typechecking.install()

MEMORY, ROOM = Path("/dev/shm"), 6 * 2**30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    # whoever writes a run waits for the disk after every file: some tests would do little else
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

TOGETHER = ("dashboard", "asked", "eiffel", "published_smollm2", "gemma3", "smollm2")
"""Fixtures that take long to make; those first that a late division of the work between processes would double."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one large model come together and first, so that one process alone loads it and small ones fill gaps."""

    def place(item: pytest.Item) -> int:
        names = getattr(item, "fixturenames", ())
        return next((place for place, name in enumerate(TOGETHER) if name in names), len(TOGETHER))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command prints does not depend on the window that the tests were started from."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Each device of this machine in turn."""
    return request.param


@pytest.fixture(scope="session")
def smollm2_here() -> None:
    """The file of the default model is on this machine, whatever ran before."""
    import interp

    interp.pull("smollm2-135m")


@pytest.fixture(scope="session")
def models_here(smollm2_here: None) -> None:
    """The files of both real models are. To run its tests is to accept the Gemma Terms of Use."""
    import interp

    interp.pull("gemma3-270m", accept_terms=True)


@pytest.fixture(scope="session")
def smollm2() -> "Transformer":
    """The default model, real weights, loaded once: frozen, on the CPU, float32. Leave it as it is."""
    import interp

    return interp.load("smollm2-135m", device="cpu")


@pytest.fixture(scope="session")
def gemma3() -> "Transformer":
    """The second model, Gemma 3 270M, as `smollm2`. To run its tests is to accept the Gemma Terms of Use."""
    import interp

    interp.pull("gemma3-270m", accept_terms=True)
    return interp.load("gemma3-270m", device="cpu")


@pytest.fixture(scope="session")
def published_smollm2() -> torch.nn.Module:
    """The default model as `transformers` itself reads and dequantises its file, loaded once. Leave it as it is."""
    from published import parsed_once
    from transformers import AutoModelForCausalLM

    import interp

    path = interp.pull("smollm2-135m")
    with parsed_once():
        hf = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    return hf.eval().requires_grad_(False)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """For real models beside the reference, whose order of summing, and so its rounding, depends on the threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def shapes_unchecked() -> Iterator[None]:
    """For tests of what happens when a caller breaks an annotation: the run-time check would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
