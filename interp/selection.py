"""Which places of an axis are meant: an index, a slice, or several indices; negative ones count from the end."""

import operator
from collections.abc import Iterable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from interp.errors import UsageError

Index = int | slice | Sequence[int] | Tensor


def indices(selection: Index, size: int, what: str) -> list[int]:
    """The places as indices from the start. Raises `UsageError` where one lies outside, or where there are none."""
    wanted = list(range(size))[selection] if isinstance(selection, slice) else whole_numbers(selection, what)
    outside = [index for index in wanted if not -size <= index < size]
    if outside or not wanted:
        problem = f"{outside[0]} lies outside" if outside else "nothing is selected"
        raise UsageError(f"For {what}, {problem}; there are 0 to {size - 1}, or -1 for the last.")
    return [index % size for index in wanted]


def is_whole(number: object) -> bool:
    """Whether this is a whole number of any library; True and 6.0 are none."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def whole_numbers(selection: "int | Sequence[int] | Tensor", what: str) -> list[int]:
    """The numbers as given. A mask of booleans is not a list of places, and neither is 1.7."""
    try:
        if isinstance(selection, Tensor):
            if selection.dtype == torch.bool:
                raise TypeError
            selection = selection.tolist()
        several = selection if isinstance(selection, Iterable) else [selection]
        numbers = list(several)
        if any(isinstance(number, bool) or type(number).__name__ == "bool_" for number in numbers):
            raise TypeError
        return [operator.index(number) for number in numbers]
    except TypeError:
        raise UsageError(
            f"For {what}, an index, a slice or a list of indices was expected, not {selection!r}."
        ) from None
