"""What is lost without a set of components, and without as many others of their kind?

Components (heads, KV heads, neurons, experts, whole sublayers) are taken away by putting something else in the place of
what they give to the rest of the model, in every text at once:

    mean                 what they give on average over a reference set of texts, by position or over all tokens
    resample             what they give in another text, drawn at random
    zero                 nothing
    pattern_preserving   nothing, while all heads of the model look where they look with everything in place

    effect(set) = mean over texts of M without the set − M with everything

Beside it stand the effects of random sets of the same kind, size and layers, which hold none of those tested: their
mean and spread say how much of the effect is that of taking anything away. Zero takes a component out of its usual
range, so that part of what it shows is the shock; mean and resample keep it there. Preserving patterns leaves out what
a component does to where later heads look, and so shows what it writes for others to read on. A KV head is taken away
as its keys, before rotation, and its values; where patterns are preserved, its keys change nothing. An expert is taken
away where it is chosen, the others keep their weights; its mean is over the tokens that chose it, and nothing takes the
place of an expert that no reference token chose.

Papers: Chan et al. 2022, Causal scrubbing, for resampling; Wang et al. 2022, Interpretability in the Wild (arXiv
2211.00593), for the mean over other texts; Olsson et al. 2022, In-context Learning and Induction Heads (arXiv
2209.11895), for keeping patterns; Zhang & Nanda 2024 (arXiv 2309.16042) on what to report.

What it does NOT tell: what a component does when others are away too; that one which costs nothing does nothing, since
others may do the same work; or how it does what it does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.ablation_sets import Controlled, Sets
from interp.analyses.components import Component, components_of
from interp.analyses.reference_values import MeanOver
from interp.analyses.removal import Method, removal
from interp.models.checks import check_tokens
from interp.models.replay import Metric, Progress, Replay, Sweep
from interp.results import provenance
from interp.selection import Index

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Components = Sequence[Component | str]


def said(method: str) -> str:
    """A method in words."""
    return method.replace("_", "-")


class Ablation(Controlled, kind="ablation"):
    """What it costs to take sets of components away, for every metric `m`.

    `m` [removed, text] is its value without the set, `m_base` [text] with everything, `m_control` [removed, draw, text]
    without each control set. `m_effect` [removed] and `m_control_effect` [removed, draw] are means over texts less that
    of `m_base`; `m_low` and `m_high` [removed] the 95 % interval over texts of the effect; `m_control_mean` and
    `m_control_std` [removed] the controls' mean and standard deviation, `m_excess` the effect less that mean, and
    `m_deviations` the excess in those standard deviations. What does not exist is NaN: an interval of one text, control
    sets beyond the number that there are, a deviation of fewer than two of them.

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
        return f"mean {over}" if asked["method"] == "mean" else said(str(asked["method"]))

    def summary(self) -> list[str]:
        """One line a set and metric: its effect, and that of the controls."""
        lines = [f"{self.title} ({self.said}): {self[self.metrics[0]].shape[1]} texts, effects are means over them"]
        for name in self.metrics:
            lines.append(f"  {name}: {float(self[f'{name}_base'].mean()):.3f} with everything")
            lines += [self._line(name, place) for place in range(len(self.axes["removed"]))]
        return [*lines, f"  {self.caution}"]

    def _line(self, name: str, place: int) -> str:
        label = self.axes["removed"][place]
        return f"    {label:>12}  {self.interval(name, place)}   controls {self.beside(name, place)}"


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
    by_name = components if isinstance(components, Mapping) else {"the set": components}
    tested = {str(label): components_of(model, named) for label, named in by_name.items()}
    sets = Sets.drawn(model.config, tested, controls, seed=seed)
    taken = removal(
        model,
        tokens,
        sets.components,
        method=method,
        reference=reference,
        mean_over=mean_over,
        mask=mask,
        reference_mask=reference_mask,
        positions=positions,
        seed=seed,
        budget=budget,
    )
    runs = sets.runs
    replay = Replay(
        model,
        tokens,
        Sweep({"run": range(len(runs))}, lambda run: taken.hooks(runs[run])),
        metric,
        hooks=taken.held,
        mask=mask,
        read=read,
        texts={"text": len(tokens)},
        budget=budget - taken.nbytes,
        shortcuts=shortcuts,
    )
    swept = replay.run(progress=progress, cancelled=cancelled)
    compared = [sets.compared(name, swept[name].values, swept.base[name].values) for name in replay.metrics]
    return Ablation(
        arrays={**sets.labels(), **{name: array for each in compared for name, array in each.items()}},
        axes={"removed": list(tested)},
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
