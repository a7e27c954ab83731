"""Random sequences that are said twice or more: the text on which induction shows.

`x = prefix ⊕ s ⊕ s (⊕ s …)`, the tokens of `s` drawn without replacement from the vocabulary minus the special
tokens, so that within one repeat no token has been seen before. Sequence i is drawn from (seed, i) alone: how many
are drawn, in which batches, changes nothing.

The most and the least frequent tokens can be left out as well (Olsson et al. 2022, arXiv 2209.11895, appendix). How
frequent a token is, `counts` of your own corpus say best. Without them the ids stand for it: a BPE vocabulary numbers
its tokens as training merged them, frequent pairs first. That is an order of merging, not of counts: single bytes
stand first, however rare they are.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from numbers import Integral
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.vocabulary import tokenizer_of
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.selection import is_whole, whole_numbers

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Progress = Callable[[int, int], None]
"""`progress(done, total)`: called after each batch of texts."""

Counts = np.ndarray | Sequence[int]
"""How often each token id occurs in a corpus, [d_vocab]."""


class LeftOut(TypedDict, total=False):
    """Which tokens are never drawn; see `ordinary_tokens`."""

    exclude_most: int
    """How many of the most frequent ones."""
    exclude_least: int
    """How many of the least frequent ones."""
    counts: Counts | None
    """How frequent each is; without them ids stand for it."""


Sequences = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | Int[Tensor, "batch pos"]
"""One sequence or several: texts, token ids, or a tensor of ids whose rows may be padded, with a mask."""


@dataclass(frozen=True)
class RepeatedText:
    """The tokens, and how they are laid out: `prefix_len` tokens, then `repeats` times the same `seq_len` tokens.

    `settings` say how the tokens were chosen, for the results that are made from them.
    """

    tokens: Int[Tensor, "batch pos"]
    seq_len: int
    repeats: int
    prefix_len: int
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def layout(self) -> dict[str, int]:
        """`seq_len`, `repeats` and `prefix_len`."""
        return {"seq_len": self.seq_len, "repeats": self.repeats, "prefix_len": self.prefix_len}

    def predicting(self, repeat: int) -> range:
        """The columns that foretell repeat 0, 1, …, from its second token on: nothing announces the first."""
        start = self.prefix_len + repeat * self.seq_len
        return range(start, start + self.seq_len - 1)


def counted(count: int, noun: str) -> str:
    """`1 document`, `2 documents`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def texts_read(settings: Mapping[str, object], repeats: int | None = None) -> str:
    """The repeated texts that a result was made from, in words; its settings say how many of what length.

    Where texts differ, a setting lists its values: the smallest and the largest are told.
    """
    kind = "random text" if settings.get("text", "random") == "random" else "text"
    times, length = _span(settings["repeats"] if repeats is None else repeats), _span(settings["seq_len"])
    return f"{counted(int(str(settings['n_seqs'])), kind)} of {times} × {length} tokens"


def _span(value: object) -> str:
    """A number that all texts share, or the smallest and the largest."""
    return f"{min(value)}–{max(value)}" if isinstance(value, Sequence) else str(value)


def check_whole(**numbers: int) -> None:
    """Raises `UsageError` for what is no whole number, naming it."""
    for name, number in numbers.items():
        if not is_whole(number):
            raise UsageError(f"{name} is {number!r}; expected a whole number.")


def check_layout(seq_len: int, repeats: int, prefix_len: int) -> None:
    """Raises `UsageError` unless there is a sequence of at least 2 tokens that stands there at least twice."""
    check_whole(seq_len=seq_len, repeats=repeats, prefix_len=prefix_len)
    if seq_len < 2 or repeats < 2 or prefix_len < 0:
        raise UsageError(
            f"A repeated text needs seq_len ≥ 2, repeats ≥ 2 and prefix_len ≥ 0, "
            f"and got seq_len={seq_len}, repeats={repeats}, prefix_len={prefix_len}."
        )


def check_fits(model: "Transformer", seq_len: int, repeats: int, prefix_len: int) -> None:
    """Raises `UsageError` for a layout that is none, or that is longer than the model's context."""
    check_layout(seq_len, repeats, prefix_len)
    length = prefix_len + repeats * seq_len
    if length > model.config.n_ctx:
        raise UsageError(
            f"{repeats} × {seq_len} tokens and a prefix of {prefix_len} make {length}, and the model's context is "
            f"{model.config.n_ctx}. Use a shorter sequence (seq_len) or fewer repeats."
        )


def repeated_tokens(
    pool: Sequence[int] | np.ndarray,
    *,
    seq_len: int,
    repeats: int,
    n_seqs: int | Sequence[int],
    seed: int,
    prefix: Sequence[int] = (),
) -> Int[Tensor, "batch pos"]:
    """`n_seqs` texts of `repeats` times the same `seq_len` tokens out of `pool`, none twice, behind the prefix.

    `n_seqs`: how many, the first ones; or which, by their indices.
    """
    check_layout(seq_len, repeats, len(prefix))
    if isinstance(n_seqs, Sequence):
        which = list(n_seqs)
    else:
        check_whole(n_seqs=n_seqs)
        which = list(range(n_seqs))
    check_whole(seed=seed)
    if not which or min(which) < 0 or seed < 0:
        raise UsageError(f"Expected n_seqs ≥ 1 and a seed ≥ 0, and got n_seqs={n_seqs}, seed={seed}.")
    if seq_len > len(pool):
        raise UsageError(
            f"The vocabulary is too small to draw {seq_len} tokens without replacement: {len(pool)} are left beside "
            "the special ones and those left out. Use a smaller seq_len, or leave out fewer."
        )
    sequences = [np.tile(_drawn(pool, seq_len, seed, index), repeats).tolist() for index in which]
    return torch.tensor([[*prefix, *sequence] for sequence in sequences], dtype=torch.long)


def _drawn(pool: Sequence[int] | np.ndarray, seq_len: int, seed: int, index: int) -> np.ndarray:
    """Sequence `index`: it depends on the seed and its index alone."""
    return np.random.default_rng([seed, index]).choice(np.asarray(pool), size=seq_len, replace=False)


def ordinary_tokens(
    model: "Transformer", *, exclude_most: int = 0, exclude_least: int = 0, counts: Counts | None = None
) -> np.ndarray:
    """The ids a random text may hold, in order: the vocabulary without its special tokens.

    Without the `exclude_most` most frequent and the `exclude_least` least frequent of these by `counts`, among equal
    counts by id; without counts, by id alone. Raises `UsageError` where ids say nothing of frequency, and for counts
    that are not one number ≥ 0 for each id.
    """
    check_whole(exclude_most=exclude_most, exclude_least=exclude_least)
    if exclude_most < 0 or exclude_least < 0:
        raise UsageError(
            f"exclude_most and exclude_least are numbers of tokens, not {exclude_most} and {exclude_least}."
        )
    ids, tokenizer = np.arange(model.config.d_vocab), tokenizer_of(model)
    if tokenizer is not None:
        ids = np.setdiff1d(ids, np.fromiter(tokenizer.special_ids, dtype=np.int64))
    if not exclude_most and not exclude_least:
        return ids
    if counts is not None:
        ids = ids[np.argsort(-_checked(counts, model.config.d_vocab)[ids], kind="stable")]
    elif tokenizer is None or not tokenizer.ordered_by_merges:
        raise UsageError(
            "Which tokens are frequent cannot be told from the ids of this model: it has no BPE tokenizer, whose ids "
            "follow the order of its merges. Pass counts, how often each id occurs in a corpus."
        )
    return np.sort(ids[exclude_most : max(exclude_most, len(ids) - exclude_least)])


def _checked(counts: Counts, d_vocab: int) -> np.ndarray:
    values = np.asarray(counts, dtype=np.float64)
    if values.shape != (d_vocab,) or not np.isfinite(values).all() or values.min() < 0:
        raise UsageError(
            f"counts must hold a number ≥ 0 for each of {d_vocab} ids; an array of shape {list(values.shape)} came"
            f"{'' if values.shape != (d_vocab,) else ', with other values in it'}."
        )
    return values


def repeated_text(
    model: "Transformer",
    *,
    seq_len: int,
    repeats: int,
    n_seqs: int | Sequence[int],
    seed: int,
    prefix: PrefixPolicy,
    **left_out: Unpack[LeftOut],
) -> RepeatedText:
    """Repeated random texts for one model, with its prefix; see `ordinary_tokens` for what they are drawn from.

    `n_seqs`: how many, the first ones; or which, by their indices.
    Raises `UsageError` if they exceed the context, and where too few tokens are left to draw from.
    """
    before = [] if prefix == "none" else model.tokenizer.prefix_ids(prefix)
    check_fits(model, seq_len, repeats, len(before))
    pool = ordinary_tokens(model, **left_out)
    tokens = repeated_tokens(pool, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=before)
    settings = {"text": "random", "seed": seed, "prefix": prefix, **_noted(**left_out)}
    return RepeatedText(tokens, seq_len, repeats, len(before), settings)


def _noted(exclude_most: int = 0, exclude_least: int = 0, counts: Counts | None = None) -> dict[str, object]:
    """What was left out, and what stood for the frequency of a token; nothing where nothing was."""
    if not exclude_most and not exclude_least:
        return {}
    by = "ids: the order of the vocabulary's merges"
    if counts is not None:
        by = f"counts, sha256 {hashlib.sha256(np.asarray(counts, dtype=np.float64).tobytes()).hexdigest()}"
    return {"exclude_most": exclude_most, "exclude_least": exclude_least, "frequency": by}


def repeated_sequences(
    model: "Transformer",
    sequences: Sequences,
    *,
    repeats: int,
    prefix: PrefixPolicy,
    mask: Bool[Tensor, "batch pos"] | None = None,
) -> list[RepeatedText]:
    """Your own sequences in their order, each said `repeats` times behind the prefix.

    Neighbours of one length share a `RepeatedText`. Tokens are repeated, not characters: a text is read once, without
    prefix. Raises `UsageError` for sequences that are too short, that do not fit the context, or that are no tokens.
    """
    before = [] if prefix == "none" else model.tokenizer.prefix_ids(prefix)
    rows = _rows(model, sequences, mask)
    if not rows:
        raise UsageError("There is no sequence; give at least one.")
    for row in rows:
        check_fits(model, len(row), repeats, len(before))
    settings = {"text": "given", "prefix": prefix}
    return [
        RepeatedText(torch.tensor([before + row * repeats for row in alike]), length, repeats, len(before), settings)
        for length, alike in groupby(rows, key=len)
    ]


def _rows(model: "Transformer", sequences: Sequences, mask: Tensor | None) -> list[list[int]]:
    """The ids of every sequence, without padding."""
    if isinstance(sequences, Tensor):
        real = torch.ones_like(sequences, dtype=torch.bool) if mask is None else mask
        if real.shape != sequences.shape:
            raise UsageError(f"The mask has shape {list(real.shape)}, the tokens have {list(sequences.shape)}.")
        return [row[kept].tolist() for row, kept in zip(sequences, real.to(sequences.device), strict=True)]
    if mask is not None:
        raise UsageError("A mask says which tokens of a tensor are padding; lists have none. Leave the mask out.")
    if isinstance(sequences, str) or (sequences and all(isinstance(each, Integral) for each in sequences)):
        return [_ids(model, sequences)]
    return [_ids(model, each) for each in sequences]


def _ids(model: "Transformer", sequence: object) -> list[int]:
    """The ids of one sequence, given as text or as ids. Raises `UsageError` for what is neither."""
    if isinstance(sequence, str):
        return model.tokenizer.encode(sequence)
    if not isinstance(sequence, Sequence | Tensor):
        raise UsageError(f"A sequence is a text or a list of token ids; {sequence!r} is neither.")
    return whole_numbers(sequence, "the tokens of a sequence")
