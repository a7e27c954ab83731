"""The shapes that annotations state are checked while the tests run, and only then."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import jaxtyping
import pytest
import torch
import tree
from jaxtyping import Float
from tiny import BASE
from torch import Tensor
from typechecking import arrays, check, names_an_array

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


def test_an_axis_has_one_size_within_one_call() -> None:
    @check
    def first(a: Float[Tensor, "pos"], b: "Float[Tensor, 'pos']", *, keep: int) -> Float[Tensor, "pos"]:
        return a[:keep]

    assert len(first(torch.ones(2), torch.ones(2), keep=2)) == 2
    assert len(first(torch.ones(3), torch.ones(3), keep=3)) == 3
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter b="):
        first(torch.ones(2), torch.ones(3), keep=2)
    with pytest.raises(jaxtyping.TypeCheckError, match="return"):
        first(torch.ones(3), torch.ones(3), keep=2)


def test_what_was_fine_is_looked_at_again_in_whatever_is_different() -> None:
    @check
    def chosen(
        values: Float[Tensor, "pos"], others: list[Float[Tensor, "pos"]], *, place: int = 0
    ) -> Float[Tensor, ""]:
        return others[place][0] if place else values[0] if len(values) < 4 else values[:1]

    two, three, four = torch.ones(2), torch.ones(3), torch.ones(4)
    for _ in range(2):
        assert chosen(two, [two, two], place=1) == 1
        assert chosen(three, others=[three]) == 1
    for values, others in ((two.int(), [two, two]), (two, [three, three]), (three, [two]), (two[None], [two])):
        with pytest.raises(jaxtyping.TypeCheckError, match="parameter"):
            chosen(values, others)
    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError, match="return"):
            chosen(four, [four])


def test_a_result_that_cannot_be_seen_through_is_looked_at_each_time() -> None:
    @check
    def wrapped(values: Float[Tensor, "pos"], most: int) -> dict[str, Float[Tensor, "pos"]]:
        return {"values": values[:most]}

    for _ in range(2):
        assert len(wrapped(torch.ones(3), 3)["values"]) == 3
        with pytest.raises(jaxtyping.TypeCheckError, match="return"):
            wrapped(torch.ones(3), 2)


def test_many_arguments_under_one_name_are_checked_each() -> None:
    @check
    def total(*values: Float[Tensor, "pos"]) -> Float[Tensor, "pos"]:
        return sum(values)

    assert total(torch.ones(2), torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(jaxtyping.TypeCheckError, match="values"):
        total(torch.ones(2), torch.ones(3))


def test_a_dataclass_is_checked_where_it_is_made() -> None:
    @check
    @dataclass(frozen=True)
    class Pair:
        left: Float[Tensor, "pos"]
        right: Float[Tensor, "pos"] | None = None

    assert Pair(torch.ones(2)).right is None
    with pytest.raises(jaxtyping.TypeCheckError, match="right"):
        Pair(torch.ones(2), torch.ones(3))


def test_a_generator_is_checked_on_the_way_in_only() -> None:
    @check
    def rows(x: Float[Tensor, "pos width"]) -> Iterator[Float[Tensor, "width"]]:
        yield from x

    assert len(list(rows(torch.ones(2, 3)))) == 2
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter .x."):
        rows(torch.ones(2))


def test_a_function_that_names_no_array_stays_as_it_is() -> None:
    def plain(x: Tensor, made: "type[PlainNorm]") -> None: ...

    assert check(plain) is plain


def test_functions_all_over_the_package_are_guarded() -> None:
    modules = [importlib.import_module(tree.dotted(path)) for path in tree.modules() if path.stem != "__main__"]
    found = [
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and arrays(inspect.unwrap(value))
    ]
    assert len(found) > 50
    assert [value for value in found if not hasattr(value, "__wrapped__")] == []


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
