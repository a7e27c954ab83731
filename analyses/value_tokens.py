"""Value vectors in words: which tokens each memory of an FFN layer speaks for and against, whatever the text.

A neuron writes its value v_i, a row of W_out, times its coefficient. The tokens of the highest and lowest scores of v_i
over the vocabulary (`projection.py`) name what it promotes where the coefficient is positive; where it is negative, as
it may be in a gated FFN, it promotes the lowest. By default the gain of the final norm is folded in, so that tokens are
ordered as v_i moves their logits; with final_norm=None they are ordered by the bare product of the papers.

Papers: Geva et al. 2021, "Transformer feed-forward layers are key-value memories" (arXiv 2012.14913); Geva et al. 2022,
"Transformer feed-forward layers build predictions by promoting concepts in the vocabulary space" (arXiv 2203.14680).

What it does NOT tell: when a value is written (`triggers.py` shows that), nor what later layers make of it. In lower
layers many values speak for no words that have anything in common.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.analyses.ffn_values import as_added, chosen_layers, chosen_memories, value_vectors
from interp.analyses.neurons import names_within
from interp.analyses.projection import FinalNorm, Projection, project
from interp.analyses.vocabulary import token_texts
from interp.named import NamedArray
from interp.results import Result, provenance
from interp.selection import Index

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

SHOWN = 4  # words of a neuron in a summary


class ValueTokens(Result, kind="memories.values"):
    """The words of value vectors by themselves: `top_*` and `bottom_*` [neuron, rank], `value_norm` [neuron].

    Neurons are named as within their layer: by number, in a mixture `5.17` and `shared.25`.
    """

    grid = ("neuron", "rank")
    title = "Value vectors in words"
    caution = "Where a neuron's coefficient is negative, it promotes the bottom tokens."

    def figure(self) -> "Figure":
        """The score of each neuron's top token."""
        from interp.plots import ranked_bars, visible

        first = zip(self.axes["neuron"], self["top_token"][:, 0], strict=True)
        names = [f"{self.settings['layer']}.{name}  {visible(str(top))}" for name, top in first]
        title = f"{self.title}, layer {self.settings['layer']}"
        return ranked_bars(names, {"top": self["top_score"][:, 0]}, title=title, metric="score", label="neuron")

    def summary(self) -> list[str]:
        """The first words of each value vector, at both ends."""
        lines = [f"{self.title}, layer {self.settings['layer']}"]
        for place, name in enumerate(self.axes["neuron"]):
            top, bottom = (" ".join(map(repr, self[f"{end}_token"][place][:SHOWN])) for end in ("top", "bottom"))
            lines.append(f"  {self.settings['layer']}.{name}: top {top} · bottom {bottom}")
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def value_tokens(
    model: "Transformer",
    *,
    layer: int,
    neurons: Index | None = None,
    top_k: int = 10,
    final_norm: FinalNorm | None = "gain",
    max_bytes: int = 64 * 2**20,
) -> ValueTokens:
    """The words that the value vectors of one layer speak for and against, whatever the text.

    `neurons` None means all; in a mixture they count expert by expert (expert · d_expert + neuron), those of the shared
    expert behind the others, as `neurons.memory_of` does for a name. `final_norm` "gain"
    folds the gain of the final norm in, None is the bare product of Geva et al. Raises `UsageError` for a layer or
    neurons that do not exist.
    """
    (place,) = chosen_layers(model, layer)
    memories = chosen_memories(model, place, neurons)
    values = value_vectors(model, place, memories)
    projected = project(model, as_added(model, place, values), top_k=top_k, final_norm=final_norm, max_bytes=max_bytes)
    return ValueTokens(
        arrays={
            **word_arrays(model, projected, ("top", "bottom"), {"neuron": len(memories)}, "rank"),
            "value_norm": NamedArray(values.float().norm(dim=-1).cpu().numpy(), ("neuron",)),
        },
        axes={"neuron": names_within(model.config, place, memories), "rank": range(1, top_k + 1)},
        settings={"layer": place, "top_k": top_k, "final_norm": final_norm},
        provenance=provenance(model.provenance),
    )


def word_arrays(
    model: "Transformer", found: Projection, ends: tuple[str, str], shape: Mapping[str, int], last: str
) -> dict[str, NamedArray]:
    """Ids, texts and scores of the strongest tokens at both ends, under two names, over the axes `shape` and `last`."""
    axes, sizes = (*shape, last), (*shape.values(), -1)
    arrays = {}
    for end, ids, scores in (
        (ends[0], found.top_id, found.top_score),
        (ends[1], found.bottom_id, found.bottom_score),
    ):
        texts = np.array(token_texts(model, ids.flatten().tolist()), dtype=object)
        arrays[f"{end}_id"] = NamedArray(ids.reshape(sizes).cpu().numpy(), axes)
        arrays[f"{end}_token"] = NamedArray(texts.reshape(sizes), axes)
        arrays[f"{end}_score"] = NamedArray(scores.reshape(sizes).cpu().numpy(), axes)
    return arrays
