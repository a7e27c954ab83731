"""What the lenses share: where a text is read, and what is read there, in blocks that fit the memory.

A lens puts vectors of the residual stream through the final norm, with statistics of their own, and the unembedding.
What is kept of each distribution over the vocabulary: the likeliest tokens, the entropy, the divergence from the
model's own output, and the log-probability and rank of tokens that are followed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.vocabulary import distinct_texts, token_id, token_texts
from interp.cache import ActivationCache, position_list
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def asked_ids(model: "Transformer", answers: Sequence[str | int], top_k: int) -> list[int]:
    """The ids of the tokens to follow. Raises `UsageError` for one named twice, and for a `top_k` that cannot be."""
    given = [answers] if isinstance(answers, str) else answers
    ids = [token_id(model, answer) for answer in given]
    twice = [answer for place, answer in enumerate(given) if ids[place] in ids[:place]]
    if twice:
        raise UsageError(f"The answer {twice[0]!r} is named twice. Expected different tokens; name each of them once.")
    if not 1 <= top_k <= model.config.d_vocab:
        raise UsageError(f"top_k is {top_k}; expected 1 to {model.config.d_vocab}, the size of the vocabulary.")
    return ids


def answer_axis(model: "Transformer", answers: list[int]) -> dict[str, Sequence[str]]:
    """The axis of the tokens that are followed, where there are any."""
    return {"answer": distinct_texts(model, answers)} if answers else {}


@dataclass(frozen=True)
class Places:
    """One text of a recorded run, and the positions at which it is read."""

    cache: ActivationCache
    row: int
    positions: list[int]
    prefix: str

    @classmethod
    def of(
        cls,
        model: "Transformer",
        source: ActivationCache | Tensor | str,
        names: Sequence[str],
        *,
        positions: Sequence[int] | None,
        row: int | None,
        prefix: PrefixPolicy,
    ) -> "Places":
        """The text in any of the forms in which it may come; what is not a cache is run, and the names recorded."""
        if isinstance(source, ActivationCache):
            cache = source
        else:
            tokens = model.to_tokens(source, prefix=prefix) if isinstance(source, str) else source
            cache = model.run_with_cache(tokens, names, stop_at_layer=model.config.n_layers)[1]
        which = _row(cache, row)
        return cls(cache, which, _positions(cache, which, positions), prefix if isinstance(source, str) else "as given")

    @property
    def text(self) -> list[int]:
        """All tokens of the text."""
        ids: list[int] = self.cache.tokens[self.row].tolist()
        return ids

    @property
    def axes(self) -> dict[str, Sequence[int]]:
        """The axis of the positions."""
        return {"position": self.positions}

    @property
    def start(self) -> Float[Tensor, "pos d_model"]:
        """What enters the first layer; of a cache without that, the token embeddings."""
        name = "blocks.0.hook_resid_pre"
        return self.at(name if name in self.cache else "hook_embed")

    @property
    def final(self) -> Float[Tensor, "pos d_model"]:
        """What leaves the last layer."""
        return self.at(f"blocks.{self.cache.points.n_layers - 1}.hook_resid_post")

    def at(self, name: str) -> Float[Tensor, "pos *axes"]:
        """The value of a point at these positions."""
        kept = self.cache.positions
        columns = self.positions if kept is None else [kept.index(place) for place in self.positions]
        return self.cache[name][self.row, columns]


def _row(cache: ActivationCache, row: int | None) -> int:
    count = cache.tokens.shape[0]
    if row is None and count != 1:
        raise UsageError(f"The lens reads one text and got a batch of {count}. Say which: row=0, row=1, …")
    if row is not None and not -count <= row < count:
        raise UsageError(f"There is no row {row} in a batch of {count}: expected 0 to {count - 1}.")
    return row or 0


def _positions(cache: ActivationCache, row: int, positions: Sequence[int] | None) -> list[int]:
    length = cache.tokens.shape[1]
    recorded = list(range(length)) if cache.positions is None else cache.positions
    real = recorded if cache.mask is None else [place for place in recorded if cache.mask[row, place]]
    chosen = position_list(positions, length)
    wanted = real if chosen is None else chosen
    missing = [place for place in wanted if place not in real]
    if missing or len(set(wanted)) != len(wanted):
        what = f"position {missing[0]} was not recorded or is padding" if missing else "a position is named twice"
        raise UsageError(f"The lens cannot read positions {list(positions or ())}: {what}. There are {real}.")
    return wanted


# ---------------------------------------------------------------------------------------------------- what is read


def readings(
    model: "Transformer",
    vectors: Sequence[Float[Tensor, "pos d_model"]],
    final: Float[Tensor, "pos d_model"],
    answers: Int[Tensor, "pos answer"] | Sequence[int],
    top_k: int,
    max_bytes: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, np.ndarray]:
    """All values, [vector, position, …], a block of positions at a time: the full logits never exist together.

    `final` is the stream behind the last layer; `answers` are ids to follow, those of all positions or of each. Values
    are written into tables made beforehand. Small tensors kept from every step, between big ones that come and go,
    would tear the heap into pieces too small to use again (3 GB for 1,000 tokens).
    """
    asked = answers if isinstance(answers, Tensor) else torch.tensor(answers, dtype=torch.long).expand(len(final), -1)
    kept = _tables((len(vectors), len(final)), 1 + asked.shape[1], top_k, final.device)
    size = max(1, max_bytes // (5 * 4 * model.config.d_vocab))  # about five float32 tables over the vocabulary live
    for start in range(0, len(final), size):
        _read_block(model, vectors, final, asked.to(final.device), slice(start, start + size), kept)
        if progress is not None:
            progress(min(start + size, len(final)), len(final))
    return {name: table.cpu().numpy() for name, table in kept.items()}


def _tables(cells: tuple[int, int], followed: int, top_k: int, device: torch.device) -> dict[str, Tensor]:
    """Room for what `_cell` returns, of every vector and position."""
    last = {"top_id": [top_k], "top_probability": [top_k], "entropy": [], "kl_to_final": []}
    last |= {name: [followed] for name in ("followed_id", "followed_log_probability", "followed_rank")}
    whole = ("top_id", "followed_id", "followed_rank")
    return {
        name: torch.empty([*cells, *more], dtype=torch.int64 if name in whole else torch.float32, device=device)
        for name, more in last.items()
    }


def _read_block(
    model: "Transformer",
    vectors: Sequence[Float[Tensor, "pos d_model"]],
    final: Float[Tensor, "pos d_model"],
    answers: Int[Tensor, "pos answer"],
    rows: slice,
    kept: dict[str, Tensor],
) -> None:
    """One block of positions of every vector; a vector that is the final stream is read once."""

    def lens(vector: Float[Tensor, "pos d_model"]) -> Float[Tensor, "pos d_vocab"]:
        return model.unembed_residual(vector).float().log_softmax(-1)

    said = lens(final[rows])
    followed = torch.cat([said.argmax(-1, keepdim=True), answers[rows]], -1)
    for place, vector in enumerate(vectors):
        found = said if place == len(vectors) - 1 and torch.equal(vector, final) else lens(vector[rows])
        for name, value in _cell(found, said, followed, kept["top_id"].shape[-1]).items():
            kept[name][place, rows] = value


def _cell(
    found: Float[Tensor, "pos d_vocab"],
    final: Float[Tensor, "pos d_vocab"],
    followed: Int[Tensor, "pos token"],
    top_k: int,
) -> dict[str, Tensor]:
    """What is kept of one vector's log-probabilities; `followed` holds the final prediction and the answers."""
    chosen = found.gather(-1, followed)
    ranks = [1 + (found > value[:, None]).sum(-1) for value in chosen.unbind(-1)]
    top = found.topk(top_k, -1)
    return {
        "top_id": top.indices,
        "top_probability": top.values.exp(),
        "entropy": -(found.exp() * found).sum(-1),
        "kl_to_final": (final.exp() * (final - found)).sum(-1),
        "followed_id": followed,
        "followed_log_probability": chosen,
        "followed_rank": torch.stack(ranks, -1),
    }


def lens_arrays(
    model: "Transformer", places: Places, found: dict[str, np.ndarray], answers: list[int], axis: str
) -> dict[str, NamedArray]:
    """The readings under the names of a result whose vectors lie on that axis, token texts beside ids."""
    cell, final_ids = (axis, "position"), found["followed_id"][-1, :, 0]
    top_text = np.array(token_texts(model, found["top_id"].reshape(-1).tolist()), dtype=object).reshape(
        found["top_id"].shape
    )
    text = places.text
    token_ids = [text[place] for place in places.positions]
    arrays = {
        "token": NamedArray(token_texts(model, token_ids), ("position",)),
        "token_id": NamedArray(token_ids, ("position",)),
        "prediction": NamedArray(top_text[..., 0], cell),
        "prediction_probability": NamedArray(found["top_probability"][..., 0], cell),
        "entropy": NamedArray(found["entropy"], cell),
        "kl_to_final": NamedArray(found["kl_to_final"], cell),
        "final_token": NamedArray(token_texts(model, final_ids.tolist()), ("position",)),
        "final_id": NamedArray(final_ids, ("position",)),
        **_followed(found, "final", 0, cell),
        "top_token": NamedArray(top_text, (*cell, "rank")),
        "top_id": NamedArray(found["top_id"], (*cell, "rank")),
        "top_probability": NamedArray(found["top_probability"], (*cell, "rank")),
        "tokens": NamedArray(text, ("text_position",)),
    }
    if answers:
        arrays["answer_id"] = NamedArray(answers, ("answer",))
        arrays |= _followed(found, "answer", slice(1, None), (*cell, "answer"))
    return arrays


def _followed(
    found: dict[str, np.ndarray], name: str, which: int | slice, axes: tuple[str, ...]
) -> dict[str, NamedArray]:
    log_probability = found["followed_log_probability"][..., which]
    return {
        f"{name}_probability": NamedArray(np.exp(log_probability), axes),
        f"{name}_log_probability": NamedArray(log_probability, axes),
        f"{name}_rank": NamedArray(found["followed_rank"][..., which], axes),
    }
