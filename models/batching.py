"""Several texts in one tensor: padding, and the mask that says what is padding."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Side = Literal["left", "right"]


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, side: Side
) -> tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
    """The rows as one tensor, padded on one side to the longest, and the mask of real tokens."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), pad_id)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for index, ids in enumerate(rows):
        place = slice(longest - len(ids), None) if side == "left" else slice(len(ids))
        tokens[index, place] = torch.tensor(ids)
        mask[index, place] = True
    return tokens, mask
