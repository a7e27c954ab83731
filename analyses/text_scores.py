"""What an attention pattern does on ordinary text: scores that are weighted sums of it.

A score is a matrix w over queries and keys, so that Σ w[q, k] · A[q, k] is the mean over some rows q of the attention
that they give to some keys: one matrix product makes all scores of all heads of a layer at once. With p the length of
the prefix, over the rows q > p (those after the first token of the text),

    previous token    A[q, q−1]        current token   A[q, q]        sink   A[q, 0]
    distance          Σ_k A[q, k] · (q − k), in tokens; and the same of the attention that is not on position 0
    entropy           −Σ_k A[q, k] ln A[q, k], in nats; evenness: divided by ln(q + 1), so that 1 is uniform

and over fewer rows, so that looking at the previous or the current token counts for nothing,

    same token        Σ A[q, k] over earlier k with x_k = x_q; rows whose token came before, and not just before
    delimiter         Σ A[q, k] over earlier delimiters k; rows that neither are a delimiter nor follow one
    after delimiter   A[q, d + 1], d the last delimiter before q; rows that stand at least 3 behind it

A delimiter is a token of nothing but `DELIMITERS`: what separates clauses, sentences, lines. The scores of marked
sentences (`interp.analyses.role_sentences`) are of one row each: attention to the target less that to the competitor,
summed over the tokens of a word that has several.

Papers: Clark et al. 2019, What does BERT look at? (arXiv 1906.04341); Voita et al. 2019, Analyzing Multi-Head
Self-Attention (arXiv 1905.09418).

What they do NOT tell: what a head does with what it looks at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.analyses.role_sentences import Characters, Marked
from interp.prompts import Prefix

DELIMITERS = frozenset('.,;:!?…–—()[]{}"“”\n')
SUMS = ("previous_token", "current_token", "sink", "same_token", "delimiter", "after_delimiter", "distance", "reach")
"""What `natural_weights` has weights for; `reach` is the part of the distance that is not to position 0."""
CLEAR = 3
"""How far behind a delimiter the token after it is neither the current nor the previous one."""


class TextTokenizer(Protocol):
    """What of a tokenizer is needed to place words; that of a loaded model has it."""

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of the text alone, and the half-open range of characters that each covers."""
        ...

    def prefix_ids(self, policy: Prefix) -> list[int]:
        """The tokens that stand before the text."""
        ...

    def str_tokens(self, ids: Sequence[int]) -> list[str]:
        """One string per token."""
        ...


class ScoredText(Protocol):
    """A text and the weights of its scores, which are made when they are needed."""

    @property
    def tokens(self) -> Int[Tensor, "pos"]:
        """The ids, the prefix among them."""
        ...

    def weights(self) -> Float[Tensor, "score query_pos key_pos"]:
        """One matrix a score."""
        ...

    def rows(self) -> Float[Tensor, "measure query_pos"]:
        """How much each row's entropy counts: one line a measure, none where no entropy is asked for."""
        ...


@dataclass(frozen=True, eq=False)
class NaturalText:
    """A piece of ordinary text: `SUMS`, then entropy and evenness."""

    tokens: Int[Tensor, "pos"]
    delimiters: Bool[Tensor, "pos"]
    prefix_len: int

    def weights(self) -> Float[Tensor, "score query_pos key_pos"]:
        """The weights of `SUMS`, in that order."""
        return natural_weights(self.tokens, self.delimiters, self.prefix_len)

    def rows(self) -> Float[Tensor, "2 query_pos"]:
        """Entropy, and entropy as a share of what it would be for uniform attention."""
        place = torch.arange(len(self.tokens))
        later = (place > self.prefix_len).float()
        return torch.stack([later, later / (place + 1).log().clamp_min(1e-9)]) / later.sum()


@dataclass(frozen=True, eq=False)
class SentenceText:
    """A marked sentence as tokens: one score for each of the `queries`, rows that look at the target or elsewhere."""

    tokens: Int[Tensor, "pos"]
    queries: tuple[int, ...]
    target: tuple[int, ...]
    competitor: tuple[int, ...]

    def weights(self) -> Float[Tensor, "score query_pos key_pos"]:
        """1 at the tokens of the target, −1 at those of the competitor."""
        found = torch.zeros(len(self.queries), len(self.tokens), len(self.tokens))
        for score, query in enumerate(self.queries):
            found[score, query, list(self.target)] = 1
            found[score, query, list(self.competitor)] = -1
        return found

    def rows(self) -> Float[Tensor, "0 query_pos"]:
        """No entropy is asked for."""
        return torch.zeros(0, len(self.tokens))


def natural_text(tokenizer: TextTokenizer, ids: Sequence[int], prefix_len: int) -> NaturalText:
    """Token ids, the prefix among them, with their delimiters."""
    delimiters = [is_delimiter(piece) for piece in tokenizer.str_tokens(ids)]
    return NaturalText(torch.tensor(ids), torch.tensor(delimiters), prefix_len)


def is_delimiter(piece: str) -> bool:
    """Whether a token is made of delimiters alone, with or without a space."""
    bare = piece.strip(" ")
    return bool(bare) and set(bare) <= DELIMITERS


def sentence_text(tokenizer: TextTokenizer, sentence: Marked, prefix: Prefix, queries: Sequence[str]) -> SentenceText:
    """A sentence as tokens; a query is the last token of the word of that name."""
    ids, offsets = tokenizer.encode_with_offsets(sentence.text)
    before = tokenizer.prefix_ids(prefix)

    def positions(name: str) -> tuple[int, ...]:
        return tuple(len(before) + place for place in _covering(offsets, sentence.places[name]))

    rows = tuple(positions(name)[-1] for name in queries)
    return SentenceText(torch.tensor([*before, *ids]), rows, positions("target"), positions("competitor"))


def _covering(offsets: Sequence[Characters], wanted: Characters) -> list[int]:
    """The tokens that overlap a range of characters."""
    return [place for place, (start, stop) in enumerate(offsets) if start < wanted[1] and stop > wanted[0]]


def natural_weights(
    tokens: Int[Tensor, "pos"], delimiters: Bool[Tensor, "pos"], prefix_len: int
) -> Float[Tensor, "score query_pos key_pos"]:
    """The weights of `SUMS`, in that order; NaN where no row has a part in a score."""
    place = torch.arange(len(tokens))
    query, key = place[:, None], place[None, :]
    before, text, later = key == query - 1, place >= prefix_len, place > prefix_len
    same = (tokens[:, None] == tokens) & (key < query) & text
    marks = (delimiters & text).expand(len(place), -1) & (key < query)
    away = ~(delimiters | (marks & before).any(-1))  # rows that neither are a delimiter nor follow one
    last = torch.where(delimiters & text, place, -len(place)).cummax(0).values  # the last delimiter up to each row
    return torch.stack(
        [
            _averaged(before, later),
            _averaged(key == query, later),
            _averaged((key == 0).expand(len(place), -1), later),
            _averaged(same, later & same.any(-1) & ~(same & before).any(-1)),
            _averaged(marks, later & marks.any(-1) & away),
            _averaged(key == last[:, None] + 1, later & (last >= 0) & (place >= last + CLEAR)),
            _averaged(query - key, later),
            _averaged((query - key) * (key > 0), later),
        ]
    )


def _averaged(
    cells: Bool[Tensor, "query_pos key_pos"] | Int[Tensor, "query_pos key_pos"], rows: Bool[Tensor, "query_pos"]
) -> Float[Tensor, "query_pos key_pos"]:
    """The weights that make a mean over `rows` of the attention to `cells`."""
    return cells * rows[:, None] / rows.sum()


def weighted_sums(
    pattern: Float[Tensor, "batch head query_pos key_pos"],
    weights: Float[Tensor, "batch score query_pos key_pos"],
    rows: Float[Tensor, "batch measure query_pos"],
) -> Float[Tensor, "batch value head"]:
    """Σ w · A for every score, then the weighted entropies of the rows. Never writes to the pattern."""
    wide = pattern.to(torch.promote_types(pattern.dtype, weights.dtype))
    sums = weights.to(wide.dtype).flatten(2) @ wide.flatten(2).mT
    if rows.shape[1] == 0:
        return sums
    return torch.cat([sums, rows.to(wide.dtype) @ torch.special.entr(wide).sum(-1).mT], 1)


def uniform_pattern(length: int) -> Float[Tensor, "1 1 query_pos key_pos"]:
    """What a head would look like that looks at all positions so far alike."""
    return (torch.ones(length, length).tril() / torch.arange(1, length + 1)[:, None])[None, None]
