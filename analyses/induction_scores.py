"""What a scoring of heads on repeated texts returns: means over texts, how sure they are, and the pictures of them."""

from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.intervals import bracketed, mean_interval, ratio_interval, standard_error
from interp.analyses.pattern_scores import SCORES
from interp.analyses.repeated import texts_read
from interp.named import NamedArray
from interp.results import Result

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

ONE_LAYER = (
    "One layer: no head can read what an earlier one wrote, so none can find by composition what followed a token."
)


class InductionScores(Result, kind="induction.heads"):
    """Five scores a head, [layer, head], in the mean over texts, and how sure they are.

    Beside each stand its standard error (`…_se`), the bounds of its 95 % interval (`…_low`, `…_high`) and the value of
    every text (`…_by_text`, [layer, head, text]).
    `prefix_matching_sink_free` is a ratio, resampled as one. `sink` is the first-token score. `uniform` [score] is what
    even attention would score; `tokens` [text, position] are the ids that were read, −1 behind shorter texts. Errors
    and bounds are NaN for a single text, and bounds of a ratio where a head never looks off the first token.
    """

    grid = ("layer", "head")
    title = "Induction heads"
    caution = "A score says where a head looks, not what it does: check with an ablation before calling it a cause."

    def ranked(self, count: int = 10, metric: str = "prefix_matching") -> "pandas.DataFrame":
        """The highest heads by one score, with all their scores."""
        spread = [f"prefix_matching_{name}" for name in ("sink_free", "se", "low", "high")]
        return self.top(metric, count)[["layer", "head", *SCORES, *spread]]

    @property
    def notes(self) -> list[str]:
        """What a reader of these scores should know about this model."""
        return [ONE_LAYER] if len(self.axes["layer"]) == 1 else []

    def figure(self, metric: str = "prefix_matching") -> "Figure":
        """One score of all heads as a heat map."""
        from interp.plots import head_heatmap

        words = metric.replace("_", " ")
        title = f"{words.capitalize()} of every head, {self._text()}"
        return head_heatmap(self[metric], title=title, metric=words, layers=self.axes["layer"])

    def ranked_figure(self, count: int = 10) -> "Figure":
        """The five scores of the heads that match prefixes best, as bars with standard errors."""
        from interp.plots import ranked_bars

        best = self.top("prefix_matching", count)
        return ranked_bars(
            [f"{layer}.{head}" for layer, head in zip(best["layer"], best["head"], strict=True)],
            {score.replace("_", " "): best[score].to_numpy() for score in SCORES},
            errors={score.replace("_", " "): best[f"{score}_se"].to_numpy() for score in SCORES},
            title=f"Where the best prefix-matching heads look, {self._text()}",
            metric="mean attention",
            baseline=("uniform", float(self.at("uniform", score="prefix_matching"))),
        )

    def _text(self) -> str:
        return texts_read(self.settings)

    def summary(self) -> list[str]:
        """The best heads, one a line, and how common they are."""
        matching, even = self["prefix_matching"], float(self.at("uniform", score="prefix_matching"))
        lines = [f"{self.title}: {self._text()}, prefix {self.settings.get('prefix')}"]
        lines += [
            f"  {f'{row.layer}.{row.head}':>6}  prefix matching {row.prefix_matching:.3f}"
            f"{bracketed(row.prefix_matching_low, row.prefix_matching_high, 3)}  previous {row.previous_token:.3f}"
            f"  duplicate {row.duplicate_token:.3f}  current {row.current_token:.3f}  sink {row.sink:.3f}"
            for row in self.ranked(8).itertuples()
        ]
        above = [f"{int((matching > level).sum())} above {level}" for level in (0.4, 0.2)]
        lines.append(f"  of {matching.size} heads: {', '.join(above)}; uniform attention would score {even:.4f}")
        return [*lines, *(f"  {note}" for note in self.notes), f"  {self.caution}"]


def score_arrays(by_text: dict[str, np.ndarray], seed: int) -> dict[str, NamedArray]:
    """Means over texts, their errors and intervals, of the scores [layer, head, text] of every text.

    `by_text` also holds `sink_free`, the share of attention that is not on the first token, for the ratio of sums.
    """
    grid = ("layer", "head")
    arrays: dict[str, NamedArray] = {}
    values = {name: each.astype(np.float64) for name, each in by_text.items()}
    for score in SCORES:
        arrays[score] = NamedArray(values[score].mean(-1), grid)
        arrays[f"{score}_se"] = NamedArray(standard_error(values[score]), grid)
        arrays |= _bounds(score, mean_interval(values[score], seed=seed))
    matched, free = values["prefix_matching"].sum(-1), values["sink_free"].sum(-1)
    # a head with no attention off the sink has nothing that could match: 0, not 0/0
    ratio = np.divide(matched, free, out=np.zeros_like(matched), where=free > 0)
    name = "prefix_matching_sink_free"
    arrays[name] = NamedArray(ratio, grid)
    arrays |= _bounds(name, ratio_interval(values["prefix_matching"], values["sink_free"], seed=seed))
    return arrays | {f"{score}_by_text": NamedArray(by_text[score], (*grid, "text")) for score in SCORES}


def _bounds(name: str, bounds: tuple[np.ndarray, np.ndarray]) -> dict[str, NamedArray]:
    low, high = bounds
    return {f"{name}_low": NamedArray(low, ("layer", "head")), f"{name}_high": NamedArray(high, ("layer", "head"))}
