"""The value vectors of an FFN by number, in a dense layer and in a mixture of experts.

A memory is one neuron: its value is a row of W_out. In a dense layer memories are counted as neurons are; in a mixture
expert by expert, memory = expert · d_expert + neuron, those of the shared expert behind all others (`neurons.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.folded import written_through
from interp.analyses.neurons import memory_count
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.config import ModelConfig
    from interp.models.transformer import Transformer


def chosen_layers(model: "Transformer", layers: Index | None) -> list[int]:
    """The layers that are meant, from the start; None means all. Raises `UsageError` where one does not exist."""
    return indices(slice(None) if layers is None else layers, model.config.n_layers, "the layers")


def stored_values(model: "Transformer", layer: int) -> Float[Tensor, "*expert neuron d_model"]:
    """W_out of one layer as it is stored, a view; in a mixture that of the routed experts."""
    return model.layers[layer].mlp.weights()["W_out"].data


def memories_read(config: "ModelConfig", layer: int) -> int:
    """How many neurons of one layer write at a token: in a mixture those of the experts it chose, and the shared."""
    if not config.layer(layer).moe or config.moe is None:
        return config.d_mlp
    return config.moe.top_k * config.moe.d_expert + (config.moe.d_shared or 0)


def chosen_memories(model: "Transformer", layer: int, memories: Index | None) -> list[int]:
    """The memories of one layer that are meant; None means all. Raises `UsageError` where one does not exist."""
    count = memory_count(model.config, layer)
    return indices(slice(None) if memories is None else memories, count, f"the neurons of layer {layer}")


def value_vectors(model: "Transformer", layer: int, memories: Sequence[int]) -> Float[Tensor, "memory d_model"]:
    """The values of some memories of one layer, copied."""
    stored = stored_values(model, layer)
    wanted = torch.tensor(memories, dtype=torch.int64, device=stored.device)
    if stored.dim() == 2:
        return stored[wanted]
    experts, width, d_model = stored.shape
    routed = wanted < experts * width
    values, own = stored.new_empty(len(wanted), d_model), wanted[routed]
    values[routed] = stored[own // width, own % width]
    if not bool(routed.all()):
        values[~routed] = model.layers[layer].mlp.weights()["shared.W_out"].data[wanted[~routed] - experts * width]
    return values


def as_added(
    model: "Transformer", layer: int, vectors: Float[Tensor, "vector d_model"]
) -> Float[Tensor, "vector d_model"]:
    """Parts of an FFN's output as they reach the residual stream, up to one positive factor that they share.

    Where the output is normalised before it is added, that norm's gain turns every part; its divisor does not.
    """
    return written_through(model.layers[layer].ln2_post, vectors)
