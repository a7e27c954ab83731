"""What a page is given to draw with: its values, its model, controls, figures, heat maps, further work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import address, controls
from interp.apps.dashboard import work as works
from interp.apps.dashboard.page import MAIN, Page
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.apps.dashboard.heatmaps import Grid
    from interp.models.transformer import Transformer


def _go(page: Page, values: dict[str, Any]) -> None:
    """Fill in another page; the shell opens it at the end of the run."""
    for name, value in values.items():
        address.assign(page, name, value)
    if page.main is not None:
        address.asked(page)[page.main.name] = page.inputs(page.main, address.values_of(page))
    st.session_state[address.GO] = page.key


@dataclass
class Context:
    """One run of a page's script. Figures that are drawn through it, and tables added to it, can be exported."""

    page: Page
    values: dict[str, Any]
    chosen: Chosen
    loaded: "Transformer | None"
    figures: "dict[str, Callable[[], Figure]]" = field(default_factory=dict)
    """What was drawn, by name, each made for export when it is asked for."""
    tables: "dict[str, pandas.DataFrame]" = field(default_factory=dict)
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Further work whose results are shown, by name, each with the values that it belongs to."""

    @property
    def model(self) -> "Transformer":
        """The model, which is loaded wherever results are shown."""
        assert self.loaded is not None, "a page that shows without a model says needs_model=False"
        return self.loaded

    @property
    def shown_values(self) -> dict[str, Any]:
        """The values that belong to what is shown: inputs that were changed since are still those of the results."""
        return {**self.values, **address.asked(self.page).get(MAIN, {})}

    def control(self, name: str, low: float | None = None, high: float | None = None) -> Any:
        """Draw the widget of a view parameter here; its value. A value outside `low` to `high` is said, and mended."""
        parameter = self.page.parameter(name)
        if low is not None or high is not None:
            self._mend(name, low, high)
        return controls.widget(self.page, parameter, low, high)

    def _mend(self, name: str, low: float | None, high: float | None) -> None:
        value, parameter = self.values[name], self.page.parameter(name)
        fits = (low is None or value >= low) and (high is None or value <= high)
        if fits:
            return
        default = parameter.default
        inner = default if (low is None or default >= low) and (high is None or default <= high) else low
        said = f"{parameter.label} {value} is outside {low:g} to {high:g} here; {inner} is used."
        st.warning(said)
        address.complaints(self.page).append(said)  # so that it still stands after the next run of the script
        self.put(name, inner)

    def put(self, name: str, value: Any) -> None:
        """Change a value whose widget is drawn further down in this run, so that nothing need be drawn again."""
        assert self.page.parameter(name).problem(value) is None
        self.values[name] = value
        address.tell(self.page, name, value)

    def plot(self, name: str, figure: "Figure", alt: str, *, chooses: Sequence[str] = ()) -> None:
        """A figure with a text alternative; it can be exported under its name.

        `chooses` are view parameters that a click sets, to what the point that was clicked carries (`customdata`).
        """
        from interp.apps.dashboard.figures import draw

        self.figures[name] = lambda: figure
        draw(f"{self.page.key}.{name}", figure, alt, on_click=self._choosing(chooses) if chooses else None)

    def _choosing(self, names: Sequence[str]) -> "Callable[[Sequence[Any]], None]":
        def choose(carried: Sequence[Any]) -> None:
            for name, value in zip(names, carried, strict=True):
                address.assign(self.page, name, value)

        return choose

    def heatmap(
        self,
        name: str,
        grid: "Grid",
        alt: str,
        *,
        beside: Sequence[str] = (),
        at: tuple[int, int] | None = None,
    ) -> tuple[int, int]:
        """A heat map in which a cell can be chosen, by a click or in the number inputs above it: (row, column).

        `beside` are further view parameters whose widgets stand with those. A map of the same cells as one before it
        gets no inputs of its own: `at` is the cell that the first one returned.
        """
        from interp.apps.dashboard.heatmaps import heatmap

        return heatmap(self, name, grid, alt, beside, at)

    def table(self, name: str, frame: "pandas.DataFrame", *, shown: Sequence[str] | None = None) -> None:
        """A table; it can be exported under its name."""
        self.tables[name] = frame
        st.dataframe(frame if shown is None else frame[list(shown)], width="stretch", hide_index=True)

    def export(self, name: str, frame: "pandas.DataFrame") -> None:
        """Offer a table for export without drawing it."""
        self.tables[name] = frame

    def further(self, name: str, *, button: str | None = None) -> Results | None:
        """Further work of the page: what it found, or None while its state is drawn here.

        Work that is not automatic is asked for with `button`. It belongs to the results that are shown: their inputs
        are its own, whatever was changed since.
        """
        work = self.page.work(name)
        wanted, values = address.asked(self.page), self.shown_values
        if not work.automatic and name not in wanted:
            key = f"_ask.{self.page.key}.{name}"
            if not st.button(button or work.label, key=key):
                return None
            wanted[name] = self.page.inputs(work, values)
            st.rerun()
        results = works.present(self.page, work, self.model, values)
        if results is not None:
            self.found[name] = {**values, **wanted[name]}
        return results

    def expected(self) -> str:
        """What the page's computation will take with these values, in words; nothing where that cannot be told."""
        if self.page.main is None or self.page.cost is None:
            return ""
        inputs = {**self.page.inputs(self.page.main, self.values), **vars(self.chosen)}
        key = f"_expected.{self.page.key}"
        known = st.session_state.get(key)
        if known is None or known[0] != inputs:  # counting takes a moment, and a page runs at every click
            known = st.session_state[key] = (inputs, self._counted())
        said: str = known[1]
        return said

    def _counted(self) -> str:
        from interp.apps.dashboard.look import duration
        from interp.errors import InterpError

        assert self.page.cost is not None
        try:
            cost = self.page.cost(self.model, self.values)
        except InterpError:
            return ""
        return f"about {duration(cost.seconds)} on this machine, {cost.bytes / 2**20:,.0f} MiB beside the model"

    def link(self, label: str, key: str, values: Mapping[str, Any], *, mark: str = "") -> None:
        """A button to another page, opened with these values, its computation asked for; in this tab, model kept.

        `mark` tells buttons of one label apart.
        """
        from interp.apps.dashboard.registry import page_of

        st.button(
            label, key=f"_to.{self.page.key}.{key}.{label}.{mark}", on_click=_go, args=(page_of(key), dict(values))
        )

    def set(self, values: Mapping[str, Any]) -> None:
        """Change values and draw the page again. For use in answer to a button."""
        for name, value in values.items():
            assert self.page.parameter(name).problem(value) is None
        st.session_state[address.PENDING] = dict(values)
        st.rerun()
