"""Patching of many pairs: those of a batch are swept together, and every pair keeps its own values.

Pairs of different lengths are swept in groups of one length where a sweep runs over positions. What is in a pair's
table does not depend on the pairs beside it: shares are its own, and no reference is taken from its batch.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np

from interp.analyses.attribution_patching import attribution_patching
from interp.analyses.cell_map import TOKENS
from interp.analyses.patching import sweep
from interp.analyses.study.prompts import laid_out, prompt_length
from interp.analyses.study.settings import AttributionPatchingSettings, PatchingSettings
from interp.analyses.study.task import Columns, Found, Item, Outcomes, Task, Work
from interp.analyses.vocabulary import token_texts
from interp.pairs import Pairs, align
from interp.results import Result

Swept = Callable[[Work, Pairs], tuple[Result, Mapping[str, np.ndarray]]]
"""A result, and its arrays [*axes, pair] by the column that they become."""


def _by_group(work: Work, items: Sequence[Item], swept: Swept) -> Outcomes:
    """What is found of every pair, those that can be swept together side by side."""
    tokenizer, over = work.model.tokenizer, set(work.settings.axes) & {"pos", "query_pos", "key_pos"}
    lengths = [len(tokenizer.prompt_ids(item.value.clean, work.prefix)) if over else 0 for item in items]
    order = sorted(range(len(items)), key=lambda place: (lengths[place], items[place].value.foil is None))
    found = {}
    for _, places in groupby(order, key=lambda place: (lengths[place], items[place].value.foil is None)):
        group = [items[place] for place in places]
        pairs = align(tokenizer, [item.value for item in group], prefix=work.prefix)
        result, arrays = swept(work, pairs)
        axes = {axis: result.axes[axis] for axis in work.settings.axes}
        for row, item in enumerate(group):
            columns = laid_out(
                axes, {name: np.broadcast_to(each[..., row], _shape(axes)) for name, each in arrays.items()}
            )
            found[item.id] = Found({**columns, **_labels(work, pairs, row, columns)})
    return {item.id: found[item.id] for item in items}


def _shape(axes: Mapping[str, Sequence[object]]) -> tuple[int, ...]:
    return tuple(map(len, axes.values()))


def _labels(work: Work, pairs: Pairs, row: int, columns: Mapping[str, object]) -> dict[str, object]:
    """What stands at swept positions in the run that is edited, and which role of the pair that is; "other": none."""
    labels: dict[str, object] = {}
    base = pairs.corrupted if work.settings.direction == "denoise" else pairs.clean
    for axis, name in TOKENS.items():
        if axis in columns:
            places = np.asarray(columns[axis]).tolist()
            texts = token_texts(work.model, base[row].tolist())
            roles = {where[row]: role for role, where in pairs.roles.items()}
            labels[name] = [texts[place] for place in places]
            labels[f"{axis}_role"] = [roles.get(place, "other") for place in places]
    return labels


def _columns(settings: PatchingSettings) -> Columns:
    """The columns of the axes; of positions, what stands there too."""
    labels = {axis: (TOKENS[axis], f"{axis}_role") for axis in settings.axes if axis in TOKENS}
    return {**dict.fromkeys(settings.axes, int), **{name: str for names in labels.values() for name in names}}


def _cells(settings: PatchingSettings) -> tuple[str, ...]:
    """Positions of different pairs are no one place: what they share is their roles."""
    return tuple(f"{axis}_role" if axis in TOKENS else axis for axis in settings.axes)


def _arguments(work: Work) -> dict[str, object]:
    asked = work.settings
    return {
        "site": asked.site, "metric": asked.metric, "direction": asked.direction, "by": asked.axes,
        "layers": asked.layers, "seed": work.seed, "budget": asked.budget, "cancelled": work.cancelled,
    }  # fmt: skip


def _sweep(work: Work, pairs: Pairs) -> tuple[Result, Mapping[str, np.ndarray]]:
    found = sweep(work.model, pairs, window=work.settings.window, **_arguments(work))  # type: ignore[arg-type]
    metric = work.settings.metric
    names = {"patched": metric, "clean": f"{metric}_clean", "corrupted": f"{metric}_corrupted"}
    names["recovered"] = f"{metric}_recovered_each"
    return found, {column: found[name] for column, name in names.items()}


def _estimate(work: Work, pairs: Pairs) -> tuple[Result, Mapping[str, np.ndarray]]:
    found = attribution_patching(work.model, pairs, check=None, **_arguments(work))  # type: ignore[arg-type]
    return found, {name: found[name] for name in ("estimate", "clean", "corrupted")}


PATCHING = Task(
    name="patching",
    kinds=("pairs",),
    settings=PatchingSettings,
    compute=lambda work, items: _by_group(work, items, _sweep),
    columns=lambda asked: {
        **_columns(asked),
        **dict.fromkeys(("patched", "clean", "corrupted", "recovered"), float),
    },
    cells=_cells,
    values=("recovered", "patched"),
    finite=("patched", "clean", "corrupted"),
    tokens_at_once=256,
    length=prompt_length,
)

ATTRIBUTION_PATCHING = Task(
    name="attribution-patching",
    kinds=("pairs",),
    settings=AttributionPatchingSettings,
    compute=lambda work, items: _by_group(work, items, _estimate),
    columns=lambda asked: {**_columns(asked), **dict.fromkeys(("estimate", "clean", "corrupted"), float)},
    cells=_cells,
    values=("estimate",),
    finite=("estimate", "clean", "corrupted"),
    tokens_at_once=512,
    length=prompt_length,
)
