"""Where does every head look in this text? All heads of a model as small pictures, with a few numbers of each.

Every picture is the head's [query, key] map, of the pattern, of what is moved (pattern · ‖v W_O‖, `attention_read`) or
of the scores before the softmax. Where a text has more tokens than a picture has rows, each cell is a block of the map
and holds the value of it that is farthest from zero, so that a single strong cell never gets lost. As much of many
patterns rests on the first token, which is there to be looked at when nothing else is (Xiao et al. 2023), all pictures
exist without that column, too. Of two texts of equally many tokens, there are the maps of both, and their difference.

    sink(h)     = mean over queries q ≥ 1 of A[q, 0]
    distance(h) = mean over queries of Σ_k A[q, k] (q − k)
    changed(h)  = mean over queries of ½ Σ_k |A[q, k] − A′[q, k]|      with another text: 0 the same, 1 all elsewhere

Papers: Vig 2019, A multiscale visualization of attention (arXiv 1906.05714); Kobayashi et al. 2020, Attention is not
only a weight (arXiv 2004.10102); Xiao et al. 2023, attention sinks (arXiv 2309.17453).

What it does NOT tell: what any head does with what it looks at, or whether it matters here. Take it away and see
(`interp.analyses.local_ablation`).
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from interp.analyses.attention_read import OF, WHAT, Looked, Source, both, each_layer
from interp.analyses.repeated import Progress
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

GRID = ("layer", "head")
SIDE, MOST_CELLS = 24, 200_000
"""Rows of a small picture at most, and cells of all of them together."""
SINK = ("shown", "hidden")


class AttentionMaps(Result, kind="attention.maps"):
    """Every head on one text: `sink`, `distance`, and the `strongest` attention off the first token with its place.

    All [layer, head]; `strongest_query` and `strongest_key` are positions. `small_pattern`, `small_moved` and
    `small_scores` [of, first_token, layer, head, small_query, small_key] are the pictures; each cell stands for a
    square of cells, `settings["block"]` wide. `kv_head` [head] says whose keys a head reads, `token` [position]
    what was read. With another text: `other_token`, `other_sink`, `other_distance` and `changed`.
    """

    grid = GRID
    title = "Attention of every head"
    caution = "Where a head looks is not what it does: take it away, and other heads of its layer, before saying so."

    def picture(self, what: str = "pattern", *, of: str = "prompt", sink: bool = True) -> np.ndarray:
        """The small pictures of all heads, [layer, head, small_query, small_key]."""
        return self.at(f"small_{what}", of=of, first_token=SINK[0 if sink else 1])

    def figure(self, metric: str = "strongest") -> "Figure":
        """One number of every head."""
        from interp.plots import head_heatmap

        title = f"{self.title}: {metric}, {len(self['token'])} tokens"
        return head_heatmap(self[metric], title=title, metric=metric, layers=self.axes["layer"])

    def summary(self) -> list[str]:
        """How much goes to the first token, and the heads that look elsewhere most."""
        lines = [f"{self.title}: {len(self['token'])} tokens, prefix {self.settings['prefix']}"]
        lines.append(f"  {float(self['sink'].mean()):.0%} of all attention rests on the first token")
        for row in self.top("strongest", 5).itertuples():
            query, key = (str(self["token"][place]) for place in (row.strongest_query, row.strongest_key))
            lines.append(
                f"  {f'{row.layer}.{row.head}':>6}  from {query!r} ({row.strongest_query}) to {key!r} "
                f"({row.strongest_key}) {row.strongest:.3f}"
            )
        if "changed" in self:
            most = ", ".join(f"{row.layer}.{row.head} {row.changed:.2f}" for row in self.top("changed", 4).itertuples())
            lines.append(f"  changed most by the other text: {most}")
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def attention_maps(
    model: "Transformer",
    source: Source,
    other: Source | None = None,
    *,
    prefix: PrefixPolicy = "doc",
    progress: Progress | None = None,
) -> AttentionMaps:
    """Small pictures and numbers of every head on one text; with `other`, on both and on their difference.

    A text is read behind `prefix`, tokens [1, pos] as they are. No more than the maps of one layer is ever held.
    Raises `UsageError` for two texts of different lengths, for one token alone, and where a layer has no attention.
    """
    tokens = both(model, source, other, prefix)
    if tokens.shape[1] < 2:
        raise UsageError("One token alone can only look at itself; give a text of two tokens at least.")
    side = _side(model, tokens.shape[1])
    numbers, pictures = dict[str, list[np.ndarray]](), dict[str, list[np.ndarray]]()

    def reduce(looked: Looked) -> Tensor:
        for name, value in _numbers(looked).items():
            numbers.setdefault(name, []).append(value)
        for what in WHAT:
            pictures.setdefault(what, []).append(_pictures(looked.maps(what), side))
        if progress is not None:
            progress(looked.layer + 1, model.config.n_layers)
        return looked.value_norm[0, :, 0]

    each_layer(model, tokens, reduce)
    texts = [token_texts(model, row) for row in tokens.tolist()]
    return AttentionMaps(
        arrays={
            "kv_head": (np.arange(model.config.n_heads) // model.config.queries_per_kv, ("head",)),
            **{name: (np.stack(values), GRID) for name, values in numbers.items()},
            "token": (texts[0], ("position",)),
            **({"other_token": (texts[1], ("position",))} if len(texts) > 1 else {}),
            **{
                f"small_{what}": (np.stack(each, 2), ("of", "first_token", *GRID, "small_query", "small_key"))
                for what, each in pictures.items()
            },
        },
        axes={"of": OF if len(texts) > 1 else OF[:1], "first_token": SINK},
        settings={"prefix": prefix if isinstance(source, str) else "as given", "block": -(-tokens.shape[1] // side)},
        provenance=provenance(model.provenance, tokens=tokens),
    )


def _side(model: "Transformer", length: int) -> int:
    """Rows of a picture: as many as there are tokens, as far as all heads together stay light."""
    heads = model.config.n_layers * model.config.n_heads
    most = max(6, min(SIDE, int((MOST_CELLS / heads) ** 0.5)))
    return -(-length // -(-length // most))


def _numbers(looked: Looked) -> dict[str, np.ndarray]:
    """The numbers of each head of a layer, [head]."""
    pattern = looked.pattern.double()
    length = pattern.shape[-1]
    back = _distances(length).to(pattern)
    sink, distance = pattern[..., 1:, 0].mean(-1), (pattern * back).sum(-1).mean(-1)
    strongest, where = pattern[0, :, :, 1:].flatten(1).max(-1)
    found = {
        "sink": sink[0],
        "distance": distance[0],
        "strongest": strongest,
        "strongest_query": where // (length - 1),
        "strongest_key": where % (length - 1) + 1,
    }
    if len(pattern) > 1:
        found |= {"other_sink": sink[1], "other_distance": distance[1]}
        found["changed"] = (pattern[0] - pattern[1]).abs().sum(-1).mean(-1) / 2
    return {name: value.cpu().numpy() for name, value in found.items()}


def _distances(length: int) -> Tensor:
    """How far back each key stands, [query_pos, key_pos]."""
    places = torch.arange(length)
    return (places[:, None] - places).clamp(min=0)


def _pictures(maps: Float[Tensor, "text head query_pos key_pos"], side: int) -> np.ndarray:
    """[of, first_token, head, side, side]: both texts and their difference, with and without the first column."""
    every = maps if len(maps) == 1 else torch.cat([maps, maps[:1] - maps[1:]])
    without = every.clone()
    without[..., 0] = 0
    return shrunk(torch.stack([every, without], 1), side).cpu().numpy()


def shrunk(maps: Float[Tensor, "*maps query_pos key_pos"], side: int) -> Float[Tensor, "*maps side side"]:
    """Blocks of square maps, each as the value farthest from zero in it."""
    block = -(-maps.shape[-1] // side)
    missing = side * block - maps.shape[-1]
    padded = torch.nn.functional.pad(maps, (0, missing, 0, missing))
    blocks = rearrange(
        padded, "... (down row) (across column) -> ... down across (row column)", row=block, column=block
    )
    high, low = blocks.amax(-1), blocks.amin(-1)
    return torch.where(high >= -low, high, low)
