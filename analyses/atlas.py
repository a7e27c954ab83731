"""Every head of a model on one map: what its attention does on random text, on ordinary text and in marked sentences.

Three kinds of text, because a head shows what it does only where there is occasion for it:

- repeated random tokens, as in `interp.analyses.induction`: prefix matching, duplicate tokens, and the previous,
  current and first token where no word calls for another;
- documents: the previous, current and first token again, the same token, delimiters and what stands behind them, how
  far back a head looks and how evenly (`interp.analyses.text_scores` has the equations);
- marked sentences (`interp.analyses.role_sentences`): attention from a pronoun to its antecedent less that to another
  noun, and from the last token before a verb to its subject less that to an attractor. Each sentence is read twice, the
  two nouns in each other's place, and the score is the mean of both, so that a liking for a position cancels out.

Beside where a head looks stands whether it says what it looks at (`interp.analyses.atlas_copying`), for models whose
heads have a direct path to the logits. Every other score stands beside what uniform attention would get and its
standard error over texts. The role of a head is the one in which it is furthest above uniform
(`interp.analyses.head_roles`). Each text is read once, and only up to the last layer's pattern.

Papers: Clark et al. 2019, What does BERT look at? (arXiv 1906.04341); Voita et al. 2019, Analyzing Multi-Head
Self-Attention (arXiv 1905.09418); Olsson et al. 2022, In-context Learning and Induction Heads (arXiv 2209.11895); Xiao
et al. 2023, attention sinks (arXiv 2309.17453).

What it does NOT tell: what any head does with what it looks at, or whether the model needs it. Take the head away
before calling it a cause.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.atlas_copying import COPYING, Copied, RandomTexts, source, told
from interp.analyses.documents import Document, bundled, sha256_of
from interp.analyses.head_roles import ACTIVE, IDLE, check_role, labelled, strengths
from interp.analyses.induction import score_heads
from interp.analyses.repeated import Progress, counted, texts_read
from interp.analyses.role_scores import (
    GRID,
    ORDERS,
    SENTENCES,
    Measured,
    Score,
    check_score,
    document_scores,
    document_texts,
    random_scores,
    sentence_scores,
)
from interp.analyses.vocabulary import tokenizer_of
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import SoFar
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

RANDOM_ONLY = "The model has no tokenizer: there is no ordinary text for it, and roles come from random tokens alone."


class HeadAtlas(Result, kind="heads.atlas"):
    """Scores of every head, [layer, head], each with its standard error over texts (`…_se`), and the head's role.

    `random_…` are scores on repeated random tokens, as are `prefix_matching`, `prefix_matching_sink_free` and
    `duplicate_token`; the others are of documents and sentences. `uniform` [score] is what even attention scores.
    `role` is text, `strength` the largest excess of any role but `sink`, `excess` [layer, head, candidate] that of all;
    `kv_head` [head] says whose keys a head reads. `…_written` and `…_swapped` are the two orders of sentences, and
    `…_by_sentence` [layer, head, sentence of its kind, order] the values themselves. `random_tokens` and
    `document_tokens` were read, −1 behind shorter documents. Distances are in tokens, entropy in nats.

    Copying scores are those of `CopyingScores` with bounds of their intervals (`…_low`, `…_high`), where the model has
    any: `ov_eigenvalue`, `ov_eigenvalue_centred`, `behavioural` in logits, `ioi_copy`, `ioi_copy_negative`.
    """

    grid = GRID
    title = "Head atlas"
    caution = "A role says where a head looks, not what it does: take it away before calling it a cause."

    def ranked(
        self, count: int = 10, *, by: str = "strength", role: str | None = None, least: float | None = None
    ) -> "pandas.DataFrame":
        """The heads with the highest value of one score, with all their scores.

        All of them, or only those of one `role`, and whose value is `least` or more.
        """
        if check_score(by) not in self:
            why = self._no_copying if by in COPYING else f"It takes ordinary text. {RANDOM_ONLY}"
            raise UsageError(f"Heads cannot be ordered by {by!r}. {why}")
        frame = self.top(by, self["role"].size)
        chosen = frame if role is None else frame[frame["role"] == check_role(role)]
        chosen = chosen if least is None else chosen[chosen[by] >= least]
        return chosen.head(count).reset_index(drop=True)

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of all scores that have an expectation for uniform attention."""
        return tuple(str(name) for name in self.axes["score"])

    @property
    def notes(self) -> list[str]:
        """What a reader should know of this model."""
        absent = {RANDOM_ONLY: "entropy" not in self, self._no_copying: "no_copying" in self.settings}
        return [note for note, holds in absent.items() if holds]

    @property
    def _no_copying(self) -> str:
        """Why there are no copying scores, where there are none."""
        return f"No copying scores: {self.settings.get('no_copying', 'they were not asked for.')}"

    def figure(self) -> "Figure":
        """Layer × head, the role by colour and its strength by shade."""
        from interp.head_plots import role_map

        return role_map(
            self["role"],
            self["strength"],
            title=f"{self.title}: where every head looks most",
            active=ACTIVE,
            idle=IDLE,
            details={(layer, head): self._details(layer, head) for layer, head in np.ndindex(self["role"].shape)},
            layers=self.axes["layer"],
            groups=self["kv_head"],
        )

    def _details(self, layer: int, head: int) -> list[str]:
        """What hovering says of a head: its KV head, its scores, each beside the uniform one, and what it copies."""
        scores = [
            f"{name.replace('_', ' ')} {self[name][layer, head]:.3f} (uniform {even:.3f})"
            for name, even in zip(self.scores, self["uniform"], strict=True)
        ]
        copied = told({name: self[name] for name in COPYING if name in self}, layer, head)
        return [f"KV head {self['kv_head'][head]}", *scores, *copied]

    def summary(self) -> list[str]:
        """How many heads have each role, and the strongest of each."""
        needed = f"a role takes an excess of {self.settings['threshold']} over uniform attention"
        return [
            f"{self.title}: {self._text()}; {needed}",
            *(self._line(role) for role in (*ACTIVE, *IDLE)),
            *([f"  {source(self.settings)}"] if self.settings["copying"] else []),
            *(f"  {note}" for note in self.notes),
            f"  {self.caution}",
        ]

    def _line(self, role: str) -> str:
        heads = self.ranked(4, role=role).itertuples() if role in ACTIVE else ()
        strongest = ", ".join(f"{row.layer}.{row.head} {row.strength:.2f}" for row in heads)
        return f"  {role:>15} {int((self['role'] == role).sum()):>4}   {strongest}".rstrip()

    def _text(self) -> str:
        asked = self.settings
        random = texts_read(asked)
        if "entropy" not in self:
            return random
        sentences = sum(len(self.axes[f"{kind}_sentence"]) for kind in SENTENCES)
        documents, longest = self["document_tokens"], asked["doc_len"]
        shorter = "up to " if (documents < 0).any() or documents.shape[1] < longest else ""
        read = f"{counted(len(documents), 'document')} of {shorter}{longest} tokens"
        return f"{random}, {read}, {sentences} sentences in 2 orders"


def head_atlas(
    model: "Transformer",
    *,
    seq_len: int = 50,
    repeats: int = 2,
    n_seqs: int = 16,
    documents: Sequence[Document] | None = None,
    n_documents: int = 8,
    doc_len: int = 256,
    threshold: float = 0.1,
    copying: bool = True,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
    so_far: SoFar[HeadAtlas] | None = None,
) -> HeadAtlas:
    """What every head looks at, and its role.

    Random texts are those of `score_heads`. Of `documents` (bundled ones by default) the first `n_documents` are read,
    `doc_len` tokens of each. A head has a role from an excess of `threshold` over uniform attention on. `copying` adds
    what heads say, which takes about half as long as where they look. A model without a tokenizer is given random texts
    only; one without a direct path from heads to logits has no copying scores, and a note says so. `so_far` may ask for
    the atlas of the texts that are read, after each kind of them. Raises `UsageError` for what `score_heads` refuses,
    and for documents that are none, too short, beyond the context, or so long that the patterns of one take more than
    4 GiB.
    """
    if not 0 < threshold < 1:
        raise UsageError(f"The threshold is {threshold}: expected a share between 0, uniform attention, and 1.")
    chosen = _documents(model, documents, n_documents)
    if chosen:  # what cannot be read is refused before anything is computed
        document_texts(model, chosen, length=doc_len, prefix=prefix)
    parts = _parts(
        progress,
        [n_seqs * copying, n_seqs, len(chosen), *(2 * len(kind.make()) for kind in SENTENCES.values() if chosen)],
    )
    texts = RandomTexts(seq_len=seq_len, n_seqs=n_seqs, seed=seed, prefix=prefix, max_bytes=max_bytes)
    said, first = Copied(settings={"copying": False}), next(parts)
    if copying:
        said = Copied.measured(model, first, **texts)
    random = score_heads(model, repeats=repeats, progress=next(parts), **texts)
    settings = {
        **{"seq_len": seq_len, "repeats": repeats, "n_seqs": n_seqs, "seed": seed, "prefix": prefix},
        **{"documents": [each.name for each in chosen], "doc_len": doc_len, "threshold": threshold},
        **{"documents_sha256": sha256_of(chosen) if chosen else None, **said.settings},
    }
    stated = provenance(model.provenance, tokens=random["tokens"], prefix=prefix, seed=seed)
    atlas = partial(_atlas, model, said.arrays, threshold, settings, stated)
    found: list[Measured] = []
    for read in chain([random_scores(random)], _on_documents(model, chosen, doc_len, prefix, max_bytes, parts)):
        found.append(read)
        if so_far is not None:
            so_far(partial(atlas, tuple(found)))
    return atlas(found)


def _on_documents(
    model: "Transformer",
    chosen: Sequence[Document],
    doc_len: int,
    prefix: PrefixPolicy,
    max_bytes: int,
    parts: Iterator[Progress | None],
) -> Iterator[Measured]:
    """What heads look at in documents, then in sentences of each kind; nothing for a model that cannot read them."""
    if chosen:
        yield document_scores(model, chosen, length=doc_len, prefix=prefix, max_bytes=max_bytes, progress=next(parts))
        for kind in SENTENCES:
            yield sentence_scores(model, kind, prefix, max_bytes, next(parts))


def _atlas(
    model: "Transformer",
    said: Mapping[str, NamedArray],
    threshold: float,
    settings: Mapping[str, object],
    stated: Mapping[str, object],
    found: Sequence[Measured],
) -> HeadAtlas:
    """The atlas of what heads look at in some kinds of texts, and what they say."""
    scores = {name: score for each in found for name, score in each.scores.items()}
    excess = strengths({name: score.excess for name, score in scores.items()})
    by_order = any("order" in array.axes for each in found for array in each.arrays.values())
    return HeadAtlas(
        arrays={
            **_of_heads(model, scores, *labelled(excess, threshold)),
            "excess": NamedArray(np.stack(list(excess.values()), -1), (*GRID, "candidate")),
            "uniform": NamedArray([score.uniform for score in scores.values()], ("score",)),
            **{name: array for each in found for name, array in each.arrays.items()},
            **said,
        },
        axes={"score": tuple(scores), "candidate": tuple(excess), **({"order": ORDERS} if by_order else {})},
        settings=settings,
        provenance=stated,
    )


def _documents(model: "Transformer", documents: Sequence[Document] | None, n_documents: int) -> Sequence[Document]:
    """The documents to read: none for a model without a tokenizer."""
    if n_documents < 1 or (documents is not None and not documents):
        raise UsageError("There is no document to read: give at least one, and n_documents of 1 or more.")
    if tokenizer_of(model) is None:
        if documents is not None:
            raise UsageError("This model came without a tokenizer, so it cannot read documents; leave them out.")
        return ()
    return (bundled() if documents is None else documents)[:n_documents]


def _parts(progress: Progress | None, sizes: Sequence[int]) -> Iterator[Progress | None]:
    """One callback for each part of the work, which counts on from where the part before it ended."""
    for before, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        yield None if progress is None else partial(_report, progress, before, size, sum(sizes))


def _report(progress: Progress, before: int, size: int, total: int, done: int, of: int) -> None:
    """Report a part of the work, which counts in its own units, as `size` of the whole."""
    progress(before + size * done // of, total)


def _of_heads(
    model: "Transformer", scores: Mapping[str, Score], role: np.ndarray, strength: np.ndarray
) -> dict[str, NamedArray]:
    """What is said of each head: its role, then its scores, then how sure they are."""
    groups = np.arange(model.config.n_heads) // model.config.queries_per_kv
    return {
        "role": NamedArray(role, GRID),
        "strength": NamedArray(strength, GRID),
        "kv_head": NamedArray(groups, ("head",)),
        **{name: NamedArray(score.mean, GRID) for name, score in scores.items()},
        **{f"{name}_se": NamedArray(score.error, GRID) for name, score in scores.items()},
    }
