"""Preallocated keys and values of tokens that were read already, so that a continuation reads them instead of again.

    cache = KVCache.for_model(model, batch=1)
    model(prompt, kv_cache=cache)          # the cache now holds the prompt
    model(next_tokens, kv_cache=cache)     # logits of the new tokens only

Keys are stored after rotation, with the KV heads of the model, never expanded: 2 · layers · KV heads · head width ·
itemsize bytes a token. A cache is an argument of a forward pass, not a part of the model, so two conversations never
meet. It is filled when a pass has ended: one that was interrupted leaves it as it was.

Editing what is stored (`cache.keys`, `cache.values` are views) changes what later tokens read, not what earlier ones
already computed: residuals and keys of later layers and later positions came from the old values.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.config import ModelConfig

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


class KVCache:
    """Keys and values of `length` columns of tokens, for `batch` rows.

    `capacity` columns are allocated; where they do not suffice the cache doubles, unless `grows` is False.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        batch: int,
        capacity: int = 256,
        grows: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if batch < 1 or capacity < 1:
            raise UsageError(f"A cache holds at least one row and one token, not {batch} and {capacity}.")
        self.config = config
        self.batch = batch
        self.grows = grows
        self.length = 0
        # the columns of a head lie together, so that one query's product with all of them is one pass over memory
        shape = (2, config.n_layers, batch, config.n_kv_heads, capacity, config.d_head)
        with torch.inference_mode(False):  # else only inference mode could write to it later
            self._stored = torch.empty(shape, device=device, dtype=dtype)
        self._mask: Bool[Tensor, "batch capacity"] | None = None
        self._new: tuple[Tensor, ...] = ()
        self._readable: tuple[Tensor, ...] = ()

    @classmethod
    def for_model(cls, model: "Transformer", *, batch: int, capacity: int = 256, grows: bool = True) -> "KVCache":
        """A cache with the model's layout, device and dtype."""
        return cls(model.config, batch=batch, capacity=capacity, grows=grows, device=model.device, dtype=model.dtype)

    def __repr__(self) -> str:
        return f"KVCache({self.batch} × {self.length} of {self.capacity} tokens, {self.nbytes / 2**20:.1f} MiB)"

    @property
    def capacity(self) -> int:
        """Columns that fit without growing."""
        return self._stored.shape[4]

    @property
    def keys(self) -> Float[Tensor, "layer batch pos kv_head d_head"]:
        """Rotated keys of what was read: a writable view."""
        return self._columns(self.length)[0]

    @property
    def values(self) -> Float[Tensor, "layer batch pos kv_head d_head"]:
        """Values of what was read: a writable view."""
        return self._columns(self.length)[1]

    @property
    def mask(self) -> Bool[Tensor, "batch pos"] | None:
        """Which columns are real tokens; None if none of them is padding."""
        return None if self._mask is None else self._mask[:, : self.length]

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys and values."""
        return self._stored.nbytes

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token of one row: 2 · layers · KV heads · head width · itemsize."""
        return self.nbytes // (self.batch * self.capacity)

    def clone(self) -> "KVCache":
        """A copy that can be continued without touching this one."""
        copied = KVCache.__new__(KVCache)
        copied.__dict__.update(self.__dict__)
        copied._stored = self._stored.clone()
        copied._mask = None if self._mask is None else self._mask.clone()
        return copied

    def truncate(self, length: int) -> None:
        """Forget every column from `length` on."""
        if not 0 <= length <= self.length:
            raise UsageError(f"The cache holds {self.length} tokens; it cannot be cut to {length}.")
        self.length = length

    def reserve(self, capacity: int) -> None:
        """Allocate at least that many columns; what is stored stays."""
        if capacity <= self.capacity:
            return
        if not self.grows:
            raise UsageError(
                f"The cache was made for {self.capacity} tokens, {capacity} are needed; make it larger, or let it grow."
            )
        with torch.inference_mode(False):
            larger = self._stored.new_empty((*self._stored.shape[:4], capacity, self._stored.shape[5]))
            if self._mask is not None:
                self._mask = torch.nn.functional.pad(self._mask, (0, capacity - self._mask.shape[1]))
        larger[..., : self.length, :] = self._stored[..., : self.length, :]
        self._stored = larger

    # ------------------------------------------------------------------------- what a forward pass does with it

    def check(self, config: ModelConfig, tokens: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        """Raise `UsageError` unless these tokens of this model can continue the cache."""
        ours, theirs = (_layout(each) for each in (self.config, config))
        if ours != theirs or (self._stored.device, self._stored.dtype) != (device, dtype):
            raise UsageError(
                f"The cache belongs to another model: layers, KV heads, head width are {ours}, {self._stored.dtype} on "
                f"{self._stored.device}, the model has {theirs}, {dtype} on {device}. Make one with KVCache.for_model."
            )
        if tokens.shape[0] != self.batch:
            raise UsageError(
                f"The cache holds {self.batch} rows, {tokens.shape[0]} came; continue all or make another."
            )
        total = self.length + tokens.shape[1]
        if total > config.n_ctx:
            raise UsageError(
                f"{self.length} cached and {tokens.shape[1]} new tokens exceed the context of {config.n_ctx}."
            )

    def prepare(self, count: int, mask: Bool[Tensor, "batch pos"] | None) -> Bool[Tensor, "batch key_pos"] | None:
        """Make room for `count` new columns; the mask of all columns, old and new (None: no padding anywhere)."""
        if self.length + count > self.capacity:
            self.reserve(max(self.length + count, 2 * self.capacity) if self.grows else self.length + count)
        self._cut(self.length + count)
        if mask is None and self._mask is None:
            return None
        if self._mask is None:
            with torch.inference_mode(False):
                self._mask = torch.zeros(self.batch, self.capacity, dtype=torch.bool, device=self._stored.device)
            self._mask[:, : self.length] = True
        self._mask[:, self.length : self.length + count] = True if mask is None else mask
        return self._mask[:, : self.length + count].clone()

    def extend(
        self,
        layer: int,
        keys: Float[Tensor, "batch pos kv_head d_head"],
        values: Float[Tensor, "batch pos kv_head d_head"],
    ) -> tuple[Float[Tensor, "batch key_pos kv_head d_head"], Float[Tensor, "batch key_pos kv_head d_head"]]:
        """Store one layer's new keys and values behind the old ones; both, old and new."""
        if keys.requires_grad or values.requires_grad:
            raise UsageError("A cache keeps no gradients; run the whole text without one, or under torch.no_grad().")
        of_values = layer + self.config.n_layers
        self._new[layer].copy_(keys)
        self._new[of_values].copy_(values)
        return self._readable[layer], self._readable[of_values]

    def commit(self, count: int) -> None:
        """The pass over `count` new columns has ended: they count from now on."""
        self.length += count
        self._new = self._readable = ()

    def _cut(self, end: int) -> None:
        """The parts of the storage that a pass writes and reads: keys of every layer, then values.

        Cut once a pass: to index the storage anew in every layer takes longer than to copy one token.
        """
        by_layer = self._columns(end).flatten(0, 1)
        self._new = by_layer[:, :, self.length :].unbind(0)
        self._readable = by_layer.unbind(0)

    def _columns(self, end: int) -> Float[Tensor, "2 layer batch pos kv_head d_head"]:
        """Keys and values of the first columns: a writable view."""
        return self._stored[..., :end, :].transpose(3, 4)


def _layout(config: ModelConfig) -> tuple[int, int, int]:
    return config.n_layers, config.n_kv_heads, config.d_head
