"""A matrix that is kept as the product of two thin ones, and never formed.

What an attention head does to the residual stream is such a product: W_V · W_O maps d_model numbers to d_model numbers
through d_head of them, and between tokens the map is [d_vocab, d_vocab], ten gigabytes for a small model. All that one
asks of it can be had from the factors, `left` [rows, rank] and `right` [rank, columns]:

    norm          ‖L R‖² = Σ (LᵀL) ∘ (R Rᵀ)                         two [rank, rank] tables
    singular      L = Q₁R₁, Rᵀ = Q₂R₂; the values of L R are those of R₁R₂ᵀ, a [rank, rank] matrix
    eigenvalues   those of L R that are not 0 are those of R L, a [rank, rank] matrix
    the largest   l · r ≤ ‖l‖ ‖r‖: with rows of L and columns of R in the order of their size, a row need only be
                  multiplied with the columns that could bring it above the k-th largest entry found so far

Axes in front of the last two are a batch, the same of both factors or of size 1: every head of a layer at once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from interp.errors import UsageError

SLACK = 1e-4
"""By how much of itself a bound is lowered before entries are left out by it: more than rounding could move them."""


class SVD(NamedTuple):
    """A singular value decomposition, `U · diag(S) · Vh`, the largest value first."""

    U: Float[Tensor, "*batch rows rank"]
    S: Float[Tensor, "*batch rank"]
    Vh: Float[Tensor, "*batch rank columns"]


class Entries(NamedTuple):
    """Entries of a matrix, the most extreme first, and where they stand."""

    values: Float[Tensor, "*batch k"]
    rows: Int[Tensor, "*batch k"]
    columns: Int[Tensor, "*batch k"]


@dataclass(frozen=True, eq=False, repr=False)
class FactoredMatrix:
    """`left @ right`, kept as these two factors. Raises `UsageError` for factors that do not fit together.

    Both are float32 or float64: halves lose too much in the sums here. Neither is ever written to.
    """

    left: Float[Tensor, "*left_batch rows rank"]
    right: Float[Tensor, "*right_batch rank columns"]

    def __post_init__(self) -> None:
        left, right = self.left, self.right
        if min(left.dim(), right.dim()) < 2 or left.shape[-1] != right.shape[-2]:
            raise UsageError(
                f"Factors of shape {list(left.shape)} and {list(right.shape)} have no product: expected "
                "[…, rows, rank] and […, rank, columns]."
            )
        if left.dtype != right.dtype or left.dtype not in (torch.float32, torch.float64):
            raise UsageError(
                f"Factors are both float32 or both float64, and came as {left.dtype} and {right.dtype}; convert them."
            )
        self._batch()

    # ------------------------------------------------------------------------------------------------ as a matrix

    @property
    def shape(self) -> torch.Size:
        """[…, rows, columns] of the product."""
        return torch.Size((*self._batch(), self.left.shape[-2], self.right.shape[-1]))

    @property
    def rank(self) -> int:
        """How many numbers the map passes through: the rank of the product is this at most."""
        return self.left.shape[-1]

    @property
    def T(self) -> "FactoredMatrix":
        """The transpose."""
        return FactoredMatrix(self.right.mT, self.left.mT)

    def matrix(self) -> Float[Tensor, "*batch rows columns"]:
        """The product itself: for small ones."""
        return self.left @ self.right

    def rows(self, indices: Int[Tensor, "chosen"]) -> Float[Tensor, "*batch chosen columns"]:
        """Some rows of the product."""
        return self.left.index_select(-2, indices) @ self.right

    def __matmul__(self, other: "FactoredMatrix | Tensor") -> "FactoredMatrix":
        """The product with a matrix, factored or not, as factors of the smaller rank. Forms nothing larger."""
        if isinstance(other, Tensor):
            return FactoredMatrix(self.left, self.right @ other)
        between = self.right @ other.left
        if self.rank <= other.rank:
            return FactoredMatrix(self.left, between @ other.right)
        return FactoredMatrix(self.left @ between, other.right)

    def __rmatmul__(self, other: Tensor) -> "FactoredMatrix":
        """The product of a plain matrix with this one."""
        return FactoredMatrix(other @ self.left, self.right)

    def __repr__(self) -> str:
        return f"FactoredMatrix({list(self.shape)} through {self.rank}, {str(self.left.dtype)[6:]})"

    # ------------------------------------------------------------------------------------------------ what it is like

    def norm(self) -> Float[Tensor, "*batch"]:
        """The Frobenius norm: the root of the sum of all squares."""
        left, right = _wide(self.left), _wide(self.right)
        squares = ((left.mT @ left) * (right @ right.mT)).sum((-2, -1))
        return squares.clamp(min=0).sqrt().to(self.left.dtype)

    def svd(self) -> SVD:
        """Singular vectors and values, as many as the rank, the rows or the columns, whichever are fewest."""
        q_left, r_left = torch.linalg.qr(self.left)
        q_right, r_right = torch.linalg.qr(self.right.mT)
        u, s, vh = torch.linalg.svd(r_left @ r_right.mT, full_matrices=False)
        return SVD(q_left @ u, s, vh @ q_right.mT)

    def eigenvalues(self) -> Complex[Tensor, "*batch rank"]:
        """The eigenvalues that may differ from 0, as many as the rank, in no order: all others are 0.

        Raises `UsageError` where the product is not square.
        """
        size, left, right = self._size(), _wide(self.left), _wide(self.right)
        small = right @ left if self.rank < size else left @ right
        found = torch.linalg.eigvals(small)
        return found.to(self.left.dtype.to_complex())

    def trace(self) -> Float[Tensor, "*batch"]:
        """The sum of the diagonal, which is that of the eigenvalues. Raises `UsageError` where it is not square."""
        self._size()
        return (self.left * self.right.mT).sum((-2, -1))

    def top_entries(self, k: int, *, largest: bool = True, block: int = 2**22) -> Entries:
        """The k largest entries, or the k lowest, in order; no more than `block` entries or one row exist at a time.

        Raises `UsageError` where there are not so many.
        """
        *batch, n_rows, n_columns = self.shape
        if not 1 <= k <= n_rows * n_columns or block < 1:
            raise UsageError(
                f"k={k} entries, block={block} of them at a time: expected k from 1 to {n_rows * n_columns}, block ≥ 1."
            )
        u, s, vh = self.svd()  # factors of equal size, for which the bound is tightest
        left, right = u * s.sqrt()[..., None, :], s.sqrt()[..., None] * vh
        sign = 1 if largest else -1
        pairs = zip((sign * left).reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:]), strict=True)
        found = [_largest(rows, columns, k, block) for rows, columns in pairs]
        values, places = (torch.stack(part).view(*batch, k) for part in zip(*found, strict=True))
        return Entries(sign * values, places // n_columns, places % n_columns)

    # ------------------------------------------------------------------------------------------------ private

    def _batch(self) -> torch.Size:
        """The axes in front."""
        shapes = self.left.shape[:-2], self.right.shape[:-2]
        try:
            return torch.Size(np.broadcast_shapes(*shapes))
        except ValueError:
            raise UsageError(
                f"The batches {list(shapes[0])} and {list(shapes[1])} of the factors do not fit together."
            ) from None

    def _size(self) -> int:
        """The number of rows, and of columns."""
        *_, n_rows, n_columns = self.shape
        if n_rows != n_columns:
            raise UsageError(f"Only a square matrix has eigenvalues and a trace; this one is {n_rows} × {n_columns}.")
        return n_rows


def _largest(
    left: Float[Tensor, "rows rank"], right: Float[Tensor, "rank columns"], k: int, block: int
) -> tuple[Float[Tensor, "k"], Int[Tensor, "k"]]:
    """The k largest entries of one product, in order, and their places in it, counted row by row."""
    sizes, row_order = left.norm(dim=-1).sort(descending=True)
    widths, column_order = right.norm(dim=-2).sort(descending=True)
    values, places, start = left.new_empty(0), row_order.new_empty(0), 0
    while start < len(left):
        needed = values[-1] / sizes[start] if len(values) == k else -torch.inf
        count = int((widths * (1 + SLACK) >= needed).sum())
        if not count:
            break  # nor can any of the rows that follow, which are smaller
        rows, columns = row_order[start : start + max(1, block // count)], column_order[:count]
        entries = (left[rows] @ right[:, columns]).flatten()
        new = entries.topk(min(k, len(entries)))
        found = rows[new.indices // count] * right.shape[-1] + columns[new.indices % count]
        values, order = torch.cat([values, new.values]).topk(min(k, len(values) + len(found)))
        places, start = torch.cat([places, found])[order], start + len(rows)
    return values, places


def _wide(factor: Tensor) -> Tensor:
    """float64, where the device has it: what is added up here is squared, or cancels."""
    return factor if factor.device.type == "mps" else factor.double()
