"""What `interp induction` shows: one table of heads, then what the other results say."""

from typing import TYPE_CHECKING

from interp.analyses.composition import Composition
from interp.analyses.copying import CopyingScores
from interp.analyses.pattern_scores import SCORES
from interp.analyses.repeated import texts_read
from interp.apps.cli.induction_study import COPIES, Findings
from interp.apps.cli.output import number, table
from interp.results import Result

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

HEADINGS = {"ov_eigenvalue": "OV copying", "behavioural": "next logit", "ioi_copy": "IOI copy"}


def everything(found: Findings, count: int | None = None) -> "pd.DataFrame":
    """One row a head, the best first: its scores with their interval, and what it copies."""
    scores = found.scores
    ranked = scores.ranked(scores["prefix_matching"].size if count is None else count)
    copying = found.others.get("copying")
    if copying is None:
        return ranked
    columns = [name for name in COPIES if name in copying]
    return ranked.merge(copying.to_frame()[["layer", "head", *columns]], how="left", on=["layer", "head"])


def with_tables(found: Findings) -> "dict[str, tuple[Result, pd.DataFrame]]":
    """The other results, each with the rows that stand for it."""
    return {name: (result, _rows(result)) for name, result in found.others.items()}


def _rows(result: Result) -> "pd.DataFrame":
    """One row a cell; of pairs of heads, the strongest."""
    return result.strongest() if isinstance(result, Composition) else result.to_frame()


def parts(found: Findings, top: int) -> "list[RenderableType]":
    """The table of the best heads, notes, and the summary of every result that is not in the table."""
    further = [result for name, result in found.others.items() if name != "copying"]
    summaries = ["\n" + "\n".join(result.summary()) for result in further]
    notes = [*_source(found), *found.scores.notes, *found.notes, found.scores.caution]
    return [_drawn(found, top), *(f"\n{note}" for note in notes), *summaries]


def _source(found: Findings) -> list[str]:
    """What the columns of copying scores come from."""
    copying = found.others.get("copying")
    if not isinstance(copying, CopyingScores):
        return []
    return [f"{', '.join(HEADINGS[name] for name in COPIES if name in copying)}: {copying.source}"]


def _drawn(found: Findings, top: int) -> "RenderableType":
    frame = everything(found, top)
    copied = [name for name in COPIES if name in frame]
    rows = [
        (
            f"{row['layer']}.{row['head']}",
            number(row["prefix_matching"]),
            _between(row["prefix_matching_low"], row["prefix_matching_high"]),
            *(number(row[score]) for score in SCORES[1:]),
            *(number(row[name], signed=True) for name in copied),
        )
        for row in frame.to_dict(orient="records")
    ]
    asked = found.scores.settings
    title = f"Mean attention on {texts_read(asked)}, prefix {asked['prefix']}, seed {asked['seed']}"
    names = [score.replace("_", " ") for score in SCORES]
    headings = [names[0], "95 %", *names[1:], *(HEADINGS[name] for name in copied)]
    return table(["head", *(f"{heading}>" for heading in headings)], rows, title)


def _between(low: float, high: float) -> str:
    """An interval; a single text has none."""
    return "–" if low != low else f"{low:.3f} to {high:.3f}"
