"""The hookable transformer: a decoder in which every intermediate value has a name.

    embed → for each layer: resid_pre → attention → resid_mid → FFN → resid_post → final norm → unembed

Names and equations of all points are in `interp.points`; variation between models is data in `ModelConfig`, and what it
does stands in `block.py`, `attention.py`, `ffn.py` and `moe.py`. The forward pass never writes to a value that anyone
could hold, never switches gradients off, and on an accelerator never waits for a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.cache import ActivationCache, Positions, Recording, position_list
from interp.errors import PointError, UsageError
from interp.hooks import Hooks, Rows, edits_active, recorders_active, rows_active, unreached_edit
from interp.models.attention import reading
from interp.models.batching import pad
from interp.models.checks import check_budget, check_tokens
from interp.models.config import ModelConfig
from interp.models.generation import WritingOptions, writer
from interp.models.kv_cache import KVCache
from interp.models.linear import linear
from interp.models.point import hook_point
from interp.models.positions import row_positions, sinusoidal
from interp.models.prompt_formats import PrefixPolicy
from interp.models.stored_weights import StoredWeights
from interp.models.token_list import TokenList
from interp.points import Feature, Names, PointTable
from interp.selection import whole_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from interp.models.tokenizer import Tokenizer

Logits = Float[Tensor, "batch pos d_vocab"]


class Transformer(StoredWeights):
    """A decoder-only transformer whose every intermediate value can be recorded and edited.

    Built with uninitialised, frozen weights; `interp.load` fills them. `weights()` are writable views by name.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokenizer: "Tokenizer | None" = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(config, torch.device(device or "cpu"), dtype or torch.float32)
        self._provenance = dict(provenance or {"model": "untitled", "weights_sha256": None})
        self._tokenizer = tokenizer
        self._points = point_table(config)
        self.hook_embed, self.hook_pos_embed = hook_point("hook_embed"), hook_point("hook_pos_embed")
        self.hook_logits = hook_point("unembed.hook_out")
        self.eval()

    # ------------------------------------------------------------------------------------------------ running

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"] | None = None,
        kv_cache: KVCache | None = None,
    ) -> Logits:
        """Logits at every position.

        `mask` is True at real tokens: padding on either side is never read, and positions count real tokens only.
        With a `kv_cache` the tokens continue what it holds, and it then holds them too; the logits are theirs alone.
        Raises `UsageError` for tokens outside the vocabulary, no tokens, or more than the context holds.
        """
        logits = self._run(tokens, mask, kv_cache=kv_cache)
        assert logits is not None
        return logits

    @torch.inference_mode()
    def next_logits(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"] | None,
        kv_cache: KVCache,
        columns: Int[Tensor, "batch"],
    ) -> Float[Tensor, "batch d_vocab"]:
        """Logits at one column of each row, for a pass that nobody listens to: no others are computed, no gradients."""
        logits = self._run(tokens, mask, kv_cache=kv_cache, columns=columns)
        assert logits is not None
        return logits[:, 0]

    def hooks(self, hooks: Hooks) -> AbstractContextManager[None]:
        """Edit every forward pass inside the `with` block: `model.hooks([(names, edit), …])`.

        Contexts nest (outer edits run first) and belong to the running thread alone. `PointError` for names that match
        nothing, before anything runs.
        """
        return edits_active(self._points, hooks)

    def run_with_hooks(
        self, tokens: Int[Tensor, "batch pos"], hooks: Hooks, *, mask: Bool[Tensor, "batch pos"] | None = None
    ) -> Logits:
        """Logits of one forward pass with these hooks."""
        with self.hooks(hooks):
            return self(tokens, mask)

    @overload
    def run_with_cache(
        self,
        tokens: Int[Tensor, "batch pos"],
        names: Names = None,
        *,
        positions: Positions = None,
        device: torch.device | str | None = None,
        mask: Bool[Tensor, "batch pos"] | None = None,
        gradients_of: "Callable[[Logits], Tensor] | None" = None,
        budget: int | None = None,
    ) -> tuple[Logits, ActivationCache]: ...
    @overload
    def run_with_cache(
        self,
        tokens: Int[Tensor, "batch pos"],
        names: Names = None,
        *,
        stop_at_layer: int,
        positions: Positions = None,
        device: torch.device | str | None = None,
        mask: Bool[Tensor, "batch pos"] | None = None,
        budget: int | None = None,
    ) -> tuple[None, ActivationCache]: ...
    def run_with_cache(
        self,
        tokens: Int[Tensor, "batch pos"],
        names: Names = None,
        *,
        positions: Positions = None,
        device: torch.device | str | None = None,
        mask: Bool[Tensor, "batch pos"] | None = None,
        stop_at_layer: int | None = None,
        gradients_of: "Callable[[Logits], Tensor] | None" = None,
        budget: int | None = None,
    ) -> tuple[Logits | None, ActivationCache]:
        """One forward pass, with the named points recorded as the model used them.

        `names`: exact, glob, list, predicate, or None for all points that are not on demand. `positions`: which rows to
        keep, at every point. `device`: where to keep them. `stop_at_layer`: do not run that layer nor what follows;
        the logits are then None. `gradients_of`: a metric (logits → one number) whose gradient at every recorded point
        is returned as `cache.gradients`. `budget`: bytes; a `BudgetError` says how many are needed.

        What is recorded is shared with neighbouring points and with the logits, never copied: to write to it, clone it.
        """
        check_tokens(tokens, mask, self.config)
        if stop_at_layer is not None and gradients_of is not None:
            raise UsageError("A metric needs logits, which a run that stops at a layer does not compute; drop one.")
        chosen = self._reachable(names, stop_at_layer)
        kept = position_list(positions, tokens.shape[1])
        batch, length = tokens.shape
        needed = self.cache_bytes(batch, length, chosen, positions=kept) * (1 if gradients_of is None else 2)
        check_budget(needed, budget, f"{len(chosen)} points on {batch} × {length} tokens")
        where = None if device is None else torch.device(device)
        recording = Recording(self._points, kept, where, differentiate=gradients_of is not None)
        with recorders_active(recording, chosen, differentiate=gradients_of is not None):
            if gradients_of is not None:
                with torch.inference_mode(False), torch.enable_grad():
                    live = self(tokens, mask)
                    gradients = recording.gradients(gradients_of(live))
                logits: Logits | None = live.detach()
            else:
                logits, gradients = self._run(tokens, mask, stop_at_layer), None
        return logits, self._cache(recording, tokens, mask, gradients)

    @overload
    def generate(
        self, tokens: Int[Tensor, "batch pos"], max_new_tokens: int = 64, **how: Unpack[WritingOptions]
    ) -> Int[Tensor, "batch total"]: ...
    @overload
    def generate(
        self,
        tokens: Int[Tensor, "batch pos"],
        max_new_tokens: int = 64,
        *,
        return_cache: Literal[True],
        names: Names = None,
        **how: Unpack[WritingOptions],
    ) -> tuple[Int[Tensor, "batch total"], ActivationCache]: ...
    def generate(
        self,
        tokens: Int[Tensor, "batch pos"],
        max_new_tokens: int = 64,
        *,
        return_cache: bool = False,
        names: Names = None,
        **how: Unpack[WritingOptions],
    ) -> Int[Tensor, "batch total"] | tuple[Int[Tensor, "batch total"], ActivationCache]:
        """Continue each row by up to `max_new_tokens`: tokens [batch, pos], prompt included.

        Greedy unless a `temperature` is given (also: `top_k`, `top_p`, `repetition_penalty`, `seed`; see `Sampling`). A
        row ends behind the first token or text in `stop` and is filled up with padding. `mask` marks padding of the
        prompts; `kv_cache` continues what was read before, whose tokens are not repeated in the result. With
        `return_cache` comes `(tokens, cache)`: the named points over prompt and continuation, recorded while the
        active hooks edit, as one full forward pass would show them.
        """
        chosen = self._points.resolve(names) if return_cache else None
        write = writer(self, tokens, max_new_tokens, **how)
        for _ in write.steps(max_new_tokens, chosen):
            pass
        return write.tokens if chosen is None else (write.tokens, write.stitched(chosen))

    def stream(
        self, tokens: Int[Tensor, "batch pos"], max_new_tokens: int = 64, **how: Unpack[WritingOptions]
    ) -> Iterator[Int[Tensor, "batch"]]:
        """The same, one token of every row at a time; hooks act on a step if they are active when it is asked for."""
        return writer(self, tokens, max_new_tokens, **how).steps(max_new_tokens, None)

    def cache_bytes(self, batch: int, pos: int, names: Names = None, *, positions: Positions = None) -> int:
        """Bytes that recording a selection on `batch` × `pos` tokens will take."""
        kept = position_list(positions, pos)
        rows, itemsize = None if kept is None else len(kept), self.embed.element_size()
        return self._points.nbytes(names, batch=batch, pos=pos, rows=rows, itemsize=itemsize)

    def unembed_residual(self, resid: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        """Logits of any residual-stream vectors: final norm with their OWN statistics, then W_U (the logit lens)."""
        normalized = resid if self.ln_final is None else self.ln_final.normalize(resid)
        return self._capped(self._unembedded(normalized))

    def unembed_rows(self, resid: Float[Tensor, "batch pos d_model"]) -> Logits:
        """The end of the forward pass, with its hook points: final norm, then W_U."""
        return self._capped(
            self.hook_logits(self._unembedded(resid if self.ln_final is None else self.ln_final(resid)))
        )

    def embedded(
        self, tokens: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """The beginning of the forward pass, with its hook points: what enters the first layer."""
        embedding = nn.functional.embedding(tokens, self.embed)
        if self.config.embed_scale != 1:
            embedding = embedding * torch.tensor(self.config.embed_scale, dtype=self.dtype, device=self.device)
        embedding = self.hook_embed(embedding if self.ln_embed is None else self.ln_embed.normalize(embedding))
        return self.positioned(embedding, positions)

    def positioned(
        self, embedding: Float[Tensor, "batch pos d_model"], positions: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """Embeddings with those of their positions added, where the model has any."""
        if self.pos_embed is not None:
            rows = nn.functional.embedding(positions + self.config.position_offset, self.pos_embed)
        elif self.config.sinusoidal:
            rows = sinusoidal(positions, self.config.d_model).to(self.dtype)
        else:
            return embedding
        return embedding + self.hook_pos_embed(rows)

    # ------------------------------------------------------------------------------------------------- facts

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the weights came from, and the dtype and device that they have now.

        `weights_sha256` names what was loaded; it does not know of weights that were written to since.
        """
        return {**self._provenance, "dtype": str(self.dtype).removeprefix("torch."), "device": str(self.device)}

    def points(self) -> PointTable:
        """The hook points that this model has, by full name."""
        return self._points

    def __repr__(self) -> str:
        c = self.config
        shape = f"{c.n_layers} layers, d_model {c.d_model}, {c.n_heads} query / {c.n_kv_heads} KV heads"
        return f"Transformer({self.provenance['model']}: {shape}, {str(self.dtype)[6:]} on {self.device})"

    # ------------------------------------------------------------------------------------------------- tokens

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> "Tokenizer":
        if self._tokenizer is None:
            raise UsageError("This model came without a tokenizer; pass token ids, or load it together with one.")
        return self._tokenizer

    def to_tokens(self, text: str | Sequence[str], *, prefix: PrefixPolicy = "doc") -> Int[Tensor, "batch pos"]:
        """Token ids of one text, or of several that come out equally long (else use `to_batch`).

        Raises `UsageError` for an empty text, and for one longer than the context: nothing is ever cut off.
        """
        tokens, mask = self.to_batch(text, prefix=prefix)
        if not bool(mask.all()):
            lengths = mask.sum(-1).tolist()
            raise UsageError(
                f"The texts have {lengths} tokens; `to_batch` pads them and returns the mask to pass along."
            )
        return tokens

    def to_batch(
        self, text: str | Sequence[str], *, prefix: PrefixPolicy = "doc", side: Literal["left", "right"] = "right"
    ) -> tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
        """Token ids of several texts, padded to the longest, and the mask of real tokens."""
        texts = [text] if isinstance(text, str) else list(text) if isinstance(text, Sequence) else [text]
        if not all(isinstance(each, str) for each in texts):
            raise UsageError(f"A text or a list of texts was expected, not {text!r}.")
        rows = [self.tokenizer.prompt_ids(each, prefix) for each in texts]
        if not rows:
            raise UsageError("There is no text; give at least one.")
        longest = max(map(len, rows))
        if longest > self.config.n_ctx:
            raise UsageError(
                f"The text has {longest} tokens, the context holds {self.config.n_ctx}; shorten it or split it."
            )
        tokens, mask = pad(rows, self.tokenizer.pad_id, side)
        return tokens.to(self.device), mask.to(self.device)

    def to_str_tokens(
        self, tokens: Int[Tensor, "*batch pos"] | Sequence[int] | str, *, prefix: PrefixPolicy = "doc"
    ) -> TokenList:
        """One string per token of a single sequence."""
        return TokenList(self.tokenizer.str_tokens(self._single(tokens, prefix)))

    def to_string(self, tokens: Int[Tensor, "*batch pos"] | Sequence[int]) -> str:
        """The text of a single sequence of tokens."""
        return self.tokenizer.decode(self._single(tokens, "none"))

    def to_single_token(self, text: str) -> int:
        """The id of a text that is exactly one token; `UsageError` shows the pieces where it is not."""
        return self.tokenizer.single_token(text)

    # ------------------------------------------------------------------------------------------------ private

    def _run(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        stop_at_layer: int | None = None,
        kv_cache: KVCache | None = None,
        columns: Tensor | None = None,
    ) -> Logits | None:
        """The forward pass, read from top to bottom; it ends early, without logits, where it is told to stop.

        With `columns`, one of each row, only what stands there is unembedded.
        """
        check_tokens(tokens, mask, self.config, continued=kv_cache is not None)
        tokens = tokens.to(self.device).long()
        mask = None if mask is None else mask.to(self.device)
        (batch, count), start = tokens.shape, 0
        if kv_cache is not None:
            kv_cache.check(self.config, tokens, self.device, self.dtype)
            start, mask = kv_cache.length, kv_cache.prepare(count, mask)
        everything = row_positions(batch, 0, start + count, mask, self.device)
        positions = everything[:, start:]
        shared = reading(self.config, everything, mask, count, kv_cache)
        real = None if mask is None else mask[:, start:]
        with rows_active(Rows(positions, start, real, partial=kv_cache is not None)):
            resid = self.embedded(tokens, positions)
            for block in self.layers[: None if stop_at_layer is None else self._layer(stop_at_layer)]:
                resid = block(resid, shared)
            if stop_at_layer is not None:
                return None
            resid = resid if columns is None else resid.take_along_dim(columns[:, None, None], 1)
            logits = self.unembed_rows(resid)
        if kv_cache is not None:
            kv_cache.commit(count)
        return logits

    def _unembedded(self, normalized: Tensor) -> Tensor:
        logits = linear(normalized, self._unembedding, self.unembed_bias)
        return logits if self.config.logit_scale == 1 else logits * self.config.logit_scale

    def _capped(self, logits: Tensor) -> Tensor:
        cap = self.config.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _layer(self, layer: int) -> int:
        count = self.config.n_layers
        if not -count <= layer <= count:
            raise UsageError(
                f"A run cannot stop at layer {layer}: layers go from 0 to {count - 1}, {count} runs them all."
            )
        return layer + count if layer < 0 else layer

    def _reachable(self, names: Names, stop_at_layer: int | None) -> list[str]:
        """The selection in firing order; a point beyond the stop is an error, unless everything was asked for."""
        chosen = self._points.resolve(names)
        if stop_at_layer is None:
            return chosen
        stop = self._layer(stop_at_layer)
        reached = {name for name in self._points if layer_of(name, self.config.n_layers) < stop}
        asked = chosen if names is not None else []
        beyond = next((name for name in asked if name not in reached), None) or unreached_edit(reached)
        if beyond is not None:
            raise PointError(
                f"{beyond!r} cannot fire: the run stops before layer {stop}. Stop later, or leave that point alone."
            )
        return [name for name in chosen if name in reached]

    def _cache(
        self, recording: Recording, tokens: Tensor, mask: Tensor | None, gradients: Mapping[str, Tensor] | None
    ) -> ActivationCache:
        facts: dict[str, Any] = {"tokens": tokens, "mask": mask, "positions": recording.positions, "model": self}
        cache = ActivationCache(recording.values, self._points, **facts)
        cache.gradients = None if gradients is None else ActivationCache(gradients, self._points, **facts)
        return cache

    def _single(self, tokens: Tensor | Sequence[int] | str, prefix: PrefixPolicy) -> list[int]:
        if isinstance(tokens, str):
            tokens = self.to_tokens(tokens, prefix=prefix)
        if not isinstance(tokens, Tensor):
            return whole_numbers(tokens, "the tokens of a text")
        if tokens.dim() == 2 and tokens.shape[0] != 1:
            raise UsageError(f"One sequence was expected, {tokens.shape[0]} came; index the one you mean.")
        ids: list[int] = tokens.flatten().tolist()
        return ids

    def __deepcopy__(self, memo: dict[int, Any]) -> "Transformer":
        copied = Transformer(
            self.config, tokenizer=self._tokenizer, device=self.device, dtype=self.dtype, provenance=self._provenance
        )
        for old, new in zip(self.parameters(), copied.parameters(), strict=True):
            new.data.copy_(old.data)
            new.requires_grad_(old.requires_grad)
        return copied


def layer_of(name: str, n_layers: int) -> int:
    """The layer that a point belongs to: −1 before the first, `n_layers` behind the last."""
    if name.startswith("blocks."):
        return int(name.split(".", 2)[1])
    return -1 if name in ("hook_embed", "hook_pos_embed") else n_layers


def point_table(config: ModelConfig) -> PointTable:
    """The hook points of a model of this shape."""
    return PointTable(config.n_layers, *features(config))


def features(config: ModelConfig) -> tuple[frozenset[Feature], dict[str, int], list[frozenset[Feature]]]:
    """What decides which points a model has: its features, the sizes of its axes, and the features of each layer."""
    holds: dict[Feature, bool] = {
        "position_embedding": config.learned_positions or config.sinusoidal,
        "sequential_block": not config.parallel,
        "input_norm": config.norms in ("pre", "sandwich"),
        "sum_norm": config.norms == "post",
        "post_norm": config.norms in ("output", "sandwich"),
        "final_norm": config.final_norm,
        "gated": config.gated,
    }
    experts: frozenset[Feature] = frozenset({"mixture_of_experts"})
    if config.moe is not None and config.moe.d_shared is not None:
        experts |= {"shared_expert"}
    dense: frozenset[Feature] = frozenset({"dense_ffn"})
    layers = [experts if config.layer(layer).moe else dense for layer in range(config.n_layers)]
    return frozenset(name for name, there in holds.items() if there), config.axis_sizes, layers
