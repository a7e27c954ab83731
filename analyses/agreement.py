"""Do keys and values agree? A neuron that fires on prefixes of "… of Paris" could be one that writes "Paris".

For neuron i let t_i be the token that follows its top trigger (the place of its largest coefficient in a corpus), and
a_i the top token of its value. Over the neurons of a layer,

    agreement = mean_i [a_i = t_i]        in_any = mean_i [a_i follows any of i's top-k triggers]

At the other end of a gated neuron signs turn: where the smallest coefficient is below 0 the value is written with a
minus, so that its BOTTOM token is compared with what follows the trigger. Neurons whose coefficient has the other sign
at that end, and triggers that nothing follows, are not counted; `count` says how many are.

Frequent tokens agree by chance. `chance` is exact: the mean over all pairings of the values of these neurons with the
triggers of OTHER neurons of the layer, what shuffling them without end would come to.

Paper: Geva et al. 2021, "Transformer feed-forward layers are key-value memories" (arXiv 2012.14913): near zero in lower
layers, up to a few per cent in upper ones, far above chance.

What it does NOT tell: that a neuron predicts what follows its triggers. A value promotes many tokens, and its top one
is a harsh test; neurons of lower layers write what later ones read, and not words.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.analyses.ffn_values import as_added, value_vectors
from interp.analyses.projection import FinalNorm, Projection, project
from interp.analyses.triggers import ENDS, Triggers
from interp.errors import UsageError
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

GRID = ("layer", "end")


class Agreement(Result, kind="memories.agreement"):
    """Shares of the neurons of each layer, [layer, end]: `agreement`, `in_any`, and `chance`, `chance_in_any` for both.

    `count` is the number of neurons they are shares of; chances are NaN below two, shares below one.
    """

    grid = GRID
    title = "Key/value agreement"
    caution = "Agreement of the top token is rare even where values make sense; compare it with chance, not with 1."

    def figure(self) -> "Figure":
        """Agreement and chance by layer, at the end of the largest coefficients."""
        from interp.plots import curves

        series = {name: self.at(name, end="largest") for name in ("agreement", "chance", "in_any", "chance_in_any")}
        named = {name.replace("_", " "): values for name, values in series.items()}
        title = f"{self.title}: the value's top token follows the key's top trigger"
        return curves(self.axes["layer"], named, title=title, x_title="layer", y_title="share of neurons")

    def summary(self) -> list[str]:
        """The share of each layer beside chance."""
        lines = [
            f"{self.title}: the value's top token follows the top trigger (any of the top {self.settings['top_k']})"
        ]
        for place, layer in enumerate(self.axes["layer"]):
            one, chance, some, by_luck = (
                float(self[name][place, 0]) for name in ("agreement", "chance", "in_any", "chance_in_any")
            )
            lines.append(f"  layer {layer}: {one:.2%} (chance {chance:.2%}), any {some:.2%} (chance {by_luck:.2%})")
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def agreement(
    model: "Transformer",
    triggers: Triggers,
    *,
    final_norm: FinalNorm | None = "gain",
    max_bytes: int = 64 * 2**20,
) -> Agreement:
    """How often values speak for what follows the triggers of their keys, layer by layer.

    `triggers` are those that `find_triggers` found in this model; `final_norm` None is the bare product of the paper.
    Raises `UsageError` for triggers of a model with other weights.
    """
    theirs, ours = (facts.get("weights_sha256") for facts in (triggers.provenance, model.provenance))
    if theirs != ours:
        raise UsageError("These triggers were found in a model with other weights; find them again in this one.")
    memories = triggers["memory"].tolist()
    rows = []
    layers = [int(layer) for layer in triggers.axes["layer"]]
    for layer in layers:
        values = as_added(model, layer, value_vectors(model, layer, memories))
        words = project(model, values, top_k=1, final_norm=final_norm, max_bytes=max_bytes)
        rows.append([_shares(*_compared(triggers, words, layer, end)) for end in ENDS])
    names = ("agreement", "chance", "in_any", "chance_in_any", "count")
    found = np.array(rows)
    arrays = {name: (found[..., index], GRID) for index, name in enumerate(names)}
    return Agreement(
        arrays={**arrays, "count": (found[..., -1].astype(np.int64), GRID)},
        axes={"layer": layers, "end": ENDS},
        settings={**triggers.settings, "final_norm": final_norm},
        provenance=provenance(triggers.provenance),
    )


def _compared(triggers: Triggers, words: Projection, layer: int, end: str) -> tuple[np.ndarray, np.ndarray]:
    """The value's token [neuron] and those that follow the triggers [neuron, rank], of the neurons that count."""
    following = triggers.next_ids(layer=layer, end=end)
    coefficient = triggers.at("coefficient", layer=layer, end=end)
    smallest = end == ENDS[1]
    signed = np.nan_to_num(-coefficient if smallest else coefficient) > 0
    token = (words.bottom_id if smallest else words.top_id)[:, 0].cpu().numpy()
    counted = signed[:, 0] & (following[:, 0] >= 0)
    return token[counted], np.where(signed, following, -1)[counted]


def _shares(token: np.ndarray, following: np.ndarray) -> tuple[float, float, float, float, int]:
    """Agreement with the first trigger and its chance, with any of them and its chance, and how many neurons."""
    first, any_of = following[:, :1], [np.unique(row[row >= 0]) for row in following]
    return (*_share(token, list(first)), *_share(token, any_of), len(token))


def _share(token: np.ndarray, sets: list[np.ndarray]) -> tuple[float, float]:
    """The mean of [token i in set i], and that of [token i in set j] over all j ≠ i."""
    count = len(token)
    if not count:
        return np.nan, np.nan
    own = sum(one in some for one, some in zip(token, sets, strict=True))
    tokens, times = np.unique(np.concatenate(sets), return_counts=True)  # in how many sets each token is
    held = dict(zip(tokens.tolist(), times.tolist(), strict=True))
    everywhere = sum(held.get(one, 0) for one in token.tolist())
    return own / count, (everywhere - own) / (count * (count - 1)) if count > 1 else np.nan
