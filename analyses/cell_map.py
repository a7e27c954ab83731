"""What results over the cells of a sweep share: their table, their strongest cells, and how they are drawn."""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.results import Result

if TYPE_CHECKING:
    import pandas

TOKENS = {"pos": "token", "query_pos": "query_token", "key_pos": "key_token"}
"""The array that says what stands at the places of an axis."""


class CellMap(Result):
    """One number a cell over axes that were chosen when the analysis ran; settings name them as `by`."""

    grid = ()

    @property
    def over(self) -> tuple[str, ...]:
        """The axes of the sweep."""
        return tuple(self.settings["by"])  # type: ignore[arg-type]

    @property
    @abstractmethod
    def shown(self) -> str:
        """The array that is ranked and drawn, over the sweep's axes."""

    def to_frame(self, axes: Sequence[str] | None = None) -> "pandas.DataFrame":
        """A long table: one row a cell of the sweep; with `(*over, "pair")` one row a cell and pair."""
        return super().to_frame(self.over if axes is None else axes)

    def ranked(self, count: int = 10) -> "pandas.DataFrame":
        """The cells with the largest values, in either direction, the largest first."""
        frame = self.to_frame()
        order = frame[self.shown].abs().sort_values(ascending=False, kind="stable").index
        return frame.loc[order].head(count).reset_index(drop=True)

    def strongest(self, count: int) -> list[str]:
        """The same as lines of text."""
        rows = self.ranked(count).to_dict(orient="records")
        return [f"  {self.place(row)}: {row[self.shown]:+.3f} {self.shown.rsplit('_')[-1]}" for row in rows]

    def place(self, row: dict[Any, Any]) -> str:
        """Where a row of the table lies, in words."""
        return ", ".join(f"{axis} {row[axis]}" for axis in self.over)

    def asked(self) -> str:
        """The title, and what was copied from where."""
        told = self.settings
        return f"{self.title}: {' + '.join(told['sites'])}, {told['direction']}, source {told['source']}"  # type: ignore[arg-type]

    def drawn(self) -> dict[str, Any]:
        """What `plots.effect_heatmap` draws: the sweep's last axis across, the others down."""
        *down, across = [self.labels(axis) for axis in self.over]
        return {
            "values": self[self.shown].reshape(-1, len(across)),
            "title": self.asked(),
            "metric": self.shown.replace("_", " "),
            "x": self.over[-1],
            "y": ".".join(self.over[:-1]),
            "columns": across,
            "rows": [".".join(places) for places in itertools.product(*down)],
            "upwards": self.over[0] == "layer",
        }

    def labels(self, axis: str) -> list[str]:
        """The places of an axis, with the tokens that stand there."""
        places, name = [str(place) for place in self.axes[axis]], TOKENS.get(axis, "")
        if name not in self:
            return places
        return [f"{text} {place}" for text, place in zip(self[name], places, strict=True)]
