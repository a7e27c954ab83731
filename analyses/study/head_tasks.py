"""Tasks on heads: repeated random texts, documents, and whole models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.atlas import head_atlas
from interp.analyses.composition import composition
from interp.analyses.head_ablation import ablate_heads
from interp.analyses.in_context import Places, in_context_score
from interp.analyses.induction import SCORES, scores_by_text
from interp.analyses.losses import losses_by_text
from interp.analyses.pattern_scores import check_attention
from interp.analyses.repeated import RepeatedText, repeated_text
from interp.analyses.study.prompts import laid_out
from interp.analyses.study.settings import (
    AtlasSettings,
    CompositionSettings,
    HeadAblationSettings,
    InContextSettings,
    RepeatedSettings,
)
from interp.analyses.study.task import Found, Item, Outcomes, Task, Work

if TYPE_CHECKING:
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.tokenizer import Tokenizer
    from interp.results import Result


def _repeated(work: Work, items: Sequence[Item]) -> RepeatedText:
    """The texts of the items, whose values are seed and index."""
    asked, seed = work.settings, items[0].value[0]
    left_out = {"exclude_most": asked.exclude_most, "exclude_least": asked.exclude_least}
    which = [item.value[1] for item in items]
    return repeated_text(
        work.model,
        seq_len=asked.seq_len,
        repeats=asked.repeats,
        n_seqs=which,
        seed=seed,
        prefix=work.prefix,
        **left_out,
    )


def _repeated_length(tokenizer: "Tokenizer", value: object, settings: object, prefix: "PrefixPolicy") -> int:
    assert isinstance(settings, RepeatedSettings)
    return len(tokenizer.prefix_ids(prefix)) + settings.seq_len * settings.repeats


def _induction(work: Work, items: Sequence[Item]) -> Outcomes:
    check_attention(work.model)
    scores = scores_by_text(work.model, [_repeated(work, items)])
    layers, heads, _ = scores["sink_free"].shape
    axes = {"layer": range(layers), "head": range(heads)}
    return {
        item.id: Found(laid_out(axes, {name: each[..., place] for name, each in scores.items()}))
        for place, item in enumerate(items)
    }


def _repeat_loss(work: Work, items: Sequence[Item]) -> Outcomes:
    text = _repeated(work, items)
    losses = losses_by_text(work.model, text.tokens)[:, text.prefix_len :]
    axes = {"repeat": range(1, text.repeats + 1), "place": range(text.seq_len)}
    return {item.id: Found(laid_out(axes, {"nll": losses[row]})) for row, item in enumerate(items)}


def _in_context(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings
    found = in_context_score(
        work.model, [item.value for item in items], early=asked.early, late=asked.late, width=asked.width,
        prefix=work.prefix, seed=work.seed,
    )  # fmt: skip
    names = ("score", "early_loss", "late_loss")
    return {item.id: Found({name: found[name][row : row + 1] for name in names}) for row, item in enumerate(items)}


def _document_length(tokenizer: "Tokenizer", value: object, settings: object, prefix: "PrefixPolicy") -> int:
    assert isinstance(settings, InContextSettings)
    return len(tokenizer.prefix_ids(prefix)) + Places(settings.early, settings.late, settings.width).length


def _whole(result: "Result", grid: Sequence[str], kept: Sequence[str] | None = None) -> Found:
    """The table of a result about one model."""
    frame = result.to_frame(tuple(grid))
    names = list(frame.columns) if kept is None else [*grid, *(name for name in kept if name in frame.columns)]
    return Found({name: frame[name].to_numpy() for name in names}, result=result)


def _atlas(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings
    found = head_atlas(
        work.model, seq_len=asked.seq_len, repeats=asked.repeats, n_seqs=asked.n_seqs, n_documents=asked.n_documents,
        doc_len=asked.doc_len, threshold=asked.threshold, copying=asked.copying, seed=work.seed, prefix=work.prefix,
    )  # fmt: skip
    return {items[0].id: _whole(found, ("layer", "head"))}


def _composition(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings
    found = composition(
        work.model, fold=asked.fold, layers=asked.layers, baseline_draws=asked.baseline_draws, seed=work.seed
    )
    table = _whole(found, ("layer", "head", "to_layer", "to_head")).columns
    later = ~np.isnan(np.asarray(table["k"], dtype=float))
    return {items[0].id: Found({name: np.asarray(column)[later] for name, column in table.items()}, result=found)}


def _head_ablation(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings
    left_out = {"exclude_most": asked.exclude_most, "exclude_least": asked.exclude_least}
    found = ablate_heads(
        work.model, asked.heads, method=asked.method, controls=asked.controls, alone=asked.alone,
        seq_len=asked.seq_len, repeats=asked.repeats, n_seqs=asked.n_seqs, seed=work.seed, prefix=work.prefix,
        **left_out,
    )  # fmt: skip
    return {items[0].id: _whole(found, ("removed", "repeat"))}


_SCORED: Mapping[str, type] = {"layer": int, "head": int, **dict.fromkeys((*SCORES, "sink_free"), float)}

INDUCTION = Task(
    name="induction",
    kinds=("repeated",),
    settings=RepeatedSettings,
    compute=_induction,
    columns=lambda _: _SCORED,
    cells=lambda _: ("layer", "head"),
    values=SCORES,
    finite=(*SCORES, "sink_free"),
    length=_repeated_length,
)

REPEAT_LOSS = Task(
    name="repeat-loss",
    kinds=("repeated",),
    settings=RepeatedSettings,
    compute=_repeat_loss,
    columns=lambda _: {"repeat": int, "place": int, "nll": float},
    cells=lambda _: ("repeat",),
    values=("nll",),
    length=_repeated_length,
)

IN_CONTEXT = Task(
    name="in-context",
    kinds=("documents",),
    settings=InContextSettings,
    compute=_in_context,
    columns=lambda _: {"score": float, "early_loss": float, "late_loss": float},
    cells=lambda _: (),
    values=("score", "early_loss", "late_loss"),
    finite=("score",),
    tokens_at_once=2048,
    length=_document_length,
)

ATLAS = Task(
    name="atlas",
    kinds=("model",),
    settings=AtlasSettings,
    compute=_atlas,
    columns=None,
    cells=lambda _: ("layer", "head"),
    values=("prefix_matching", "strength"),
    finite=("prefix_matching",),
)

COMPOSITION = Task(
    name="composition",
    kinds=("model",),
    settings=CompositionSettings,
    compute=_composition,
    columns=None,
    cells=lambda _: ("layer", "head", "to_layer", "to_head"),
    values=("k_excess",),
    finite=("k",),
)

HEAD_ABLATION = Task(
    name="head-ablation",
    kinds=("model",),
    settings=HeadAblationSettings,
    compute=_head_ablation,
    columns=None,
    cells=lambda _: ("removed", "repeat"),
    values=("nll_effect",),
    finite=("nll_effect",),
)
