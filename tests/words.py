"""A tokenizer of words, for tests of what happens to their lengths."""

import re
from collections.abc import Iterable

from interp.errors import UsageError
from interp.prompts import Prefix

SEPARATOR = "<doc>"


class Words:
    """Words with the space before them, in pieces of at most `letters`; numbers in groups of at most `digits`."""

    pad_id = 0

    def __init__(self, letters: int = 20, digits: int = 1) -> None:
        self.pieces = ["<pad>", SEPARATOR]
        self.pattern = re.compile(rf" ?[^\W\d]{{1,{letters}}}| ?\d{{1,{digits}}}|.")

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = list(self.pattern.finditer(text))
        return [self._id(match[0]) for match in found], [match.span() for match in found]

    def prompt_ids(self, text: str, prefix: Prefix) -> list[int]:
        return [self._id(SEPARATOR)] * (prefix != "none") + self.encode_with_offsets(text)[0] + self.suffix_ids(prefix)

    def suffix_ids(self, policy: Prefix) -> list[int]:
        return [self._id(SEPARATOR)] * 2 if policy == "chat" else []

    def str_tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.pieces[index] for index in ids]

    def single_token(self, text: str) -> int:
        ids = self.encode_with_offsets(text)[0]
        if len(ids) != 1:
            raise UsageError(f"{text!r} is {len(ids)} tokens, not one: {self.str_tokens(ids)}.")
        return ids[0]

    def _id(self, piece: str) -> int:
        if piece not in self.pieces:
            self.pieces.append(piece)
        return self.pieces.index(piece)
