"""Tasks over facts: those that the model knows are asked together, the others are left out by name."""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.analyses.extraction import extraction
from interp.analyses.fact_filter import filter_facts
from interp.analyses.knockout import attention_knockout
from interp.analyses.knowledge_neurons import knowledge_neurons
from interp.analyses.study.facts import FactTask, known_only
from interp.analyses.study.prompts import laid_out, prompt_length
from interp.analyses.study.settings import (
    KnockoutSettings,
    KnowledgeNeuronsSettings,
    NoSettings,
    SublayerKnockoutSettings,
    TracingSettings,
)
from interp.analyses.study.task import Found, Item, Outcomes, Task, Work
from interp.analyses.sublayer_knockout import sublayer_knockout
from interp.analyses.trace_facts import trace_facts
from interp.errors import UsageError
from interp.facts import Fact
from interp.results import Result


def by_fact(
    result: Result, axes: Sequence[str], arrays: Mapping[str, np.ndarray], single: Mapping[str, np.ndarray]
) -> dict[str, dict[str, object]]:
    """Columns of every fact: of `arrays` [fact, *axes], and of `single` [fact], which repeats in every cell."""
    chosen = {axis: result.axes[axis] for axis in axes}
    shape = tuple(map(len, chosen.values()))
    return {
        str(fact): laid_out(
            chosen,
            {
                **{name: each[place] for name, each in arrays.items()},
                **{name: np.broadcast_to(each[place], shape) for name, each in single.items()},
            },
        )
        for place, fact in enumerate(result.axes["fact"])
    }


def _kept(columns: Mapping[str, object], name: str) -> dict[str, object]:
    """The cells that the fact has: those in which the column is a number."""
    there = ~np.isnan(np.asarray(columns[name], dtype=float))
    return {column: np.asarray(values)[there] for column, values in columns.items()}


def _tracing(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings

    def traced(facts: list[Fact]) -> dict[str, dict[str, object]]:
        found = trace_facts(
            work.model, facts, kinds=asked.kinds, severed=asked.severed, noise=asked.noise, samples=asked.samples,
            window=asked.window, seed=work.seed, prefix=work.prefix, budget=asked.budget,
        )  # fmt: skip
        effects = {"effect": found["fact_effect"], "logit_effect": found["fact_logit_effect"]}
        single = {name: found[name] for name in ("clean_probability", "corrupted_probability", "total_effect")}
        tables = by_fact(found, ("kind", "role", "layer"), effects, single)
        return {fact: _kept(columns, "effect") for fact, columns in tables.items()}

    return known_only(work, items, traced)


def _cut(work: Work, found: Result) -> dict[str, dict[str, object]]:
    """By [cut, layer], the cuts that apply to the fact."""
    arrays = {name: np.moveaxis(found[name], -1, 0) for name in ("probability", "log_probability", "logit", "change")}
    single = {"base_probability": found["probability_base"]}
    tables = by_fact(found, ("cut", "layer"), arrays, single)
    return {fact: _kept(columns, "probability") for fact, columns in tables.items()}


def _knockout(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings

    def cut(facts: list[Fact]) -> dict[str, dict[str, object]]:
        found = attention_knockout(
            work.model, facts, blocks=asked.blocks, window=asked.window, layers=asked.layers, draws=asked.draws,
            seed=work.seed, prefix=work.prefix, budget=asked.budget,
        )  # fmt: skip
        return _cut(work, found)

    return known_only(work, items, cut)


def _sublayer_knockout(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings

    def cut(facts: list[Fact]) -> dict[str, dict[str, object]]:
        found = sublayer_knockout(
            work.model, facts, sublayers=asked.sublayers, methods=asked.methods, window=asked.window,
            layers=asked.layers, seed=work.seed, prefix=work.prefix, budget=asked.budget,
        )  # fmt: skip
        return _cut(work, found)

    return known_only(work, items, cut)


def _extraction(work: Work, items: Sequence[Item]) -> Outcomes:
    def extracted(facts: list[Fact]) -> dict[str, dict[str, object]]:
        found = extraction(work.model, facts, prefix=work.prefix)
        arrays = {name: np.moveaxis(found[name], -1, 0) for name in ("said", "extracted")}
        return by_fact(found, ("sublayer", "layer"), arrays, {"answer": found["answer"]})

    return known_only(work, items, extracted)


def _facts(work: Work, items: Sequence[Item]) -> Outcomes:
    found = filter_facts(work.model, [item.value for item in items], prefix=work.prefix)
    names = ("known", "probability", "rank", "answer_token", "said", "said_probability", "answer_tokens")
    outcomes: dict[str, Found | UsageError] = {name: UsageError(why) for name, why in found.skipped.items()}
    for place, fact in enumerate(found.axes["fact"]):
        outcomes[str(fact)] = Found({name: found[name][place : place + 1] for name in names})
    return outcomes


def _knowledge_neurons(work: Work, items: Sequence[Item]) -> Outcomes:
    asked = work.settings

    def carrying(facts: list[Fact]) -> dict[str, dict[str, object]]:
        tables = {}
        for fact in facts:
            found = knowledge_neurons(
                work.model, fact, position=asked.position, steps=asked.steps, threshold=asked.threshold,
                share=asked.share, layers=asked.layers, prefix=work.prefix,
            )  # fmt: skip
            names = ("in_layer", "in_expert", "index", "strength", "coefficient", "shared_by")
            tables[fact.id] = {"neuron": list(found.axes["neuron"]), **{name: found[name] for name in names}}
        return tables

    return known_only(work, items, carrying)


_CUT = {
    "cut": str, "layer": int,
    **dict.fromkeys(("probability", "log_probability", "logit", "change", "base_probability"), float),
}  # fmt: skip

TRACING = FactTask(
    name="tracing",
    settings=TracingSettings,
    compute=_tracing,
    columns=lambda _: {
        "kind": str,
        "role": str,
        "layer": int,
        **dict.fromkeys(
            ("effect", "logit_effect", "clean_probability", "corrupted_probability", "total_effect"), float
        ),
    },
    cells=lambda _: ("kind", "role", "layer"),
    values=("effect", "logit_effect"),
    finite=("effect", "total_effect"),
    tokens_at_once=128,
)

KNOCKOUT = FactTask(
    name="knockout",
    settings=KnockoutSettings,
    compute=_knockout,
    columns=lambda _: _CUT,
    cells=lambda _: ("cut", "layer"),
    values=("change", "probability"),
    finite=("probability", "base_probability"),
    tokens_at_once=320,
)

SUBLAYER_KNOCKOUT = FactTask(
    name="sublayer-knockout",
    settings=SublayerKnockoutSettings,
    compute=_sublayer_knockout,
    columns=lambda _: _CUT,
    cells=lambda _: ("cut", "layer"),
    values=("change", "probability"),
    finite=("probability", "base_probability"),
    tokens_at_once=320,
)

EXTRACTION = FactTask(
    name="extraction",
    settings=NoSettings,
    compute=_extraction,
    columns=lambda _: {"sublayer": str, "layer": int, "said": str, "extracted": bool, "answer": str},
    cells=lambda _: ("sublayer", "layer"),
    values=("extracted",),
)

FACTS = Task(
    name="facts",
    kinds=("facts",),
    settings=NoSettings,
    compute=_facts,
    columns=lambda _: {
        "known": bool,
        "probability": float,
        "rank": int,
        "answer_token": str,
        "said": str,
        "said_probability": float,
        "answer_tokens": int,
    },
    cells=lambda _: (),
    values=("known", "probability", "rank"),
    finite=("probability",),
    length=prompt_length,
)

KNOWLEDGE_NEURONS = FactTask(
    name="knowledge-neurons",
    settings=KnowledgeNeuronsSettings,
    compute=_knowledge_neurons,
    columns=lambda _: {
        "neuron": str,
        "in_layer": int,
        "in_expert": int,
        "index": int,
        "strength": float,
        "coefficient": float,
        "shared_by": int,
    },
    cells=lambda _: ("in_layer",),
    values=("strength",),
    finite=("strength",),
    tokens_at_once=64,
)
