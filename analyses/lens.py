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

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.analyses.lens_readings import Places, answer_axis, asked_ids, lens_arrays, readings
from interp.cache import ActivationCache
from interp.models.prompt_formats import PrefixPolicy
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
    progress: Callable[[int, int], None] | None = None,
) -> LensResult:
    """Read the residual stream after each layer as if it were the last.

    `source` is a text (the only case in which `prefix` is added), tokens [batch, pos], or a cache that holds the
    stream at every boundary: `blocks.0.hook_resid_pre` or `hook_embed`, and `blocks.*.hook_resid_post`. Of a batch,
    `row` says which text. `answers` are tokens to follow: ids, or texts of exactly one token. Positions count from
    the end if negative; padding is left out. About `max_bytes` of logits are held at once;
    `progress` is called after each block of positions with how many are done, and of how many.

    Raises `UsageError` for an empty text, an answer of several tokens or named twice, a position outside, or a batch
    without `row`.
    """
    asked = asked_ids(model, answers, top_k)
    names = ["blocks.0.hook_resid_pre", "blocks.*.hook_resid_post"]
    places = Places.of(model, source, names, positions=positions, row=row, prefix=prefix)
    layers = [places.at(f"blocks.{layer}.hook_resid_post") for layer in range(model.config.n_layers)]
    found = readings(model, [places.start, *layers], places.final, asked, top_k, max_bytes, progress)
    return LensResult(
        arrays={
            "layer_name": (["embed", *map(str, range(model.config.n_layers))], ("layer",)),
            **lens_arrays(model, places, found, asked, "layer"),
        },
        axes={"layer": range(-1, model.config.n_layers), **places.axes, **answer_axis(model, asked)},
        settings={"answers": asked, "positions": places.positions, "top_k": top_k, "prefix": places.prefix},
        provenance=provenance(model.provenance, tokens=places.text, prefix=places.prefix),
    )
