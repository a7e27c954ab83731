"""The maps of the page of attention: every head as a small picture, one head token by token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.heatmaps import Grid
from interp.apps.dashboard.parameters import Values

if TYPE_CHECKING:
    from interp.analyses.attention import AttentionMaps
    from interp.analyses.head_attention import HeadAttention
    from interp.apps.dashboard.context import Context

STRONGEST = 12
PICTURE_PIXELS = 38
METRICS = {"pattern": "attention", "moved": "attention × ‖value‖", "scores": "score"}


@dataclass(frozen=True)
class Shown:
    """Which of the maps is shown: of what, of which text, with the first token or without."""

    what: str
    of: str
    first: bool

    @classmethod
    def asked(cls, values: Values, maps: "AttentionMaps") -> "Shown":
        """What the controls say; of one text alone, there is nothing but the prompt."""
        return cls(values["what"], values["of"] if "other_token" in maps else "prompt", values["first"])

    @property
    def signed(self) -> bool:
        """Whether values lie on both sides of 0."""
        return self.what == "scores" or self.of == "difference"

    @property
    def metric(self) -> str:
        """What the values are."""
        return METRICS[self.what] + (", difference" if self.of == "difference" else "")


def _labels(tokens: np.ndarray) -> list[str]:
    return [f"{token} {place}" for place, token in enumerate(tokens)]


# ------------------------------------------------------------------------------------------------------- every head


def every_head(maps: "AttentionMaps", shown: Shown) -> Grid:
    """Heads downwards, layers across; KV groups framed."""
    pictures = maps.picture(shown.what, of=shown.of, sink=shown.first)
    flat = pictures.reshape(*pictures.shape[:2], -1)
    strongest = np.take_along_axis(flat, np.abs(flat).argmax(-1)[..., None], -1)[..., 0]
    return Grid(
        values=strongest.T,
        row="head",
        column="layer",
        rows=[str(head) for head in maps.axes["head"]],
        columns=[str(layer) for layer in maps.axes["layer"]],
        metric=f"strongest {shown.metric}",
        row_title="head",
        column_title="layer",
        signed=shown.signed,
        details=_details(maps).T,
        pictures=pictures.swapaxes(0, 1),
        bands=kv_groups(maps["kv_head"]),
        row_pixels=PICTURE_PIXELS,
        upwards=False,
    )


def _details(maps: "AttentionMaps") -> np.ndarray:
    """What hovering says of a head: its share on the first token, and its strongest cell off it, source and goal."""
    said = np.empty(maps["sink"].shape, dtype=object)
    tokens = maps["token"]
    for layer, head in np.ndindex(said.shape):
        query, key = (int(maps[f"strongest_{end}"][layer, head]) for end in ("query", "key"))
        said[layer, head] = (
            f"most off the first token: {maps['strongest'][layer, head]:.3f} from {tokens[query]} {query} to "
            f"{tokens[key]} {key}; first token {maps['sink'][layer, head]:.0%}"
        )
    return said


def kv_groups(kv_head: np.ndarray) -> list[tuple[int, int, str]]:
    """(first head, last head, name) of each KV group; none where every head has its own."""
    if len(set(kv_head.tolist())) == len(kv_head):
        return []
    places = {int(group): np.flatnonzero(kv_head == group) for group in dict.fromkeys(kv_head.tolist())}
    return [(int(heads[0]), int(heads[-1]), f"KV {group}") for group, heads in places.items()]


def every_head_said(maps: "AttentionMaps", shown: Shown) -> str:
    """The text alternative."""
    layers, heads = maps["sink"].shape
    best = maps.top("strongest", 1).iloc[0]
    hidden = "" if shown.first else ", what rests on the first token hidden"
    return (
        f"{layers} layers across, {heads} heads down, each a small map of {len(maps['token'])} queries (down) by as "
        f"many keys (across): {shown.metric}{hidden}. {float(maps['sink'].mean()):.0%} of all attention rests on the "
        f"first token; off it, head {int(best['layer'])}.{int(best['head'])} looks hardest."
    )


# --------------------------------------------------------------------------------------------------------- one head


def one_head(context: "Context", head: "HeadAttention", shown: Shown) -> None:
    """Its map, the chosen row and column as shaded text, its strongest cells."""
    values = head.values(shown.what, of=shown.of, sink=shown.first)
    labels = _labels(head["key_token"])
    whole = shown.what == "pattern" and shown.first and not shown.signed
    grid = Grid(
        values=values,
        row="query",
        column="key",
        rows=labels,
        columns=labels,
        metric=shown.metric,
        row_title="looking (query)",
        column_title="looked at (key)",
        signed=shown.signed,
        bounds=(0.0, 1.0) if whole else None,
        upwards=False,
    )
    query, key = context.heatmap("head", grid, _one_head_said(head, shown))
    tokens = head["other_token"] if shown.of == "other" else head["key_token"]
    st.html(f"<p style='margin:0'>From {look.chip(str(tokens[query]))} (position {query}) it looks at:</p>")
    _shaded(tokens, values[query], query, shown.signed)
    st.html(f"<p style='margin:0'>{look.chip(str(tokens[key]))} (position {key}) is looked at from:</p>")
    _shaded(tokens, values[:, key], key, shown.signed)
    frame = head.strongest(STRONGEST, shown.what, of=shown.of, sink=shown.first)
    for name in ("query_token", "key_token"):
        frame[name] = [look.seen(token) for token in frame[name]]
    columns = ["query", "query_token", "key", "key_token", *(name for name in frame if name.endswith(shown.what))]
    st.dataframe(frame[columns], width="stretch", hide_index=True)
    every = head.to_frame()
    context.export("head", every[every["key"] <= every["query"]])


def _one_head_said(head: "HeadAttention", shown: Shown) -> str:
    best = head.strongest(1, shown.what, of=shown.of, sink=shown.first)
    if best.empty:
        return f"Map of head {head.settings['head']}: nothing is left without the first token."
    row = best.iloc[0]
    return (
        f"Map of head {head.settings['head']}: {shown.metric} from each query (down) to each key (across); strongest "
        f"from {row['query_token']!r} ({row['query']}) to {row['key_token']!r} ({row['key']})."
    )


def _shaded(tokens: np.ndarray, values: np.ndarray, chosen: int, signed: bool) -> None:
    """The text, each token shaded by its value; hovering says the number."""
    from interp.plots import visible

    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    spans = [_span(visible(str(token)), place, float(value), reach, place == chosen, signed)
             for place, (token, value) in enumerate(zip(tokens, values, strict=True))]  # fmt: skip
    st.html(f'<div class="interp-tokens">{"".join(spans)}</div>')


def _span(token: str, place: int, value: float, reach: float, chosen: bool, signed: bool) -> str:
    marked: Any = ' class="chosen"' if chosen else ""
    if value != value:
        return f'<span{marked} style="opacity:.45" title="position {place}: no value">{token}</span>'
    colour = "55,135,192" if value >= 0 else "217,130,43"
    shade = abs(value) / reach * 0.7
    form = "+.4f" if signed else ".4f"
    return (
        f'<span{marked} style="background:rgba({colour},{shade:.2f})" title="position {place}: {value:{form}}">{token}'
        "</span>"
    )
