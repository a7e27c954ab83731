"""Pairs of prompts as aligned tokens: what patching copies between, column by column.

    pair = PromptPair("The capital of France is", "The capital of Italy is", answer=" Paris", foil=" Rome")
    pairs = align(model.tokenizer, [pair])
    pairs.clean, pairs.corrupted     # [pair, pos]
    pairs.answers, pairs.foils       # token ids

Inside a pair both prompts have equally many tokens, so that one column means one place in both. Pairs may differ in
length: shorter ones are padded on the LEFT, where the last column is the last token of each, and `mask` says which
tokens are real.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import UsageError
from interp.prompt_pairs import PromptPair as PromptPair
from interp.prompt_pairs import Role as Role
from interp.prompt_pairs import read_pairs as read_pairs
from interp.prompts import Prefix, PromptTokenizer, find_subject
from interp.selection import Index, indices


class PairTokenizer(PromptTokenizer, Protocol):
    """What of a tokenizer is needed to align pairs; that of a loaded model has it."""

    @property
    def pad_id(self) -> int:
        """A valid id to fill a batch with."""
        ...

    def single_token(self, text: str) -> int:
        """The one token that the text is; `UsageError` showing the pieces if it is several."""
        ...


@dataclass(frozen=True, eq=False)
class Pairs:
    """Aligned pairs: token ids [pair, pos] on the CPU, the answers' ids, and the columns of named places.

    `foils` is None where no pair has one; `mask` is None where all pairs are of one length, and else True at real
    tokens. `roles` has those that every pair names: for each its column in each pair.
    """

    clean: Int[Tensor, "pair pos"]
    corrupted: Int[Tensor, "pair pos"]
    answers: tuple[int, ...]
    foils: tuple[int, ...] | None
    mask: Bool[Tensor, "pair pos"] | None
    prompts: tuple[PromptPair, ...]
    prefix: Prefix
    roles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.prompts)

    def select(self, pairs: Index) -> "Pairs":
        """Some of the pairs, in the order asked for; columns that are padding in all of them are cut off."""
        chosen = indices(pairs, len(self), "the pairs")
        real = torch.ones_like(self.clean, dtype=torch.bool) if self.mask is None else self.mask
        unused = int((~real[chosen]).all(0).sum())
        mask = real[chosen, unused:]
        return Pairs(
            clean=self.clean[chosen, unused:],
            corrupted=self.corrupted[chosen, unused:],
            answers=tuple(self.answers[pair] for pair in chosen),
            foils=None if self.foils is None else tuple(self.foils[pair] for pair in chosen),
            mask=None if mask.all() else mask,
            prompts=tuple(self.prompts[pair] for pair in chosen),
            prefix=self.prefix,
            roles={name: tuple(columns[pair] - unused for pair in chosen) for name, columns in self.roles.items()},
        )

    def of_one_length(self) -> "Pairs":
        """The pairs of the commonest length, in which a position is one place: for sweeps over positions."""
        if self.mask is None:
            return self
        lengths = self.mask.sum(1)
        commonest = lengths.mode().values
        return self.select((lengths == commonest).nonzero()[:, 0])


@dataclass(frozen=True)
class _Row:
    """One pair as tokens, before padding; roles are positions of its own prompt."""

    clean: list[int]
    corrupted: list[int]
    answer: int
    foil: int | None
    roles: Mapping[str, int]


def align(tokenizer: PairTokenizer, pairs: Iterable[PromptPair], *, prefix: Prefix = "doc") -> Pairs:
    """The pairs as tokens, checked: equal lengths inside each, answers and foils of one token, never the same one.

    Raises `UsageError`, naming the pair, where that does not hold, where a role does not stand in the clean prompt,
    where only some pairs have a foil, and for no pairs at all.
    """
    prompts = tuple(pairs)
    if not prompts:
        raise UsageError("There is no pair to align; give at least one.")
    _check_kind(prompts)
    _check_foils(prompts)
    rows = [_named_row(tokenizer, pair, number, prefix) for number, pair in enumerate(prompts)]
    longest = max(len(row.clean) for row in rows)
    mask = torch.tensor([[column >= longest - len(row.clean) for column in range(longest)] for row in rows])
    foils = tuple(row.foil for row in rows if row.foil is not None)
    shared = [name for name in prompts[0].roles if all(name in pair.roles for pair in prompts)]
    return Pairs(
        clean=_padded([row.clean for row in rows], longest, tokenizer.pad_id),
        corrupted=_padded([row.corrupted for row in rows], longest, tokenizer.pad_id),
        answers=tuple(row.answer for row in rows),
        foils=foils or None,
        mask=None if mask.all() else mask,
        prompts=prompts,
        prefix=prefix,
        roles={name: tuple(longest - len(row.clean) + row.roles[name] for row in rows) for name in shared},
    )


def of_texts(
    tokenizer: PairTokenizer,
    clean: str,
    corrupted: str,
    answer: str,
    foil: str | None = None,
    *,
    prefix: Prefix = "doc",
) -> Pairs:
    """One pair of texts, aligned."""
    return align(tokenizer, [PromptPair(clean, corrupted, answer, foil)], prefix=prefix)


def _check_kind(prompts: Sequence[object]) -> None:
    for number, pair in enumerate(prompts):
        if not isinstance(pair, PromptPair):
            raise UsageError(f"Pair {number} is {type(pair).__name__}; expected PromptPair, which `read_pairs` makes.")


def _check_foils(prompts: Sequence[PromptPair]) -> None:
    without = [number for number, pair in enumerate(prompts) if pair.foil is None]
    if 0 < len(without) < len(prompts):
        raise UsageError(f"Pair {without[0]} has no foil and others have one; give a foil to every pair or to none.")


def _named_row(tokenizer: PairTokenizer, pair: PromptPair, number: int, prefix: Prefix) -> _Row:
    """The pair as tokens; errors name it."""
    try:
        return _row(tokenizer, pair, prefix)
    except UsageError as error:
        raise UsageError(f"Pair {number} ({pair.clean!r}): {error}") from error


def _row(tokenizer: PairTokenizer, pair: PromptPair, prefix: Prefix) -> _Row:
    clean, corrupted = (tokenizer.prompt_ids(text, prefix) for text in (pair.clean, pair.corrupted))
    if len(clean) != len(corrupted):
        raise UsageError(length_difference(tokenizer, clean, corrupted))
    answer = tokenizer.single_token(pair.answer)
    foil = None if pair.foil is None else tokenizer.single_token(pair.foil)
    if answer == foil:
        raise UsageError(f"answer and foil are the same token, {pair.answer!r}; give two that differ.")
    roles = {name: _position(tokenizer, pair.clean, name, role, prefix) for name, role in pair.roles.items()}
    return _Row(clean, corrupted, answer, foil, roles)


def length_difference(tokenizer: PromptTokenizer, clean: list[int], corrupted: list[int]) -> str:
    """Where two prompts of different length begin to differ, as tokens: a sentence for an error."""
    same = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(clean, corrupted, strict=False)))
    left, right = (tokenizer.str_tokens(ids[same:]) for ids in (clean, corrupted))
    return (
        f"the clean prompt has {len(clean)} tokens and the corrupted one {len(corrupted)}; from position {same} on "
        f"they are {_shown(left)} and {_shown(right)}. Choose words of equally many tokens."
    )


def _shown(pieces: list[str], most: int = 12) -> str:
    return f"{pieces[:most]}" + (f" and {len(pieces) - most} more" if len(pieces) > most else "")


def _position(tokenizer: PairTokenizer, text: str, name: str, role: Role, prefix: Prefix) -> int:
    """The position of a role in the prompt: for words that of their last token, where they have been read."""
    if isinstance(role, int):
        return indices(role, len(tokenizer.prompt_ids(text, prefix)), f"the role {name!r}")[0]
    words, occurrence = (role, None) if isinstance(role, str) else role
    try:
        return find_subject(tokenizer, text, words, prefix=prefix, occurrence=occurrence).last
    except UsageError as error:
        raise UsageError(f"the role {name!r}: {error}") from error


def _padded(rows: Sequence[list[int]], longest: int, pad_id: int) -> Int[Tensor, "pair pos"]:
    return torch.tensor([[pad_id] * (longest - len(ids)) + ids for ids in rows])
