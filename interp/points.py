"""The registry of hook points: every named intermediate value of a transformer, with one shape and one equation.

This file holds the only copy. Recording, slicing by position, memory estimates, documentation, command-line help and
tests are generated from it. Names follow the convention that TransformerLens made familiar, so that published snippets
port; where its names carried two meanings, ours carry one.

Axes: batch · pos (query_pos, key_pos) · head (query heads) · kv_head · d_head · d_model · d_mlp · expert · slot (the
chosen experts of a token, best first) · d_vocab.
"""

import fnmatch
import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from interp.errors import PointError, nearest

Feature = Literal[
    "position_embedding",
    "sequential_block",
    "input_norm",
    "sum_norm",
    "post_norm",
    "final_norm",
    "gated",
    "dense_ffn",
    "mixture_of_experts",
    "shared_expert",
]
"""What an architecture, or one of its layers, must have for some points to exist; a model states its own sets."""

WHY_ABSENT: dict[Feature, str] = {
    "position_embedding": "this model has no position embeddings (positions act on queries and keys, or on scores)",
    "sequential_block": "attention and FFN of this model run in parallel, so there is no residual stream between them",
    "input_norm": "sublayers of this model read the residual stream as it is",
    "sum_norm": "this model does not normalise the residual stream after an addition",
    "post_norm": "this model does not normalise the outputs of its sublayers",
    "final_norm": "this model has no norm before its unembedding",
    "gated": "the FFN of this model has no gate, so there is only one key match: mlp.hook_pre",
    "dense_ffn": "this layer's FFN is a mixture of experts",
    "mixture_of_experts": "this layer has one dense FFN, without router or experts",
    "shared_expert": "this layer has no shared expert",
}

Names = str | Callable[[str], bool] | Sequence[str | Callable[[str], bool]] | None
"""A selection of points: an exact name, a glob, a predicate, a list of those, or None (all that are not on demand)."""


@dataclass(frozen=True)
class Point:
    """One kind of hook point. `name` is written after `blocks.{layer}.` where `per_layer` holds."""

    name: str
    axes: tuple[str, ...]
    equation: str
    needs: tuple[Feature, ...] = ()
    per_layer: bool = True
    on_demand: bool = False
    wide: bool = False
    """Whether the values are at least float32 whatever the model's dtype."""
    whole: bool = False
    """Whether the values are whole numbers, in int64."""

    @property
    def position_axis(self) -> int:
        """Index of the axis that position selection works on: its own rows, never the keys."""
        return next(index for index, axis in enumerate(self.axes) if axis in ("pos", "query_pos"))

    @property
    def short(self) -> str:
        """The name without `hook_`, as `cache["attn.pattern", 5]` takes it."""
        return self.name.replace("hook_", "")

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for given axis sizes (`query_pos` and `key_pos` default to `pos`)."""
        known = {"1": 1, "query_pos": sizes["pos"], "key_pos": sizes["pos"], **sizes}
        return tuple(known[axis] for axis in self.axes)


def _point(name: str, axes: str, equation: str, *needs: Feature, layer: bool = True, on_demand: bool = False) -> Point:
    wide, whole = name.endswith("hook_scale"), name.endswith("indices")
    return Point(name, tuple(axes.split()), equation, needs, layer, on_demand, wide, whole)


def _norm(name: str, *needs: Feature, layer: bool = True) -> list[Point]:
    return [
        _point(f"{name}.hook_scale", "batch pos 1", "the divisor of the norm", *needs, layer=layer),
        _point(
            f"{name}.hook_normalized", "batch pos d_model", "input / scale, gain and bias applied", *needs, layer=layer
        ),
    ]


_RESID, _Q, _KV, _SQUARE = (
    "batch pos d_model",
    "batch pos head d_head",
    "batch pos kv_head d_head",
    "batch head query_pos key_pos",
)

REGISTRY: tuple[Point, ...] = (
    _point("hook_embed", _RESID, "token embedding, as it enters the residual stream", layer=False),
    _point("hook_pos_embed", _RESID, "position embedding", "position_embedding", layer=False),
    _point("hook_resid_pre", _RESID, "hook_resid_post of the layer before"),
    *_norm("ln1", "input_norm"),
    _point(
        "hook_q_input", "batch pos head d_model", "the residual as each query head reads it, before ln1", on_demand=True
    ),
    _point(
        "hook_k_input",
        "batch pos kv_head d_model",
        "the residual as each KV head's keys read it, before ln1",
        on_demand=True,
    ),
    _point(
        "hook_v_input",
        "batch pos kv_head d_model",
        "the residual as each KV head's values read it, before ln1",
        on_demand=True,
    ),
    _point("attn.hook_q", _Q, "normalized · W_Q + b_Q, before rotation"),
    _point("attn.hook_k", _KV, "normalized · W_K + b_K, before rotation"),
    _point("attn.hook_v", _KV, "normalized · W_V + b_V"),
    _point("attn.hook_rot_q", _Q, "q after its norm and rotation: what enters the scores"),
    _point("attn.hook_rot_k", _KV, "k after its norm and rotation: what enters the scores"),
    _point("attn.hook_attn_scores", _SQUARE, "rot_q · rot_k / √d_head (scaled, capped, biased); masked = −inf"),
    _point("attn.hook_pattern", _SQUARE, "softmax of the scores over key_pos; rows of padded queries are zero"),
    _point("attn.hook_z", _Q, "Σ over key_pos of pattern · v"),
    _point("attn.hook_result", "batch pos head d_model", "z · W_O per head", on_demand=True),
    _point("attn.hook_out", _RESID, "Σ over head of result, + b_O"),
    *_norm("ln1_post", "post_norm"),
    _point("hook_attn_out", _RESID, "exactly what is added to the residual"),
    *_norm("ln1", "sum_norm"),
    _point(
        "hook_resid_mid", _RESID, "resid_pre + hook_attn_out (normalised by ln1, if that follows)", "sequential_block"
    ),
    _point("hook_mlp_in", _RESID, "the residual as the FFN reads it, before ln2", on_demand=True),
    *_norm("ln2", "input_norm"),
    _point("mlp.hook_router", "batch pos expert", "router logits", "mixture_of_experts"),
    _point("mlp.hook_expert_indices", "batch pos slot", "the chosen experts", "mixture_of_experts"),
    _point(
        "mlp.hook_expert_weights", "batch pos slot", "mixing weights, after any renormalisation", "mixture_of_experts"
    ),
    _point(
        "mlp.hook_pre",
        "batch pos d_mlp",
        "key match of the gate: normalized · W_gate + b_gate (ungated: · W_in + b_in)",
        "dense_ffn",
    ),
    _point(
        "mlp.hook_pre_linear",
        "batch pos d_mlp",
        "key match of the up projection: normalized · W_in + b_in",
        "dense_ffn",
        "gated",
    ),
    _point(
        "mlp.hook_post",
        "batch pos d_mlp",
        "the memory coefficient, signed: act(pre) · pre_linear (ungated: act(pre))",
        "dense_ffn",
    ),
    _point("mlp.hook_pre", "batch pos slot d_expert", "the same in each chosen expert", "mixture_of_experts"),
    _point("mlp.hook_pre_linear", "batch pos slot d_expert", "the same in each chosen expert", "mixture_of_experts"),
    _point("mlp.hook_post", "batch pos slot d_expert", "the same in each chosen expert", "mixture_of_experts"),
    _point(
        "mlp.hook_expert_out",
        "batch pos slot d_model",
        "each chosen expert's output before weighting",
        "mixture_of_experts",
        on_demand=True,
    ),
    *(
        _point(f"mlp.shared.hook_{name}", axes, f"{words} of the shared expert", "shared_expert", on_demand=True)
        for name, axes, words in (
            ("pre", "batch pos d_shared", "key match of the gate"),
            ("pre_linear", "batch pos d_shared", "key match of the up projection"),
            ("post", "batch pos d_shared", "memory coefficient"),
            ("out", _RESID, "output, weighted by its gate if it has one,"),
        )
    ),
    _point("mlp.hook_out", _RESID, "Σ over d_mlp of post · W_out, + b_out (experts: weighted, and the shared one)"),
    *_norm("ln2_post", "post_norm"),
    _point("hook_mlp_out", _RESID, "exactly what is added to the residual"),
    *_norm("ln2", "sum_norm"),
    _point(
        "hook_resid_post", _RESID, "resid_mid + hook_mlp_out (parallel: + both; normalised by ln2, if that follows)"
    ),
    *_norm("ln_final", "final_norm", layer=False),
    _point("unembed.hook_out", "batch pos d_vocab", "logits, before a final soft-cap", layer=False),
)


class PointTable(Mapping[str, Point]):
    """The points that one model has, by full name, in the order in which a forward pass reaches them."""

    def __init__(
        self,
        n_layers: int,
        features: frozenset[Feature],
        sizes: Mapping[str, int],
        layers: Sequence[frozenset[Feature]] = (),
    ) -> None:
        """`features` hold everywhere; `layers` states further ones, layer by layer."""
        self.n_layers = n_layers
        self.features = features
        self.layers = tuple(layers)
        self.sizes = dict(sizes)
        self._points = {name: point for name, point in _expand(n_layers) if set(point.needs) <= self._features(name)}
        self._short = {point.short: point for point in REGISTRY}
        for point in sorted(REGISTRY, key=lambda point: -point.name.count(".")):
            last = point.short.rsplit(".", 1)[-1]
            namesakes = {other.short for other in REGISTRY if other.short.rsplit(".", 1)[-1] == last}
            shallowest = min(name.count(".") for name in namesakes)
            if {point.short} == {name for name in namesakes if name.count(".") == shallowest}:
                self._short[last] = point

    def _features(self, name: str) -> frozenset[Feature]:
        """What holds for the layer that a point belongs to."""
        if not self.layers or not name.startswith("blocks."):
            return self.features
        return self.features | self.layers[int(name.split(".", 2)[1])]

    def __getitem__(self, name: str) -> Point:
        if name not in self._points:
            raise PointError(self.why_absent(name))
        return self._points[name]

    def __contains__(self, name: object) -> bool:
        return name in self._points

    def get(self, name: str, default: Any = None) -> Any:
        """The point of that full name, or the default."""
        return self._points.get(name, default)

    def __repr__(self) -> str:
        return "\n".join(f"{name:<34} {self.shape_of(name):<46} {point.equation}" for name, point in self.items())

    def _repr_html_(self) -> str:
        cells = ((name, self.shape_of(name), point.equation) for name, point in self.items())
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        return f"<table><tr><th>point</th><th>shape</th><th>equation</th></tr>{rows}</table>"

    def shape_of(self, name: str) -> str:
        """Axes of a point, with the sizes that the model fixes: `batch pos head=9 d_head=64`."""
        return " ".join(f"{axis}={self.sizes[axis]}" if axis in self.sizes else axis for axis in self[name].axes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def full_name(self, key: str | tuple[str, int]) -> str:
        """The full name behind `"hook_embed"`, `"embed"` or `("pattern", 5)`; layers count from the end if negative."""
        if isinstance(key, str):
            point = self._short.get(key)
            name = point.name if point and not point.per_layer else key
        else:
            short, layer = self._short_and_layer(key)
            if not -self.n_layers <= layer < self.n_layers:
                raise PointError(f"Layer {layer} is outside: this model has layers 0 to {self.n_layers - 1}.")
            name = f"blocks.{layer % self.n_layers}.{self._short[short].name}"
        self[name]
        return name

    def _short_and_layer(self, key: object) -> tuple[str, int]:
        """A short name that the registry knows and that has layers, and the layer."""
        if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int)):
            raise PointError(f"A point is named by its full name, or by a pair such as ('pattern', 5), not by {key!r}.")
        short = key[0].replace("hook_", "")
        if short not in self._short:
            several = [known for known in self._short if known.endswith(f".{short}")]
            hint = f" Say which: {', '.join(map(repr, several))}." if several else nearest(short, self._short)
            raise PointError(f"No hook point is called {key[0]!r}.{hint}")
        if not self._short[short].per_layer:
            raise PointError(f"{short!r} has no layers; its name is {self._short[short].name!r}.")
        return short, key[1]

    def resolve(self, names: Names) -> list[str]:
        """Full names of a selection, in firing order.

        Every part of the selection must match something: a name that matches nothing is a `PointError` with the
        nearest names, also inside a list whose other names match.
        """
        if isinstance(names, str) and names in self._points:
            return [names]
        if names is None:
            return [name for name, point in self._points.items() if not point.on_demand]
        patterns = list(names) if isinstance(names, Sequence) and not isinstance(names, str) else [names]
        if not patterns:
            raise PointError("The list of hook points is empty; name at least one, or pass None for all.")
        chosen = set().union(*(self._match(pattern) for pattern in patterns))
        return [name for name in self._points if name in chosen]

    def nbytes(self, names: Names, *, batch: int, pos: int, rows: int | None = None, itemsize: int = 4) -> int:
        """Bytes that recording a selection takes; `rows` positions of the `pos` are kept (None: all)."""
        total = 0
        for name in self.resolve(names):
            point = self._points[name]
            shape = list(point.shape({**self.sizes, "batch": batch, "pos": pos}))
            if rows is not None:
                shape[point.position_axis] = rows
            size = 8 if point.whole else max(itemsize, 4) if point.wide else itemsize
            for length in shape:
                size *= length
            total += size
        return total

    def _chosen(self, predicate: Callable[[str], bool]) -> set[str]:
        found = {name for name in self._points if predicate(name)}
        if not found:
            raise PointError("The predicate chose no hook point; `model.points()` lists the names it is asked about.")
        return found

    def why_absent(self, name: str) -> str:
        """One sentence on why this model has no point of that name."""
        for known, point in _expand(self.n_layers):
            if known == name:
                missing = next(feature for feature in point.needs if feature not in self._features(name))
                return f"{name!r} cannot exist here: {WHY_ABSENT[missing]}."
        parts = name.split(".", 2)
        if parts[0] == "blocks" and len(parts) == 3 and parts[1].isdigit() and int(parts[1]) >= self.n_layers:
            return f"{name!r} is outside: this model has layers 0 to {self.n_layers - 1}."
        short = self._short.get(name.replace("hook_", ""))
        if short is not None:
            return f"{name!r} exists in every layer: write 'blocks.0.{short.name}', or 'blocks.*.{short.name}' for all."
        return f"No hook point matches {name!r}.{nearest(name, self._points)} `model.points()` lists them all."

    def _match(self, pattern: str | Callable[[str], bool]) -> set[str]:
        if callable(pattern):
            return self._chosen(pattern)
        if not isinstance(pattern, str):
            raise PointError(f"Points are named by text, globs or predicates, not by {pattern!r}.")
        if pattern in self._points:
            return {pattern}
        if any(sign in pattern for sign in "*?["):
            found = set(fnmatch.filter(self._points, pattern))
            if found:
                return found
            for known, _ in _expand(self.n_layers):
                if fnmatch.fnmatchcase(known, pattern):
                    raise PointError(self.why_absent(known))
        return {self.full_name(pattern)}


def _expand(n_layers: int) -> Iterator[tuple[str, Point]]:
    """(full name, point) for all points of the registry, in firing order."""
    per_layer = [point for point in REGISTRY if point.per_layer]
    first = REGISTRY.index(per_layer[0])
    for point in REGISTRY[:first]:
        yield point.name, point
    for layer in range(n_layers):
        for point in per_layer:
            yield f"blocks.{layer}.{point.name}", point
    for point in REGISTRY[first:]:
        if not point.per_layer:
            yield point.name, point


def markdown_table(points: Iterable[Point] = REGISTRY) -> str:
    """The registry as a Markdown table: name, axes, equation, and what it needs to exist."""
    rows = ["| point | shape | equation | exists |", "|---|---|---|---|"]
    for point in points:
        prefix = "blocks.{layer}." if point.per_layer else ""
        needs = ", ".join(feature.replace("_", " ") for feature in point.needs) or "always"
        when = f"{needs}; on demand" if point.on_demand else needs
        rows.append(f"| `{prefix}{point.name}` | {' · '.join(point.axes)} | {point.equation} | {when} |")
    return "\n".join(rows) + "\n"
