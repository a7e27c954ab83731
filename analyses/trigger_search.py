"""The most extreme coefficients of many neurons over a corpus, met batch by batch, in memory that is known beforehand.

Of every neuron the places of its k largest and k smallest coefficients so far are held: a value and a place in the
stream of all texts for each. Contexts are none of this: they can be cut from the stream by the places.

What it does NOT hold: anything of the coefficients in between. For whom the places are, see `triggers.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.extremes import Extremes
from interp.analyses.neurons import SHARED, ffn_widths, post_point
from interp.analyses.pieces import Batch, Pieces
from interp.analyses.reference_values import chosen_experts
from interp.hooks import HookPoint, recorders_active
from interp.named import NamedArray

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

CELL = ("layer", "neuron", "end", "rank")


def search_bytes(model: "Transformer", layers: int, neurons: int, top_k: int) -> int:
    """What a search holds at most beside its batches: its places, and the arrays that come back.

    Each of the places at both ends has a value and a number of 8 bytes; what comes back of it are a value, a document
    and a token, the last two of 4 bytes each.
    """
    return layers * neurons * 2 * top_k * (2 * _value_dtype(model).itemsize + 8 + 4 + 4)


def _value_dtype(model: "Transformer") -> torch.dtype:
    return torch.float64 if model.dtype == torch.float64 else torch.float32


class Search:
    """The most extreme coefficients so far, for each layer and each of its FFNs."""

    def __init__(self, model: "Transformer", layers: Sequence[int], memories: Sequence[int], top_k: int) -> None:
        self.model, self.layers, self.count, self.top_k = model, layers, len(memories), top_k
        wanted, start = torch.tensor(memories, device=model.device), 0
        self.slots: dict[int, Int[Tensor, some]] = {}
        self.indices: dict[int, Int[Tensor, some] | None] = {}
        """Of each FFN the neurons that are searched, None for all of them as they stand."""
        for ffn, width in ffn_widths(model.config, layers[0]).items():
            slots = ((wanted >= start) & (wanted < start + width)).nonzero()[:, 0]
            if len(slots):
                own = wanted[slots] - start
                whole = torch.equal(own, torch.arange(width, device=own.device))
                self.slots[ffn], self.indices[ffn] = slots, None if whole else own
            start += width
        self.best = {
            (layer, ffn): Extremes(len(slots), top_k, dtype=_value_dtype(model), device=model.device)
            for layer in layers
            for ffn, slots in self.slots.items()
        }

    @property
    def nbytes(self) -> int:
        """What is held of the places."""
        return sum(each.nbytes for each in self.best.values())

    @property
    def points(self) -> list[str]:
        """The points that are listened to."""
        posts = [post_point(layer, ffn) for layer in self.layers for ffn in self.slots]
        routed = any(ffn >= 0 for ffn in self.slots)
        return list(dict.fromkeys([*posts, *(chosen_experts(layer) for layer in self.layers if routed)]))

    def read(self, batch: Batch) -> None:
        """One forward pass up to the last layer that is searched, each layer's coefficients let go once compared."""
        rows, places = (part.to(self.model.device) for part in (batch.rows, batch.places))
        chosen: dict[int, Tensor] = {}

        def compare(value: Tensor, point: HookPoint) -> Tensor:
            assert point.layer is not None
            found = value.flatten(0, 1).index_select(0, rows)
            if point.name == chosen_experts(point.layer):
                chosen[point.layer] = found
            elif found.dim() == 3:
                self._by_expert(point.layer, found, chosen.pop(point.layer), places)
            else:
                shared = point.name == post_point(point.layer, SHARED)
                ffn = SHARED if shared else next(iter(self.slots))
                self.best[point.layer, ffn].add(self._of(ffn, found), places)
            return value

        with recorders_active(compare, self.points):  # the cache is of no interest: it holds as little as it may
            self.model.run_with_cache(
                batch.tokens, "hook_embed", positions=[0], mask=batch.mask, stop_at_layer=max(self.layers) + 1
            )

    def _of(self, ffn: int, values: Float[Tensor, "token width"]) -> Float[Tensor, "token some"]:
        """The values of those neurons of an FFN that are searched."""
        indices = self.indices[ffn]
        return values if indices is None else values[:, indices]

    def _by_expert(
        self,
        layer: int,
        values: Float[Tensor, "token slot d_expert"],
        experts: Int[Tensor, "token slot"],
        places: Int[Tensor, "token"],
    ) -> None:
        for expert in (ffn for ffn in self.slots if ffn >= 0):
            token, slot = (experts == expert).nonzero(as_tuple=True)
            self.best[layer, expert].add(self._of(expert, values[token, slot]), places[token])

    def found(self, pieces: Pieces, *, ended: bool = True) -> dict[str, NamedArray]:
        """Coefficients with their sign and where they are. A search that has ended lets its places go layer by layer.

        NaN and −1 stand where there were fewer places than ranks.
        """
        shape = (len(self.layers), self.count, 2, self.top_k)
        value = np.float64 if _value_dtype(self.model) == torch.float64 else np.float32
        arrays = {"coefficient": np.empty(shape, value)}
        arrays |= {name: np.empty(shape, np.int32) for name in ("in_document", "at_token")}
        for layer, ffn in list(self.best):
            best = self.best.pop((layer, ffn)) if ended else self.best[layer, ffn]
            cell = (self.layers.index(layer), self.slots[ffn].cpu().numpy())
            values, rows = (part.transpose(0, 1).cpu() for part in (best.values, best.rows))
            signed = torch.stack([values[:, 0], -values[:, 1]], 1)
            document = torch.searchsorted(pieces.starts, rows.contiguous(), right=True) - 1
            arrays["coefficient"][cell] = signed.masked_fill(rows < 0, torch.nan).numpy()
            arrays["in_document"][cell] = document.masked_fill(rows < 0, -1).numpy()
            arrays["at_token"][cell] = (rows - pieces.starts[document.clamp(min=0)]).masked_fill(rows < 0, -1).numpy()
        return {name: NamedArray(arrays.pop(name), CELL) for name in list(arrays)}
