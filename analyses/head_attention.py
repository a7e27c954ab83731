"""Where does this head look in this text, token by token?

The head's whole [query, key] map: its pattern A, its scores before the softmax (scaled, soft-capped), and what it
moves, A[q, k] · ‖v_k W_O‖; of two texts of equally many tokens, both and their difference. The equations stand in
`interp.analyses.attention_read`.

Paper: Kobayashi et al. 2020, Attention is not only a weight (arXiv 2004.10102).

What it does NOT tell: what the head does with what it looks at, or whether it matters here. Take it away and see
(`interp.analyses.local_ablation`).
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.analyses.attention_read import OF, WHAT, Looked, Source, both, each_layer
from interp.analyses.components import HeadName, heads_of
from interp.analyses.vocabulary import token_texts
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

CELL = ("query", "key")
PREFIXES = dict(zip(OF, ("", "other_", "difference_"), strict=True))


class HeadAttention(Result, kind="attention.head"):
    """One head's `pattern`, `scores` and `moved`, [query, key]; scores are NaN where a query may not look.

    With another text `other_…` are the same of that, and `difference_…` the first less the other. `query_token` and
    `key_token` name the positions of the text, `other_token` [key] those of the other; `value_norm` [key] is ‖v W_O‖.
    """

    grid = CELL
    title = "Attention of one head"
    caution = "Where a head looks is not what it does: take it away, and other heads of its layer, before saying so."

    def values(self, what: str = "pattern", *, of: str = "prompt", sink: bool = True) -> np.ndarray:
        """[query, key], NaN where a query may not look, and in the first column where `sink` is off."""
        allowed = ~np.isnan(self["scores"])
        found = np.where(allowed, self[f"{PREFIXES[of]}{what}"], np.nan).astype(np.float64)
        if not sink:
            found[:, 0] = np.nan
        return found

    def strongest(
        self, count: int = 10, what: str = "pattern", *, of: str = "prompt", sink: bool = True
    ) -> "pandas.DataFrame":
        """The cells farthest from zero: query, key, their tokens, and all values."""
        frame = self.to_frame()
        chosen = np.abs(self.values(what, of=of, sink=sink)).reshape(-1)
        order = np.argsort(-np.nan_to_num(chosen, nan=-1.0), kind="stable")
        return frame.iloc[order[: min(count, int(np.isfinite(chosen).sum()))]].reset_index(drop=True)

    def figure(self) -> "Figure":
        """The pattern."""
        from interp.plots import attention_pattern

        tokens = [str(token) for token in self["key_token"]]
        return attention_pattern(self["pattern"], tokens, title=f"{self.title}: {self.settings['head']}")

    def summary(self) -> list[str]:
        """The strongest cells off the first token."""
        lines = [f"{self.title}: {self.settings['head']}, {len(self['key_token'])} tokens"]
        sink = float(self["pattern"][1:, 0].mean()) if len(self["pattern"]) > 1 else 1.0
        lines.append(f"  {sink:.0%} of its attention rests on the first token; off it, most is")
        lines += [
            f"    {row.pattern:.3f}  from {row.query_token!r} ({row.query}) to {row.key_token!r} ({row.key})"
            for row in self.strongest(5, sink=False).itertuples()
        ]
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def head_attention(
    model: "Transformer",
    source: Source,
    head: HeadName,
    other: Source | None = None,
    *,
    prefix: PrefixPolicy = "doc",
) -> HeadAttention:
    """The whole map of one head (`"18.6"`, `(18, 6)`) on a text; with `other`, on both and on their difference.

    Layers behind the head's are not run. Raises `UsageError` for a head that the model does not have, and for two texts
    of different lengths.
    """
    (chosen,) = heads_of(model, [head])
    tokens = both(model, source, other, prefix)
    kept: list[Looked] = []

    def keep(looked: Looked) -> Tensor:
        kept.append(looked)
        return looked.value_norm

    each_layer(model, tokens, keep, [chosen.layer])
    return HeadAttention(
        arrays={**_labels(model, tokens), **_maps(kept[0], int(chosen.index or 0))},
        settings={"head": str(chosen), "prefix": prefix if isinstance(source, str) else "as given"},
        provenance=provenance(model.provenance, tokens=tokens),
    )


def _labels(model: "Transformer", tokens: Tensor) -> dict[str, NamedArray]:
    texts = [token_texts(model, row) for row in tokens.tolist()]
    names = [("query_token", texts[0], "query"), ("key_token", texts[0], "key"), ("other_token", texts[-1], "key")]
    return {name: NamedArray(list(text), (axis,)) for name, text, axis in names[: len(texts) + 1]}


def _maps(looked: Looked, head: int) -> dict[str, NamedArray]:
    """All maps of the head, and the norms of the values of the first text."""
    found = {"value_norm": NamedArray(looked.value_norm[0, head].cpu().numpy(), ("key",))}
    hidden = looked.scores[0, head].isinf().cpu().numpy()
    for what in WHAT:
        each = looked.maps(what)[:, head].cpu().numpy()
        maps = [*each, each[0] - each[1]] if len(each) > 1 else [*each]
        for of, values in zip(OF, maps, strict=False):
            shown = np.where(hidden, np.nan, values) if what == "scores" else values
            found[f"{PREFIXES[of]}{what}"] = NamedArray(shown, CELL)
    return found
