"""Writing on: one token a step, each step reading the keys and values of all earlier ones from a cache.

Hooks that are active while a step runs act on it, in the prompt and in the continuation alike; `point.rows.start` says
at which column the rows of a step begin, so an edit at a position happens once, when that position is read. What the
steps record is stitched into one `ActivationCache`, equal to that of a full forward pass over the same tokens with the
same edits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.cache import ActivationCache, Recording
from interp.errors import UsageError
from interp.hooks import anyone_listens, recorders_active
from interp.models.checks import check_tokens
from interp.models.kv_cache import KVCache
from interp.models.sampling import Sampling, SamplingOptions

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Stops = Sequence[int | str]
"""Tokens and texts that end a row, themselves included."""


class WritingOptions(SamplingOptions, total=False):
    """What `generate` and `stream` can be told besides how much to write."""

    mask: Bool[Tensor, "batch pos"] | None
    kv_cache: KVCache | None
    stop: Stops


@dataclass
class Writer:
    """One batch of texts being continued; `steps()` yields the next token of every row until all have ended."""

    model: "Transformer"
    tokens: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch pos"] | None
    kv_cache: KVCache
    sampling: Sampling
    stops: Stops = ()
    recordings: list[Recording] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = self.kv_cache.length
        self.prompt_length = self.tokens.shape[1]
        self.alive = torch.ones(len(self.tokens), dtype=torch.bool, device=self.tokens.device)
        if any(stop == "" for stop in self.stops):
            raise UsageError("An empty string stops everywhere; leave it out of `stop`.")

    def steps(self, count: int, names: list[str] | None) -> Iterator[Int[Tensor, "batch"]]:
        """Up to `count` tokens a row. A row that has ended is filled up with padding."""
        generators = self.sampling.generators(len(self.tokens))
        columns, mask = self.tokens, self.mask
        for _ in range(count):
            chosen = self.sampling.choose(self.read(columns, mask, names), self._seen(), generators)
            columns = torch.where(self.alive, chosen, self._padding)[:, None]
            mask = None if self.mask is None and bool(self.alive.all()) else self.alive[:, None].clone()
            self._append(columns, mask)
            self.alive = self.alive & ~self._ended()
            yield columns[:, 0]
            if not bool(self.alive.any()):
                return

    def read(
        self, columns: Int[Tensor, "batch new"], mask: Bool[Tensor, "batch new"] | None, names: list[str] | None
    ) -> Float[Tensor, "batch d_vocab"]:
        """Logits behind each row's last token, by one forward pass over new columns, recorded if points are named."""
        last = self._last_column(columns, mask)
        if names is None and not anyone_listens():
            return self.model.next_logits(columns, mask, self.kv_cache, last)
        recording = Recording(self.model.points(), None, None, differentiate=False)
        with recorders_active(recording, names or ()):
            logits: Tensor = self.model(columns, mask, self.kv_cache)
        if names is not None:
            self.recordings.append(recording)
        return logits[torch.arange(len(logits), device=logits.device), last]

    def stitched(self, names: list[str]) -> ActivationCache:
        """All steps as one cache, after the last token was read too."""
        behind = self.tokens.shape[1] - (self.kv_cache.length - self.start)
        self.read(self.tokens[:, -behind:], None if self.mask is None else self.mask[:, -behind:], names)
        points, total = self.model.points(), self.kv_cache.length
        values = {}
        for name in names:
            parts = [recording.values[name] for recording in self.recordings]
            if points[name].axes[-1] == "key_pos":
                nothing = -torch.inf if "scores" in name else 0.0
                parts = [F.pad(part, (0, total - part.shape[-1]), value=nothing) for part in parts]
            values[name] = torch.cat(parts, points[name].position_axis)
        return ActivationCache(values, points, tokens=self.tokens, mask=self.mask, model=self.model)

    @property
    def _padding(self) -> int:
        return self.model.tokenizer.pad_id if self.model.has_tokenizer else 0

    def _append(self, columns: Tensor, mask: Tensor | None) -> None:
        if mask is not None and self.mask is None:
            self.mask = torch.ones_like(self.tokens, dtype=torch.bool)
        if self.mask is not None:
            new = torch.ones_like(columns, dtype=torch.bool) if mask is None else mask
            self.mask = torch.cat([self.mask, new], 1)
        self.tokens = torch.cat([self.tokens, columns], 1)

    def _last_column(self, columns: Tensor, mask: Tensor | None) -> Tensor:
        """Where each row's last real token stands: behind it a right-padded prompt is empty."""
        if mask is None:
            return torch.full((len(columns),), columns.shape[1] - 1, device=columns.device)
        places = torch.arange(columns.shape[1], device=columns.device)
        return (places * mask).argmax(-1)

    def _seen(self) -> Bool[Tensor, "batch d_vocab"]:
        seen = torch.zeros(len(self.tokens), self.model.config.d_vocab, dtype=torch.bool, device=self.tokens.device)
        if self.sampling.repetition_penalty == 1.0:
            return seen
        real = torch.ones_like(self.tokens, dtype=torch.bool) if self.mask is None else self.mask
        rows = torch.arange(len(self.tokens), device=self.tokens.device)[:, None].expand_as(self.tokens)
        seen[rows[real], self.tokens[real]] = True
        return seen

    def _ended(self) -> Bool[Tensor, "batch"]:
        """Rows whose newest token, or whose newest text, is a stop."""
        ended = torch.zeros_like(self.alive)
        for stop in self.stops:
            if isinstance(stop, int):
                ended |= self.tokens[:, -1] == stop
        strings = [stop for stop in self.stops if isinstance(stop, str)]
        if strings:
            for row in self.alive.nonzero()[:, 0].tolist():
                written = self.model.tokenizer.decode(self.tokens[row, self.prompt_length :].tolist())
                ended[row] |= any(stop in written for stop in strings)
        return ended


def writer(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], max_new_tokens: int, **how: Unpack[WritingOptions]
) -> Writer:
    """A writer for these prompts, with a cache that is just large enough if none is given."""
    mask, kv_cache, stop = how.pop("mask", None), how.pop("kv_cache", None), how.pop("stop", ())
    sampling = Sampling(**cast("dict[str, Any]", how))
    check_tokens(tokens, mask, model.config, continued=kv_cache is not None)
    if max_new_tokens < 1:
        raise UsageError(f"At least one new token must be asked for, not {max_new_tokens}.")
    batch, length = tokens.shape
    held = length if kv_cache is None else kv_cache.length + length
    if held + max_new_tokens > model.config.n_ctx:
        raise UsageError(
            f"{held} tokens and {max_new_tokens} new ones exceed the context of {model.config.n_ctx}; ask for fewer."
        )
    if kv_cache is None:
        kv_cache = KVCache.for_model(model, batch=batch, capacity=length + max_new_tokens)
    tokens = tokens.to(model.device)
    mask = None if mask is None else mask.to(model.device)
    return Writer(model, tokens, mask, kv_cache, sampling, stop)
