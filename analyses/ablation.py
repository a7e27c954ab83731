"""What is lost without a set of components, and without as many others of their kind?

Components (heads, KV heads, neurons, experts, whole sublayers) are taken away by putting something else in the place of
what they give to the rest of the model, in every text at once:

    mean        what they give on average over a reference set of texts, position by position or over all tokens
    resample    what they give in another text, drawn at random
    zero        nothing

    effect(set) = mean over texts of M without the set − M with everything

Beside it stand the effects of random sets of the same kind, size and layers, which hold none of those tested: their
mean and spread say how much of the effect is that of taking anything away. Zero takes a component out of its usual
range, so that part of what it shows is the shock; mean and resample keep it there. A KV head is taken away as its keys,
before rotation, and its values. An expert is taken away where it is chosen, the others keep their weights; its mean is
over the tokens that chose it, and nothing takes the place of an expert that no reference token chose.

Papers: Chan et al. 2022, Causal scrubbing, for resampling; Wang et al. 2022, Interpretability in the Wild (arXiv
2211.00593), for the mean over other texts; Zhang & Nanda 2024 (arXiv 2309.16042) on what to report.

What it does NOT tell: what a component does when others are away too; that one which costs nothing does nothing, since
others may do the same work; or how it does what it does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.components import Component, components_of, control_sets, possible_controls
from interp.analyses.removal import MeanOver, Method, removal
from interp.errors import UsageError
from interp.models.checks import check_tokens
from interp.models.config import ModelConfig
from interp.models.replay import Metric, Progress, Replay, Sweep, Swept
from interp.results import Result, provenance
from interp.selection import Index

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Components = Sequence[Component | str]


class Ablation(Result, kind="ablation"):
    """What it costs to take sets of components away, for every metric `m`.

    `m` [removed, text] is its value without the set, `m_base` [text] with everything, `m_control` [removed, draw, text]
    without each control set. `m_effect` [removed] and `m_control_effect` [removed, draw] are means over texts less that
    of `m_base`; `m_control_mean` and `m_control_std` [removed] the controls' mean and standard deviation, `m_excess`
    the effect less that mean, and `m_deviations` the excess in those standard deviations. What does not exist is NaN:
    control sets beyond the number that there are, a deviation of fewer than two of them.

    `components` [removed] and `control_components` [removed, draw] name the sets, `controls` [removed] counts the
    control sets, and `controls_are_all` says whether no others exist.
    """

    grid = ("removed",)
    title = "Ablation"
    caution = "What costs nothing may still do something: others may do the same work."

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, in order."""
        return list(self.settings["metrics"])  # type: ignore[call-overload]  # a record

    def figure(self, metric: str | None = None) -> "Figure":
        """Each set's effect beside that of its controls, whose standard deviation is drawn; the first metric's."""
        from interp.plots import ranked_bars

        name = self.metrics[0] if metric is None else metric
        controls = "controls, mean and standard deviation"
        return ranked_bars(
            [str(label) for label in self.axes["removed"]],
            {"the set": self[f"{name}_effect"], controls: self[f"{name}_control_mean"]},
            errors={controls: self[f"{name}_control_std"]},
            title=f"{self.title} ({self.said}): {name}, {self[name].shape[1]} texts",
            metric=f"effect on {name}",
            label="removed",
        )

    @property
    def said(self) -> str:
        """The method in words: `mean over texts at each position`."""
        asked = self.settings
        over = {"texts": "over texts at each position", "tokens": "over all tokens"}[str(asked["mean_over"])]
        return f"mean {over}" if asked["method"] == "mean" else str(asked["method"])

    def summary(self) -> list[str]:
        """One line a set and metric: its effect, and that of the controls."""
        lines = [f"{self.title} ({self.said}): {self[self.metrics[0]].shape[1]} texts, effects are means over them"]
        for name in self.metrics:
            lines.append(f"  {name}: {float(self[f'{name}_base'].mean()):.3f} with everything")
            lines += [self._line(name, place) for place in range(len(self.axes["removed"]))]
        return [*lines, f"  {self.caution}"]

    def _line(self, name: str, place: int) -> str:
        effect = float(self[f"{name}_effect"][place])
        return f"    {self.axes['removed'][place]:>12}  {effect:+.3f}   controls {self._beside(name, place)}"

    def _beside(self, name: str, place: int) -> str:
        """What the control sets of one set cost, how many they are, and how far the set lies from them."""
        mean, std, deviations = (
            float(self[f"{name}_{what}"][place]) for what in ("control_mean", "control_std", "deviations")
        )
        count = int(self["controls"][place])
        sets = f"all {count} that exist" if self["controls_are_all"][place] else f"{count} random sets"
        if count == 0:
            return f"none ({sets})"
        if np.isnan(deviations):
            return f"{mean:+.3f} ({sets})"
        return f"{mean:+.3f} ± {std:.3f} ({sets}), {deviations:+.1f} deviations away"


@torch.no_grad()
def ablate(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    components: Components | Mapping[str, Components],
    *,
    metric: Metric | Mapping[str, Metric],
    method: Method = "mean",
    reference: Int[Tensor, "text ref_pos"] | None = None,
    mean_over: MeanOver = "texts",
    controls: int = 20,
    seed: int = 0,
    mask: Bool[Tensor, "batch pos"] | None = None,
    reference_mask: Bool[Tensor, "text ref_pos"] | None = None,
    positions: Index | None = None,
    read: Index = -1,
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Ablation:
    """Take a set of components away, or several sets by name, one after the other; and random control sets of each.

    `components`: `Component`s or their names, such as `["18.6", "mlp 3"]`. `metric`: one, or several by name.
    `reference`: the texts whose means or values are put in, the texts themselves if None; `mean_over` says whether
    each position has its own mean, over texts, or all share one, over all tokens. `controls`: how many sets of the
    same kind, size and layers are drawn, none of them twice; all that exist, where they are fewer. `mask` and
    `reference_mask` mark real tokens; `positions`: columns in which components are taken away, all if None. `read`,
    `budget` and `shortcuts` as in `Replay`: everything is one sweep. Hooks of an active `model.hooks` context act on
    the reference, too.

    Raises `UsageError` for components that the model does not have, a reference that does not fit, and one text that
    has no other to be replaced from.
    """
    check_tokens(tokens, mask, model.config)
    if type(controls) is not int or controls < 0 or type(seed) is not int or seed < 0:
        raise UsageError(f"Expected whole numbers from 0 on; came controls={controls!r}, seed={seed!r}.")
    by_name = components if isinstance(components, Mapping) else {"the set": components}
    sets = {str(label): components_of(model, named) for label, named in by_name.items()}
    if not sets:
        raise UsageError("There is no set of components; name at least one.")
    drawn = [
        control_sets(model.config, tested, controls, seed=(seed, number)) for number, tested in enumerate(sets.values())
    ]
    runs = [run for tested, others in zip(sets.values(), drawn, strict=True) for run in (tested, *others)]
    taken = removal(
        model,
        tokens,
        list(dict.fromkeys(component for run in runs for component in run)),
        method=method,
        reference=reference,
        mean_over=mean_over,
        mask=mask,
        reference_mask=reference_mask,
        positions=positions,
        seed=seed,
        budget=budget,
    )
    sweep = Sweep({"run": range(len(runs))}, lambda run: taken.hooks(runs[run]))
    texts = {"text": len(tokens)}
    replay = Replay(model, tokens, sweep, metric, mask=mask, read=read, texts=texts, budget=budget, shortcuts=shortcuts)
    swept = replay.run(progress=progress, cancelled=cancelled)
    return Ablation(
        arrays={**_labels(model.config, list(sets.values()), drawn, controls), **_arrays(swept, drawn)},
        axes={"removed": list(sets)},
        settings={
            "metrics": {name: repr(each) for name, each in replay.metrics.items()},
            "method": method,
            "mean_over": mean_over,
            "reference_texts": None if reference is None else len(reference),
            "controls": controls,
            "positions": None if positions is None else taken.columns,
            "read": replay.read,
            "seed": seed,
            "shortcuts": shortcuts,
        },
        provenance=provenance(model.provenance, tokens=tokens.cpu(), seed=seed),
    )


Drawn = Sequence[Sequence[Sequence[Component]]]
"""Control sets: [removed][draw], of different lengths."""


def _labels(
    config: ModelConfig, tested: Sequence[Sequence[Component]], drawn: Drawn, asked: int
) -> dict[str, tuple[object, Sequence[str]]]:
    """Names and numbers of the sets."""
    most = max(map(len, drawn))
    names = [[", ".join(map(str, each)) for each in sets] + [""] * (most - len(sets)) for sets in drawn]
    table = np.array(names, dtype=object).reshape(len(drawn), most)
    return {
        "components": ([", ".join(map(str, each)) for each in tested], ("removed",)),
        "control_components": (table, ("removed", "draw")),
        "controls": ([len(sets) for sets in drawn], ("removed",)),
        "controls_are_all": ([possible_controls(config, each) <= asked for each in tested], ("removed",)),
    }


def _arrays(swept: Swept, drawn: Drawn) -> dict[str, tuple[object, Sequence[str]]]:
    """Every metric's arrays; the runs are each set followed by its controls."""
    counts = [len(sets) for sets in drawn]
    first = np.cumsum([0, *(count + 1 for count in counts)])[:-1]
    found: dict[str, tuple[object, Sequence[str]]] = {}
    for name, named in swept.values.items():
        values, base = named.values.astype(np.float64), swept.base[name].values.astype(np.float64)
        control = np.full((len(drawn), max(counts), base.size), np.nan)
        for place, (start, count) in enumerate(zip(first, counts, strict=True)):
            control[place, :count] = values[start + 1 : start + 1 + count]
        effect, control_effect = (values[first] - base).mean(-1), (control - base).mean(-1)
        mean, std = _mean_and_std(control_effect, counts)
        excess = effect - mean
        deviations = np.divide(excess, std, out=np.full_like(excess, np.nan), where=std > 0)
        found |= {
            name: (values[first], ("removed", "text")),
            f"{name}_base": (base, ("text",)),
            f"{name}_control": (control, ("removed", "draw", "text")),
            f"{name}_effect": (effect, ("removed",)),
            f"{name}_control_effect": (control_effect, ("removed", "draw")),
            f"{name}_control_mean": (mean, ("removed",)),
            f"{name}_control_std": (std, ("removed",)),
            f"{name}_excess": (excess, ("removed",)),
            f"{name}_deviations": (deviations, ("removed",)),
        }
    return found


def _mean_and_std(effects: np.ndarray, counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Over each row's own draws; NaN where there are too few of them."""
    rows = [row[:count] for row, count in zip(effects, counts, strict=True)]
    mean = [row.mean() if len(row) else np.nan for row in rows]
    std = [row.std(ddof=1) if len(row) > 1 else np.nan for row in rows]
    return np.array(mean), np.array(std)
