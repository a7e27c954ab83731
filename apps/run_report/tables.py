"""Tables of any analysis as tables of a page: how each column is headed and written follows from what it holds."""

from typing import TYPE_CHECKING

from interp.apps.report import Column, Table

if TYPE_CHECKING:
    import pandas as pd

OPEN, MOST = 12, 400  # rows that stand open, and rows of the page at all; the CSV file has every one


def as_table(name: str, frame: "pd.DataFrame", file: str) -> Table:
    """A table of the page, without columns that hold nothing; the caption says where all of it is."""
    shown = frame.head(MOST).dropna(axis="columns", how="all")
    more = f"; the first {MOST:,} stand here" if len(frame) > MOST else ""
    caption = f"{len(frame):,} rows{more}. All of it:"
    return Table(name, shown, caption, {str(column): column_of(shown[column]) for column in shown}, OPEN, file=file)


def column_of(values: "pd.Series") -> Column:
    """A column's heading, and how its cells are written."""
    name = str(values.name)
    heading = name.replace("_", " ")
    kind = values.dtype.kind
    if kind == "b":
        return Column(heading, "flag")
    if kind in "iu":
        return Column(heading, "whole")
    if kind == "f":
        return Column(heading, "general")
    return Column(heading, "token" if name == "token" or name.endswith("_token") else "text")
