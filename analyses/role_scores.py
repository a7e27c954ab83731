"""The scores of every head on each of the three kinds of text that the head atlas is made of.

What is averaged over: random sequences, documents, or sentences, each of these in both orders of its nouns. Standard
errors are over the same, NaN where there is only one. What uniform attention scores is averaged likewise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from interp.analyses.atlas_copying import COPYING
from interp.analyses.documents import Document
from interp.analyses.induction import InductionScores
from interp.analyses.repeated import Progress
from interp.analyses.role_sentences import Twice, attractor_sentences, pronoun_sentences
from interp.analyses.scored_texts import LARGEST, longest_text, scored_texts
from interp.analyses.text_scores import SUMS, NaturalText, natural_text, sentence_text
from interp.errors import UsageError, nearest
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

GRID = ("layer", "head")
ORDERS = ("written", "swapped")
RANDOM = {
    "prefix_matching": "prefix_matching",
    "duplicate_token": "duplicate_token",
    "random_previous_token": "previous_token",
    "random_current_token": "current_token",
    "random_sink": "sink",
}
"""Scores on random text, and what `score_heads` calls them."""


class Score(NamedTuple):
    """A score of every head, its standard error over texts, and what uniform attention scores."""

    mean: Float[np.ndarray, "layer head"]
    error: Float[np.ndarray, "layer head"]
    uniform: float

    @property
    def excess(self) -> Float[np.ndarray, "layer head"]:
        """How far the score is from what uniform attention scores, 0, to all attention, 1."""
        return (self.mean - self.uniform) / (1 - self.uniform)


@dataclass(frozen=True)
class Measured:
    """Scores by name, and the values and tokens behind them."""

    scores: Mapping[str, Score]
    arrays: Mapping[str, NamedArray]


@dataclass(frozen=True)
class Sentences:
    """Sentences of one kind; the scores read from them, each with the marked word that a head looks from."""

    make: Callable[[], tuple[Twice, ...]]
    queries: Mapping[str, str]


SENTENCES = {
    "coreference": Sentences(pronoun_sentences, {"coreference": "query"}),
    "agreement": Sentences(attractor_sentences, {"agreement": "query", "agreement_at_verb": "verb"}),
}


NATURAL = (*(name for name in SUMS if name != "reach"), "distance_sink_free", "entropy", "evenness")
"""Scores on documents."""
READ = tuple(name for kind in SENTENCES.values() for name in kind.queries)
"""Scores of sentences, each there in either order too."""
ORDERED = tuple(f"{name}_{order}" for name in READ for order in ORDERS)
SCORES = ("strength", *RANDOM, "prefix_matching_sink_free", *NATURAL, *READ, *ORDERED, *COPYING)
"""All that heads can be ordered by."""


def check_score(name: str) -> str:
    """The name; raises `UsageError` for one that heads cannot be ordered by."""
    if name not in SCORES:
        raise UsageError(
            f"Heads cannot be ordered by {name!r}.{nearest(name, SCORES)} Take one of {', '.join(SCORES)}."
        )
    return name


def averaged(by_text: Float[np.ndarray, "layer head text"], even: Float[np.ndarray, "text"]) -> Score:
    """Means and standard errors over the texts that have a value."""
    values, there = by_text.astype(np.float64), ~np.isnan(by_text)
    count = there.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, values, 0).sum(-1) / count
        variance = (np.where(there, values - mean[..., None], 0) ** 2).sum(-1) / (count - 1)
        known = even[~np.isnan(even)].astype(np.float64)
        return Score(mean, np.sqrt(variance / count), float(known.sum() / np.float64(len(known))))


def random_scores(scores: InductionScores) -> Measured:
    """The scores of `score_heads`, by the names that they have beside those of ordinary text."""
    uniform = dict(zip(scores.axes["score"], scores["uniform"].tolist(), strict=True))
    found = {name: Score(scores[theirs], scores[f"{theirs}_se"], uniform[theirs]) for name, theirs in RANDOM.items()}
    sink_free = scores.named("prefix_matching_sink_free")
    tokens = NamedArray(scores["tokens"], ("text", "position"))
    return Measured(found, {"prefix_matching_sink_free": sink_free, "random_tokens": tokens})


def document_scores(
    model: "Transformer",
    documents: Sequence[Document],
    *,
    length: int,
    prefix: PrefixPolicy,
    max_bytes: int,
    progress: Progress | None = None,
) -> Measured:
    """What heads do on the first `length` tokens of documents: `SUMS`, distance off the sink, entropy and evenness."""
    texts = document_texts(model, documents, length=length, prefix=prefix)
    values, even = scored_texts(model, texts, max_bytes=max_bytes, progress=progress)
    names = (*SUMS, "entropy", "evenness")
    found = {name: (values[..., place], even[:, place]) for place, name in enumerate(names)}
    reach, sink = found.pop("reach"), found["sink"]
    found["distance_sink_free"] = (_off_sink(reach[0], sink[0]), _off_sink(reach[1], sink[1]))
    tokens = np.full((len(texts), max(len(text.tokens) for text in texts)), -1)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text.tokens)] = text.tokens.numpy()
    scores = {name: averaged(*of_texts) for name, of_texts in found.items()}
    return Measured(scores, {"document_tokens": NamedArray(tokens, ("document", "document_position"))})


def document_texts(
    model: "Transformer", documents: Sequence[Document], *, length: int, prefix: PrefixPolicy
) -> list[NaturalText]:
    """The first `length` tokens of every document behind the prefix. Raises `UsageError` where that cannot be."""
    before, after = model.tokenizer.prefix_ids(prefix), model.tokenizer.suffix_ids(prefix)
    room = model.config.n_ctx - len(before)
    if not 2 <= length <= room:
        raise UsageError(f"doc_len is {length}: expected 2 to {room}, what the context holds behind the prefix.")
    if length > (most := longest_text(model.config.n_heads) - len(before)):
        raise UsageError(
            f"doc_len is {length}: the patterns of one such text would take more than {LARGEST / 2**30:.0f} GiB. "
            f"Read at most {most} tokens of each document."
        )
    texts = []
    for document in documents:
        ids = model.tokenizer.prompt_ids(document.text, prefix)  # one that opens with the prefix gets no second one
        own = ids[: len(ids) - len(after)][: len(before) + length]
        if len(own) < len(before) + 2:
            raise UsageError(f"The document {document.name!r} has one token: at least 2 are needed to look back from.")
        texts.append(natural_text(model.tokenizer, own, len(before)))
    return texts


def _off_sink(reach: Float[np.ndarray, "*axes"], sink: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    """The mean distance of the attention that is not on the first position; NaN where all of it is."""
    return np.divide(reach, 1 - sink, out=np.full_like(reach, np.nan), where=sink < 1)


def sentence_scores(
    model: "Transformer", kind: str, prefix: PrefixPolicy, max_bytes: int, progress: Progress | None = None
) -> Measured:
    """The scores of one kind of `SENTENCES`: as the mean of both orders of the nouns, and in either order."""
    queries = SENTENCES[kind].queries
    marked = [each for twice in SENTENCES[kind].make() for each in (twice.written, twice.swapped)]
    texts = [sentence_text(model.tokenizer, each, prefix, list(queries.values())) for each in marked]
    values, even = scored_texts(model, texts, max_bytes=max_bytes, progress=progress)
    scores, arrays = {}, {}
    for place, name in enumerate(queries):
        found = values[..., place].reshape(*values.shape[:2], -1, len(ORDERS))
        uniform = even[:, place].reshape(-1, len(ORDERS))
        scores[name] = averaged(found.mean(-1), uniform.mean(-1))
        scores |= {f"{name}_{order}": averaged(found[..., at], uniform[:, at]) for at, order in enumerate(ORDERS)}
        arrays[f"{name}_by_sentence"] = NamedArray(found, (*GRID, f"{kind}_sentence", "order"))
    return Measured(scores, arrays)
