"""SentencePiece vocabularies without a list of merges, as GGUF files hold them (Kudo & Richardson 2018).

The file states pieces and scores. Of all neighbours in a text that together are a piece, those whose piece scores best
are merged first, so that the merges of a BPE can be put in order: every way of cutting a piece in two pieces is one.
What no piece covers is written as bytes. A space is written as a low bar, `▁`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6
"""Kinds of tokens, as GGUF files number them."""

BAR = "\N{LOWER ONE EIGHTH BLOCK}"


class Pieces(NamedTuple):
    """A vocabulary in the order of its ids: what each token is written as, its score and its kind."""

    tokens: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[int]


def pipeline(pieces: Pieces, unknown: str | None, *, space_in_front: bool) -> Backend:
    """The pipeline of these pieces; `space_in_front`: a text is read as if a space stood before it.

    Runs of spaces that are tokens of their own are merged up to like other pieces, before all others. SentencePiece
    takes the longest such token from the left, which gives the same for runs no longer than the longest token.
    """
    spelled = pieces._replace(tokens=_spelled(pieces.tokens))
    vocabulary = {token: index for index, token in enumerate(spelled.tokens)}
    fallback = any(kind == BYTE for kind in spelled.kinds)
    backend = Backend(
        models.BPE(
            vocab=vocabulary,
            merges=merges(spelled, vocabulary),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=fallback,
        )
    )
    bars = normalizers.Replace(" ", BAR)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(BAR), bars]) if space_in_front else bars
    steps = [decoders.Replace(BAR, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if space_in_front else steps)
    add_markers(backend, pieces.tokens, pieces.kinds)
    return backend


def merges(pieces: Pieces, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every cut of a piece into two, best first: user-defined pieces by id, then by score, then the longer left part.

    Control tokens and bytes are never merged up to.
    """
    found: list[tuple[tuple[int, float], str, str]] = []
    for index, (token, score, kind) in enumerate(zip(*pieces, strict=True)):  # no calls: there are a quarter million
        if kind in (CONTROL, BYTE):
            continue
        rank = (0, index) if kind == USER_DEFINED else (1, -score)
        for place in range(1, len(token)):
            left, right = token[:place], token[place:]
            if left in vocabulary and right in vocabulary:
                found.append((rank, left, right))
    found.sort(key=lambda cut: (cut[0], -len(cut[1]), -len(cut[2])))
    return [(left, right) for _, left, right in found]


def _spelled(tokens: Sequence[str]) -> list[str]:
    """Runs of spaces as the text has them when they are looked up; some files write them as they are."""
    known = frozenset(tokens)
    bars = {token: token.replace(" ", BAR) for token in tokens if token and not token.strip(" ")}
    return [token if bars.get(token, token) in known else bars[token] for token in tokens]


def add_markers(backend: Backend, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    """Declare control and user-defined tokens, which are matched in the text before it is split.

    A user-defined token that the vocabulary spells in another way is left out.
    """
    by_kind = list(zip(tokens, kinds, strict=True))
    special = [AddedToken(token, normalized=False, special=True) for token, kind in by_kind if kind == CONTROL]
    plain = [token for token, kind in by_kind if kind == USER_DEFINED and backend.token_to_id(token) is not None]
    backend.add_special_tokens(special)
    backend.add_tokens([AddedToken(token, normalized=False) for token in plain])
