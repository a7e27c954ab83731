"""Attention edges blocked: what if these queries could not read those keys?

    edges = {"last to 3": [(-1, 3)], "all to the subject": [(slice(5, None), [2, 3])]}
    found = knock_out_edges(model, tokens, edges, metric=metrics.probability(answer), window=5)
    found["probability"]       # [block, layer, text]

Before the softmax the score of a blocked edge becomes −inf, for all heads and in all layers of a window at once. So a
blocked key is read with weight 0 exactly, rows still sum to 1, and the weights of the other keys keep their ratios:

    A'[q, k] = 0 for blocked k,   A[q, k] / Σ over unblocked j of A[q, j] for the others

in the first layer of the window; behind it queries and keys are those of the run with the block. A row of which nothing
is left is refused.

Paper: Geva et al. 2023, "Dissecting recall of factual associations in auto-regressive language models" (arXiv
2304.14767).

What it does NOT tell: that nothing passes: what a query cannot read directly may reach it by way of other positions, or
have reached it in layers before the window. And a row without some of its keys reads more of the others than it would.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.analyses.sites import layer_window
from interp.analyses.windows import Windows
from interp.edits import Edit, Selected
from interp.errors import UsageError
from interp.hooks import Hooks
from interp.models.checks import check_tokens
from interp.models.replay import Metric, Progress, Replay, Sweep
from interp.results import Result, provenance
from interp.selection import Index, indices

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Edges = Sequence[tuple[Index, Index]]
"""(queries, keys): every one of these queries is kept from every one of those keys."""


class EdgeKnockout(Result, kind="knockout.edges"):
    """Metrics with edges blocked around each layer: `m` [block, layer, text], `m_base` [text] with none blocked.

    `m_effect` [block, layer] is the difference of their means. `first_layer` and `last_layer` [layer]: each window.
    """

    grid = ("block", "layer")
    title = "Attention edges blocked"
    caution = "What a query cannot read may reach it by way of others."

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, in order."""
        return list(self.settings["metrics"])  # type: ignore[call-overload]  # a record

    def figure(self, metric: str | None = None) -> "Figure":
        """The mean effect of each block, layer by layer; the first metric's."""
        from interp.plots import curves

        name = self.metrics[0] if metric is None else metric
        return curves(
            list(self.axes["layer"]),
            {str(block): self.at(f"{name}_effect", block=block) for block in self.axes["block"]},
            title=f"{self.title}: {name}, {self[name].shape[-1]} texts",
            x_title=f"middle of a window of {self.settings['window']}",
            y_title=f"effect on {name}",
        )

    def summary(self) -> list[str]:
        """Where each block moves each metric most."""
        lines = [f"{self.title}: {self[self.metrics[0]].shape[-1]} texts, windows of {self.settings['window']} layers"]
        for name in self.metrics:
            lines.append(f"  {name}: {float(self[f'{name}_base'].mean()):.3f} with all edges")
            for block, effect in zip(self.axes["block"], self[f"{name}_effect"], strict=True):
                place = int(np.abs(effect).argmax())
                lines.append(f"    {block}  {effect[place]:+.3f} at layer {self.axes['layer'][place]}")
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def knock_out_edges(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    edges: Mapping[str, Edges | Bool[Tensor, "batch query_pos key_pos"]],
    *,
    metric: Metric | Mapping[str, Metric],
    window: int = 1,
    layers: Index | None = None,
    mask: Bool[Tensor, "batch pos"] | None = None,
    read: Index = -1,
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
) -> EdgeKnockout:
    """Block each of some sets of edges, in all heads, in a window of layers around each of `layers`.

    `edges`: by name, pairs of queries and keys, for all texts alike; or a mask of edges for every text. `window` layers
    are [ℓ − w//2, ℓ + ⌈w/2⌉ − 1], cut at both ends. `read`, `budget` and `shortcuts` as in `Replay`.

    Raises `UsageError` for edges that no query can read, for rows of which nothing is left, and for places that do not
    exist.
    """
    check_tokens(tokens, mask, model.config)
    if not edges:
        raise UsageError("There are no edges to block; give at least one set of them, by name.")
    around = Windows.of(model, layers, window, layer_window)
    blocks = {str(name): edge_mask(each, tokens) for name, each in edges.items()}
    sweep = Sweep(
        {"block": list(blocks), "layer": list(around.by_name)},
        lambda block, layer: blocking(blocks[block], around.by_name[layer]),
    )
    replay = Replay(
        model,
        tokens,
        sweep,
        metric,
        mask=mask,
        read=read,
        texts={"text": len(tokens)},
        budget=budget,
        shortcuts=shortcuts,
    )
    found = replay.run(progress=progress)
    arrays: dict[str, tuple[object, Sequence[str]]] = {**around.labels()}  # type: ignore[dict-item]  # pairs, all of them
    for name in replay.metrics:
        values, base = found[name].values, found.base[name].values
        arrays[name] = values, ("block", "layer", "text")
        arrays[f"{name}_base"] = base, ("text",)
        arrays[f"{name}_effect"] = (values - base).mean(-1), ("block", "layer")
    return EdgeKnockout(
        arrays=arrays,
        axes={"block": list(blocks), "layer": list(around.by_name)},
        settings={
            "metrics": {name: repr(each) for name, each in replay.metrics.items()},
            "window": window,
            "read": replay.read,
            "shortcuts": shortcuts,
        },
        provenance=provenance(model.provenance, tokens=tokens.cpu()),
    )


def edge_mask(
    edges: Edges | Bool[Tensor, "batch query_pos key_pos"], tokens: Int[Tensor, "batch pos"]
) -> Bool[Tensor, "some query_pos key_pos"]:
    """The edges as a mask, one for all texts or one a text. Raises `UsageError` where it holds no edge to block."""
    length = tokens.shape[1]
    if isinstance(edges, Tensor):
        found = edges.cpu()
        if tuple(edges.shape) != (len(tokens), length, length):
            raise UsageError(
                f"A mask of edges has shape {(len(tokens), length, length)} here, not {tuple(edges.shape)}."
            )
    else:
        found = torch.zeros(1, length, length, dtype=torch.bool)
        for queries, keys in edges:
            rows = torch.tensor(indices(queries, length, "the queries"))
            found[0, rows[:, None], torch.tensor(indices(keys, length, "the keys"))] = True
    if not found.tril().any():
        raise UsageError("No query can read any of the keys that are to be blocked: they lie ahead of it, or are none.")
    return found


def blocking(edges: Bool[Tensor, "some query_pos key_pos"], layers: Sequence[int]) -> Hooks:
    """Edits that block these edges in some layers; none where there are no edges."""
    queries = edges.any(0).any(-1).nonzero()[:, 0].tolist()
    if not queries:
        return []
    rows = edges[:, None, queries].float()

    def change(chosen: Selected) -> Tensor:
        cut = chosen.fitted(rows, "mask of edges") > 0
        blocked = chosen.cells.masked_fill(cut, -torch.inf)
        if (chosen.cells.isfinite().any(-1) & ~blocked.isfinite().any(-1)).any():
            raise UsageError(
                f"At {chosen.point.name} a query would be left with no key to read; keep at least one unblocked."
            )
        return blocked

    return [(f"blocks.{layer}.attn.hook_attn_scores", Edit(change, {"positions": queries})) for layer in layers]
