"""The value vectors of an FFN by number, in a dense layer and in a mixture of experts.

A memory is one neuron: its value is a row of W_out. In a dense layer memories are counted as neurons are; in a mixture
expert by expert, memory = expert · d_expert + neuron, and their names are "expert.neuron". The shared expert, which
every token passes through, is not counted here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from interp.analyses.folded import written_through
from interp.errors import UsageError
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.config import ModelConfig
    from interp.models.transformer import Transformer


def chosen_layers(model: "Transformer", layers: Index | None) -> list[int]:
    """The layers that are meant, from the start; None means all. Raises `UsageError` where one does not exist."""
    return indices(slice(None) if layers is None else layers, model.config.n_layers, "the layers")


def stored_values(model: "Transformer", layer: int) -> Float[Tensor, "*expert neuron d_model"]:
    """W_out of one layer as it is stored, a view."""
    return model.layers[layer].mlp.weights()["W_out"].data


def memories_read(config: "ModelConfig", layer: int) -> int:
    """How many neurons of one layer write at a token: in a mixture those of the experts it chose, and the shared."""
    if not config.layer(layer).moe or config.moe is None:
        return config.d_mlp
    return config.moe.top_k * config.moe.d_expert + (config.moe.d_shared or 0)


def chosen_memories(model: "Transformer", layer: int, memories: Index | None) -> list[int]:
    """The memories of one layer that are meant; None means all. Raises `UsageError` where one does not exist."""
    count = stored_values(model, layer)[..., 0].numel()
    return indices(slice(None) if memories is None else memories, count, f"the neurons of layer {layer}")


def memory_names(model: "Transformer", layer: int, memories: Sequence[int]) -> list[int] | list[str]:
    """What the memories are called: their number, or "expert.neuron"."""
    *experts, width, _ = stored_values(model, layer).shape
    return [f"{memory // width}.{memory % width}" for memory in memories] if experts else list(memories)


def memory_number(model: "Transformer", name: Sequence[int]) -> tuple[int, int]:
    """The layer and the memory that (layer, neuron) or (layer, expert, neuron) name. `UsageError` if there is none."""
    (layer,) = chosen_layers(model, name[0])
    *sizes, _ = stored_values(model, layer).shape
    if len(name) != 1 + len(sizes):
        form = "layer.expert.neuron" if len(sizes) > 1 else "layer.neuron"
        raise UsageError(f"{'.'.join(map(str, name))} names no neuron of layer {layer}; expected {form}.")
    for place, size, what in zip(reversed(name), reversed(sizes), ("the neurons", "the experts"), strict=False):
        indices(place, size, f"{what} of layer {layer}")
    return layer, name[-1] if len(sizes) == 1 else name[1] * sizes[1] + name[2]


def value_vectors(model: "Transformer", layer: int, memories: Sequence[int]) -> Float[Tensor, "memory d_model"]:
    """The values of some memories of one layer, copied."""
    stored = stored_values(model, layer)
    width = stored.shape[-2]
    if stored.dim() == 2:
        return stored[list(memories)]
    return stored[[memory // width for memory in memories], [memory % width for memory in memories]]


def as_added(
    model: "Transformer", layer: int, vectors: Float[Tensor, "vector d_model"]
) -> Float[Tensor, "vector d_model"]:
    """Parts of an FFN's output as they reach the residual stream, up to one positive factor that they share.

    Where the output is normalised before it is added, that norm's gain turns every part; its divisor does not.
    """
    return written_through(model.layers[layer].ln2_post, vectors)
