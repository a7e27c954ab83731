"""What a report says, as plain values; `page.render` turns them into HTML.

Texts are literal: markup in them is shown, never obeyed. A token inside a sentence goes through `token`, which marks
it for display with its spaces and line breaks visible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

TOKEN_OPEN, TOKEN_CLOSE = "\ue000", "\ue001"  # private-use characters: no font draws them, no text holds them

ColumnKind = Literal["text", "token", "whole", "number", "general", "signed", "percent", "bar", "flag"]


def token(text: str) -> str:
    """Mark `text` as a token for use inside a sentence of a report."""
    return TOKEN_OPEN + text.replace(TOKEN_OPEN, "").replace(TOKEN_CLOSE, "") + TOKEN_CLOSE


@dataclass(frozen=True)
class Column:
    """How one column of a table is headed and written; `bar` is a probability with a bar behind it.

    `number` has three decimals, `general` four digits that count.
    """

    heading: str
    kind: ColumnKind = "text"


@dataclass(frozen=True)
class Table:
    """Numbers: `frame` is what the page can show, `columns` says which of it and how.

    `first` rows stand open on the page, the rest folds; rows where the boolean column `emphasis` is true stand out.
    `file` is where all of the table lies beside the page: `tables/NAME.parquet` if it is not said.
    """

    name: str
    frame: "pd.DataFrame"
    caption: str
    columns: Mapping[str, Column]
    first: int | None = None
    emphasis: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Figure:
    """A plotly figure with the sentence below it; `min_width` is where a narrow screen starts to scroll sideways."""

    figure: "go.Figure"
    caption: str
    min_width: int = 480


@dataclass(frozen=True)
class Code:
    """How to repeat a section: in Python and on the command line."""

    python: str
    shell: str


@dataclass(frozen=True)
class Section:
    """One question: what was done, in words for a newcomer; figures and tables; what they do not show.

    Texts that are empty, and code that is None, are left out. `lines` are findings of a line each. `eyebrow` stands
    small above the title; without it, the number of the question does.
    """

    slug: str
    title: str
    question: str
    explanation: str = ""
    finding: str = ""
    lines: Sequence[str] = ()
    blocks: Sequence[Figure | Table] = ()
    not_shown: str = ""
    code: Code | None = None
    eyebrow: str | None = None


@dataclass(frozen=True)
class Highlight:
    """One number from the report, large, with what it is."""

    value: str
    label: str
    note: str
    target: str


@dataclass(frozen=True)
class Report:
    """A whole page. `facts` stand in the first card, which `card` heads; `notes` in the last."""

    title: str
    lead: str
    highlights: Sequence[Highlight]
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    notes: Sequence[str] = field(default_factory=tuple)
    card: str = "The model"

    def tables(self) -> dict[str, Table]:
        """Every table of every section, by name."""
        found = {block.name: block for section in self.sections for block in section.blocks if isinstance(block, Table)}
        return found
