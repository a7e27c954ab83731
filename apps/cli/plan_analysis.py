"""What `interp plan --analysis` shows: the cost of an analysis of one model or several."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from interp.apps.cli.options import Common
from interp.apps.cli.output import show, table, write_json
from interp.apps.model_facts import size
from interp.errors import UsageError, nearest

if TYPE_CHECKING:
    from interp.models.config import ModelConfig
    from interp.models.planner import Speed

COMMANDS = {"trace": "tracing", "patch": "patching", "attribute": "attribution", "heads": "atlas"}
"""Analyses by the command that runs them, where it is called otherwise."""


@dataclass(frozen=True)
class AnalysisAsked:
    """An analysis, the lengths of its items, and its settings."""

    name: str
    lengths: tuple[int, ...]
    settings: Mapping[str, object]

    @classmethod
    def read(cls, name: str, tokens: str, items: int | None, settings: Sequence[str], dtype: str) -> "AnalysisAsked":
        """From the command line. Raises `UsageError` for an analysis, lengths and settings that do not exist."""
        from interp.analyses import ANALYSES
        from interp.analyses.costs import ARGUMENTS

        called = COMMANDS.get(name, name)
        if called not in ANALYSES:
            known = [*ANALYSES, *COMMANDS]
            raise UsageError(f"--analysis {name!r} is none.{nearest(name, known)} There are {', '.join(known)}.")
        given: dict[str, object] = {"dtype": dtype}
        for each in settings:
            key, found, value = each.partition("=")
            known = [*ANALYSES[called].settings, *ARGUMENTS]
            if not found or key not in known:
                raise UsageError(
                    f"--set {each!r} sets nothing of {called}.{nearest(key, known)} Expected KEY=VALUE with one of "
                    f"{', '.join(known)}."
                )
            given[key] = _value(value)
        return cls(called, _lengths(tokens, items), given)


def show_costs(
    shapes: "Mapping[str, ModelConfig]", asked: AnalysisAsked, speed: "Speed | None", common: Common
) -> None:
    """Print what the analysis will cost on each model: on this machine, unless a speed is given."""
    from interp.analyses.costs import analysis_cost
    from interp.apps.cli.session import working
    from interp.models.planner import this_machine

    if common.out is not None:
        raise UsageError("A cost is printed, not saved: leave --out out, or send what --json prints to a file.")
    costs = {}
    for name, shape in shapes.items():
        analysis_cost(asked.name, shape, asked.lengths, asked.settings)  # refuses before anything is measured
        with working("Measuring this machine" if speed is None else f"Counting for {name}", common):
            reached = speed or this_machine(shape)
        costs[name] = analysis_cost(asked.name, shape, asked.lengths, asked.settings, speed=reached), reached
    if common.as_json:
        told = [{"model": name, "speed": asdict(reached), **asdict(cost)} for name, (cost, reached) in costs.items()]
        settings = dict(asked.settings)
        write_json(
            {"kind": "cost", "analysis": asked.name, "settings": settings, "items": asked.lengths, "costs": told}
        )
        return
    heads = ["model", "items>", "cells>", "TFLOP>", "beside the model>", "moved>", "time>", "on"]
    rows = [
        (
            name,
            f"{len(asked.lengths):,}",
            f"{cost.cells:,}",
            f"{cost.flops / 1e12:,.3f}",
            size(cost.bytes),
            size(cost.moved),
            cost.time,
            reached.name,
        )
        for name, (cost, reached) in costs.items()
    ]
    dtype = asked.settings["dtype"]
    show(
        table(heads, rows, f"{asked.name}, {dtype}"),
        "",
        "An estimate: what differs from text to text is taken for the worst.",
    )


def _lengths(tokens: str, items: int | None) -> tuple[int, ...]:
    """`8,10,12` as lengths; taken in turn until there are so many items."""
    words = [word.strip() for word in tokens.split(",")]
    for word in words:
        if not word.isdecimal() or not word.isascii() or len(word) > 9 or int(word) < 1:
            raise UsageError(f"--tokens is {tokens!r}; expected whole numbers from 1 on, such as 10 or 8,10,12.")
    each = [int(word) for word in words]
    count = len(each) if items is None else items
    return tuple(each[place % len(each)] for place in range(count))


def _value(text: str) -> object:
    """A value as JSON writes it; what is none is text, or several texts with commas between."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return [_value(part.strip()) for part in text.split(",") if part.strip()]
    return None if text in ("none", "None") else {"true": True, "false": False}.get(text.lower(), text)
