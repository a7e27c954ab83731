"""Layers that are cut together, by the one that names them: a window around it, or one that begins there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp.errors import UsageError
from interp.results import Arrays
from interp.selection import Index, indices

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


@dataclass(frozen=True)
class Windows:
    """Layers that are cut together, by the one that names them."""

    window: int
    by_name: Mapping[int, range]

    @classmethod
    def of(
        cls, model: "Transformer", layers: Index | None, window: int, spread: Callable[[int, int, int], range]
    ) -> "Windows":
        """`spread(layer, window, n_layers)` says which. Raises `UsageError` for what is no layer and no window."""
        if type(window) is not int or window < 1:
            raise UsageError(f"window is {window!r}; a whole number of layers from 1 on was expected.")
        count = model.config.n_layers
        names = indices(slice(None) if layers is None else layers, count, "the layers")
        if len(set(names)) < len(names):
            raise UsageError(f"A layer is named twice among {names}; name each once.")
        return cls(window, {layer: spread(layer, window, count) for layer in names})

    def labels(self) -> Arrays:
        """First and last layer of every window."""
        windows = list(self.by_name.values())
        return {
            "first_layer": ([each[0] for each in windows], ("layer",)),
            "last_layer": ([each[-1] for each in windows], ("layer",)),
        }


def layers_from(first: int, window: int, n_layers: int) -> range:
    """`window` layers from one on, cut where the model ends."""
    return range(first, min(n_layers, first + window))
