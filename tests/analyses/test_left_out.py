"""What results over facts say of facts left out, and of answers of which only the first token was measured."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from interp.analyses.left_out import first_token_lines, first_token_only, left_out, none_left
from interp.results import Arrays, Result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Made(Result, kind="test.left-out"):
    """A result with arrays of one's own."""

    grid = ()
    title = "Made"

    def figure(self) -> "Figure":
        raise NotImplementedError

    def summary(self) -> list[str]:
        return []


def made(arrays: Arrays, **axes: list[str]) -> Made:
    return Made(arrays=arrays, axes=axes)


def test_a_result_without_facts_has_nothing_to_say() -> None:
    result = made({"score": (np.zeros(2), ("head",))})
    assert (left_out(result), first_token_only(result), first_token_lines(result)) == ({}, {}, [])


@pytest.mark.parametrize("axis", ["fact", "prompt"])
def test_answers_of_several_tokens_are_found_on_whichever_axis_the_facts_have(axis: str) -> None:
    result = made({"answer_tokens": ([1, 3, 2], (axis,))}, **{axis: ["a", "b", "c"]})
    assert first_token_only(result) == {"b": 3, "c": 2}
    assert first_token_lines(result) == ["  2 of 3 answers have several tokens, of which the first is measured: b, c"]


def test_a_fact_asked_for_in_several_ways_counts_once_with_the_most_tokens_that_it_has() -> None:
    result = made({"answer_tokens": ([1, 2, 1], ("text",)), "fact_id": (["a", "a", "b"], ("text",))})
    assert first_token_only(result) == {"a": 2}
    assert first_token_lines(result)[0].startswith("  1 of 2 answers has several")


def test_of_many_the_first_are_named() -> None:
    result = made({"answer_tokens": ([2] * 5, ("fact",))}, fact=list("abcde"))
    assert first_token_lines(result)[0].endswith("measured: a, b, c and 2 more")
    assert first_token_lines(made({"answer_tokens": ([1], ("fact",))}, fact=["a"])) == []


@pytest.mark.parametrize(
    ("axis", "reasons"), [("excluded", "reason"), ("left_out", "left_out_reason"), ("skipped", "skip_reason")]
)
def test_reasons_are_found_under_every_name_that_results_give_them(axis: str, reasons: str) -> None:
    assert left_out(made({reasons: (["why"], (axis,))}, **{axis: ["a"]})) == {"a": "why"}


def test_where_no_fact_is_left_the_first_says_why() -> None:
    assert str(none_left("None of the 2 facts is known", {"a": "it is cut", "b": "it is long"})) == (
        "None of the 2 facts is known; the first, 'a': it is cut"
    )
