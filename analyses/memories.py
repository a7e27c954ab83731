"""The FFN as key-value memories: which neurons write most at one token, and which words their values speak for.

An FFN's output is a sum over its neurons (see `sub_updates.py`),

    mlp.hook_out = Σ_i  w_i · m_i · v_i  (+ b_out)        m_i = act(x · gate key_i) · (x · up key_i), or act(x · key_i)

so that each layer adds sub-updates w_i · m_i · v_i to the residual stream. The dominant ones are those of the largest
|w_i · m_i| · ‖v_i‖. The coefficient of a gated FFN is SIGNED: a neuron whose up projection answers negatively writes
−v_i, and promotes the tokens at the BOTTOM of its value. So words are those of w_i · m_i · v_i, sign included: promoted
are the tokens whose logits it raises, suppressed those that it lowers, by the scores of `projection.py` (by default
with the gain of the final norm). The gate alone ranks neurons otherwise than the coefficient does.

`explained` [rank n] is 1 − ‖rest‖² / ‖all‖², all being the sum of the sub-updates and rest what the first n leave of
it: 1 if they are everything, below 0 where they overshoot what others take back.

Papers: Geva et al. 2021, "Transformer feed-forward layers are key-value memories" (arXiv 2012.14913); Geva et al. 2022,
"Transformer feed-forward layers build predictions by promoting concepts in the vocabulary space" (arXiv 2203.14680).

What it does NOT tell: that a dominant sub-update matters for what the model says. Others may cancel it, later layers
may turn it around, and a small one may be what decides; take the neuron away (`ablation.py`) to see.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.ffn_values import as_added, chosen_layers
from interp.analyses.neurons import Neuron
from interp.analyses.projection import FinalNorm, project
from interp.analyses.sub_updates import SubUpdates, points_read, sub_updates
from interp.analyses.value_tokens import word_arrays
from interp.analyses.vocabulary import token_texts
from interp.cache import ActivationCache, position_list
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance
from interp.selection import Index, indices

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

SHOWN = 4  # words of a neuron in a summary or a figure


class Memories(Result, kind="memories.prompt"):
    """The dominant sub-updates of each [layer, rank] at one token, rank 1 the largest.

    `name` is that of `neurons.py`, such as `12.345`, `3.5.17` or `3.shared.25`; `neuron` its number in that FFN.
    `weight` is the mixing weight (1 without experts), `coefficient` m, signed; `pre`, `pre_linear` the key matches of
    gate and up projection (the second NaN without a gate), `value_norm` ‖v‖, `dominance` |w · m| · ‖v‖, `explained` the
    share of the FFN's output up to this rank (NaN where it writes nothing).

    [layer, rank, word]: `promoted_token`, `promoted_id`, `promoted_score` and `suppressed_…`, strongest first. [layer]:
    `updates`, how many there are; `completeness_error`, the largest difference between their sum with the bias and
    `mlp.hook_out`, over the largest entry of that.
    """

    grid = ("layer", "rank")
    title = "FFN memories"
    caution = "A dominant sub-update need not matter for the answer: others may cancel it."

    def figure(self) -> "Figure":
        """The dominance of each sub-update, signed as its coefficient: all of one layer, or the first of each layer."""
        from interp.plots import ranked_bars, visible

        cells = self._cells()
        labels = [f"{self['name'][cell]}  {' │ '.join(map(visible, self._words('promoted', cell)))}" for cell in cells]
        signed = [float(np.copysign(self["dominance"][cell], self["coefficient"][cell])) for cell in cells]
        where = f"{visible(str(self['token']))} (position {self.settings['position']})"
        title = f"{self.title} at {where}"
        return ranked_bars(labels, {"dominance": signed}, title=title, metric="±|w·m|·‖v‖", label="neuron")

    def summary(self) -> list[str]:
        """The strongest sub-updates and what they promote."""
        lines = [f"{self.title} at {str(self['token'])!r} (position {self.settings['position']})"]
        for layer, rank in self._cells():
            words = " ".join(map(repr, self._words("promoted", (layer, rank))))
            lines.append(
                f"  {self['name'][layer, rank]}: m {self['coefficient'][layer, rank]:+.2f}, "
                f"dominance {self['dominance'][layer, rank]:.2f}, promotes {words}"
            )
        error = float(self["completeness_error"].max())
        return [*lines, f"  all sub-updates add up to the FFN's output within {error:.0e} of it", f"  {self.caution}"]

    def _cells(self) -> list[tuple[int, int]]:
        layers, ranks = self["dominance"].shape
        return [(0, rank) for rank in range(ranks)] if layers == 1 else [(layer, 0) for layer in range(layers)]

    def _words(self, kind: str, cell: tuple[int, int]) -> list[str]:
        return [str(word) for word in self[f"{kind}_token"][cell][:SHOWN]]


@torch.no_grad()
def ffn_memories(
    model: "Transformer",
    source: ActivationCache | Tensor | str,
    *,
    layer: Index | None = None,
    position: int = -1,
    top_k: int = 10,
    words: int = 10,
    row: int = 0,
    final_norm: FinalNorm | None = "gain",
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 64 * 2**20,
) -> Memories:
    """The `top_k` dominant sub-updates at one position, in one layer, several, or all (None).

    `source` is a text (the only case in which `prefix` is added), tokens [batch, pos], or a cache with the points of
    `sub_updates.points_read`; of a batch, `row` says which text. Negative positions and layers count from the end.
    `words` are kept of each sub-update at either end. Scores over the vocabulary take about `max_bytes`.

    Raises `UsageError` for layers, rows and positions that do not exist, and for more memories than a layer has.
    """
    layers = chosen_layers(model, layer)
    cache = source if isinstance(source, ActivationCache) else _record(model, source, layers, position, prefix)
    (text,) = indices(row, len(cache.tokens), "the texts of the batch")
    place = _place(cache, text, position)
    column = place if cache.positions is None else cache.positions.index(place)
    found = [sub_updates(model, cache, each, row=text, column=column) for each in layers]
    fewest = min(len(updates.neuron) for updates in found)
    if not 1 <= top_k <= fewest:
        raise UsageError(f"top_k is {top_k}; expected 1 to {fewest}, the neurons that write at this token.")
    ranked = [dominant(model, each, updates, top_k) for each, updates in zip(layers, found, strict=True)]
    written = torch.cat([vectors for _, vectors in ranked])
    projected = project(model, written, top_k=words, final_norm=final_norm, max_bytes=max_bytes)
    stated = prefix if isinstance(source, str) else "as given"
    ids = cache.tokens[text].tolist()
    return Memories(
        arrays={
            **_stacked([numbers for numbers, _ in ranked]),
            **word_arrays(model, projected, ("promoted", "suppressed"), {"layer": len(layers), "rank": top_k}, "word"),
            "updates": NamedArray([len(updates.neuron) for updates in found], ("layer",)),
            "completeness_error": NamedArray([updates.completeness_error for updates in found], ("layer",)),
            "token": NamedArray(np.array(token_texts(model, [ids[place]])[0], dtype=object)),
            "tokens": NamedArray(ids, ("text_position",)),
        },
        axes={"layer": layers, "rank": range(1, top_k + 1), "word": range(1, words + 1)},
        settings={"layer": layers, "position": place, "top_k": top_k, "final_norm": final_norm, "prefix": stated},
        provenance=provenance(model.provenance, tokens=ids, prefix=stated),
    )


def _record(
    model: "Transformer", source: Tensor | str, layers: list[int], position: int, prefix: PrefixPolicy
) -> ActivationCache:
    tokens = model.to_tokens(source, prefix=prefix) if isinstance(source, str) else source
    names = points_read(model, layers)
    return model.run_with_cache(tokens, names, positions=[position], stop_at_layer=max(layers) + 1)[1]


def _place(cache: ActivationCache, text: int, position: int) -> int:
    """The position from the start. Raises `UsageError` where it is outside, padding, or was not recorded."""
    chosen = position_list([position], cache.tokens.shape[1])
    assert chosen is not None
    (place,) = chosen
    if cache.positions is not None and place not in cache.positions:
        raise UsageError(f"Position {place} was not recorded; the cache has {cache.positions}.")
    if cache.mask is not None and not cache.mask[text, place]:
        raise UsageError(f"Position {place} of text {text} is padding; name one that holds a token.")
    return place


def dominant(
    model: "Transformer", layer: int, updates: SubUpdates, top_k: int
) -> tuple[dict[str, np.ndarray], Float[Tensor, "rank d_model"]]:
    """A layer's strongest sub-updates by the names of `Memories`, and what they add to the residual stream."""
    norms = updates.value.norm(dim=-1)
    strength = updates.amount.abs() * norms
    first = strength.sort(descending=True, stable=True).indices[:top_k]
    written = updates.amount[first, None] * updates.value[first]
    rest = (updates.sum - written.cumsum(0)).square().sum(-1)
    kept = {name: getattr(updates, name)[first] for name in ("neuron", "weight", "coefficient", "pre", "pre_linear")}
    kept |= {"value_norm": norms[first], "dominance": strength[first]}
    kept["explained"] = 1 - rest / updates.sum.square().sum()
    numbers = {name: values.cpu().numpy() for name, values in kept.items()}
    where = zip(updates.expert[first].tolist(), updates.neuron[first].tolist(), strict=True)
    numbers["name"] = np.array([str(Neuron.of(layer, ffn, index)) for ffn, index in where], object)
    return numbers, as_added(model, layer, written)


def _stacked(layers: list[dict[str, np.ndarray]]) -> dict[str, NamedArray]:
    return {name: NamedArray(np.stack([each[name] for each in layers]), ("layer", "rank")) for name in layers[0]}
