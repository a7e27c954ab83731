"""The logit lens: what the model would say if it stopped after each layer.

At every layer boundary ℓ (the embedding, then the residual stream after each block) and every position,

    lens_ℓ = softmax( W_U · norm_f(h_ℓ) )

with the statistics of the final norm RECOMPUTED for each h_ℓ: every layer is read as if it were the last one, and at
the last layer the lens is the model's own output. (Direct logit attribution is the other question: it keeps the final
layer's statistics, so that components add up. The two must not be mixed.)

Beside the most likely tokens stand the entropy, KL(final ‖ lens_ℓ), and the probability, log-probability and rank of
the model's final prediction and of any answers asked for; all in nats, rank 1 is the top.

Paper: nostalgebraist 2020, "interpreting GPT: the logit lens". The direction of KL is that of Belrose et al. 2023
(arXiv 2303.08112).

What it does NOT tell: that a token which cannot be read here is not represented. Early layers may write in a basis
that the final norm and W_U do not read; and a token that can be read was not necessarily used by anything.
"""

from collections.abc import Sequence
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
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

CELL = ("layer", "position")


class LensResult(Result, kind="lens.logit"):
    """The lens at each [layer, position]; layer −1 is the embedding, layer ℓ ≥ 0 the stream after block ℓ.

    `prediction` and `prediction_probability` are the top token of the cell, `top_*` [layer, position, rank] the first
    few; `final_*` follows the model's own prediction at that position down the layers; `answer_*` [layer, position,
    answer] the tokens asked for; `entropy` and `kl_to_final` are in nats.
    """

    grid = CELL
    title = "Logit lens"
    caution = (
        "A token that the lens does not show may still be represented, in a basis that the unembedding cannot read."
    )

    @property
    def layer_names(self) -> list[str]:
        """Names of the boundaries: embed, 0, 1, … up to the last layer."""
        return [str(name) for name in self["layer_name"]]

    def figure(self, metric: str = "prediction_probability") -> "Figure":
        """Every cell with its top token, coloured by its probability or by another [layer, position] value."""
        from interp.plots import lens_heatmap

        return lens_heatmap(
            self[metric],
            self["prediction"],
            title="Logit lens: the most likely next token after each layer",
            metric=metric.replace("_", " "),
            layers=self.layer_names,
            tokens=list(self["token"]),
            positions=[int(position) for position in self.axes["position"]],
            bounds=(0.0, 1.0) if metric.endswith("probability") else None,
        )

    def answer_figure(self, position: int | None = None) -> "Figure":
        """The probability of each answer (or of the final prediction) by layer, at one position (default: the last)."""
        from interp.plots import curves

        where = int(self.axes["position"][-1]) if position is None else position
        if "answer_probability" in self:
            series = {
                str(answer): self.at("answer_probability", position=where, answer=answer)
                for answer in self.axes["answer"]
            }
        else:
            series = {str(self.at("final_token", position=where)): self.at("final_probability", position=where)}
        return curves(
            self.layer_names,
            series,
            title=f"Logit lens at position {where}: probability after each layer",
            x_title="layer",
            y_title="probability",
            bounds=(0.0, 1.0),
        )

    def summary(self) -> list[str]:
        """What the model ends up saying at the last position, and from which layer on the lens agrees."""
        where = int(self.axes["position"][-1])
        token, final = str(self.at("token", position=where)), str(self.at("final_token", position=where))
        lines = [f"{self.title}: {len(self.layer_names)} boundaries × {len(self.axes['position'])} positions"]
        lines.append(f"  after {token!r} (position {where}) the model says {final!r}")
        lines.append(self._course(final, where, "final", {}))
        others = [str(answer) for answer in self.axes.get("answer", ()) if answer != final]
        lines += [self._course(answer, where, "answer", {"answer": answer}) for answer in others]
        return [*lines, f"  {self.caution}"]

    def _course(self, word: str, where: int, what: str, one: dict[str, int | str]) -> str:
        ranks = self.at(f"{what}_rank", position=where, **one)
        probabilities = self.at(f"{what}_probability", position=where, **one)
        led = np.flatnonzero(ranks == 1)
        behind = np.flatnonzero(ranks != 1)
        settled = 0 if not behind.size else behind[-1] + 1
        first = f"first on top after {self.layer_names[led[0]]}" if led.size else "on top nowhere"
        stays = f", to stay from {self.layer_names[settled]}" if settled < len(ranks) else ""
        best = int(np.argmax(probabilities))
        return (
            f"  {word!r}: {first}{stays}; highest p {probabilities[best]:.3f} after {self.layer_names[best]}, "
            f"in the end p {probabilities[-1]:.3f}, rank {ranks[-1]}"
        )


@dataclass(frozen=True)
class _Stream:
    """The residual stream of one text at every boundary, at the chosen positions."""

    residuals: list[Float[Tensor, "pos d_model"]]
    positions: list[int]
    text: list[int]


@torch.no_grad()
def logit_lens(
    model: "Transformer",
    source: ActivationCache | Tensor | str,
    *,
    answers: Sequence[str | int] = (),
    positions: Sequence[int] | None = None,
    top_k: int = 5,
    row: int | None = None,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 128 * 2**20,
) -> LensResult:
    """Read the residual stream after each layer as if it were the last.

    `source` is a text (the only case in which `prefix` is added), tokens [batch, pos], or a cache that holds the
    stream at every boundary: `blocks.0.hook_resid_pre` or `hook_embed`, and `blocks.*.hook_resid_post`. Of a batch,
    `row` says which text. `answers` are tokens to follow: ids, or texts of exactly one token. Positions count from
    the end if negative; padding is left out. About `max_bytes` of logits are held at once.

    Raises `UsageError` for an empty text, an answer of several tokens or named twice, a position outside, or a batch
    without `row`.
    """
    answer_ids = _answer_ids(model, [answers] if isinstance(answers, str) else answers)
    if not 1 <= top_k <= model.config.d_vocab:
        raise UsageError(f"top_k is {top_k}; expected 1 to {model.config.d_vocab}, the size of the vocabulary.")
    cache = source if isinstance(source, ActivationCache) else _record(model, source, prefix)
    stream = _stream(cache, _row(cache, row), positions)
    readings = _readings(model, stream.residuals, answer_ids, top_k, max_bytes)
    stated = prefix if isinstance(source, str) else "as given"
    axes: dict[str, Sequence[int | str]] = {"layer": range(-1, len(stream.residuals) - 1), "position": stream.positions}
    if answer_ids:
        axes["answer"] = distinct_texts(model, answer_ids)
    return LensResult(
        arrays=_arrays(model, stream, readings, answer_ids),
        axes=axes,
        settings={"answers": answer_ids, "positions": stream.positions, "top_k": top_k, "prefix": stated},
        provenance=provenance(model.provenance, tokens=stream.text, prefix=stated),
    )


def _answer_ids(model: "Transformer", answers: Sequence[str | int]) -> list[int]:
    ids = [token_id(model, answer) for answer in answers]
    twice = [answer for place, answer in enumerate(answers) if ids[place] in ids[:place]]
    if twice:
        raise UsageError(f"The answer {twice[0]!r} is named twice. Expected different tokens; name each of them once.")
    return ids


def _record(model: "Transformer", source: Tensor | str, prefix: PrefixPolicy) -> ActivationCache:
    tokens = model.to_tokens(source, prefix=prefix) if isinstance(source, str) else source
    names = ["blocks.0.hook_resid_pre", "blocks.*.hook_resid_post"]
    return model.run_with_cache(tokens, names, stop_at_layer=model.config.n_layers)[1]


def _row(cache: ActivationCache, row: int | None) -> int:
    count = cache.tokens.shape[0]
    if row is None and count != 1:
        raise UsageError(f"The lens reads one text and got a batch of {count}. Say which: row=0, row=1, …")
    if row is not None and not -count <= row < count:
        raise UsageError(f"There is no row {row} in a batch of {count}: expected 0 to {count - 1}.")
    return row or 0


def _stream(cache: ActivationCache, row: int, positions: Sequence[int] | None) -> _Stream:
    text = cache.tokens[row].tolist()
    recorded = list(range(len(text))) if cache.positions is None else cache.positions
    real = recorded if cache.mask is None else [place for place in recorded if cache.mask[row, place]]
    chosen = position_list(positions, len(text))
    wanted = real if chosen is None else chosen
    missing = [place for place in wanted if place not in real]
    if missing or len(set(wanted)) != len(wanted):
        what = f"position {missing[0]} was not recorded or is padding" if missing else "a position is named twice"
        raise UsageError(f"The lens cannot read positions {list(positions or ())}: {what}. There are {real}.")
    columns = [recorded.index(place) for place in wanted]
    start = "blocks.0.hook_resid_pre" if "blocks.0.hook_resid_pre" in cache else "hook_embed"
    boundaries = [start, *(f"blocks.{layer}.hook_resid_post" for layer in range(cache.points.n_layers))]
    return _Stream([cache[name][row, columns] for name in boundaries], wanted, text)


def _readings(
    model: "Transformer", residuals: list[Float[Tensor, "pos d_model"]], answers: list[int], top_k: int, max_bytes: int
) -> dict[str, np.ndarray]:
    """All values, [layer, position, …], a block of positions at a time: the full logits never exist together.

    They are written into tables made beforehand. Small tensors kept from every step, between big ones that come and
    go, would tear the heap into pieces too small to use again (3 GB for 1,000 tokens).
    """
    kept = _tables((len(residuals), len(residuals[0])), 1 + len(answers), top_k, model.device)
    size = max(1, max_bytes // (5 * 4 * model.config.d_vocab))  # about five float32 tables over the vocabulary live
    for start in range(0, len(residuals[0]), size):
        _read_block(model, residuals, answers, slice(start, start + size), kept)
    return {name: table.cpu().numpy() for name, table in kept.items()}


def _tables(cells: tuple[int, int], followed: int, top_k: int, device: torch.device) -> dict[str, Tensor]:
    """Room for what `_cell` returns, at every boundary and position."""
    last = {"top_id": [top_k], "top_probability": [top_k], "entropy": [], "kl_to_final": []}
    last |= {name: [followed] for name in ("followed_id", "followed_log_probability", "followed_rank")}
    whole = ("top_id", "followed_id", "followed_rank")
    return {
        name: torch.empty([*cells, *more], dtype=torch.int64 if name in whole else torch.float32, device=device)
        for name, more in last.items()
    }


def _read_block(
    model: "Transformer",
    residuals: list[Float[Tensor, "pos d_model"]],
    answers: list[int],
    rows: slice,
    kept: dict[str, Tensor],
) -> None:
    """One block of positions at every boundary; the last boundary is the model's own output."""

    def lens(residual: Float[Tensor, "pos d_model"]) -> Float[Tensor, "pos d_vocab"]:
        return model.unembed_residual(residual).float().log_softmax(-1)

    final = lens(residuals[-1][rows])
    asked = torch.tensor(answers, dtype=torch.long, device=final.device).expand(len(final), -1)
    followed = torch.cat([final.argmax(-1, keepdim=True), asked], -1)
    for layer, residual in enumerate(residuals):
        found = final if layer == len(residuals) - 1 else lens(residual[rows])
        for name, value in _cell(found, final, followed, kept["top_id"].shape[-1]).items():
            kept[name][layer, rows] = value


def _cell(
    found: Float[Tensor, "pos d_vocab"],
    final: Float[Tensor, "pos d_vocab"],
    followed: Int[Tensor, "pos token"],
    top_k: int,
) -> dict[str, Tensor]:
    """What is kept of one boundary's log-probabilities; `followed` holds the final prediction and the answers."""
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


def _arrays(
    model: "Transformer", stream: _Stream, found: dict[str, np.ndarray], answers: list[int]
) -> dict[str, NamedArray]:
    """The readings under the names of the result, token texts beside ids."""
    layers = len(found["entropy"])
    final_ids = found["followed_id"][-1, :, 0]
    top_text = np.array(token_texts(model, found["top_id"].reshape(-1).tolist()), dtype=object).reshape(
        found["top_id"].shape
    )
    token_ids = [stream.text[place] for place in stream.positions]
    arrays = {
        "layer_name": NamedArray(["embed", *map(str, range(layers - 1))], ("layer",)),
        "token": NamedArray(token_texts(model, token_ids), ("position",)),
        "token_id": NamedArray(token_ids, ("position",)),
        "prediction": NamedArray(top_text[..., 0], CELL),
        "prediction_probability": NamedArray(found["top_probability"][..., 0], CELL),
        "entropy": NamedArray(found["entropy"], CELL),
        "kl_to_final": NamedArray(found["kl_to_final"], CELL),
        "final_token": NamedArray(token_texts(model, final_ids.tolist()), ("position",)),
        "final_id": NamedArray(final_ids, ("position",)),
        **_followed(found, "final", 0, CELL),
        "top_token": NamedArray(top_text, (*CELL, "rank")),
        "top_id": NamedArray(found["top_id"], (*CELL, "rank")),
        "top_probability": NamedArray(found["top_probability"], (*CELL, "rank")),
        "tokens": NamedArray(stream.text, ("text_position",)),
    }
    if answers:
        arrays["answer_id"] = NamedArray(answers, ("answer",))
        arrays |= _followed(found, "answer", slice(1, None), (*CELL, "answer"))
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
