"""The lens on parts: between attention and FFN, on what each sublayer or head writes alone.

Any vector x of the residual stream can be read as if it were the whole of it,

    softmax( W_U · norm_f(x) )         the statistics of the final norm being those of x

`of="stream"` reads the stream at every boundary, also between the two sublayers of a layer; `sublayer` what attention
and FFN of each layer add to it; `head` what each head adds (z · W_O, without b_O). Where sublayers have a norm on what
they return, a head is read behind it, at the divisor that it had. A short vector is read as loudly as a long one: rank
and probability say what a part points at, not how far it moves the logits (that is direct logit attribution).

Papers: nostalgebraist 2020, "interpreting GPT: the logit lens"; Geva et al. 2023 (arXiv 2304.14767), who ask so which
sublayer writes the answer.

What it does NOT tell: that a part without a readable token does nothing, or that a token which can be read reaches the
output. Biases of the final norm and of the unembedding are added to every part, though the model adds them once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.folded import wide, written_through
from interp.analyses.lens_readings import Places, answer_axis, asked_ids, lens_arrays, readings
from interp.cache import ActivationCache
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Of = Literal["stream", "sublayer", "head"]
SHOWN = 5  # parts that a summary names


class PartLens(Result, kind="lens.parts"):
    """The lens on each [part, position]; parts are named as in `L3.mid`, `L3.attn` or `L3.H5`.

    `prediction` and `prediction_probability` are the top token, `top_*` [part, position, rank] the first few; `final_*`
    follows the model's own prediction at that position, `answer_*` [part, position, answer] the tokens asked for (rank
    1 is the top); `entropy`, and `kl_to_final` from the model's output, in nats. `part_layer` and `part_head` [part].
    """

    grid = ("part", "position")
    title = "Logit lens on parts"
    caution = "It says what a part points at, not how much of it there is, nor whether later layers use it."

    def followed(self, position: int | None = None) -> tuple[str, np.ndarray]:
        """The first answer, or without any the final prediction, at a position (the last); and its rank by [part]."""
        where = int(self.axes["position"][-1]) if position is None else position
        if "answer" in self.axes:
            answer = str(self.axes["answer"][0])
            return answer, self.at("answer_rank", position=where, answer=answer)
        return str(self.at("final_token", position=where)), self.at("final_rank", position=where)

    def figure(self, position: int | None = None) -> "Figure":
        """Heads as a map of 1 / rank of the followed token at one position; other parts with their top tokens."""
        from interp.plots import head_heatmap, lens_heatmap

        if self.settings["of"] == "head":
            token, rank = self.followed(position)
            return head_heatmap(
                (1 / rank).reshape(self["part_layer"].max() + 1, -1),
                title=f"{self.title}: 1 / rank of {token!r}",
                metric="1 / rank",
                bounds=(0.0, 1.0),
            )
        return lens_heatmap(
            self["prediction_probability"],
            self["prediction"],
            title=f"{self.title}: the token that each points at",
            metric="prediction probability",
            layers=[str(part) for part in self.axes["part"]],
            tokens=list(self["token"]),
            positions=[int(position) for position in self.axes["position"]],
        )

    def summary(self) -> list[str]:
        """The parts that rank the followed token highest, at the last position."""
        token, rank = self.followed()
        where = int(self.axes["position"][-1])
        order = np.argsort(rank, kind="stable")[:SHOWN]
        lines = [f"{self.title}: {len(rank)} parts × {len(self.axes['position'])} positions"]
        lines.append(f"  {token!r} is on top of {int((rank == 1).sum())} of them at position {where}; the best are")
        for place in order:
            part = self.axes["part"][place]
            says = str(self.at("prediction", part=part, position=where))
            lines.append(f"  {part}: rank {rank[place]:,} (says {says!r})")
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def lens_parts(
    model: "Transformer",
    source: ActivationCache | Tensor | str,
    *,
    of: Of = "sublayer",
    answers: Sequence[str | int] = (),
    positions: Sequence[int] | None = (-1,),
    top_k: int = 5,
    row: int | None = None,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 128 * 2**20,
) -> PartLens:
    """Read every part by itself, as if it were the whole residual stream.

    `source`, `answers`, `row` and `prefix` are those of `logit_lens`; a cache holds the last `hook_resid_post` and the
    points of the parts: `blocks.0.hook_resid_pre`, `hook_resid_mid` and `hook_resid_post` for the stream;
    `hook_attn_out` and `hook_mlp_out` for sublayers; `attn.hook_z` (and `ln1_post.hook_scale`, where there is one) for
    heads. `positions`: the last by default, None for all. About `max_bytes` of logits are held at once.

    Raises `UsageError` as `logit_lens` does, and for the stream of parallel blocks, where nothing stands between
    attention and FFN.
    """
    if of not in get_args(Of):
        raise UsageError(f"The lens reads one of {', '.join(get_args(Of))}, not {of!r}.")
    if of == "stream" and model.config.parallel:
        raise UsageError(f"{model.points().why_absent('blocks.0.hook_resid_mid')} Take the logit lens itself.")
    asked = asked_ids(model, answers, top_k)
    places = Places.of(model, source, points_read(model, of), positions=positions, row=row, prefix=prefix)
    parts = _parts(model, places, of)
    found = readings(model, list(parts.values()), places.final, asked, top_k, max_bytes)
    layers, heads = zip(*map(_numbers, parts), strict=True)
    return PartLens(
        arrays={
            "part_layer": (layers, ("part",)),
            "part_head": (heads, ("part",)),
            **lens_arrays(model, places, found, asked, "part"),
        },
        axes={"part": list(parts), **places.axes, **answer_axis(model, asked)},
        settings={"of": of, "answers": asked, "positions": places.positions, "top_k": top_k, "prefix": places.prefix},
        provenance=provenance(model.provenance, tokens=places.text, prefix=places.prefix),
    )


SHORT = {
    "stream": {"mid": "hook_resid_mid", "post": "hook_resid_post"},
    "sublayer": {"attn": "hook_attn_out", "mlp": "hook_mlp_out"},
}
"""The parts of a layer that are recorded as they are, by name."""


def points_read(model: "Transformer", of: Of) -> list[str]:
    """The points that the parts are made from, and the stream behind the last layer."""
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    if of == "head":
        scales = [name for name in model.points() if name.endswith("ln1_post.hook_scale")]
        return ["blocks.*.attn.hook_z", *scales, last]
    return [
        *(["blocks.0.hook_resid_pre"] if of == "stream" else []),
        *(f"blocks.*.{name}" for name in SHORT[of].values()),
        last,
    ]


def _parts(model: "Transformer", places: Places, of: Of) -> dict[str, Float[Tensor, "pos d_model"]]:
    """The vectors by name, in the order in which the model makes them."""
    parts = {"embed": places.start} if of == "stream" else {}
    for layer in range(model.config.n_layers):
        if of == "head":
            heads = _heads(model, places, layer).unbind(1)
            parts |= {f"L{layer}.H{head}": vector for head, vector in enumerate(heads)}
        else:
            parts |= {f"L{layer}.{part}": places.at(f"blocks.{layer}.{name}") for part, name in SHORT[of].items()}
    return parts


def _heads(model: "Transformer", places: Places, layer: int) -> Float[Tensor, "pos head d_model"]:
    """What each head of a layer adds to the stream."""
    block, prefix = model.layers[layer], f"blocks.{layer}"
    written = torch.einsum("phd,hdm->phm", wide(places.at(f"{prefix}.attn.hook_z")), wide(block.attn.W_O))
    if block.ln1_post is None:
        return written.to(model.dtype)
    scale = places.at(f"{prefix}.ln1_post.hook_scale")[:, None]
    return (written_through(block.ln1_post, written) / scale).to(model.dtype)


def _numbers(part: str) -> tuple[int, int]:
    """Layer and head of a part by its name; −1 where it has none."""
    layer, _, rest = part.removeprefix("L").partition(".")
    return (-1, -1) if part == "embed" else (int(layer), int(rest[1:]) if rest.startswith("H") else -1)
