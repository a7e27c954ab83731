"""Random sequences that are said twice or more: the text on which induction shows.

`x = prefix ⊕ s ⊕ s (⊕ s …)`, the tokens of `s` drawn without replacement from the vocabulary minus the special
tokens, so that within one repeat no token has been seen before. Sequence i is drawn from (seed, i) alone: how many
are drawn, in which batches, changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.analyses.vocabulary import tokenizer_of
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Progress = Callable[[int, int], None]
"""`progress(done, total)`: called after each batch of texts."""


@dataclass(frozen=True)
class RepeatedText:
    """The tokens, and how they are laid out: `prefix_len` tokens, then `repeats` times the same `seq_len` tokens."""

    tokens: Int[Tensor, "batch pos"]
    seq_len: int
    repeats: int
    prefix_len: int

    def predicting(self, repeat: int) -> range:
        """The columns that foretell repeat 0, 1, …, from its second token on: nothing announces the first."""
        start = self.prefix_len + repeat * self.seq_len
        return range(start, start + self.seq_len - 1)


def check_layout(seq_len: int, repeats: int, prefix_len: int) -> None:
    """Raises `UsageError` unless there is a sequence of at least 2 tokens that stands there at least twice."""
    if seq_len < 2 or repeats < 2 or prefix_len < 0:
        raise UsageError(
            f"A repeated text needs seq_len ≥ 2, repeats ≥ 2 and prefix_len ≥ 0, "
            f"and got seq_len={seq_len}, repeats={repeats}, prefix_len={prefix_len}."
        )


def repeated_tokens(
    pool: Sequence[int] | np.ndarray, *, seq_len: int, repeats: int, n_seqs: int, seed: int, prefix: Sequence[int] = ()
) -> Int[Tensor, "batch pos"]:
    """`n_seqs` texts of `repeats` times the same `seq_len` tokens out of `pool`, none twice, behind the prefix."""
    check_layout(seq_len, repeats, len(prefix))
    if n_seqs < 1 or seed < 0:
        raise UsageError(f"Expected n_seqs ≥ 1 and a seed ≥ 0, and got n_seqs={n_seqs}, seed={seed}.")
    if seq_len > len(pool):
        raise UsageError(f"Cannot draw {seq_len} different tokens: only {len(pool)} of the vocabulary are not special.")
    rows = []
    for index in range(n_seqs):
        sequence = np.random.default_rng([seed, index]).choice(np.asarray(pool), size=seq_len, replace=False)
        rows.append([*prefix, *np.tile(sequence, repeats).tolist()])
    return torch.tensor(rows, dtype=torch.long)


def ordinary_tokens(model: "Transformer") -> np.ndarray:
    """The ids a random text may hold: the vocabulary without its special tokens."""
    ids, tokenizer = np.arange(model.config.d_vocab), tokenizer_of(model)
    return ids if tokenizer is None else np.setdiff1d(ids, np.fromiter(tokenizer.special_ids, dtype=np.int64))


def repeated_text(
    model: "Transformer", *, seq_len: int, repeats: int, n_seqs: int, seed: int, prefix: PrefixPolicy
) -> RepeatedText:
    """Repeated random texts for one model, with its prefix. Raises `UsageError` if they exceed its context."""
    before = [] if prefix == "none" else model.tokenizer.prefix_ids(prefix)
    length = len(before) + repeats * seq_len
    if length > model.config.n_ctx:
        raise UsageError(
            f"{repeats} × {seq_len} tokens and a prefix of {len(before)} make {length}, and the model's context is "
            f"{model.config.n_ctx}. Use a smaller seq_len or fewer repeats."
        )
    tokens = repeated_tokens(
        ordinary_tokens(model), seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=before
    )
    return RepeatedText(tokens, seq_len, repeats, len(before))
