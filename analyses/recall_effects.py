"""What cutting something out, around every layer, does to the answers of many prompts: the sweep, and its averages.

A *cut* is one kind of intervention, done around each layer in turn. Its effect on the probability P of the answer is
told in three ways: what it takes from P; how much that is in % of P; and what it does to log P and to the logit, which
see changes of a probability that is small already. The change in % over several facts is the ratio of means,

    100 · (mean P with the cut − mean P) / mean P

so that facts whose P is small do not decide it. Facts to which a cut does not apply are in none of its means.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp import metrics
from interp.analyses.intervals import ratio_interval
from interp.analyses.left_out import first_token_lines
from interp.analyses.recall import Batch, Recalls
from interp.analyses.windows import Windows
from interp.errors import UsageError
from interp.hooks import Hooks
from interp.models.replay import Progress, Replay, Sweep
from interp.results import Arrays, Result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

METRICS = ("probability", "log_probability", "logit")
CELL = ("cut", "layer")
ENDS = ("", "_low", "_high")
"""What the arrays of a mean and of the ends of its interval are called, behind its name."""

HooksOf = Callable[[Batch], Callable[[str, int], Hooks]]
"""The edits of a cut around a layer, for the prompts of a batch."""


class RecallEffects(Result):
    """What cuts do to the answers, by [cut, layer]; `layer` is the one that the layers of a window are named by.

    For each metric m of `probability`, `log_probability` and `logit`: `m` [cut, layer, fact] with the cut and `m_base`
    [fact] without; `m_effect` [cut, layer], the mean of the first less that of the second, with `m_low` and `m_high`,
    its 95 % bootstrap interval over facts. `change` [cut, layer, fact] is in % of the probability without the cut,
    `mean_change` [cut, layer] the ratio of means, with `mean_change_low` and `mean_change_high`; `relation_change`
    [relation, cut, layer] the same of each relation, and `relation_count` [relation, cut] of how many facts.

    `count` [cut]: the facts in its means; where a cut does not apply to a fact there is NaN. `first_layer` and
    `last_layer` [layer]: the layers of a window. `answer_tokens` [fact]: how many the answer has, of which the first is
    measured. `reason` [excluded]: why a fact is in no mean.
    """

    grid = CELL

    def strongest(self, cut: str) -> tuple[int, float]:
        """The layer around which a cut takes most from the answer, and the change there in %."""
        change = self.at("mean_change", cut=cut)
        if np.isnan(change).all():
            raise UsageError(f"The cut {cut!r} applies to none of the facts.")
        place = int(np.nanargmin(change))
        return int(self.axes["layer"][place]), float(change[place])

    def figure(self) -> "Figure":
        """The mean change of each cut, layer by layer."""
        from interp.plots import curves

        return curves(
            list(self.axes["layer"]),
            {str(cut): self.at("mean_change", cut=cut) for cut in self.axes["cut"]},
            title=self.headline(),
            x_title=f"layer ({self.window_said})",
            y_title="change of P(answer), %",
        )

    @property
    @abstractmethod
    def window_said(self) -> str:
        """How a window lies around the layer that names it."""

    def headline(self) -> str:
        """What was cut, in how many prompts."""
        asked, mean = self.settings, float(self["probability_base"].mean())
        if "prompt" in asked:
            return f"{self.title}: P({asked['answer']!r}) {mean:.3f} after {asked['prompt']!r}"
        return f"{self.title}: {len(self.axes['fact'])} known of {asked['facts']} facts, mean P(answer) {mean:.3f}"

    def summary(self) -> list[str]:
        """Each cut around the layer where it takes most from the answer, then relation by relation."""
        lines = [self.headline(), *(self._line(str(cut)) for cut in self.axes["cut"])]
        if self.settings.get("answer") != self.settings.get("prediction"):
            lines.insert(1, f"  the model's own answer is {self.settings['prediction']!r}")
        if len(self.axes["relation"]) > 1:
            lines += [self._relation(place) for place in range(len(self.axes["relation"]))]
        return [*lines, *first_token_lines(self), f"  {self.caution}"]

    def _line(self, cut: str) -> str:
        if not self.at("count", cut=cut):
            return f"  {cut:>12}  applies to none of the facts"
        layer, change = self.strongest(cut)
        where: dict[str, int | str] = {"cut": cut, "layer": layer}
        low, high = (float(self.at(f"mean_change_{end}", **where)) for end in ("low", "high"))
        interval = "" if np.isnan(low) else f" [{low:+.0f}, {high:+.0f}]"
        effect = float(self.at("log_probability_effect", **where))
        return f"  {cut:>12}  {change:+.0f} %{interval} at layer {layer}, log P {effect:+.2f}"

    def _relation(self, place: int) -> str:
        name, cut = self.axes["relation"][place], self.axes["cut"][0]
        change, count = self["relation_change"][place, 0], int(self["relation_count"][place, 0])
        if count == 0:
            return f"  {name}: {cut} applies to none of its facts"
        layer = int(np.nanargmin(change))
        return f"  {name} ({count}): {cut} {change[layer]:+.0f} % at layer {self.axes['layer'][layer]}"


@dataclass(frozen=True)
class Effects:
    """Every metric with each cut around each layer, [cut, layer, fact], and without any, [fact]; NaN where none is."""

    values: Mapping[str, np.ndarray]
    base: Mapping[str, np.ndarray]

    @property
    def there(self) -> np.ndarray:
        """Which cuts apply to which facts, [cut, fact]."""
        return ~np.isnan(self.values["probability"]).any(1)

    @property
    def moved(self) -> dict[str, np.ndarray]:
        """What each cut does to each metric of each fact."""
        return {name: values - self.base[name] for name, values in self.values.items()}

    def arrays(self, relations: Sequence[str], *, seed: int) -> Arrays:
        """All that a result holds of them; `relations` are those of the facts, [fact]."""
        found: dict[str, tuple[object, Sequence[str]]] = {"count": (self.there.sum(1), ("cut",))}
        one = np.ones(len(relations))
        for name, moved in self.moved.items():
            found[name] = self.values[name], (*CELL, "fact")
            found[f"{name}_base"] = self.base[name], ("fact",)
            mean, low, high = averaged(moved, one, self.there, seed=seed)
            found |= {f"{name}_effect": (mean, CELL), f"{name}_low": (low, CELL), f"{name}_high": (high, CELL)}
        return {**found, **self._changes(relations, seed)}

    def _changes(self, relations: Sequence[str], seed: int) -> Arrays:
        """Changes of the probability in %: of each fact, on average, and by relation."""
        moved, base = 100 * self.moved["probability"], self.base["probability"]
        own = [np.array([each == name for each in relations]) for name in dict.fromkeys(relations)]
        members = [self.there & each for each in own]
        found: dict[str, tuple[object, Sequence[str]]] = {
            "change": (moved / base, (*CELL, "fact")),
            "relation_count": (np.stack([each.sum(1) for each in members]), ("relation", "cut")),
        }
        everywhere = averaged(moved, base, self.there, seed=seed)
        by_relation = [
            np.stack(ends) for ends in zip(*(averaged(moved, base, each, seed=seed) for each in members), strict=True)
        ]
        for end, mean, each in zip(ENDS, everywhere, by_relation, strict=True):
            found[f"mean_change{end}"] = mean, CELL
            found[f"relation_change{end}"] = each, ("relation", *CELL)
        return found


def averaged(
    moved: np.ndarray, base: np.ndarray, there: np.ndarray, *, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of `moved` [cut, layer, fact] over mean of `base` [fact], over the facts that are `there` [cut, fact].

    With its 95 % bootstrap interval, each [cut, layer]; NaN where there is no fact, the interval where there is one.
    """
    found = np.full((3, *moved.shape[:2]), np.nan)
    for cut, members in enumerate(there):
        if members.any():
            chosen, below = moved[cut][:, members], base[members]
            found[:, cut] = chosen.mean(-1) / below.mean(), *ratio_interval(chosen, below, seed=seed)
    return found[0], found[1], found[2]


def swept(
    model: "Transformer",
    recalls: Recalls,
    cuts: Sequence[str],
    layers: Windows,
    hooks_of: HooksOf,
    *,
    budget: int,
    shortcuts: bool,
    progress: Progress | None,
) -> Effects:
    """Run every cut around every layer, one sweep a batch of prompts."""
    shape, cells = (len(cuts), len(layers.by_name), len(recalls.asked)), len(cuts) * len(layers.by_name)
    values, base = ({name: np.full(size, np.nan) for name in METRICS} for size in (shape, shape[-1:]))
    before = 0

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(before * cells + done, shape[-1] * cells)

    for batch in recalls.batches(model, budget):
        answers = [each.answer for each in batch.recalls]
        measured = {name: getattr(metrics, name)(answers) for name in METRICS}
        found = Replay(
            model,
            batch.tokens,
            Sweep({"cut": list(cuts), "layer": list(layers.by_name)}, hooks_of(batch)),
            measured,
            mask=batch.mask,
            texts={"fact": len(answers)},
            budget=budget,
            shortcuts=shortcuts,
        ).run(progress=told)
        for name in METRICS:
            values[name][..., batch.places] = found[name].values
            base[name][batch.places] = found.base[name].values
        before += len(answers)
        told(0, 0)
    return Effects(values, base)
