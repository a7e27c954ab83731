"""Sets of components that are tested, the sets that stand beside each, and what comes of comparing them.

Whatever is done to a set, it is done to its controls too: other components of the same kind and layers, as many of
each. For a metric M, which has a value for every text,

    effect(set) = mean over texts of M with the set treated − M with nothing treated

    excess      = effect − mean of the controls' effects
    deviations  = excess / standard deviation of the controls' effects

The interval of an effect is over texts (bootstrap, 95 %): how far other texts of this kind would move it. The spread of
the controls is over sets: how much of the effect any set would have had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interp.analyses.components import Component, control_sets, possible_controls
from interp.analyses.intervals import mean_interval
from interp.errors import UsageError
from interp.models.config import ModelConfig
from interp.results import Result

Arrays = dict[str, tuple[object, Sequence[str]]]
"""Arrays by name, each with the names of its axes."""


@dataclass(frozen=True)
class Sets:
    """Sets by label, each with its controls: the runs are each set, then its controls."""

    tested: Mapping[str, tuple[Component, ...]]
    controls: Sequence[Sequence[tuple[Component, ...]]]
    are_all: Sequence[bool]
    """Whether no other control sets exist."""
    seed: int

    @classmethod
    def drawn(
        cls,
        config: ModelConfig,
        tested: Mapping[str, tuple[Component, ...]],
        count: int,
        *,
        seed: int,
        without: Sequence[Component] = (),
    ) -> "Sets":
        """Each set with `count` control sets, or all there are, that hold none of its own nor of those `without`."""
        if type(count) is not int or count < 0 or type(seed) is not int or seed < 0:
            raise UsageError(f"Expected whole numbers from 0 on; came controls={count!r}, seed={seed!r}.")
        if not tested:
            raise UsageError("There is no set of components; name at least one.")
        controls = [
            control_sets(config, each, count, seed=(seed, number), without=without)
            for number, each in enumerate(tested.values())
        ]
        are_all = [possible_controls(config, each, without=without) <= count for each in tested.values()]
        return cls(tested, controls, are_all, seed)

    @property
    def runs(self) -> list[tuple[Component, ...]]:
        """All sets in order, each followed by its controls."""
        return [
            run for each, others in zip(self.tested.values(), self.controls, strict=True) for run in (each, *others)
        ]

    @property
    def components(self) -> list[Component]:
        """All components of all runs, each once."""
        return list(dict.fromkeys(component for run in self.runs for component in run))

    def labels(self, axis: str = "removed") -> Arrays:
        """Which components the sets and their controls hold, and how many controls there are."""
        most = max(map(len, self.controls))
        names = [[_named(each) for each in sets] + [""] * (most - len(sets)) for sets in self.controls]
        return {
            "components": ([_named(each) for each in self.tested.values()], (axis,)),
            "control_components": (np.array(names, dtype=object).reshape(len(names), most), (axis, "draw")),
            "controls": ([len(sets) for sets in self.controls], (axis,)),
            "controls_are_all": (list(self.are_all), (axis,)),
        }

    def compared(
        self, name: str, values: np.ndarray, base: np.ndarray, over: Sequence[str] = ("text",), axis: str = "removed"
    ) -> Arrays:
        """What a metric's `values` [run, *over] say beside its `base` [*over]; the last axis is that of texts."""
        values, base = values.astype(np.float64), base.astype(np.float64)
        each, cells = values[self._first], tuple(over[:-1])
        control = self._by_draw(values)
        effect, control_effect = (each - base).mean(-1), (control - base).mean(-1)
        low, high = mean_interval(each - base, seed=self.seed)
        mean, std = self._mean_and_std(control_effect)
        excess = effect - mean
        by_set = {
            "effect": effect,
            "low": low,
            "high": high,
            "control_mean": mean,
            "control_std": std,
            "excess": excess,
            "deviations": np.divide(excess, std, out=np.full_like(excess, np.nan), where=std > 0),
        }
        return {
            name: (each, (axis, *over)),
            f"{name}_base": (base, tuple(over)),
            f"{name}_control": (control, (axis, "draw", *over)),
            f"{name}_control_effect": (control_effect, (axis, "draw", *cells)),
            **{f"{name}_{what}": (array, (axis, *cells)) for what, array in by_set.items()},
        }

    @property
    def _first(self) -> np.ndarray:
        """Where each set stands among the runs."""
        return np.cumsum([0, *(len(sets) + 1 for sets in self.controls)])[:-1]

    def _by_draw(self, values: np.ndarray) -> np.ndarray:
        """The controls' values, [set, draw, *over]; NaN where a set has fewer controls than others."""
        most = max(map(len, self.controls))
        found = np.full((len(self.controls), most, *values.shape[1:]), np.nan)
        for place, (start, sets) in enumerate(zip(self._first, self.controls, strict=True)):
            found[place, : len(sets)] = values[start + 1 : start + 1 + len(sets)]
        return found

    def _mean_and_std(self, effects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Over each set's own draws; NaN where there are too few of them."""
        unknown = np.full(effects.shape[2:], np.nan)
        rows = [row[: len(sets)] for row, sets in zip(effects, self.controls, strict=True)]
        mean = [row.mean(0) if len(row) else unknown for row in rows]
        std = [row.std(0, ddof=1) if len(row) > 1 else unknown for row in rows]
        return np.array(mean), np.array(std)


class Controlled(Result):
    """A result whose effects stand beside those of controls."""

    def beside(self, metric: str, place: int, *cell: int) -> str:
        """The controls' effects on a metric in words: mean, spread, their number, how far the set lies from them."""
        mean, std, deviations = (
            float(self[f"{metric}_{what}"][(place, *cell)]) for what in ("control_mean", "control_std", "deviations")
        )
        count = int(self["controls"][place])
        sets = f"all {count} that exist" if self["controls_are_all"][place] else f"{count} random sets"
        if count == 0:
            return f"none ({sets})"
        if np.isnan(deviations):
            return f"{mean:+.3f} ({sets})"
        return f"{mean:+.3f} ± {std:.3f} ({sets}), {deviations:+.1f} deviations away"

    def interval(self, metric: str, place: int, *cell: int) -> str:
        """An effect with its interval over texts, which a single text does not have: `+1.20 [+1.02, +1.41]`."""
        effect, low, high = (float(self[f"{metric}_{what}"][(place, *cell)]) for what in ("effect", "low", "high"))
        return f"{effect:+.3f}" + ("" if np.isnan(low) else f" [{low:+.3f}, {high:+.3f}]")


def _named(components: Sequence[Component]) -> str:
    return ", ".join(map(str, components))
