"""The shapes that annotations state are checked while the tests run, and only then."""

import subprocess
import sys

import jaxtyping
import pytest
import torch
import tree
from tiny import BASE
from typechecking import names_an_array

from interp.models.norm import PlainNorm

NORM = PlainNorm(BASE)
X = torch.ones(2, BASE.d_model)


def test_a_wrong_shape_inside_the_package_is_caught() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="scale"):
        NORM.gained(X, torch.ones(2, 3), X)


@pytest.mark.usefixtures("shapes_unchecked")
def test_a_test_can_break_an_annotation_on_purpose() -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        NORM.gained(X, torch.ones(2, 3), X)


def test_a_user_s_process_checks_nothing() -> None:
    code = "import sys; import interp; interp.load; print('beartype' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (jaxtyping.Float[torch.Tensor, "batch pos"], True),
        (tuple[int, jaxtyping.Int[torch.Tensor, "batch"] | None], True),
        (torch.Tensor | None, False),
        (list[int], False),
    ],
)
def test_annotations_that_name_an_array_are_found(hint: object, expected: bool) -> None:
    assert names_an_array(hint) is expected
