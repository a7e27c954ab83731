"""Are these heads a cause? Take them away, and others of their layers, and see what repetition is then worth.

On random texts `x = prefix ⊕ s ⊕ s …` a model can predict nothing of the first repeat and all of the later ones. For a
group of heads G and every repeat r, NLL_r the mean loss from its second token on,

    effect_r(G) = NLL_r without G − NLL_r with all heads

A head that serves induction costs much on later repeats and little on the first, which tells it from a head without
which the model is merely worse. Where documents are given, the same is asked of the in-context score, by which natural
text shows how much more the model makes of a long context than of a short one:

    score = loss(token 500) − loss(token 50)           effect(G) = score without G − score with all heads

Each head is taken away alone, then all together; beside each stand different sets of as many heads of the same layers,
none of them tested (`control_sets`; where fewer exist than were asked for, all of them). How a head is taken away, by
what it gives on average at each position, by what it gives in another text, or by nothing, is told in
`analyses/ablation.py`. Means are over the texts of the run with all heads; a single document has no other beside it, so
that bundled ones lend what takes a head's place there.

Papers: Olsson et al. 2022, In-context Learning and Induction Heads (arXiv 2209.11895), for ablating induction heads,
the score and keeping patterns; Wang et al. 2022, Interpretability in the Wild (arXiv 2211.00593), for the mean over
other texts.

What it does NOT tell: how a head brings the loss down; or that a head which costs little alone does nothing, since
others may do the same work. Random tokens are not text, and the score of natural text is two tokens a document.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Unpack

import torch
from torch import Tensor

from interp import metrics
from interp.analyses.ablation import said
from interp.analyses.ablation_sets import Controlled, Sets
from interp.analyses.ablation_sweeps import FROM_OTHER_TEXTS, Measured, Removals
from interp.analyses.components import Component, HeadName, heads_of
from interp.analyses.documents import Document, bundled, sha256_of
from interp.analyses.in_context import Places, documents_as_tokens
from interp.analyses.removal import Method
from interp.analyses.repeated import LeftOut, Progress, RepeatedText, counted, repeated_text, texts_read
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import Metric
from interp.results import provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

TOGETHER = "all together"
LENT = 8
"""How many bundled documents lend their values to a single one."""


class HeadAblation(Controlled, kind="heads.ablation"):
    """What it costs to take heads away: on every repeat of random texts, and on the in-context score of documents.

    `nll` [removed, repeat, text] in nats a token, `nll_base` [repeat, text] with all heads, `nll_control` [removed,
    draw, repeat, text] without each control set; `nll_effect`, its 95 % interval over texts `nll_low` and `nll_high`,
    and `nll_control_mean`, `nll_control_std`, `nll_excess` and `nll_deviations`, all [removed, repeat], as in
    `Ablation`. With documents the same of `in_context` [removed, document], without the axis of repeats.

    `components` [removed] and `control_components` [removed, draw] name the heads, `controls` [removed] counts the
    control sets, and `controls_are_all` says whether no others exist; `tokens` [text, position] were read.
    """

    grid: ClassVar[tuple[str, ...]] = ("removed", "repeat")
    title = "Heads taken away"
    caution = "What costs nothing may still do something: others may do the same work."

    def figure(self, metric: str = "nll", repeat: int | None = None) -> "Figure":
        """What each removal costs on one repeat, the last unless said otherwise, or on the score `in_context`."""
        from interp.plots import ranked_bars

        where = {} if metric == "in_context" else {"repeat": self.axes["repeat"][-1] if repeat is None else repeat}
        effect, mean, std = (self.at(f"{metric}_{what}", **where) for what in ("effect", "control_mean", "control_std"))
        measured = "the in-context score" if not where else f"the loss on repeat {where['repeat']}, {self._text()}"
        controls = "controls, mean and standard deviation"
        return ranked_bars(
            [str(label) for label in self.axes["removed"]],
            {"the heads": effect, controls: mean},
            errors={controls: std},
            title=f"{self.title} ({self.said}): {measured}",
            metric="effect (nats)",
            label="removed",
        )

    @property
    def said(self) -> str:
        """The method in words."""
        return said(str(self.settings["method"]))

    def summary(self) -> list[str]:
        """One line a removal, for the last repeat and for the in-context score; and what it costs on the first."""
        repeats = self.axes["repeat"]
        lines = [f"{self.title} ({self.said}): effects on the loss in nats a token, {self._text()}"]
        lines.append(f"  repeat {repeats[-1]}: {float(self['nll_base'][-1].mean()):.3f} with all heads")
        lines += [self._line("nll", place, -1) for place in range(len(self.axes["removed"]))]
        effects = zip(self.axes["removed"], self.at("nll_effect", repeat=1), strict=True)
        first = [f"{label} {effect:+.3f}" for label, effect in effects]
        lines.append(f"  repeat 1: {float(self['nll_base'][0].mean()):.3f} with all heads; without {', '.join(first)}")
        return [*lines, *(self._on_documents() if "in_context" in self else []), f"  {self.caution}"]

    def _on_documents(self) -> list[str]:
        score = float(self["in_context_base"].mean())
        effects = [self._line("in_context", place) for place in range(len(self.axes["removed"]))]
        return [f"  in-context score, {self._documents()}: {score:+.3f} with all heads", *effects]

    def _line(self, metric: str, place: int, *cell: int) -> str:
        beside = self.beside(metric, place, *cell)
        return f"    {self.axes['removed'][place]:>12}  {self.interval(metric, place, *cell)}   controls {beside}"

    def _documents(self) -> str:
        lenders = self.settings["lenders"]
        count = len(lenders) if isinstance(lenders, Sequence) else 0
        lent = f" (heads replaced from {count} bundled ones)" if count else ""
        return f"{counted(len(self.axes['document']), 'document')}{lent}"

    def _text(self) -> str:
        return texts_read(self.settings)


class DocumentAblation(HeadAblation, kind="heads.ablation.documents"):
    """The part of `HeadAblation` that documents tell, `in_context` and its like, where no random texts were read."""

    grid = ("removed",)

    def figure(self, metric: str = "in_context", repeat: int | None = None) -> "Figure":
        """What each removal costs on the score."""
        return super().figure(metric, repeat)

    def summary(self) -> list[str]:
        """One line a removal."""
        return [f"{self.title} ({self.said}): effects in nats a token", *self._on_documents(), f"  {self.caution}"]


@torch.no_grad()
def ablate_heads(
    model: "Transformer",
    heads: Sequence[HeadName],
    *,
    method: Method = "mean",
    controls: int = 20,
    alone: bool = True,
    seq_len: int = 25,
    repeats: int = 2,
    n_seqs: int = 8,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    documents: Sequence[Document] | None = None,
    random_texts: bool = True,
    budget: int = 2**30,
    progress: Progress | None = None,
    **left_out: Unpack[LeftOut],
) -> HeadAblation:
    """Take heads (`"18.6"`, `(18, 6)` or components) away, each alone unless told otherwise, then all together.

    `controls`: how many sets of other heads stand beside each. `documents`: natural texts to measure the in-context
    score on, beside random texts or, with `random_texts=False`, alone. `budget`: bytes beside the model; texts are
    processed in batches that keep to it. `progress` counts texts, those of all runs together. `left_out` are tokens
    that random texts never hold (`LeftOut`). Hooks of an active `model.hooks` context see one batch at a time.

    Raises `UsageError` for heads that the model does not have or that are named twice, for a random text that has no
    other to take a head's place from, and for documents too short.
    """
    tested = heads_of(model, heads)
    sets = Sets.drawn(model.config, _groups(tested, alone), controls, seed=seed, without=tested)
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix, **left_out)
    lenders = _lenders(documents, method)
    asked = {"nll": _on_repeats(text)} if random_texts else {}
    if documents is not None:
        asked["in_context"] = _in_context(model, documents, lenders, prefix)
    _check_texts(method, n_seqs, random_texts, documents)
    found = Removals(model, sets, method, seed, budget).swept(list(asked.values()), progress)
    arrays = sets.labels()
    for name, (values, base) in zip(asked, found, strict=True):
        by_text = (values, base, ("repeat", "text")) if name == "nll" else (values[:, 0], base[0], ("document",))
        arrays |= sets.compared(name, *by_text)
    if random_texts:
        arrays["tokens"] = (text.tokens.numpy(), ("text", "position"))
    read = text.tokens if random_texts else asked["in_context"].tokens
    return (HeadAblation if random_texts else DocumentAblation)(
        arrays=arrays,
        axes={
            "removed": list(sets.tested),
            **({"repeat": range(1, repeats + 1)} if random_texts else {}),
            **_named(documents),
        },
        settings={
            **(
                {**text.layout, "n_seqs": n_seqs, **text.settings} if random_texts else {"seed": seed, "prefix": prefix}
            ),
            **{"heads": list(map(str, tested)), "method": method, "controls": controls, "alone": alone},
            "documents_sha256": None if documents is None else sha256_of(documents),
            "lenders": [each.name for each in lenders],
        },
        provenance=provenance(model.provenance, tokens=read, prefix=prefix, seed=seed),
    )


def _groups(tested: Sequence[Component], alone: bool) -> dict[str, tuple[Component, ...]]:
    """What is taken away, by label."""
    each: dict[str, tuple[Component, ...]] = {str(head): (head,) for head in tested}
    if len(tested) == 1:
        return each
    return {**(each if alone else {}), TOGETHER: tuple(tested)}


def _check_texts(method: Method, n_seqs: int, random_texts: bool, documents: Sequence[Document] | None) -> None:
    if not random_texts and documents is None:
        raise UsageError("There is nothing to read: give documents, or leave random_texts as it is.")
    if random_texts and method in FROM_OTHER_TEXTS and n_seqs < 2:
        raise UsageError(
            f"Expected n_seqs ≥ 2, since by method={method!r} other texts take a head's place, and one text has no "
            "other."
        )


def _named(documents: Sequence[Document] | None) -> dict[str, list[str]]:
    """The axis of the documents, where there are any."""
    return {} if documents is None else {"document": [document.name for document in documents]}


def _on_repeats(text: RepeatedText) -> Measured:
    """The loss of every repeat; each reads columns of its own, so that one softmax is taken of every logit."""
    by_repeat = [text.predicting(repeat) for repeat in range(text.repeats)]
    size = text.seq_len - 1

    def losses(tokens: Tensor) -> list[Metric]:
        each = [metrics.loss(tokens[:, columns.start + 1 : columns.stop + 1]) for columns in by_repeat]
        return [_among(loss, slice(repeat * size, (repeat + 1) * size)) for repeat, loss in enumerate(each)]

    return Measured(text.tokens, [column for columns in by_repeat for column in columns], losses)


def _in_context(
    model: "Transformer", documents: Sequence[Document], lenders: Sequence[Document], prefix: PrefixPolicy
) -> Measured:
    """The in-context score: the loss of the late token less that of the early one, nothing behind it being read."""
    places = Places()

    def read(some: Sequence[Document]) -> Tensor:
        whole = documents_as_tokens(model, some, length=places.length, prefix=prefix)
        return whole[:, : whole.shape[1] - (places.length - places.late)]

    def score(tokens: Tensor) -> list[Metric]:
        before, after = (_among(metrics.loss(tokens[:, [at]]), slice(i, i + 1)) for i, at in enumerate((early, late)))
        return [lambda logits: after(logits) - before(logits)]

    tokens = read(documents)
    late = tokens.shape[1] - 1
    early = late - (places.late - places.early)
    return Measured(tokens, [early - 1, late - 1], score, read(lenders) if lenders else None)


def _lenders(documents: Sequence[Document] | None, method: Method) -> tuple[Document, ...]:
    """Bundled documents whose values take a head's place where a single document has no other beside it."""
    if documents is None or len(documents) != 1 or method not in FROM_OTHER_TEXTS:
        return ()
    return tuple(each for each in bundled() if each.text != documents[0].text)[:LENT]


def _among(metric: Metric, columns: slice) -> Metric:
    """A metric of some of the columns that are read."""
    return lambda logits: metric(logits[:, columns])
