"""Is what was loaded right? Comparisons that every model must pass, each with its worst error and its tolerance.

Equations between all recorded values; reading token by token against reading at once; padded batches against single
texts; this device against the CPU; and the same weights in `transformers`. Only the last can tell whether the weights
stand where they belong: the others hold in any model, a random one too.
"""

import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import __version__
from interp.models.batching import pad
from interp.models.certificates import store
from interp.models.config import ModelConfig
from interp.models.identities import identities, recorded
from interp.models.kv_cache import KVCache
from interp.models.loading import load
from interp.models.reference import NoReferenceError, reference
from interp.models.rotary import needs_length
from interp.models.sources.files import Progress
from interp.models.transformer import Transformer

LENGTH = 24
"""Tokens of the text that is read; fewer where the model changes what it computes for longer ones."""
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Of the largest value compared. Tables of positions are float32 in any dtype, so float64 is no tighter."""
ACROSS_DEVICES = 5.0
"""How much further sums in another order, on another device, may lie apart."""


@dataclass(frozen=True)
class Line:
    """One comparison. `error` is relative to the largest value; None, like `passed`, where nothing was compared."""

    compared: str
    error: float | None
    tolerance: float
    passed: bool | None
    note: str = ""


@dataclass(frozen=True)
class Verification:
    """All comparisons of one model, and what they were made with."""

    model: str
    weights_sha256: str | None
    date: str
    dtype: str
    device: str
    seed: int
    versions: Mapping[str, str]
    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        """Whether no comparison failed."""
        return all(line.passed is not False for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a certificate holds them."""
        return {**asdict(self), "lines": [asdict(line) for line in self.lines], "passed": self.passed}


def certify(
    name_or_path: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Verification, Path]:
    """Load a model, verify it, and keep the certificate in the cache folder, where later loads of it find it.

    A certificate of a model that failed is kept too, and quoted as such.
    """
    model = load(name_or_path, device=device, dtype=dtype, revision=revision, progress=progress)
    verified = verify(model, seed=seed)
    assert verified.weights_sha256 is not None, "what was loaded has a hash"
    return verified, store(verified.weights_sha256, verified.to_dict())


def verify(model: Transformer, *, seed: int = 0) -> Verification:
    """Make every comparison on a random text of that seed. Takes memory for a second copy of the weights."""
    length = text_length(model.config)
    drawn = torch.randint(0, model.config.d_vocab, (1, length), generator=torch.Generator().manual_seed(seed))
    tokens = drawn.to(model.device)
    facts = model.provenance
    with torch.inference_mode():
        lines = tuple(_lines(model, tokens, str(facts.get("source", ""))))
    return Verification(
        model=str(facts["model"]),
        weights_sha256=facts.get("weights_sha256"),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        dtype=facts["dtype"],
        device=facts["device"],
        seed=seed,
        versions={"interp": __version__, "torch": torch.__version__, "python": platform.python_version()},
        lines=lines,
    )


def text_length(config: ModelConfig) -> int:
    """How many tokens are read."""
    changes = [rotary.original_context for rotary in config.rotaries if needs_length(rotary)]
    return min(LENGTH, config.n_ctx, *changes)


def _lines(model: Transformer, tokens: Int[Tensor, "1 pos"], source: str) -> Iterator[Line]:
    tolerance, logits = TOLERANCE[model.dtype], model(tokens)
    yield _points(model, tokens)
    worst: dict[str, float] = {}
    for theme, found, computed in identities(model, tokens):
        worst[theme] = max(worst.get(theme, 0.0), relative_error(found, computed))
    for theme, error in worst.items():
        yield _line(f"equations of the hook points: {theme}", error, tolerance)
    explicit, _ = model.run_with_cache(tokens, "blocks.*.attn.hook_pattern")
    yield _line("fused attention = explicit attention", relative_error(logits, explicit), tolerance)
    yield _line("token by token = all at once", relative_error(_decoded(model, tokens), logits), tolerance)
    for side in ("left", "right"):
        yield _line(f"in a batch padded on the {side} = alone", _padding_error(model, tokens, side), tolerance)
    if _elsewhere(model):
        yield _device_line(model, tokens, logits)
    yield _reference_line(model, tokens, logits, source)


def _line(compared: str, error: float, tolerance: float, note: str = "") -> Line:
    """Passed if the error is a number within the tolerance."""
    return Line(compared, error if math.isfinite(error) else None, tolerance, error <= tolerance, note)


def relative_error(found: Float[Tensor, "*axes"], expected: Float[Tensor, "*axes"]) -> float:
    """The largest difference, as a part of the largest value expected; infinite where one of them is no number."""
    largest, difference = float(expected.abs().max()), float((found.float() - expected.float()).abs().max())
    if not math.isfinite(largest + difference):
        return math.inf
    return difference if difference == 0 or largest == 0 else difference / largest


def _points(model: Transformer, tokens: Int[Tensor, "1 pos"]) -> Line:
    """Whether every point has the shape that its table promises."""
    points, wrong = model.points(), 0
    sizes = {**points.sizes, "batch": tokens.shape[0], "pos": tokens.shape[1]}
    for layer in range(model.config.n_layers + 1):
        inside = f"blocks.{layer}."
        outside = [name for name in points if not name.startswith("blocks.")] if layer == model.config.n_layers else []
        names = outside or [name for name in points if name.startswith(inside)]
        values = recorded(model, tokens, names)
        wrong += sum(tuple(values[name].shape) != points[name].shape(sizes) for name in names)
    return _line(f"shapes of all {len(points)} hook points", float(wrong), 0.0)


def _decoded(model: Transformer, tokens: Int[Tensor, "1 pos"]) -> Float[Tensor, "1 pos d_vocab"]:
    """Logits where half of the text is read at once and the rest token by token."""
    cache, half = KVCache.for_model(model, batch=1), max(1, tokens.shape[1] // 2)
    pieces = tokens.split_with_sizes([half, *[1] * (tokens.shape[1] - half)], 1)
    return torch.cat([model(piece, kv_cache=cache) for piece in pieces], 1)


def _padding_error(model: Transformer, tokens: Int[Tensor, "1 pos"], side: str) -> float:
    """The worst of three texts of different lengths."""
    lengths = sorted({tokens.shape[1], max(1, tokens.shape[1] - 5), max(1, tokens.shape[1] // 2)})
    rows = [tokens[0, :length].tolist() for length in lengths]
    batch, mask = pad(rows, 0, "left" if side == "left" else "right")
    together = model(batch.to(model.device), mask.to(model.device))
    return max(_row_error(model, row, together[index][mask[index]]) for index, row in enumerate(rows))


def _row_error(model: Transformer, row: list[int], found: Float[Tensor, "pos d_vocab"]) -> float:
    return relative_error(found, model(torch.tensor([row], device=model.device))[0])


def _elsewhere(model: Transformer) -> bool:
    """Whether there is a CPU to compare with."""
    return model.device.type != "cpu"


def _device_line(model: Transformer, tokens: Int[Tensor, "1 pos"], logits: Float[Tensor, "1 pos d_vocab"]) -> Line:
    """The same text read by a copy on the CPU."""
    error = relative_error(logits.cpu(), _on_cpu(model)(tokens.cpu()))
    return _line(f"{model.device} = cpu", error, TOLERANCE[model.dtype] * ACROSS_DEVICES)


def _on_cpu(model: Transformer) -> Transformer:
    """A copy on the CPU."""
    copied = Transformer(model.config, device="cpu", dtype=model.dtype)
    for ours, theirs in zip(copied.parameters(), model.parameters(), strict=True):
        ours.data.copy_(theirs.data)
    return copied


def _reference_line(model: Transformer, tokens: Tensor, logits: Tensor, source: str) -> Line:
    """The same text read by `transformers`."""
    tolerance = TOLERANCE[model.dtype]
    try:
        name, hf = reference(source, dtype=model.dtype, device=model.device)
    except NoReferenceError as none:
        return Line("transformers", None, tolerance, None, str(none))
    error = relative_error(logits, hf(tokens, use_cache=False).logits)
    return _line(f"the same weights in {name}", error, tolerance)
