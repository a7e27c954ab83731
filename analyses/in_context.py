"""Does a longer context help? The loss late in a document, less the loss early in it.

With NLL_d(i) = −log p(x_i | prefix, x_1 … x_{i−1}) of document d, its tokens counted from 1 and the prefix not counted,

    score = mean over documents of  NLL_d(late) − NLL_d(early),       late = 500, early = 50

is negative where a model predicts better the more it has read. A single token may be a name or a comma, and its loss
anything from nearly 0 to a dozen nats, so that a few dozen documents rarely settle the sign. `width` w averages the
places from ⌊w/2⌋ before to ⌈w/2⌉ − 1 behind early and late; w = 1 is the paper's definition. The interval is a
bootstrap over documents.

Paper: Olsson et al. 2022, In-context Learning and Induction Heads (arXiv 2209.11895), who found about −0.4 nats in
models of several sizes once their induction heads had formed, on their own data.

What it does NOT tell: which heads bring the score about (ablate them and look), or when in training it came: a phase
change shows on a curve over checkpoints. And it compares different tokens: late ones may be harder by themselves, which
shows when the same tokens are read behind a shorter context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.documents import Document, bundled, sha256_of
from interp.analyses.intervals import mean_interval
from interp.analyses.losses import losses_by_text
from interp.analyses.repeated import Progress
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

EARLY, LATE = 50, 500
BEHIND = 12  # tokens read behind the late one: with the paper's 500, documents of 512
SMOOTHED = 25  # places that a point of the smooth curve averages


@dataclass(frozen=True)
class Places:
    """Which tokens of a document are compared: `width` of them around `early` and around `late`, counted from 1.

    Raises `UsageError` unless the early ones exist and end before the late ones begin.
    """

    early: int = EARLY
    late: int = LATE
    width: int = 1

    def __post_init__(self) -> None:
        if self.width < 1 or self.early - self.width // 2 < 1 or self._slice(self.early).stop > self._start(self.late):
            raise UsageError(
                f"Expected width ≥ 1 and {self.width} tokens around early={self.early}, none before token 1, that end "
                f"before those around late={self.late} begin; tokens are counted from 1."
            )

    @property
    def length(self) -> int:
        """How many tokens of each document are read."""
        return max(self.late + BEHIND, self._slice(self.late).stop)

    def means(self, losses: Float[np.ndarray, "*batch place"]) -> tuple[np.ndarray, np.ndarray]:
        """The mean loss early and late, [*batch], of losses whose first place is that of token 1."""
        early, late = (losses[..., self._slice(place)].astype(np.float64).mean(-1) for place in (self.early, self.late))
        return early, late

    def _start(self, place: int) -> int:
        return place - 1 - self.width // 2

    def _slice(self, place: int) -> slice:
        return slice(self._start(place), self._start(place) + self.width)


class InContext(Result, kind="in_context"):
    """The score of every document, nats a token, and the losses behind it.

    `score` [document] is `late_loss` less `early_loss`; `mean`, between `low` and `high`, a 95 % bootstrap interval
    over documents, which is NaN for a single one. `loss` [place] is the mean over documents, `losses`
    [document, place] has all, places counted from 1 behind the prefix; `tokens` [document, position] were read.
    """

    grid = ("document",)
    title = "In-context-learning score"
    caution = "One checkpoint says nothing of a phase change in training, and a score nothing of the heads behind it."

    def figure(self) -> "Figure":
        """The loss by place, averaged over documents, and smoothed; the places that are compared are marked."""
        from interp.plots import curves

        series = {"mean over documents": self["loss"], f"over {SMOOTHED} places": smooth(self["loss"], SMOOTHED)}
        title = f"{self.title}: {float(self['mean']):+.2f} nats a token, {self._compared()}"
        places = self.axes["place"]
        figure = curves(places, series, title=title, x_title="token of the document", y_title="loss (nats)")
        for name in ("early", "late"):
            figure.add_vline(x=places.index(self.settings[name]), line_dash="dot", annotation_text=name)
        return figure

    def summary(self) -> list[str]:
        """The score with its interval, and the two losses that it compares."""
        early, late = (float(self[f"{name}_loss"].mean()) for name in ("early", "late"))
        better, count = int((self["score"] < 0).sum()), len(self["score"])
        lines = [
            f"{self.title}: {float(self['mean']):+.3f} nats a token, {self._compared()}",
            f"  mean loss {early:.3f} early and {late:.3f} late; late is better in {better} of {count}",
        ]
        low, high = float(self["low"]), float(self["high"])
        if not np.isnan(low):
            doubt = ": too few tokens to tell the sign, a larger width averages more" if low < 0 < high else ""
            lines.append(f"  95 % interval over documents {low:+.3f} to {high:+.3f}{doubt}")
        return [*lines, f"  {self.caution}"]

    def _compared(self) -> str:
        asked, count = self.settings, len(self.axes["document"])
        what = "token" if asked["width"] == 1 else f"{asked['width']} tokens around"
        of = f"{count} documents" if count > 1 else "one document"
        return f"{what} {asked['late']} against {asked['early']} of {of}"


def smooth(values: Float[np.ndarray, " place"], width: int) -> Float[np.ndarray, " place"]:
    """The mean of `width` values around each, of fewer at the ends; what is NaN is left out."""
    known = ~np.isnan(values)
    sums, counts = (np.convolve(part, np.ones(width))[width // 2 :] for part in (np.where(known, values, 0), known))
    with np.errstate(invalid="ignore"):
        return (sums / counts)[: len(values)]


def documents_as_tokens(
    model: "Transformer", documents: Sequence[Document], *, length: int, prefix: PrefixPolicy
) -> Int[Tensor, "document pos"]:
    """The prefix and the first `length` tokens of each document behind it.

    Raises `UsageError` where a document is shorter, naming it; where two share a name or there is none; and where
    prefix and tokens exceed the model's context.
    """
    names = [document.name for document in documents]
    if not names or len(set(names)) < len(names):
        what = "none came" if not names else f"{max(names, key=names.count)!r} names several"
        raise UsageError(f"Expected documents, each with a name of its own: {what}.")
    width = len(model.tokenizer.prefix_ids(prefix)) + length
    if width > model.config.n_ctx:
        raise UsageError(
            f"{length} tokens of each document and the prefix make {width}, and the model's context is "
            f"{model.config.n_ctx}. Read fewer."
        )
    return torch.tensor([_row(model, document, length, prefix) for document in documents])


def _row(model: "Transformer", document: Document, length: int, prefix: PrefixPolicy) -> list[int]:
    tokenizer = model.tokenizer
    before, after = tokenizer.prefix_ids(prefix), tokenizer.suffix_ids(prefix)
    ids = tokenizer.prompt_ids(document.text, prefix)  # a document that opens with the separator gets no second one
    own = len(ids) - len(before) - len(after)
    if own < length:
        raise UsageError(
            f"The document {document.name!r} has {own} tokens, {length} are needed. Leave it out, or give more of it."
        )
    return ids[: len(before) + length]


def in_context_score(
    model: "Transformer",
    documents: Sequence[Document] | None = None,
    *,
    early: int = EARLY,
    late: int = LATE,
    width: int = 1,
    prefix: PrefixPolicy = "doc",
    seed: int = 0,
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> InContext:
    """The score over `documents`, by default the bundled ones; `seed` is that of the bootstrap.

    Raises `UsageError` for places that do not fit, for a document with fewer than `late` + 12 tokens, and where token
    1 is asked for without a prefix, since nothing predicts it.
    """
    places = Places(early, late, width)
    if prefix == "none" and early == 1 + width // 2:
        raise UsageError("Nothing predicts token 1 without a prefix: choose a later early token, or prefix='doc'.")
    read = bundled() if documents is None else tuple(documents)
    tokens = documents_as_tokens(model, read, length=places.length, prefix=prefix)
    losses = losses_by_text(model, tokens, max_bytes=max_bytes, progress=progress)[:, -places.length :]
    settings = {"early": early, "late": late, "width": width, "documents_sha256": sha256_of(read)}
    return InContext(
        arrays={**_arrays(losses, places, seed), "tokens": NamedArray(tokens.numpy(), ("document", "position"))},
        axes={"document": [document.name for document in read], "place": range(1, places.length + 1)},
        settings={**settings, "seed": seed, "prefix": prefix},
        provenance=provenance(model.provenance, tokens=tokens, prefix=prefix, seed=seed),
    )


def _arrays(losses: np.ndarray, places: Places, seed: int) -> dict[str, NamedArray]:
    early, late = places.means(losses)
    score = late - early
    low, high = mean_interval(score, seed=seed)
    return {
        "score": NamedArray(score, ("document",)),
        "early_loss": NamedArray(early, ("document",)),
        "late_loss": NamedArray(late, ("document",)),
        "mean": NamedArray(score.mean()),
        "low": NamedArray(low),
        "high": NamedArray(high),
        "loss": NamedArray(losses.astype(np.float64).mean(0), ("place",)),
        "losses": NamedArray(losses, ("document", "place")),
    }
