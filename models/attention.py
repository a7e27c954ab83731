"""Self-attention, for any number of query heads per KV head.

Query head h reads KV head h // (n_heads / n_kv_heads). Keys and values are never expanded to the query heads. While
nobody listens to the scores or the pattern, a fused kernel computes z; both ways give the same values within rounding.
What varies between models: norms of queries and keys, rotation, windows, biases and a soft-cap on scores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.errors import HookError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.kv_cache import KVCache
from interp.models.linear import linear
from interp.models.norm import HeadNorm, Norm
from interp.models.point import hook_point
from interp.models.positions import Rotation, alibi_bias, alibi_slopes, rotation


class SideBySide(Protocol):
    """Rows of several runs, laid out in one line of tokens: each reads its own keys and those that its run shares."""

    def attend(self, attention: "Attention", q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "1 kept head d_head"]:
        """z of every row that the rest of the layer is computed for."""

    def kept(self, resid: Float[Tensor, "1 pos d_model"]) -> Float[Tensor, "1 kept d_model"]:
        """The same rows of the residual stream."""


Edges = Bool[Tensor, "batch query_pos key_pos"] | None
"""Who may read whom; None: every query all keys up to its own."""


@dataclass(frozen=True)
class Reading:
    """What the attention layers of one forward pass share: how positions turn, and who may read whom."""

    rotations: Mapping[RotaryConfig, Rotation] = field(default_factory=dict)
    edges: Mapping[int | None, Edges] = field(default_factory=lambda: {None: None})
    """By window: real keys at or before each query, within reach."""
    bias: Float[Tensor, "batch head 1 key_pos"] | None = None
    """What is added to scores (ALiBi)."""
    padded: Bool[Tensor, "batch query_pos"] | None = None
    """Queries that are padding: their pattern and z are zero."""
    kv_cache: KVCache | None = None
    """Keys and values of earlier columns, which the new rows read and join."""
    side_by_side: SideBySide | None = None
    """How the line of tokens splits into runs, where it holds several."""

    def kept(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch kept d_model"]:
        """The rows of the residual stream that a layer adds to: all, unless some are not read by anyone later."""
        return resid if self.side_by_side is None else self.side_by_side.kept(resid)


def reading(
    config: ModelConfig,
    positions: Int[Tensor, "batch key_pos"],
    mask: Bool[Tensor, "batch key_pos"] | None,
    rows: int,
    kv_cache: KVCache | None = None,
) -> Reading:
    """What the attention layers of a forward pass share.

    `positions` and `mask` cover all columns that can be read; the `rows` that read are the last of them.
    """
    new = positions[:, -rows:] if mask is not None else positions[:1, -rows:]
    length = positions.shape[1] if mask is None else None
    bias = alibi_bias(alibi_slopes(config.n_heads, device=positions.device), positions) if config.alibi else None
    return Reading(
        {rotary: rotation(rotary, config.d_head, new, length=length) for rotary in config.rotaries},
        {window: edges(positions.shape[1], rows, mask, window, positions.device) for window in config.windows},
        bias,
        None if mask is None else ~mask[:, -rows:],
        kv_cache,
    )


def edges(
    n_keys: int, n_queries: int, mask: Bool[Tensor, "batch key_pos"] | None, window: int | None, device: torch.device
) -> Edges:
    """Real keys at or before each query and, with a window, less than that many columns back; None: all up to it.

    The queries are the last of the keys.
    """
    reaches_all = window is None or window >= n_keys
    if mask is None and reaches_all:
        return None
    allowed = causal(n_queries, n_keys, device)
    if window is not None and not reaches_all:
        allowed = allowed & ~allowed.tril(n_keys - n_queries - window)
    return allowed if mask is None else allowed & mask[:, None, :] & mask[:, -n_queries:, None]


def causal(n_queries: int, n_keys: int, device: torch.device) -> Bool[Tensor, "1 query_pos key_pos"]:
    """True where a key is not later than its query; the queries are the last of the keys."""
    everything = torch.ones(1, n_queries, n_keys, dtype=torch.bool, device=device)
    return everything.tril(n_keys - n_queries)


@dataclass(frozen=True)
class HeadLayout:
    """How the heads lie in the stored matrices: query, key and value rows joined, output columns by query head.

    Every method returns a view and takes one layer's matrix or a stack of them (`...` in front).
    """

    n_heads: int
    n_kv_heads: int
    d_head: int

    def query(self, qkv: Float[Tensor, "*layer rows d_model"]) -> Float[Tensor, "*layer head d_model d_head"]:
        return self._rows(qkv, 0, self.n_heads)

    def key(self, qkv: Float[Tensor, "*layer rows d_model"]) -> Float[Tensor, "*layer kv_head d_model d_head"]:
        return self._rows(qkv, self.n_heads, self.n_kv_heads)

    def value(self, qkv: Float[Tensor, "*layer rows d_model"]) -> Float[Tensor, "*layer kv_head d_model d_head"]:
        return self._rows(qkv, self.n_heads + self.n_kv_heads, self.n_kv_heads)

    def output(self, out: Float[Tensor, "*layer d_model width"]) -> Float[Tensor, "*layer head d_head d_model"]:
        columns = out.mT
        return columns.view(*columns.shape[:-2], self.n_heads, self.d_head, columns.shape[-1])

    def biases(self, qkv_bias: Float[Tensor, "*layer rows"]) -> tuple[Tensor, ...]:
        """Query, key and value biases, each [*layer, heads, d_head]."""
        by_head = qkv_bias.view(*qkv_bias.shape[:-1], -1, self.d_head)
        return torch.split(by_head, [self.n_heads, self.n_kv_heads, self.n_kv_heads], -2)

    def _rows(self, qkv: Tensor, first: int, count: int) -> Tensor:
        by_head = qkv.view(*qkv.shape[:-2], -1, self.d_head, qkv.shape[-1])
        return by_head.narrow(-3, first, count).mT


class Attention(nn.Module):
    """normalized residual → q, k, v → rotated scores → pattern → z → output."""

    def __init__(self, config: ModelConfig, prefix: str, layer: int) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d_head = config.n_heads, config.n_kv_heads, config.d_head
        self.layout = HeadLayout(config.n_heads, config.n_kv_heads, config.d_head)
        this = config.layer(layer)
        self.scale = this.score_scale or config.score_scale or 1 / math.sqrt(config.d_head)
        self.cap, self.rotary, self.window = config.score_cap, this.rotary, this.window
        rows = (config.n_heads + 2 * config.n_kv_heads) * config.d_head
        width = config.n_heads * config.d_head
        self.qkv = nn.Parameter(torch.empty(rows, config.d_model), requires_grad=False)
        self.out = nn.Parameter(torch.empty(config.d_model, width), requires_grad=False)
        self.qkv_bias = nn.Parameter(torch.empty(rows), requires_grad=False) if config.qkv_bias else None
        self.out_bias = nn.Parameter(torch.empty(config.d_model), requires_grad=False) if config.o_bias else None
        normed = config.qk_norm != "none"
        self.q_norm = HeadNorm(config, config.n_heads) if normed else None
        self.k_norm = HeadNorm(config, config.n_kv_heads) if normed else None
        self.layer = layer
        block = prefix.rsplit(".", 1)[0]
        self.hook_q_input = hook_point(f"{block}.hook_q_input")
        self.hook_k_input = hook_point(f"{block}.hook_k_input")
        self.hook_v_input = hook_point(f"{block}.hook_v_input")
        self.hook_q, self.hook_k, self.hook_v = (hook_point(f"{prefix}.hook_{x}") for x in "qkv")
        self.hook_rot_q, self.hook_rot_k = hook_point(f"{prefix}.hook_rot_q"), hook_point(f"{prefix}.hook_rot_k")
        self.hook_attn_scores = hook_point(f"{prefix}.hook_attn_scores")
        self.hook_pattern = hook_point(f"{prefix}.hook_pattern")
        self.hook_z, self.hook_result = hook_point(f"{prefix}.hook_z"), hook_point(f"{prefix}.hook_result")
        self.hook_out = hook_point(f"{prefix}.hook_out")

    def forward(
        self, resid: Float[Tensor, "batch pos d_model"], norm: Norm | None, reading: Reading
    ) -> Float[Tensor, "batch kept d_model"]:
        """The sublayer's output for the residual that it reads, through its norm where it has one."""
        q, k, v = self.project(resid, norm)
        rot_q = self.hook_rot_q(self.turned(q, self.q_norm, reading))
        rot_k = self.hook_rot_k(self.turned(k, self.k_norm, reading))
        if reading.kv_cache is not None:
            rot_k, v = reading.kv_cache.extend(self.layer, rot_k, v)
        if reading.side_by_side is not None:
            z = reading.side_by_side.attend(self, rot_q, rot_k, v)
        else:
            z = self.attend(rot_q, rot_k, v, reading)
        return self.hook_out(self.output(self.hook_z(z)))

    def turned(
        self, x: Float[Tensor, "batch pos any_head d_head"], norm: HeadNorm | None, reading: Reading
    ) -> Float[Tensor, "batch pos any_head d_head"]:
        """Queries or keys as they enter the scores: normalised and turned, where this layer does that."""
        normed = x if norm is None else norm(x)
        return normed if self.rotary is None else reading.rotations[self.rotary](normed)

    def attend(
        self,
        q: Float[Tensor, "batch query_pos head d_head"],
        k: Float[Tensor, "batch key_pos kv_head d_head"],
        v: Float[Tensor, "batch key_pos kv_head d_head"],
        reading: Reading,
    ) -> Float[Tensor, "batch query_pos head d_head"]:
        """What the queries read: by way of the pattern if somebody listens there, else by the fused kernel."""
        if self.cap is not None or self.hook_attn_scores.listened or self.hook_pattern.listened:
            return self.explicit_z(q, k, v, reading)
        if q.shape[1] == 1 and q.device.type == "cpu" and q.dtype == torch.float32 and reading.bias is None:
            return self.single_z(q, k, v, reading)
        return self.fused_z(q, k, v, reading)

    def project(
        self, resid: Float[Tensor, "batch pos d_model"], norm: Norm | None
    ) -> tuple[
        Float[Tensor, "batch pos head d_head"],
        Float[Tensor, "batch pos kv_head d_head"],
        Float[Tensor, "batch pos kv_head d_head"],
    ]:
        """Queries, keys and values, from the shared residual or from what each receiver was given instead."""
        groups = self.n_kv_heads
        normalized = resid if norm is None else norm(resid)
        joint = linear(normalized, self.qkv, self.qkv_bias)
        joint = joint.view(*joint.shape[:-1], -1, self.d_head)
        q, k, v = joint.split_with_sizes([self.n_heads, groups, groups], -2)
        if self.hook_q_input.listened or self.hook_k_input.listened or self.hook_v_input.listened:
            q, k, v = self._receivers(resid, norm, normalized, (q, k, v))
        return self.hook_q(q), self.hook_k(k), self.hook_v(v)

    def fused_z(
        self,
        q: Float[Tensor, "batch query_pos head d_head"],
        k: Float[Tensor, "batch key_pos kv_head d_head"],
        v: Float[Tensor, "batch key_pos kv_head d_head"],
        reading: Reading,
    ) -> Float[Tensor, "batch query_pos head d_head"]:
        """z by the fused kernel, which never forms the pattern."""
        n_queries, n_keys = q.shape[1], k.shape[1]
        plain = reading.edges[self.window] is None and n_queries == n_keys and reading.bias is None
        mask = None if plain else self._kernel_mask(q, n_keys, reading)
        q, k, v = _packed(q), _packed(k).transpose(1, 2), _packed(v).transpose(1, 2)
        q, grouped = q.transpose(1, 2), self.n_heads != self.n_kv_heads
        z = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=plain, scale=self.scale, enable_gqa=grouped
        )
        z = z.transpose(1, 2)
        return z if reading.padded is None else z.masked_fill(reading.padded[:, :, None, None], 0)

    def single_z(
        self,
        q: Float[Tensor, "batch 1 head d_head"],
        k: Float[Tensor, "batch key_pos kv_head d_head"],
        v: Float[Tensor, "batch key_pos kv_head d_head"],
        reading: Reading,
    ) -> Float[Tensor, "batch 1 head d_head"]:
        """z of one query a row: a group's keys are read once for all its heads, faster than by the fused kernel."""
        queries = (q * self.scale).reshape(len(q) * self.n_kv_heads, -1, self.d_head)
        keys, values = k.transpose(1, 2).flatten(0, 1), v.transpose(1, 2).flatten(0, 1)
        scores = torch.bmm(queries, keys.mT).view(len(q), self.n_heads, -1)
        allowed = reading.edges[self.window]
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        z = torch.bmm(scores.softmax(-1).view(len(keys), -1, k.shape[1]), values).view(q.shape)
        return z if reading.padded is None else z.masked_fill(reading.padded[:, :, None, None], 0)

    def _kernel_mask(self, q: Tensor, n_keys: int, reading: Reading) -> Tensor | None:
        """Edges, and the bias on scores, as the fused kernel takes them; padded queries read something, not nothing."""
        allowed = reading.edges[self.window]
        if allowed is None and (q.shape[1] > 1 or reading.bias is not None):
            allowed = causal(q.shape[1], n_keys, q.device)
        if allowed is None:
            return None
        mask = allowed[:, None]
        if reading.padded is not None:
            mask = mask | reading.padded[:, None, :, None]
        return mask if reading.bias is None else reading.bias.to(q.dtype).masked_fill(~mask, -torch.inf)

    def explicit_z(
        self,
        q: Float[Tensor, "batch query_pos head d_head"],
        k: Float[Tensor, "batch key_pos kv_head d_head"],
        v: Float[Tensor, "batch key_pos kv_head d_head"],
        reading: Reading,
    ) -> Float[Tensor, "batch query_pos head d_head"]:
        """z by way of scores and pattern, with their hook points."""
        n_queries, n_keys = q.shape[1], k.shape[1]
        grouped = rearrange(q * self.scale, "b p (g r) d -> b g (r p) d", g=self.n_kv_heads)
        scores = rearrange(grouped @ k.permute(0, 2, 3, 1), "b g (r p) s -> b (g r) p s", p=n_queries)
        if self.cap is not None:
            scores = self.cap * torch.tanh(scores / self.cap)
        if reading.bias is not None:
            scores = scores + reading.bias.to(scores.dtype)
        allowed = reading.edges[self.window]
        allowed = causal(n_queries, n_keys, q.device) if allowed is None else allowed
        scores = self.hook_attn_scores(scores.masked_fill(~allowed[:, None], -torch.inf))
        if self.hook_attn_scores.edited:
            self._check_edited(scores, allowed[:, None], reading.padded)
        pattern = self.hook_pattern(softmax(scores, reading.padded))
        grouped = rearrange(pattern, "b (g r) p s -> b g (r p) s", g=self.n_kv_heads)
        return rearrange(grouped @ v.transpose(1, 2), "b g (r p) d -> b p (g r) d", p=n_queries)

    def _check_edited(self, scores: Tensor, allowed: Tensor, padded: Tensor | None) -> None:
        """Edited scores must leave every query some key, and none that lies ahead of it or is padding."""
        readable = scores > -torch.inf
        empty = ~readable.any(-1) if padded is None else ~readable.any(-1) & ~padded[:, None]
        name = self.hook_attn_scores.name
        if bool((readable & ~allowed).any()) or bool(scores.isnan().any()):
            raise HookError(f"The hook at {name} made a masked edge readable, or not a number; leave −inf as it is.")
        if bool(empty.any()):
            raise HookError(f"The hook at {name} left a query with no key to read; keep at least one above −inf.")

    def output(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos d_model"]:
        """Σ over heads of z · W_O, + b_O; the heads' terms are formed only if somebody listens."""
        if self.hook_result.listened:
            result = self.hook_result(torch.einsum("bphd,hdm->bphm", z, self.W_O))
            if self.hook_result.written:
                summed = result.sum(2)
                return summed if self.out_bias is None else summed + self.out_bias
        return linear(z.flatten(-2), self.out, self.out_bias)

    def _receivers(
        self, resid: Tensor, norm: Norm | None, normalized: Tensor, shared: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, ...]:
        """q, k, v where each head reads a residual of its own; receivers that are only watched keep the shared one."""
        shared_norm_matters = norm is not None and self._norm_is_used(norm, resid, normalized)
        found = []
        hooks = (self.hook_q_input, self.hook_k_input, self.hook_v_input)
        weights = (self.W_Q, self.W_K, self.W_V)
        biases = (None,) * 3 if self.qkv_bias is None else self.layout.biases(self.qkv_bias)
        for hook, weight, bias, value in zip(hooks, weights, biases, shared, strict=True):
            if hook.listened:
                received = hook(resid[:, :, None].expand(-1, -1, weight.shape[0], -1))
            if hook.written:
                if norm is not None and shared_norm_matters:
                    raise HookError(
                        f"{hook.name} is edited or differentiated: its heads read through a norm of their own. What is "
                        f"done at {norm.hook_normalized.name} or hook_scale cannot reach them. Use one of the two."
                    )
                read = received if norm is None else norm.normalize(received)
                value = torch.einsum("bphm,hmd->bphd", read, weight)
                value = value if bias is None else value + bias
            found.append(value)
        return tuple(found)

    def _norm_is_used(self, norm: Norm, resid: Tensor, normalized: Tensor) -> bool:
        """Whether an edit or a gradient at the shared norm would be lost on a receiver that has a norm of its own."""
        edited = norm.hook_scale.edited or norm.hook_normalized.edited
        edited = edited and not torch.equal(normalized, norm.normalize(resid))
        return edited or norm.hook_scale.differentiated or norm.hook_normalized.differentiated

    def weights(self) -> dict[str, Tensor]:
        """Weights by name, input axis first, as views."""
        named: dict[str, Tensor] = {"W_Q": self.W_Q, "W_K": self.W_K, "W_V": self.W_V, "W_O": self.W_O}
        if self.qkv_bias is not None:
            named |= dict(zip(("b_Q", "b_K", "b_V"), self.layout.biases(self.qkv_bias), strict=True))
        if self.q_norm is not None and self.k_norm is not None:
            named |= {"q_norm.w": self.q_norm.w, "k_norm.w": self.k_norm.w}
        return named if self.out_bias is None else {**named, "b_O": self.out_bias}

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        return self.layout.query(self.qkv)

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        return self.layout.key(self.qkv)

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        return self.layout.value(self.qkv)

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        return self.layout.output(self.out)


def _packed(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Heads whose numbers lie side by side, as the fused kernel needs them to be; no copy where they do."""
    return x if x.stride(-1) == 1 else x.contiguous()


def softmax(
    scores: Float[Tensor, "batch head query_pos key_pos"], padded: Bool[Tensor, "batch query_pos"] | None
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """Softmax over keys. Rows of padded queries have no key; they become zero, in values and in gradients."""
    if padded is None:
        return scores.softmax(-1)
    rows = padded[:, None, :, None]
    return scores.masked_fill(rows, 0).softmax(-1).masked_fill(rows, 0)
