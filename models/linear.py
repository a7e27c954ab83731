"""One linear map for the whole forward pass, in the form that the machine multiplies fastest.

`x · Wᵀ` can be computed with the activations on the left (`F.linear`) or with the weight on the left and the
activations transposed, by MKL or by oneDNN. The results agree; the speed does not. Milliseconds for all matrices of a
135M-parameter Llama, float32, 2 threads, torch 2.13:

           EPYC (Zen 4)                                              Xeon (AVX-512)
    rows   F.linear   mm(W, xᵀ)   bmm, 2 halves   oneDNN, W · xᵀ     F.linear   mm(W, xᵀ)
       1       36.8        35.8            14.6             23.1         17.8        17.4
       2       53.0        13.2            13.6             29.8         18.0        41.4
       8       41.2        32.6            33.8             28.2         39.3        45.3
      16       49.7        40.0            40.5             28.9         44.0        49.0
     128        175         161             162              151         98.4        98.5
   1,024      1,179       1,162                            1,054          642         620

MKL picks its kernels by the processor's vendor, oneDNN by its instructions, so the choice goes by vendor. On AMD up to
6 rows go through MKL's transposed form, a single row as two halves, one a thread; more go through oneDNN, with the
weight on the left up to 256 rows. But oneDNN adds up one term after the other, and so does MKL in some forms of few
rows. Where sums are long, as in the second matrix of an FFN, a state as large as that of a text's first position would
lose a digit more than it does in the reference; there sums are taken in blocks. On Intel matrices that do not widen
gain from the transposed form at 9 to 48 rows (15 to 25 %), those that do lose as much. With gradients, in other dtypes
and on accelerators `F.linear` stays. The choice depends on the machine, the shapes and the weight's layout alone, so
the same work gives the same bits.
"""

import functools
import platform
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

Form = Literal["linear", "halves", "blocks", "transposed", "onednn", "onednn_transposed"]
LONGEST_SUM = 1024  # terms; oneDNN adds them up one by one, and what is rounded away grows with their number
BLOCKS = 4
_HAS_ONEDNN = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def is_amd() -> bool:
    """Whether this is an AMD processor."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        facts = platform.processor()
    return "AuthenticAMD" in facts


def fastest_form(rows: int, d_in: int, d_out: int, *, amd: bool, onednn: bool = _HAS_ONEDNN) -> Form:
    """How so many rows are multiplied fastest; `transposed` forms have the weight on the left."""
    if not amd:
        return "transposed" if 9 <= rows <= 48 and d_out <= d_in else "linear"
    if rows == 1 and d_out % 2 == 0:
        return "halves"
    if d_in > LONGEST_SUM and rows >= 4:
        few = rows < 16 and d_in % BLOCKS == 0
        return "blocks" if few else "transposed" if 16 <= rows <= 128 else "linear"
    if rows <= 6 or not onednn:
        return "transposed" if rows <= 128 else "linear"
    return "onednn_transposed" if rows <= 256 else "onednn"


def linear(
    x: Float[Tensor, "*batch d_in"], weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, "d_out"] | None = None
) -> Float[Tensor, "*batch d_out"]:
    """`x · weightᵀ + bias`. The result may be a transposed view: same values, other strides."""
    differentiated = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if x.device.type != "cpu" or x.dtype != torch.float32 or differentiated or not weight.is_contiguous():
        return F.linear(x, weight, bias)
    rows = x.numel() // x.shape[-1]
    form = fastest_form(rows, x.shape[-1], weight.shape[0], amd=is_amd())
    if form == "linear":
        return F.linear(x, weight, bias)
    if form == "onednn":
        return _onednn(x, weight, bias)
    if form == "halves":  # the one column keeps the stride that a transposed row has: without it, 5 times slower
        halves = weight.view(2, weight.shape[0] // 2, -1)
        product = torch.bmm(halves, x.reshape(1, 1, -1).mT.expand(2, -1, -1))
    elif form == "blocks":
        parts = (rows, BLOCKS, -1), (weight.shape[0], BLOCKS, -1)
        product = torch.bmm(x.reshape(parts[0]).transpose(0, 1), weight.view(parts[1]).permute(1, 2, 0)).sum(0)
    else:
        flat = x.reshape(rows, -1)
        if form == "transposed":
            product = torch.mm(weight, flat.contiguous().t()).t()
        else:  # a transposed x will do as well, but a slice of one only by a slow road
            product = _onednn(weight, flat if flat.t().is_contiguous() else flat.contiguous()).t()
    result = product.view(*x.shape[:-1], weight.shape[0])
    return result if bias is None else result + bias


def _onednn(
    left: Float[Tensor, "*batch inner"], right: Float[Tensor, "columns inner"], bias: Tensor | None = None
) -> Float[Tensor, "*batch columns"]:
    """`left · rightᵀ + bias` by oneDNN, which `F.linear` itself takes in other dtypes; it knows no gradients."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


if _HAS_ONEDNN:

    @register_flop_formula(torch.ops.mkldnn._linear_pointwise)
    def _operations(left: torch.Size, right: torch.Size, *rest: object, **more: object) -> int:
        """So that PyTorch's counter of operations sees these products as it sees all others."""
        return 2 * left.numel() * right[0]
