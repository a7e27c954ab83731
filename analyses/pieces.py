"""Long texts in pieces that a model can read, each behind the prefix.

A text of more than `length` tokens is cut into as few pieces as that allows, all nearly equally long, so that little is
lost to padding. A piece does not see what stood before it in its text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.documents import Document
from interp.analyses.vocabulary import tokenizer_of
from interp.errors import UsageError
from interp.models.batching import pad
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Texts = Sequence[Document] | Int[Tensor, "text pos"] | Sequence[Sequence[int]]
"""Documents, or token ids without a prefix."""
LONGEST = 512
"""Tokens of a piece, at most, where nothing else is asked for."""


@dataclass(frozen=True)
class Batch:
    """Some pieces side by side, each behind the prefix, padded on the right.

    `rows` [token] is where the tokens of the pieces stand in `tokens.flatten()`, `places` [token] where they stand in
    the stream of all texts; both ascend.
    """

    tokens: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch pos"] | None
    rows: Int[Tensor, "token"]
    places: Int[Tensor, "token"]


@dataclass(frozen=True)
class Pieces:
    """All texts as one stream of tokens, where each begins, and how it is cut: piece i is [cuts[i], cuts[i + 1])."""

    names: tuple[str, ...]
    stream: Int[Tensor, "token"]
    starts: Int[Tensor, "text"]
    cuts: Int[Tensor, "cut"]
    prefix: tuple[int, ...]
    pad_id: int

    @property
    def width(self) -> int:
        """Tokens of the longest piece, prefix included."""
        return len(self.prefix) + int(self.cuts.diff().max())

    def batches(self, size: int) -> Iterator[Batch]:
        """So many pieces at a time, in the order of the texts."""
        bounds = list(pairwise(self.cuts.tolist()))
        for first in range(0, len(bounds), size):
            some = bounds[first : first + size]
            rows = [[*self.prefix, *self.stream[start:stop].tolist()] for start, stop in some]
            tokens, mask = pad(rows, self.pad_id, "right")
            own = mask.clone()
            own[:, : len(self.prefix)] = False
            places = torch.arange(some[0][0], some[-1][1])
            yield Batch(tokens, None if bool(mask.all()) else mask, own.flatten().nonzero()[:, 0], places)


def pieces_of(model: "Transformer", texts: Texts, *, length: int, prefix: PrefixPolicy) -> Pieces:
    """The texts cut up. Raises `UsageError` for none, an empty one, names used twice, and pieces beyond the context."""
    tokenizer, before = tokenizer_of(model), _prefix_of(model, prefix)
    if not 1 <= length <= model.config.n_ctx - len(before):
        raise UsageError(f"length is {length}; expected 1 to {model.config.n_ctx - len(before)} tokens a piece.")
    names = [text.name if isinstance(text, Document) else str(number) for number, text in enumerate(texts)]
    if not names or len(set(names)) < len(names):
        what = "none came" if not names else f"{max(names, key=names.count)!r} names several"
        raise UsageError(f"Expected texts, each with a name of its own: {what}.")
    rows = [_ids(model, text, before) for text in texts]
    empty = [name for name, ids in zip(names, rows, strict=True) if not len(ids)]
    if empty:
        raise UsageError(f"The text {empty[0]!r} has no tokens; leave it out.")
    ends = torch.tensor([len(ids) for ids in rows]).cumsum(0)
    starts = ends - torch.tensor([len(ids) for ids in rows])
    cuts = [start + part for ids, start in zip(rows, starts.tolist(), strict=True) for part in _cuts(len(ids), length)]
    stream = torch.cat(rows)
    pad_id = 0 if tokenizer is None else tokenizer.pad_id
    return Pieces(tuple(names), stream, starts, torch.tensor([*cuts, len(stream)]), before, pad_id)


def longest_piece(model: "Transformer", prefix: PrefixPolicy) -> int:
    """How long a piece is where nothing else is asked for: `LONGEST`, or what the context leaves behind the prefix."""
    return min(LONGEST, model.config.n_ctx - len(_prefix_of(model, prefix)))


def _prefix_of(model: "Transformer", prefix: PrefixPolicy) -> tuple[int, ...]:
    """Nothing needs no tokenizer."""
    return () if prefix == "none" and tokenizer_of(model) is None else tuple(model.tokenizer.prefix_ids(prefix))


def _ids(model: "Transformer", text: Document | Sequence[int] | Tensor, prefix: tuple[int, ...]) -> Tensor:
    """The tokens of a text without a prefix; one that a document opens with counts as that."""
    if not isinstance(text, Document):
        return torch.as_tensor(text, dtype=torch.int64, device="cpu")
    ids = model.tokenizer.encode(text.text)
    return torch.tensor(ids[len(prefix) :] if prefix and tuple(ids[: len(prefix)]) == prefix else ids)


def _cuts(count: int, length: int) -> list[int]:
    """Where the pieces of a text begin."""
    pieces = -(-count // length)
    return [piece * count // pieces for piece in range(pieces)]
