"""What tasks share that read prompts: their tokens in one grid, the tokens that are to follow, and grids as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import UsageError
from interp.facts import Fact, answer_ids
from interp.models.batching import Side, pad
from interp.prompt_pairs import PromptPair

if TYPE_CHECKING:
    from interp.analyses.study.task import Item, Work
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.tokenizer import Tokenizer
    from interp.models.transformer import Transformer


@dataclass(frozen=True)
class PromptItem:
    """A prompt, and where there is one what should follow it, and what should not: texts of one token."""

    text: str
    answer: str | None = None
    foil: str | None = None


def text_of(value: object) -> str:
    """The prompt of a fact, of a pair (the clean one), or of a prompt."""
    if isinstance(value, Fact):
        return value.prompt
    if isinstance(value, PromptPair):
        return value.clean
    assert isinstance(value, PromptItem)
    return value.text


def prompt_length(tokenizer: "Tokenizer", value: object, settings: object, prefix: "PrefixPolicy") -> int:
    """The tokens of a prompt, its prefix included."""
    return len(tokenizer.prompt_ids(text_of(value), prefix))


@dataclass(frozen=True)
class Grid:
    """Prompts side by side."""

    rows: list[list[int]]
    tokens: Int[Tensor, "text pos"]
    mask: Bool[Tensor, "text pos"] | None

    @classmethod
    def of(cls, work: "Work", items: "Sequence[Item]", side: Side) -> "Grid":
        """The prompts of the items. Raises `UsageError` where one is empty or longer than the context."""
        rows = [work.model.tokenizer.prompt_ids(text_of(item.value), work.prefix) for item in items]
        longest = max(map(len, rows))
        if longest > work.model.config.n_ctx:
            raise UsageError(
                f"The text has {longest} tokens, the context holds {work.model.config.n_ctx}; shorten it or split it."
            )
        tokens, mask = pad(rows, work.model.tokenizer.pad_id, side)
        return cls(rows, tokens, None if bool(mask.all()) else mask)


def followed(model: "Transformer", value: object) -> tuple[int | None, int | None]:
    """The first token of what should follow, and of what should not. Raises `UsageError` where it has none."""
    if isinstance(value, Fact):
        return answer_ids(model.tokenizer, value.prompt, value.answer)[0], None
    answer, foil = getattr(value, "answer", None), getattr(value, "foil", None)
    ids = [None if each is None else model.to_single_token(each) for each in (answer, foil)]
    return ids[0], ids[1]


def laid_out(axes: Mapping[str, Sequence[object]], arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Arrays over all the axes as columns, one row a cell, those of the axes first."""
    shape = tuple(map(len, axes.values()))
    columns: dict[str, object] = {}
    for place, (name, coordinates) in enumerate(axes.items()):
        values = np.empty(len(coordinates), dtype=object)
        values[:] = list(coordinates)
        lengths = [len(coordinates) if other == place else 1 for other in range(len(shape))]
        columns[name] = np.broadcast_to(values.reshape(lengths), shape).reshape(-1)
    return {**columns, **{name: np.asarray(array).reshape(-1) for name, array in arrays.items()}}
