"""Where a subject stands in a prompt: from characters to token positions.

    span = find_subject(model.tokenizer, "The Eiffel Tower is located in the city of", "Eiffel Tower")
    span.positions, span.last, span.pieces

Tokens do not respect words. A subject's tokens are all those that OVERLAP its characters, never those that equal it:
a byte-level token carries the space before its word, a name may be cut into several pieces, the tokens of one emoji
share its character. Where such a token reaches beyond the subject the span is not `exact`; show its pieces then.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from interp.errors import UsageError

Prefix = Literal["doc", "none", "chat"]
"""What stands before a text; what each means is the tokenizer's affair."""


class PromptTokenizer(Protocol):
    """What of a tokenizer is needed to place a subject; that of a loaded model has it."""

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of the text alone, and the half-open range of characters that each covers."""
        ...

    def prompt_ids(self, text: str, prefix: Prefix) -> list[int]:
        """The tokens of the whole prompt: what stands before the text, the text, what stands after it."""
        ...

    def suffix_ids(self, policy: Prefix) -> list[int]:
        """The tokens that stand after the text."""
        ...

    def str_tokens(self, ids: Iterable[int]) -> list[str]:
        """One string per token."""
        ...


@dataclass(frozen=True)
class Span:
    """The tokens of a subject: positions `start` to `stop − 1` of the prompt, its prefix counted.

    `text` is the subject as it was asked for and `pieces` its tokens as strings. `exact` is False where they cover more
    than the subject and one space before it: "Pari" in " Paris", or the second half of a word that is one token.
    """

    start: int
    stop: int
    text: str
    pieces: tuple[str, ...]
    exact: bool

    @property
    def last(self) -> int:
        """The position of the last token, at which the whole subject has been read."""
        return self.stop - 1

    @property
    def positions(self) -> list[int]:
        return list(range(self.start, self.stop))

    def must_be_exact(self) -> "Span":
        """This span. Raises `UsageError` where it is not `exact`."""
        if not self.exact:
            raise UsageError(
                f"The subject {self.text!r} begins or ends inside a token: it lies in {list(self.pieces)}. Name it so "
                "that it covers whole tokens."
            )
        return self


def find_subject(
    tokenizer: PromptTokenizer, text: str, subject: str, *, prefix: Prefix = "doc", occurrence: int | None = None
) -> Span:
    """Where `subject` stands in the prompt made of `text`, as positions of `model.to_tokens(text, prefix=prefix)`.

    The subject is found as it is written, letter for letter. Every character at which it begins counts as an
    occurrence, so "aa" occurs twice in "aaa"; if there are several, `occurrence` says which: 0 is the first, −1 the
    last. Raises `UsageError` for a subject that is empty, absent or ambiguous, and for a prompt that cannot be made.
    """
    whole = tokenizer.prompt_ids(text, prefix)
    ids, offsets = tokenizer.encode_with_offsets(text)
    first = _choose(_starts(text, subject), subject, occurrence)
    end = first + len(subject)
    covering = [place for place, (start, stop) in enumerate(offsets) if start < end and stop > first]
    if not covering:
        raise UsageError(f"No token covers {subject!r}: the tokenizer drops those characters. Name another subject.")
    start, stop = covering[0], covering[-1] + 1
    covered = text[offsets[start][0] : offsets[stop - 1][1]]
    # counted, not asked for: a text that brings the separator along is given no second one
    before = len(whole) - len(ids) - len(tokenizer.suffix_ids(prefix))
    pieces = tuple(tokenizer.str_tokens(ids[start:stop]))
    return Span(before + start, before + stop, subject, pieces, covered in (subject, f" {subject}"))


def replaced(text: str, subject: str, other: str, *, occurrence: int | None = None) -> str:
    """The text with another subject in this one's place; found, and refused, as `find_subject` does."""
    first = _choose(_starts(text, subject), subject, occurrence)
    return f"{text[:first]}{other}{text[first + len(subject) :]}"


def _starts(text: str, subject: str) -> list[int]:
    """The characters at which the subject begins; at least one."""
    if not isinstance(subject, str) or not subject:
        raise UsageError(f"The subject is {subject!r}; give the words of the text that are meant.")
    starts = [place for place in range(len(text)) if text.startswith(subject, place)]
    if not starts:
        raise UsageError(f"The subject {subject!r} does not stand in {text!r}.{_hint(text, subject)}")
    return starts


def _hint(text: str, subject: str) -> str:
    """A clause naming what does stand in the text, where only case or the spaces around the subject differ."""
    bare = subject.strip()
    if bare and bare in text:
        return f" It contains {bare!r} without those spaces."
    found = re.search(re.escape(bare), text, re.IGNORECASE) if bare else None
    return f" It contains {found[0]!r} in other letters." if found else " Copy it from the text, letter for letter."


def _choose(starts: list[int], subject: str, occurrence: int | None) -> int:
    count = len(starts)
    if occurrence is None and count > 1:
        raise UsageError(
            f"The subject {subject!r} stands {count} times in the text. Say which by its occurrence: 0 to {count - 1}, "
            "or -1 for the last."
        )
    wanted = 0 if occurrence is None else occurrence
    if type(wanted) is not int or not -count <= wanted < count:
        raise UsageError(
            f"There is no occurrence {wanted!r} of {subject!r}: expected 0 to {count - 1}, or -1 for the last."
        )
    return starts[wanted]
