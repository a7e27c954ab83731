"""Circuits as data: which head or neuron of a hand-written model does what, and where it shows.

`interp.models.constructed` builds what is described here. The residual stream of such a model is divided into spaces,
of one place for each token or position, and every part of the circuit reads some of them and writes another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_letters
from typing import NamedTuple

from interp.errors import UsageError, nearest

SEPARATOR, UNKNOWN = "<|endoftext|>", "<unk>"


class Head(NamedTuple):
    """One attention head."""

    layer: int
    head: int


class Neuron(NamedTuple):
    """One neuron of an FFN."""

    layer: int
    neuron: int


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """What all hand-written models have in common. Raises `UsageError` where a part does not fit into the shape.

    Tokens are the separator, one that stands for all unknown words, and the `words`. `strength` is the logit that the
    circuit gives its answer. A `suppressor`, if there is one, is a second head like that which gives the answer, and
    takes `suppression` from the answer's logit. `sharpness` multiplies all scores.
    """

    words: tuple[str, ...]
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 4
    d_mlp: int = 8
    n_ctx: int = 128
    strength: float = 16.0
    sharpness: float = 1024.0
    suppressor: Head | None = None
    suppression: float = 4.0

    def __post_init__(self) -> None:
        if any(word.split() != [word] for word in self.words):
            raise UsageError(f"Every word is one word without spaces; among {self.words} is one that is not.")
        if len(set(self.vocabulary)) != len(self.vocabulary):
            raise UsageError(f"All words must differ, from {SEPARATOR} and {UNKNOWN} too: {self.words}.")
        if len(set(self.heads.values())) != len(self.heads):
            raise UsageError(f"One head can only do one thing; the heads are {self.heads}.")
        for name, head in self.heads.items():
            _check_place(name, "layer", head.layer, self.n_layers)
            _check_place(name, "head", head.head, self.n_heads)

    @property
    def heads(self) -> dict[str, Head]:
        """The heads that write anything, by what they do."""
        return {} if self.suppressor is None else {"suppressor": self.suppressor}

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """What each token id stands for."""
        return (SEPARATOR, UNKNOWN, *self.words)

    def token(self, word: str) -> int:
        """The id of a word; `UsageError` if the vocabulary lacks it."""
        if word not in self.vocabulary:
            raise UsageError(f"{word!r} is no word of this model.{nearest(word, self.words)} It knows {self.words}.")
        return self.vocabulary.index(word)

    @property
    def between(self) -> tuple[str, ...]:
        """The spaces in which the circuit keeps what it has found out so far."""
        return ()

    @property
    def spaces(self) -> dict[str, slice]:
        """The spaces of the residual stream: the embeddings write the first two, the unembedding reads the last."""
        found, start = {}, 0
        for name in ("token", "position", *self.between, "next"):
            width = self.n_ctx if name == "position" else len(self.vocabulary)
            found[name] = slice(start, start + width)
            start += width
        return found

    def _check_later(self, layer: int, **heads: Head | None) -> None:
        """Refuse heads that read what is only written in this layer or behind them."""
        for name, head in heads.items():
            if head is not None and head.layer <= layer:
                raise UsageError(f"The {name}, {head}, reads what layer {layer} writes; put it into a later layer.")


@dataclass(frozen=True, kw_only=True)
class InductionCircuit(Circuit):
    """Two heads that continue a text as it went on before: behind "A B … A" they say "B".

    `previous` copies the identity of the token before each position into the space `previous`. `induction` reads the
    keys whose previous token is the query's, all alike if there are several, and writes what stands there into `next`.
    """

    words: tuple[str, ...] = tuple(ascii_letters)
    previous: Head = field(default=Head(0, 1))
    induction: Head = field(default=Head(1, 2))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_later(self.previous.layer, induction=self.induction, suppressor=self.suppressor)

    @property
    def heads(self) -> dict[str, Head]:
        """The heads that write anything, by what they do."""
        return {"previous": self.previous, "induction": self.induction, **super().heads}

    @property
    def between(self) -> tuple[str, ...]:
        """The space of the previous token."""
        return ("previous",)

    def keys(self, tokens: Sequence[int], query: int = -1) -> list[int]:
        """The positions that the induction head reads from `query`: those behind every earlier occurrence."""
        query = range(len(tokens))[query]
        return [place + 1 for place in range(query) if tokens[place] == tokens[query]]


@dataclass(frozen=True, kw_only=True)
class OneFact(Circuit):
    """One neuron that knows one thing about one subject, and the heads that serve it.

    `gatherers`, one for each token of the subject but its last, copy the tokens that stand 1, 2, … positions back into
    the spaces `back_1`, `back_2`, …. `neuron` fires, with coefficient 1, where those and the token itself make up the
    subject, and writes the answer into the space `attribute`. From the relation, `extractor` reads wherever something
    stands there, and says it. The relation by itself says the `foil`, with logit `prior`. So it is the neuron that
    turns the foil into the answer. It needs all tokens of the subject: restoring one of several does nothing, taking
    one away undoes everything.
    """

    words: tuple[str, ...] = ("The", "Eiffel", "Tower", "Space", "Needle", "is", "in", "Paris", "Seattle")
    n_ctx: int = 32
    subject: tuple[str, ...] = ("Eiffel", "Tower")
    relation: str = "in"
    answer: str = "Paris"
    foil: str = "Seattle"
    prior: float = 8.0
    gatherers: tuple[Head, ...] = field(default=(Head(0, 1),))
    neuron: Neuron = field(default=Neuron(0, 5))
    extractor: Head = field(default=Head(1, 2))

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in (*self.subject, self.relation, self.answer, self.foil):
            self.token(word)
        if not self.subject or len(set(self.subject)) != len(self.subject):
            raise UsageError(f"The subject is {self.subject}; give at least one word, and none of them twice.")
        if self.answer == self.foil:
            raise UsageError(f"The answer and the foil are both {self.answer!r}; they must differ.")
        _check_place("neuron", "layer", self.neuron.layer, self.n_layers)
        _check_place("neuron", "neuron", self.neuron.neuron, self.d_mlp)
        self._check_gatherers()
        self._check_later(self.neuron.layer, extractor=self.extractor, suppressor=self.suppressor)

    @property
    def heads(self) -> dict[str, Head]:
        """The heads that write anything, by what they do."""
        gatherers = {f"gatherer {steps} back": head for steps, head in enumerate(self.gatherers, 1)}
        return {**gatherers, "extractor": self.extractor, **super().heads}

    @property
    def between(self) -> tuple[str, ...]:
        """The spaces of what was gathered, nearest first, and that of what the neuron writes."""
        return (*(f"back_{steps}" for steps in range(1, len(self.subject))), "attribute")

    def subject_ends(self, tokens: Sequence[int]) -> list[int]:
        """The positions at which the neuron fires: those of the last token of the whole subject."""
        wanted = [self.token(word) for word in self.subject]
        ends = range(len(wanted), len(tokens) + 1)
        return [end - 1 for end in ends if list(tokens[end - len(wanted) : end]) == wanted]

    def _check_gatherers(self) -> None:
        if len(self.gatherers) != len(self.subject) - 1:
            raise UsageError(
                f"{len(self.gatherers)} gatherers are given for a subject of {len(self.subject)} words; give one for "
                "each word but the last."
            )
        for head in self.gatherers:
            if head.layer > self.neuron.layer:
                raise UsageError(f"The gatherer {head} comes behind {self.neuron}, which reads what it writes.")


def _check_place(name: str, axis: str, place: int, count: int) -> None:
    if not 0 <= place < count:
        raise UsageError(f"The {name} is at {axis} {place}; there are {count}, counted from 0.")
