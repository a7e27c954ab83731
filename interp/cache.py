"""Recorded activations: a mapping from hook-point names to tensors, and what is read out of it directly.

The residual stream is a sum, so a recorded run can be taken apart exactly: embedding + every sublayer's output, or
each attention sublayer as a sum over its heads (z · W_O) and a bias, or each FFN as a sum over its neurons
(coefficient · row of W_out) and a bias (Elhage et al. 2021, "A mathematical framework for transformer circuits").
What that does not tell: a part's size is not its effect, since later layers read it and answer.
"""

import html
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import LoadError, PointError, UsageError
from interp.hooks import HookPoint
from interp.points import PointTable
from interp.selection import Index, indices

Positions = Index | None
"""Which positions to keep, counted along the tokens of the run, from the end if negative. None: all."""


def position_list(positions: Positions, length: int) -> list[int] | None:
    """The selection as indices from the start; None stays None. Raises `UsageError` where one lies outside."""
    return None if positions is None else indices(positions, length, f"the positions of {length} tokens")


class Recording:
    """A recorder: keeps the value of every point it stands at, as it is after all edits.

    Forward code never writes in place and edits work on copies, so a tensor can be kept without copying it. Slices of
    a larger tensor are copied, lest they keep the whole alive.
    """

    def __init__(
        self, points: PointTable, positions: list[int] | None, device: torch.device | None, differentiate: bool
    ) -> None:
        self.points = points
        self.positions = positions
        self.device = device
        self.differentiate = differentiate
        self.values: dict[str, Tensor] = {}
        self.live: dict[str, Tensor] = {}

    def __call__(self, value: Tensor, point: HookPoint) -> Tensor:
        if self.differentiate and value.is_floating_point():
            # A node of its own: hook_mlp_in is the same tensor as hook_resid_mid, but has fewer readers.
            value = value.view_as(value) if value.requires_grad else value.detach().requires_grad_()
            self.live[point.name] = value
        self.values[point.name] = self.select(value.detach() if self.differentiate else value, point.spec.position_axis)
        return value

    def gradients(self, metric: Tensor) -> dict[str, Tensor]:
        """d metric / d value at every recorded point; zero where the metric does not depend on it."""
        if not isinstance(metric, Tensor) or metric.numel() != 1 or not metric.requires_grad:
            came = f"shape {tuple(metric.shape)}" if isinstance(metric, Tensor) else type(metric).__name__
            raise UsageError(
                f"A gradient needs one number, computed from the logits by differentiable steps; {came} was returned."
            )
        found = torch.autograd.grad(metric, list(self.live.values()), allow_unused=True)
        gradients = {}
        for (name, value), gradient in zip(self.live.items(), found, strict=True):
            axis = self.points[name].position_axis
            gradients[name] = self.select(torch.zeros_like(value) if gradient is None else gradient, axis)
        return gradients

    def select(self, value: Tensor, axis: int) -> Tensor:
        """The chosen positions of a value, on the chosen device, holding no more memory than they need."""
        if self.positions is not None:
            value = value.index_select(axis, torch.tensor(self.positions, device=value.device))
        elif value.untyped_storage().nbytes() > value.nbytes:
            value = value.clone(memory_format=torch.contiguous_format)
        return value if self.device is None else value.to(self.device)


class Decomposable(Protocol):
    """The weights that taking a residual stream apart needs; every model has them."""

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]: ...
    @property
    def b_O(self) -> Float[Tensor, "layer d_model"] | None: ...
    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]: ...
    @property
    def b_out(self) -> Float[Tensor, "layer d_model"] | None: ...


@dataclass(frozen=True)
class ResidualParts:
    """A residual stream taken apart: `values.sum(0)` is the stream; `labels` name the parts in order."""

    values: Float[Tensor, "part batch pos d_model"]
    labels: tuple[str, ...]


class ActivationCache(Mapping[str, Tensor]):
    """What one run computed, by hook-point name: `cache["blocks.5.attn.hook_pattern"]` or `cache["pattern", 5]`.

    Layers may be negative. `positions` are the token positions that were kept (None: all); `gradients`, where they
    were asked for, is a second cache with the same names.
    """

    def __init__(
        self,
        values: Mapping[str, Tensor],
        points: PointTable,
        *,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"] | None = None,
        positions: Sequence[int] | None = None,
        model: Decomposable | None = None,
    ) -> None:
        self._values = dict(values)
        self.points = points
        self.tokens = tokens.clone()  # the caller's own may be written to later
        self.mask = None if mask is None else mask.clone()
        self.positions = list(positions) if positions is not None else None
        self.model = model
        self.gradients: ActivationCache | None = None

    def __getitem__(self, key: str | tuple[str, int]) -> Tensor:
        name = self.points.full_name(key)
        if name not in self._values:
            raise PointError(
                f"{name!r} was not recorded in this run; name it in `names=`. Recorded: {self._summary()}."
            )
        return self._values[name]

    def __contains__(self, key: object) -> bool:
        try:
            return self.points.full_name(cast("str | tuple[str, int]", key)) in self._values
        except PointError:
            return False

    def get(self, key: Any, default: Any = None) -> Any:
        """The recorded value, or the default where there is none."""
        try:
            return self[key]
        except PointError:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        batch, length = self.tokens.shape
        return f"ActivationCache({len(self)} points, batch {batch}, {length} tokens, {self.nbytes / 2**20:.1f} MiB)"

    @property
    def nbytes(self) -> int:
        """Bytes of all recorded values."""
        return sum(value.nbytes for value in self._values.values())

    def stack(self, short: str, layers: Sequence[int] | None = None) -> Float[Tensor, "layer *axes"]:
        """One kind of point over the layers, in order: `cache.stack("resid_post")`. Default: all layers."""
        chosen = range(self.points.n_layers) if layers is None else layers
        if len(chosen) == 0:
            raise UsageError("There are no layers to stack; name at least one.")
        return torch.stack([self[short, layer] for layer in chosen])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "ActivationCache":
        """A copy on another device, or with floating-point values in another dtype."""

        def moved(value: Tensor) -> Tensor:
            return value.to(device=device, dtype=dtype if value.is_floating_point() else None)

        cache = self._like({name: moved(value) for name, value in self._values.items()})
        cache.gradients = self.gradients.to(device, dtype) if self.gradients is not None else None
        return cache

    def residual_parts(
        self, by: Literal["sublayer", "head", "neuron"] = "sublayer", *, layer: int | None = None
    ) -> ResidualParts:
        """The residual stream as a sum of parts: what enters `layer` (None: what leaves the last one).

        Needs `hook_embed`, and of every layer before: `hook_attn_out` and `hook_mlp_out`; `by="head"` needs
        `attn.hook_z` in place of the first, `by="neuron"` needs `mlp.hook_post` in place of the second. Neurons of all
        layers are many: record few positions. `UsageError` where the stream is no such sum: norms after the additions,
        norms between heads or neurons and the stream, neurons of experts.
        """
        if by not in ("sublayer", "head", "neuron"):
            raise UsageError(f"Residual parts come by 'sublayer', 'head' or 'neuron', not by {by!r}.")
        count = self.points.n_layers
        if layer is not None and not -count <= layer <= count:
            raise UsageError(f"There is no layer {layer}: they go from 0 to {count - 1}, {count} means the end.")
        end = count if layer is None else layer + count if layer < 0 else layer
        self._check_additive(by, end)
        parts: list[tuple[str, Tensor]] = [("embed", self["hook_embed"])]
        if "hook_pos_embed" in self.points:
            parts.append(("pos_embed", self["hook_pos_embed"]))
        for index in range(end):
            parts += self._heads(index) if by == "head" else [(f"L{index}.attn", self["attn_out", index])]
            parts += self._neurons(index) if by == "neuron" else [(f"L{index}.mlp", self["mlp_out", index])]
        labels, values = zip(*parts, strict=True)
        return ResidualParts(torch.stack(values), labels)

    def save(self, path: str | Path) -> None:
        """Write the values to one safetensors file; the model itself is not saved."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        header = {
            "format": "interp-cache-1",
            "n_layers": self.points.n_layers,
            "features": sorted(self.points.features),
            "layers": [sorted(features) for features in self.points.layers],
            "sizes": self.points.sizes,
            "positions": self.positions,
        }
        values = {f"value/{name}": value.detach().contiguous().clone() for name, value in self._values.items()}
        if self.gradients is not None:
            values |= {
                f"gradient/{name}": value.detach().contiguous().clone() for name, value in self.gradients.items()
            }
        values["tokens"] = self.tokens.contiguous()
        if self.mask is not None:
            values["mask"] = self.mask.contiguous()
        target = Path(path)
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            save_file(values, beside, metadata={"interp": json.dumps(header)})
            beside.replace(target)
        except (OSError, SafetensorError) as error:
            raise UsageError(
                f"A cache cannot be written to {target} ({error}); name a file in a folder that exists."
            ) from error
        finally:
            beside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, *, model: Decomposable | None = None) -> "ActivationCache":
        """Read what `save` wrote; pass the model to take residual streams apart again. Raises `LoadError`."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {}).get("interp", "{}"))
                stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        except (OSError, SafetensorError, json.JSONDecodeError) as error:
            raise LoadError(
                f"{path} is not a readable activation cache ({error}); write one with `cache.save(path)`."
            ) from error
        if not isinstance(header, dict) or header.get("format") != "interp-cache-1":
            raise LoadError(f"{path} holds tensors but is not an activation cache; write one with `cache.save(path)`.")
        try:
            points = PointTable(
                header["n_layers"], frozenset(header["features"]), header["sizes"], [*map(frozenset, header["layers"])]
            )
            tokens, mask, positions = stored.pop("tokens"), stored.pop("mask", None), header["positions"]
        except (KeyError, TypeError, AttributeError) as error:
            raise LoadError(
                f"{path} is an activation cache in which {error} is missing or of the wrong kind."
            ) from error
        theirs = (points.n_layers, points.sizes.get("head"))
        if model is not None and model.W_O.shape[:2] != theirs:
            came = tuple(model.W_O.shape[:2])
            raise LoadError(
                f"{path} was recorded in a model with (layers, heads) = {theirs}, not {came}; pass that model."
            )

        def group(kind: str) -> "ActivationCache":
            values = {name.removeprefix(kind): value for name, value in stored.items() if name.startswith(kind)}
            ordered = {name: values[name] for name in points if name in values}
            return cls(ordered, points, tokens=tokens, mask=mask, positions=positions, model=model)

        cache = group("value/")
        gradients = group("gradient/")
        cache.gradients = gradients if len(gradients) else None
        return cache

    def _repr_html_(self) -> str:
        kinds: dict[str, list[Tensor]] = {}
        for name, value in self._values.items():
            kinds.setdefault(self.points[name].name, []).append(value)
        rows = "".join(
            f"<tr><td><code>{html.escape(kind)}</code></td><td>{len(values)}</td>"
            f"<td>{' × '.join(map(str, values[0].shape))}</td><td>{sum(v.nbytes for v in values) / 2**20:.2f}</td></tr>"
            for kind, values in kinds.items()
        )
        head = "<tr><th>point</th><th>layers</th><th>shape of one</th><th>MiB</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table>{head}{rows}</table>"

    def _like(self, values: Mapping[str, Tensor]) -> "ActivationCache":
        return ActivationCache(
            values, self.points, tokens=self.tokens, mask=self.mask, positions=self.positions, model=self.model
        )

    def _summary(self) -> str:
        kinds = dict.fromkeys(self.points[name].name for name in self._values)
        return ", ".join(kinds) or "nothing"

    def _weights(self) -> Decomposable:
        if self.model is None:
            raise UsageError(
                "This cache does not know its model; load it with `ActivationCache.load(path, model=model)`."
            )
        return self.model

    def _check_additive(self, by: str, end: int) -> None:
        """Raise `UsageError` where parts would not add up to the stream."""
        if "sum_norm" in self.points.features and end > 0:
            raise UsageError(
                "This model normalises its residual stream after every addition, so that the stream is no sum of what "
                "was written. Compare hook_resid_post of one layer and the next instead, or take layer=0."
            )
        if "post_norm" in self.points.features and by != "sublayer" and end > 0:
            raise UsageError(
                f"Outputs of this model's sublayers are normalised before they are added, so that parts by {by!r} do "
                "not add up to the stream; take by='sublayer'."
            )
        experts = [layer for layer in range(end) if f"blocks.{layer}.mlp.hook_router" in self.points]
        if by == "neuron" and experts:
            raise UsageError(
                f"Layer {experts[0]} is a mixture of experts: which neurons write differs from token to token. Take "
                "by='sublayer' or by='head'."
            )

    def _heads(self, layer: int) -> list[tuple[str, Tensor]]:
        weights, z = self._weights(), self["z", layer]
        results = torch.einsum("bphd,hdm->hbpm", z, weights.W_O[layer].to(z))
        heads = [(f"L{layer}.H{head}", result) for head, result in enumerate(results)]
        return heads + _bias(weights.b_O, layer, f"L{layer}.b_O", results[0])

    def _neurons(self, layer: int) -> list[tuple[str, Tensor]]:
        weights, post = self._weights(), self["post", layer]
        values = torch.einsum("bpf,fm->fbpm", post, weights.W_out[layer].to(post))
        neurons = [(f"neuron {layer}.{neuron}", value) for neuron, value in enumerate(values)]
        return neurons + _bias(weights.b_out, layer, f"L{layer}.b_out", values[0])


def _bias(bias: Tensor | None, layer: int, label: str, like: Tensor) -> list[tuple[str, Tensor]]:
    return [] if bias is None else [(label, bias[layer].to(like).expand_as(like))]
