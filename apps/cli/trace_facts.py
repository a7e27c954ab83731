"""`interp trace --facts`: which tokens and layers bring facts back, on average over those that the model knows."""

from typing import TYPE_CHECKING, Literal

from interp.apps.cli.facts import chosen_facts
from interp.apps.cli.options import Common
from interp.apps.cli.session import deliver, left_out_lines, load_model, working

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.fact_traces import FactTraces
    from interp.analyses.trace_settings import TraceOptions


def trace_file(
    file: str,
    relations: list[str] | None,
    limit: int | None,
    corruption: Literal["noise", "replace"],
    options: "TraceOptions",
    common: Common,
) -> None:
    """Trace the facts of a file, or those that come along, and show their averages."""
    from interp.facts import evenly_spread

    facts = chosen_facts(file, relations)  # answers before torch is imported
    if limit is not None:
        facts = evenly_spread(facts, limit)
    model = load_model(common)
    from interp.analyses.trace_facts import trace_facts

    with working("Tracing the facts that the model knows", common) as progress:
        result = trace_facts(model, facts, corruption=corruption, progress=progress, **options)
    drawn = [result.summary()[0], *(_by_role(result, str(kind)) for kind in result.axes["kind"]), _by_relation(result)]
    deliver(result, result.to_frame(), [*drawn, *left_out_lines(result), f"\n{result.caution}"], common, "trace")


def _by_role(result: "FactTraces", kind: str) -> "RenderableType":
    """Role by role, the layer at which restoring brings most back on average."""
    from interp.apps.cli.output import interval, table

    rows = []
    for role, count in zip(map(str, result.axes["role"]), result["count"], strict=True):
        if count == 0:
            rows.append((role, "0", "–", "–", "–"))
            continue
        _, layer, effect = result.peak(kind, role)
        low, high = (float(result.at(f"effect_{end}", kind=kind, role=role, layer=layer)) for end in ("low", "high"))
        rows.append((role, str(count), str(layer), f"{effect:+.3f}", interval(low, high)))
    title = f"\n{result.panel(kind)}, each role where restoring it helps most"
    return table(["tokens", "facts>", "at layer>", "effect>", "95 % interval>"], rows, title)


def _by_relation(result: "FactTraces") -> "RenderableType":
    """What hiding the subject takes away, relation by relation."""
    from interp.apps.cli.output import interval, table

    rows = []
    for place, relation in enumerate(map(str, result.axes["relation"])):
        total, low, high = (float(result[f"relation_total_effect{end}"][place]) for end in ("", "_low", "_high"))
        rows.append((relation, str(result["relation_count"][place]), f"{total:+.3f}", interval(low, high)))
    return table(
        ["relation", "facts>", "total effect>", "95 % interval>"], rows, "\nWhat hiding the subject takes away"
    )
