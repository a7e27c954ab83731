"""Tasks over prompts: what writes the answer at the last token, and which neurons write most."""

from collections.abc import Sequence

import numpy as np

from interp.analyses.attribution import direct_logit_attribution
from interp.analyses.fact_filter import filter_facts
from interp.analyses.memories import ffn_memories
from interp.analyses.study.prompts import Grid, followed, laid_out, prompt_length
from interp.analyses.study.settings import AttributionSettings, MemoriesSettings
from interp.analyses.study.task import Found, Item, Outcomes, Task, Work
from interp.analyses.sub_updates import points_read
from interp.errors import InterpError, UsageError
from interp.facts import Fact


def _attribution(work: Work, items: Sequence[Item]) -> Outcomes:
    """Facts that the model does not know are left out; prompts are asked about as they are."""
    outcomes: dict[str, Found | InterpError] = {}
    facts = [item.value for item in items if isinstance(item.value, Fact)]
    if facts:
        filtered = filter_facts(work.model, facts, prefix=work.prefix)
        outcomes |= {name: UsageError(why) for name, why in filtered.skipped.items()}
        others = {name: why for name, why in filtered.left_out.items() if name not in filtered.skipped}
        outcomes |= {name: Found(left_out=f"unknown: {why}") for name, why in others.items()}
    asked = [item for item in items if item.id not in outcomes]
    with_foil = [followed(work.model, item.value)[1] is not None for item in asked]
    for foil in (True, False):
        group = [item for item, has in zip(asked, with_foil, strict=True) if has == foil]
        outcomes |= _attributed(work, group, foil) if group else {}
    return outcomes


def _attributed(work: Work, items: Sequence[Item], foil: bool) -> dict[str, Found]:
    """The terms of prompts that all have a foil, or none."""
    grid, tokens = Grid.of(work, items, "left"), [followed(work.model, item.value) for item in items]
    missing = [item.id for item, (answer, _) in zip(items, tokens, strict=True) if answer is None]
    if missing:
        raise UsageError(f"The prompt {missing[0]!r} has no answer; attribution asks what writes one. Give it.")
    found = direct_logit_attribution(
        work.model, grid.tokens, [answer for answer, _ in tokens if answer is not None],
        [other for _, other in tokens if other is not None] if foil else None,
        by=work.settings.by, mask=grid.mask, seed=work.seed,
    )  # fmt: skip
    labels = {name: found[name] for name in ("part_kind", "part_layer", "part_index")}
    axes = {"part": found.axes["part"]}
    return {
        item.id: Found(
            laid_out(
                axes,
                {
                    **labels,
                    "contribution": found["contribution"][row],
                    "logit": np.full(len(axes["part"]), found["logit"][row]),
                },
            )
        )
        for row, item in enumerate(items)
    }


def _memories(work: Work, items: Sequence[Item]) -> Outcomes:
    model, asked, outcomes = work.model, work.settings, {}
    grid = Grid.of(work, items, "left")
    layers = list(range(model.config.n_layers)) if asked.layer is None else asked.layer
    names = points_read(model, layers)
    position = None if asked.position >= 0 else [asked.position]
    cache = model.run_with_cache(grid.tokens, names, positions=position, mask=grid.mask, stop_at_layer=max(layers) + 1)[
        1
    ]
    for row, item in enumerate(items):
        skipped = grid.tokens.shape[1] - len(grid.rows[row])
        place = asked.position if asked.position < 0 else asked.position + skipped
        found = ffn_memories(
            model, cache, layer=asked.layer, position=place, top_k=asked.top_k, words=asked.words, row=row,
            final_norm=asked.final_norm, prefix=work.prefix,
        )  # fmt: skip
        frame = found.to_frame(("layer", "rank"))
        columns = {name: frame[name].to_numpy() for name in _MEMORY}
        for end in ("promoted", "suppressed"):
            words = found[f"{end}_token"].reshape(-1, found[f"{end}_token"].shape[-1])
            columns[end] = np.array([" | ".join(map(str, line)) for line in words], dtype=object)
        outcomes[item.id] = Found(columns, result=found)
    return outcomes


_MEMORY: dict[str, type] = {
    "layer": int, "rank": int, "name": str, "neuron": int, "coefficient": float, "value_norm": float,
    "dominance": float, "explained": float,
}  # fmt: skip

ATTRIBUTION = Task(
    name="attribution",
    kinds=("facts", "prompts", "pairs"),
    settings=AttributionSettings,
    compute=_attribution,
    columns=lambda _: {
        "part": str,
        "part_kind": str,
        "part_layer": int,
        "part_index": int,
        "contribution": float,
        "logit": float,
    },
    cells=lambda _: ("part",),
    values=("contribution",),
    finite=("contribution", "logit"),
    length=prompt_length,
    may_leave_out=True,
)

MEMORIES = Task(
    name="memories",
    kinds=("prompts", "facts", "pairs"),
    settings=MemoriesSettings,
    compute=_memories,
    columns=lambda _: {**_MEMORY, "promoted": str, "suppressed": str},
    cells=lambda _: ("layer", "rank"),
    values=("dominance", "coefficient", "explained"),
    finite=("dominance", "coefficient"),
    tokens_at_once=256,
    length=prompt_length,
)
