"""The largest and smallest values of many columns that are met piece by piece, in memory that does not grow with them.

Columns are neurons, say, and rows positions of a text. What is kept of each column are its k most extreme values at
either end and their rows. A new piece is first compared with the k-th value: late in a stream hardly any entry
passes, and only those are sorted in. Of equal values the earlier one stays; how a stream is cut into pieces changes
nothing.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

FIRST = 64  # rows that are sorted in at once at the beginning, when every entry passes; then as many as were seen


class Extremes:
    """A running top-k and bottom-k of each column; rows must come in ascending order.

    `values` [2, column, rank] holds the largest values, and the smallest ones with their sign turned, so that both
    descend; −inf where there were fewer rows than ranks. `rows` says where they were met, −1 for nowhere.
    """

    def __init__(self, columns: int, top_k: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.values = torch.full((2, columns, top_k), -torch.inf, dtype=dtype, device=device)
        self.rows = torch.full((2, columns, top_k), -1, device=device)
        self.seen = 0

    def add(self, piece: Float[Tensor, "row column"], rows: Int[Tensor, "row"]) -> None:
        """Take the next rows in."""
        start = 0
        while start < len(piece):
            here = slice(start, start + max(FIRST, self.seen))
            block = piece[here]
            for end, best in enumerate((block.amax(0), -block.amin(0))):
                hot = (best > self.values[end, :, -1]).nonzero()[:, 0]
                if len(hot):
                    self._merge(end, hot, block, rows[here])
            self.seen += len(block)
            start += len(block)

    def _merge(
        self, end: int, hot: Int[Tensor, "hot"], block: Float[Tensor, "row column"], rows: Int[Tensor, "row"]
    ) -> None:
        """Sort in what passes at one end, in those columns in which something does."""
        kept, where = self.values[end], self.rows[end]
        part = block[:, hot].mT.to(kept.dtype) * (-1 if end else 1)
        column, row = (part > kept[hot, -1:]).nonzero(as_tuple=True)
        counts = torch.bincount(column, minlength=len(hot))
        slot = kept.shape[1] + torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[column]
        size = (len(hot), kept.shape[1] + int(counts.max()))
        values, places = kept.new_full(size, -torch.inf), where.new_full(size, -1)
        values[:, : kept.shape[1]], places[:, : kept.shape[1]] = kept[hot], where[hot]
        values[column, slot], places[column, slot] = part[column, row], rows[row]
        best = values.sort(dim=-1, descending=True, stable=True)  # what was met earlier stands further left
        first = best.indices[:, : kept.shape[1]]
        kept[hot], where[hot] = best.values[:, : kept.shape[1]], places.gather(1, first)
