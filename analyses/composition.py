r"""Which heads are made to read which: how much of what an earlier head writes falls where a later one looks.

A head writes through OV = W_V W_O, and a later one reads three ways: for its queries and its keys through
QK = W_Q W_Kᵀ, for its values through its own OV. For a sender s and a receiver r of a later layer, with row vectors,

    q = ‖OV_s · QK_r‖ / (‖OV_s‖ ‖QK_r‖)
    k = ‖OV_s · QK_rᵀ‖ / (‖OV_s‖ ‖QK_r‖)
    v = ‖OV_s · OV_r‖ / (‖OV_s‖ ‖OV_r‖)

(Frobenius norms; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). They lie between 0 and 1: 0
where the receiver reads nothing of what the sender writes. Matrices that have nothing to do with each other do not
score 0, so that beside the scores stands a `baseline`, the mean over random ones of the same shape, and the `…_excess`
over it. All three products have the same shapes, and share it.

Heads that share a KV head differ in q, k and v, which hold a query head's own W_Q and W_O. What the KV head itself
reads is another quantity, with a name and a baseline of its own:

    k_input = ‖OV_s · W_K‖ / (‖OV_s‖ ‖W_K‖)      v_input = ‖OV_s · W_V‖ / (‖OV_s‖ ‖W_V‖)

No product of d_model × d_model numbers is formed. What is outermost in a product counts for its norm only by its own
triangle, ‖Q R · X‖ = ‖R · X‖, so that norms are those of [d_head, d_head] matrices.

What it does NOT tell. Rotary positions turn queries and keys by where they stand, so that QK depends on their distance:
q and k are those at distance 0, and a head that looks one place back may well show in neither. Nothing is said of how
large what is written is beside the rest of the stream, of what lies between the two layers, nor of whether the sender
ever looks where it would matter. Which head serves which is a causal question: patch the sender's output where the
receiver reads it, and see whether the receiver's pattern changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from interp.analyses.folded import HeadWeights, folded_heads, plain_heads
from interp.errors import UsageError
from interp.named import NamedArray
from interp.results import Result, provenance
from interp.selection import Index, indices

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.models.config import ModelConfig
    from interp.models.transformer import Transformer

Kind = Literal["q", "k", "v", "k_input", "v_input"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BASELINES: dict[Kind, str] = {kind: "input_baseline" if kind.endswith("input") else "baseline" for kind in KINDS}
"""Which baseline belongs to each kind."""


class Composition(Result, kind="composition"):
    """How much every later head is made to read of every earlier one.

    `q`, `k` and `v` are [layer, head, to_layer, to_head], `k_input` and `v_input` [layer, head, to_layer, to_kv_head];
    NaN where the receiver does not come later. `…_excess` is what lies above the baseline of each: `baseline` and
    `input_baseline`, with `…_sd`, the standard deviation of single random pairs.
    """

    grid = ("layer", "head", "to_layer", "to_head")
    title = "Composition of heads"
    caution = (
        "Read off weights, and rotary positions left out: whether the later head uses it, a patch of its input tells."
    )

    def pairs(self, kind: Kind = "k", count: int = 10, *, to: tuple[int, int] | None = None) -> "pandas.DataFrame":
        """The pairs that compose most, in order: sender, receiver, value, and what lies above the baseline.

        `to`: only senders to this receiver, (layer, head), or (layer, KV head) for `k_input` and `v_input`.
        """
        axes = self.named(kind).axes
        frame = self.to_frame(axes)[[*axes, kind, f"{kind}_excess"]].dropna()
        if to is not None:
            frame = frame[(frame[axes[2]] == to[0]) & (frame[axes[3]] == to[1])]
        return frame.sort_values(kind, ascending=False, kind="stable").head(count).reset_index(drop=True)

    def strongest(self, count: int = 100) -> "pandas.DataFrame":
        """So many `pairs` through keys, through queries and through values: kind, sender, receiver, value, excess."""
        import pandas as pd

        kinds: tuple[Kind, ...] = ("k", "q", "v")
        best = {
            kind: self.pairs(kind, count).rename(columns={kind: "value", f"{kind}_excess": "excess"}) for kind in kinds
        }
        return pd.concat(best, names=["kind"]).reset_index("kind").reset_index(drop=True)

    def figure(self, kind: Kind = "k") -> "Figure":
        """The strongest pair of every two layers, sender upwards, receiver across, as excess over the baseline."""
        from interp.plots import effect_heatmap

        excess = self[f"{kind}_excess"]
        strongest = np.where(np.isnan(excess), -np.inf, excess).max((1, 3))
        layers = self.axes["layer"]
        return effect_heatmap(
            np.where(np.isinf(strongest), np.nan, strongest),
            title=f"{self._asked(kind)}, strongest pair of two layers",
            metric="above random",
            x="layer that reads",
            y="layer that writes",
            columns=layers,
            rows=layers,
        )

    def ranked_figure(self, kind: Kind = "k", count: int = 15) -> "Figure":
        """The strongest pairs as bars, and what random matrices would score."""
        from interp.plots import ranked_bars

        best = self.pairs(kind, count)
        return ranked_bars(
            [self._pair(row) for row in best.itertuples(index=False)],
            {f"{kind} composition": best[kind].to_numpy()},
            title=self._asked(kind),
            metric="composition",
            label="heads",
            baseline=("random", float(self[BASELINES[kind]])),
        )

    def summary(self) -> list[str]:
        """The strongest pairs of each kind, with the baseline."""
        lines = [f"{self.title}, {self._copies()}"]
        for kind in ("k", "q", "v"):
            lines.append(f"  {kind}, random matrices {float(self['baseline']):.4f} ± {float(self['baseline_sd']):.4f}")
            best = self.pairs(kind, 5)
            lines += [f"    {self._pair(row)}  {getattr(row, kind):.4f}" for row in best.itertuples(index=False)]
        return [*lines, f"  {self.caution}"]

    @staticmethod
    def _pair(row: tuple[float, ...]) -> str:
        """`17.3 → 18.6`."""
        layer, head, to_layer, to_head, *_ = row
        return f"{layer}.{head} → {to_layer}.{to_head}"

    def _asked(self, kind: Kind) -> str:
        rotary = " at distance 0 (rotation left out)" if self.settings["rotary"] and kind in ("q", "k") else ""
        return f"{kind.replace('_', ' ')} composition{rotary}, {self._copies()}"

    def _copies(self) -> str:
        return "norms folded" if self.settings["fold"] else "weights as they are"


@torch.no_grad()
def composition(
    model: "Transformer",
    *,
    fold: bool = True,
    layers: Index | None = None,
    baseline_draws: int = 20,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Composition:
    """Q-, K- and V-composition of every head with every head of later layers.

    `fold`: gains of norms are taken into copies of the weights (`interp.analyses.folded`); False takes weights as they
    are. `layers`: only these, as senders and receivers. `baseline_draws`: how many random senders are averaged over as
    many random receivers, drawn from `seed`.

    Raises `UsageError` where there are not two layers, for fewer than two draws, and where norms cannot be folded.
    """
    chosen = _chosen(model.config, layers, baseline_draws)
    senders: list[Float[Tensor, "head rank d_model"]] = []
    found = {kind: _blank(model.config, kind, len(chosen)) for kind in KINDS}
    for place, layer in enumerate(chosen):
        heads = (folded_heads if fold else plain_heads)(model, layer)
        readers = _readers(heads)
        for earlier, writes in enumerate(senders):
            for kind, values in _composed(writes, readers).items():
                found[kind][earlier, :, place] = values.cpu().numpy()
        senders.append(_writes(heads))
        if progress is not None:
            progress(place + 1, len(chosen))
    random = _baselines(model.config, baseline_draws, seed, like=senders[0])
    facts = {"fold": fold, "baseline_draws": baseline_draws, "seed": seed}
    return Composition(
        arrays=_arrays(found, random),
        axes={"layer": chosen, "to_layer": chosen},
        settings={**facts, "rotary": bool(model.config.rotaries)},
        provenance=provenance(model.provenance, seed=seed),
    )


def _chosen(config: "ModelConfig", layers: Index | None, draws: int) -> list[int]:
    """The layers that are looked at, in order."""
    every = range(config.n_layers)
    chosen = sorted(set(every if layers is None else indices(layers, config.n_layers, "layers")))
    if len(chosen) < 2:
        raise UsageError(f"Heads compose with heads of later layers; there is only layer {chosen[0]}.")
    if draws < 2:
        raise UsageError(f"baseline_draws is {draws}: expected at least 2 random heads on either side.")
    return chosen


def _blank(config: "ModelConfig", kind: Kind, n_layers: int) -> np.ndarray:
    """No value for any pair of heads."""
    receivers = config.n_kv_heads if kind.endswith("input") else config.n_heads
    return np.full((n_layers, config.n_heads, n_layers, receivers), np.nan, dtype=np.float32)


@dataclass(frozen=True)
class _Readers:
    """What the heads of one layer read through: first W_Q, W_K and W_V, then what stands behind these in a product."""

    first: Float[Tensor, "d_model columns"]
    q: Float[Tensor, "head d_head rank"]
    k: Float[Tensor, "head d_head rank"]
    v: Float[Tensor, "head d_head rank"]
    n_kv_heads: int


def _readers(heads: HeadWeights) -> _Readers:
    """Divided so that QK and OV of each head, and W_K and W_V, have norm 1; of what is outermost, the triangle."""
    q, k, v = (_unit(weight) for weight in (heads.W_Q, heads.W_K, heads.W_V))
    group = len(q) // len(k)
    t_q, t_o = _triangle(q), _triangle(heads.W_O.mT)
    t_k, t_v = (_triangle(weight).repeat_interleave(group, 0) for weight in (k, v))
    qk, ov = (torch.linalg.matrix_norm(product, keepdim=True) for product in (t_q @ t_k.mT, t_v @ t_o.mT))
    first = torch.cat([q, k, v]).transpose(0, 1).flatten(1)
    return _Readers(first, _over(t_k.mT, qk), _over(t_q.mT, qk), _over(t_o.mT, ov), len(k))


def _writes(heads: HeadWeights) -> Float[Tensor, "head rank d_model"]:
    """OV of every head, of norm 1, as what reads it can tell: of W_V, the triangle."""
    shared = _triangle(_unit(heads.W_V)).repeat_interleave(len(heads.W_O) // len(heads.W_V), 0)
    return _unit(shared @ _unit(heads.W_O))


def _composed(
    writes: Float[Tensor, "head rank d_model"], readers: _Readers
) -> dict[Kind, Float[Tensor, "head receiver"]]:
    """Every sender of one layer with every receiver of another."""
    count, (n_heads, d_head, _) = len(writes), readers.q.shape
    seen = rearrange(writes.flatten(0, 1) @ readers.first, "rows (receiver d) -> receiver rows d", d=d_head)
    q, k, v = torch.split(seen, [n_heads, readers.n_kv_heads, readers.n_kv_heads])
    group = n_heads // readers.n_kv_heads
    products: dict[Kind, Tensor] = {
        "q": q @ readers.q,
        "k": k.repeat_interleave(group, 0) @ readers.k,
        "v": v.repeat_interleave(group, 0) @ readers.v,
        "k_input": k,
        "v_input": v,
    }
    return {
        kind: torch.linalg.matrix_norm(rearrange(product, "receiver (head r) d -> head receiver r d", head=count))
        for kind, product in products.items()
    }


def _triangle(weight: Float[Tensor, "heads d_model d_head"]) -> Float[Tensor, "heads rank d_head"]:
    """R of W = Q R: all that a norm can tell of a matrix that stands first in a product."""
    return torch.linalg.qr(weight, mode="r").R


def _unit(matrix: Float[Tensor, "heads rows columns"]) -> Float[Tensor, "heads rows columns"]:
    """Divided by its norm."""
    return _over(matrix, torch.linalg.matrix_norm(matrix, keepdim=True))


def _over(
    matrix: Float[Tensor, "heads rows columns"], norm: Float[Tensor, "heads 1 1"]
) -> Float[Tensor, "heads rows columns"]:
    """Divided; noughts, which compose with nothing, stay as they are."""
    return matrix / norm.where(norm > 0, 1)


def _baselines(config: "ModelConfig", draws: int, seed: int, like: Tensor) -> dict[str, np.ndarray]:
    """Scores of random heads of the same shape, every sender with every receiver: mean and spread."""
    generator = torch.Generator().manual_seed(seed)

    def drawn() -> HeadWeights:
        shapes = [(draws, config.d_model, config.d_head)] * 3 + [(draws, config.d_head, config.d_model)]
        return HeadWeights(*(torch.randn(shape, generator=generator).to(like) for shape in shapes))

    writes, readers = _writes(drawn()), _readers(drawn())
    # one sender at a time: wide heads take much room
    scores = [_composed(sender, readers) for sender in torch.split(writes, 1)]
    found: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(BASELINES.values()):
        values = torch.stack([each[kind] for each in scores for kind in KINDS if BASELINES[kind] == name]).double()
        found |= {name: values.mean().cpu().numpy(), f"{name}_sd": values.std().cpu().numpy()}
    return found


def _arrays(found: dict[Kind, np.ndarray], random: dict[str, np.ndarray]) -> dict[str, NamedArray]:
    """Values, what lies above random ones, and those."""
    arrays = {name: NamedArray(value) for name, value in random.items()}
    for kind, values in found.items():
        axes = ("layer", "head", "to_layer", "to_kv_head" if kind.endswith("input") else "to_head")
        arrays[kind] = NamedArray(values, axes)
        arrays[f"{kind}_excess"] = NamedArray(values - random[BASELINES[kind]], axes)
    return arrays
