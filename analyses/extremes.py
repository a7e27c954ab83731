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

    @property
    def nbytes(self) -> int:
        """What is held."""
        return self.values.nbytes + self.rows.nbytes

    def add(self, piece: Float[Tensor, "row column"], rows: Int[Tensor, "row"]) -> None:
        """Take the next rows in."""
        start = 0
        while start < len(piece):
            here = slice(start, start + max(FIRST, self.seen))
            block = piece[here]
            for end, passes in enumerate((block > self.values[0, :, -1], block < -self.values[1, :, -1])):
                row, column = passes.nonzero(as_tuple=True)
                if len(row):
                    entries = block[row, column].to(self.values.dtype)
                    self._merge(end, -entries if end else entries, rows[here][row], column)
            self.seen += len(block)
            start += len(block)

    def _merge(
        self,
        end: int,
        entries: Float[Tensor, "entry"],
        rows: Int[Tensor, "entry"],
        columns: Int[Tensor, "entry"],
    ) -> None:
        """Sort in what passes at one end; rows ascend within each column."""
        order = columns.argsort(stable=True)
        passing = torch.bincount(columns, minlength=self.values.shape[1])
        hot = passing.nonzero()[:, 0]
        counts = passing[hot]
        line = torch.arange(len(hot), device=hot.device).repeat_interleave(counts)
        kept = self.values.shape[-1]
        slot = kept + torch.arange(len(order), device=hot.device) - (counts.cumsum(0) - counts)[line]
        values = self.values.new_full((len(hot), kept + int(counts.max())), -torch.inf)
        places = self.rows.new_full(values.shape, -1)
        values[:, :kept], places[:, :kept] = self.values[end, hot], self.rows[end, hot]
        values[line, slot], places[line, slot] = entries[order], rows[order]
        best = values.sort(dim=-1, descending=True, stable=True)  # what was met earlier stands further left
        self.values[end, hot] = best.values[:, :kept]
        self.rows[end, hot] = places.gather(1, best.indices[:, :kept])
