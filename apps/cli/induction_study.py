"""The steps of `interp induction`: scores, what repetition is worth, what heads copy, and what they cause."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from interp.analyses.components import Component, Head, heads_of
from interp.analyses.composition import composition
from interp.analyses.copying import Score, copying_scores
from interp.analyses.head_ablation import ablate_heads
from interp.analyses.head_links import head_links
from interp.analyses.in_context import Places, documents_as_tokens, in_context_score
from interp.analyses.induction import InductionScores, score_heads
from interp.analyses.removal import Method
from interp.analyses.repeat_loss import repeat_loss
from interp.apps.cli.options import Common
from interp.apps.cli.session import check_ablate_top, working
from interp.errors import UsageError
from interp.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from interp.analyses.documents import Document
    from interp.models.transformer import Transformer

COPIES: tuple[Score, ...] = ("ov_eigenvalue", "behavioural", "ioi_copy")
ABLATED = {"seq_len": 25, "n_seqs": 8}
"""The longest sequence, and the most of them, on which heads are taken away: every set of heads reads them all."""
FEEDERS = 2  # previous-token heads whose links into each tested head are blocked


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `interp induction` was asked for."""

    seq_len: int
    repeats: int
    n_seqs: int
    exclude_most: int
    exclude_least: int
    ablate_top: int
    ablate: str | None
    method: Method
    controls: int
    composition: bool
    documents: "Sequence[Document] | None"

    def texts(self, common: Common) -> dict[str, Any]:
        """Which random texts are read."""
        left_out = {"exclude_most": self.exclude_most, "exclude_least": self.exclude_least}
        layout = {"seq_len": self.seq_len, "repeats": self.repeats, "n_seqs": self.n_seqs}
        return {**layout, **left_out, "seed": common.seed, "prefix": common.prefix}

    def fewer_texts(self, common: Common) -> dict[str, Any]:
        """Those on which heads are taken away; never a single one, which has no other to lend it a mean."""
        return {**self.texts(common), **fewer_texts(self.seq_len, self.n_seqs)}


def fewer_texts(seq_len: int, n_seqs: int) -> dict[str, int]:
    """How many texts of what length stand in for so many where heads are taken away, at least two."""
    return {"seq_len": min(seq_len, ABLATED["seq_len"]), "n_seqs": max(2, min(n_seqs, ABLATED["n_seqs"]))}


@dataclass
class Findings:
    """The scores, further results by the name that they are saved under, and what is to be said beside them."""

    scores: InductionScores
    others: dict[str, Result] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def study(model: "Transformer", asked: Request, common: Common) -> Findings:
    """All that was asked for, in turn. What the model cannot do is refused before anything is computed."""
    named = _checked(model, asked, common)
    with working("Scoring heads", common) as progress:
        found = Findings(score_heads(model, **asked.texts(common), progress=progress))
    with working("Measuring what repetition is worth", common) as progress:
        found.others["repeat_loss"] = repeat_loss(model, **asked.texts(common), progress=progress)
    _copying(model, found, asked, common)
    tested = named or _best(model, found.scores, asked.ablate_top)
    if tested:
        with working("Taking heads away, and others to compare", common) as progress:
            found.others["ablation"] = ablate_heads(
                model, tested, method=asked.method, controls=asked.controls, progress=progress,
                **asked.fewer_texts(common),
            )  # fmt: skip
    if asked.composition:
        _composed(model, found, tested or _best(model, found.scores, 1), asked, common)
    if asked.documents is not None:
        _in_context(model, found, tested, asked, common)
    return found


def _checked(model: "Transformer", asked: Request, common: Common) -> tuple[Component, ...]:
    """The heads that the request names, none where it takes the best. Raises `UsageError` for what cannot be done."""
    check_ablate_top(model, asked.ablate_top)
    if asked.documents is not None:
        documents_as_tokens(model, asked.documents, length=Places().length, prefix=common.prefix)
    return () if asked.ablate is None else heads_of(model, [word.strip() for word in asked.ablate.split(",")])


def _best(model: "Transformer", scores: InductionScores, count: int) -> tuple[Component, ...]:
    """The heads that match prefixes best."""
    return heads_of(model, _heads_in(scores.ranked(count))) if count else ()


def _heads_in(frame: "pd.DataFrame") -> list[Head]:
    """(layer, head) of every row."""
    return [(int(layer), int(head)) for layer, head in zip(frame["layer"], frame["head"], strict=True)]


def _unless_refused(found: Findings, name: str, what: str, run: Callable[[], Result]) -> None:
    """One more result, or the reason why this model has none: what was found so far is not thrown away."""
    try:
        found.others[name] = run()
    except UsageError as reason:
        found.notes.append(f"No {what}: {reason}")


def _copying(model: "Transformer", found: Findings, asked: Request, common: Common) -> None:
    """What each head copies, on the random sequences that it was scored on."""
    texts = {name: value for name, value in asked.texts(common).items() if name != "repeats"}
    with working("Measuring what heads copy", common) as progress:
        run = partial(copying_scores, model, which=COPIES, progress=progress, **texts)
        _unless_refused(found, "copying", "copying scores", run)


def _composed(
    model: "Transformer", found: Findings, receivers: Sequence[Component], asked: Request, common: Common
) -> None:
    """Composition of all heads, and the links into each receiver from the best previous-token heads below it."""
    with working("Composing heads", common) as progress:
        _unless_refused(
            found, "composition", "composition", lambda: composition(model, seed=common.seed, progress=progress)
        )
    groups: dict[tuple[Head, ...], list[Component]] = {}
    for receiver in receivers:
        groups.setdefault(_feeders(found.scores, receiver.layer), []).append(receiver)
    if unfed := groups.pop((), None):
        found.notes.append(f"No links into {_listed(unfed)}: heads of the first layer read from no other.")
    with working("Blocking the paths that feed them", common) as progress:
        how = {**asked.fewer_texts(common), "controls": asked.controls, "progress": progress}
        for senders, fed in groups.items():
            name, run = f"links_{'_'.join(map(str, fed))}", partial(head_links, model, senders, fed, **how)
            _unless_refused(found, name if len(groups) > 1 else "links", f"links into {_listed(fed)}", run)


def _listed(heads: Sequence[Component]) -> str:
    return ", ".join(map(str, heads))


def _feeders(scores: InductionScores, below: int) -> tuple[Head, ...]:
    """The best previous-token heads of the layers below one."""
    ranked = scores.top("previous_token", scores["previous_token"].size)
    return tuple(_heads_in(ranked[ranked["layer"] < below].head(FEEDERS)))


def _in_context(
    model: "Transformer", found: Findings, tested: Sequence[Component], asked: Request, common: Common
) -> None:
    """The score of the documents, and what becomes of it without the tested heads together."""
    with working("Reading documents", common) as progress:
        found.others["in_context"] = in_context_score(
            model, asked.documents, seed=common.seed, prefix=common.prefix, progress=progress
        )
    if tested:
        with working("Reading documents without the heads, and without others", common) as progress:
            found.others["in_context_ablation"] = ablate_heads(
                model, tested, method=asked.method, controls=asked.controls, alone=False, documents=asked.documents,
                random_texts=False, seed=common.seed, prefix=common.prefix, progress=progress,
            )  # fmt: skip
