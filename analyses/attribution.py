"""Direct logit attribution: which parts of the residual stream write for the answer, and which against it?

The stream h at a position is a sum of parts: embedding, heads, FFNs, biases. With the final norm's divisor σ held at
the value that it has there, a logit is linear in h, and so a sum of one term a part,

    logit(a) − logit(f) = Σ over parts p of  (W_U[a] − W_U[f]) · γ ∘ (p − mean p) / σ   + bias terms

(the mean only where the norm takes it off), for an answer a and a foil f, or for the answer alone. Parts are sublayers,
heads, what a layer or a head brings from each key position (pattern · v · W_O), single neurons (coefficient · value
vector, times the weight of their expert) or experts (mixing weight · output); norms on what sublayers return keep their
divisors too. Biases are terms of their own, so that the terms add up: `completeness_error` is their sum less the logit,
rounding alone. A soft-cap comes behind the logits that are explained.

Papers: Elhage et al. 2021, "A mathematical framework for transformer circuits"; Wang et al. 2022 (arXiv 2211.00593),
whose direct effects of heads these are.

What it does NOT tell: what a part does by way of later layers, which read it: a part without a term of its own may be
what all others depend on. Nor what would be without it: σ would change, and later layers might answer. And a logit
without a foil goes up and down with all others: most of its terms say nothing about this answer. (The logit lens is the
other question: it recomputes the norm's statistics for every layer, so that its readings do not add up.)
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.analyses.attribution_runs import By, Question, Recorded, Texts, Token, needed_points
from interp.analyses.intervals import mean_interval
from interp.analyses.logit_terms import Terms, joined, logit_terms
from interp.analyses.neurons import DENSE
from interp.analyses.vocabulary import token_texts
from interp.cache import ActivationCache
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Arrays, Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

SHOWN = 12  # parts that a figure shows one by one, and a summary names
BLOCK = 4096  # parts whose bootstrap means exist at once


class Attribution(Result, kind="attribution.logit"):
    """The terms of a logit, or of a difference of two, of one prompt or of several.

    By [part], named as in `L24.H3` and `neuron 24.1005`: `mean` over prompts with `low` and `high`, its 95 % bootstrap
    interval (NaN for a single prompt); `part_kind`, `part_layer` and `part_index`, which head, neuron, expert or key
    position (−1: none); `part_expert`, a neuron's expert (−1: none, −2: the shared one). Neurons of experts that no
    prompt chose are no parts. `contribution` [prompt, part]; by [prompt] `logit`, what is explained, before any
    soft-cap; `completeness_error`, Σ contribution − logit; `answer` and `foil`, `answer_id` and `foil_id`.
    """

    grid = ("part",)
    title = "Direct logit attribution"
    caution = "Direct terms only: what a part does by way of later layers is not in them, nor what would be without it."

    @property
    def explained(self) -> str:
        """What the terms add up to, in words."""
        asked = [f"logit({self._asked(name)})" for name in ("answer", "foil") if name in self]
        return f"{' − '.join(asked)}{', before the soft-cap' * (self.settings['logit_cap'] is not None)}"

    @property
    def worst_error(self) -> float:
        """The largest completeness error of any prompt, without its sign."""
        return float(np.abs(self["completeness_error"]).max())

    def figure(self) -> "Figure":
        """The strongest parts one after the other, the others together, up to the logit itself."""
        from interp.plots_attribution import waterfall

        strongest = self._strongest(SHOWN)
        others = self["mean"].sum() - self["mean"][strongest].sum()
        labels = [self.axes["part"][place] for place in strongest]
        return waterfall(
            [*map(str, labels), f"{len(self['mean']) - len(labels)} others"],
            [*self["mean"][strongest], others],
            title=f"{self.title} by {self.settings['by']}",
            total=self.explained,
        )

    def map_figure(self) -> "Figure":
        """The mean terms as a map of layers and heads, experts, or key positions.

        Raises `UsageError` where parts are sublayers, or too many for a map.
        """
        from interp.plots import effect_heatmap

        across = {"head": "head", "source": "key position", "expert": "expert"}.get(str(self.settings["by"]))
        if across is None:
            raise UsageError(f"There is no map by {self.settings['by']!r}: take by='head', 'source' or 'expert'.")
        values = self.layer_map()
        names: list[str | int] = list(range(values.shape[1]))
        if across == "key position" and "token" in self:
            names = [f"{place} {token}" for place, token in enumerate(self["token"])]
        return effect_heatmap(
            values,
            title=f"{self.title}: {self.explained}",
            metric="logits",
            x=across,
            y="layer",
            columns=names,
            rows=range(values.shape[0]),
        )

    def layer_map(self) -> np.ndarray:
        """The mean terms of numbered parts as a table [layer, index]; NaN where a layer has none.

        Raises `UsageError` for neurons of experts, of which several have one number.
        """
        if (self["part_expert"] != DENSE).any():
            raise UsageError("Neurons of experts are not numbered by layer alone; take the table, or by='expert'.")
        numbered = self["part_index"] >= 0
        layers, index = self["part_layer"][numbered], self["part_index"][numbered]
        table = np.full((self["part_layer"].max() + 1, index.max(initial=-1) + 1), np.nan)
        table[layers, index] = self["mean"][numbered]
        return table

    def summary(self) -> list[str]:
        """What is explained, the strongest parts, and how far their sum is off."""
        count = len(self["logit"])
        over = f", mean over {count} prompts" if count > 1 else ""
        lines = [f"{self.title} by {self.settings['by']}: {self.explained} = {self['logit'].mean():+.3f}{over}"]
        lines += [self._line(place) for place in self._strongest(SHOWN)]
        return [
            *lines,
            f"  the {len(self['mean'])} parts add up to it within {self.worst_error:.1g}",
            f"  {self.caution}",
        ]

    def _asked(self, name: str) -> str:
        """The token, where all prompts have the same."""
        tokens = set(self[name].tolist())
        return repr(str(tokens.pop())) if len(tokens) == 1 else f"its {name}"

    def _line(self, place: int) -> str:
        low, high = self["low"][place], self["high"][place]
        interval = "" if np.isnan(low) else f" ({low:+.3f} to {high:+.3f})"
        return f"  {self.axes['part'][place]}: {self['mean'][place]:+.3f}{interval}"

    def _strongest(self, count: int) -> np.ndarray:
        """Places of the parts with the largest mean terms, whatever their sign."""
        return np.argsort(-np.abs(self["mean"]), kind="stable")[:count]


@torch.no_grad()
def direct_logit_attribution(
    model: "Transformer",
    source: ActivationCache | Tensor | str | Sequence[str],
    answer: Token | Sequence[Token],
    foil: Token | Sequence[Token] | None = None,
    *,
    by: By = "sublayer",
    position: int = -1,
    mask: Bool[Tensor, "prompt pos"] | None = None,
    prefix: PrefixPolicy = "doc",
    seed: int = 0,
    max_bytes: int = 256 * 2**20,
    progress: Callable[[int, int], None] | None = None,
) -> Attribution:
    """The terms of logit(answer), less logit(foil) where there is one, at one position.

    `source`: a text or several (padded on the left; the only case in which `prefix` is added), tokens [prompt, pos]
    with their `mask`, or a cache of the points that `needed_points` names. `by="source"` and `"head_source"` need all
    positions of it, and `attn.hook_v`. `answer` and `foil`: texts of one token, or ids; one for all prompts, or one a
    prompt (of `Pairs`: `pairs.clean, pairs.answers, pairs.foils, mask=pairs.mask`). Runs record about `max_bytes` at
    once, but never less than one prompt; `seed` is that of the intervals.

    Raises `UsageError` for a stream that is no sum (norms after additions), key positions of padded texts, a position
    of padding, and an answer that is its own foil.
    """
    needed_points(model, by)  # refuses before anything runs
    texts = Texts.of(model, source, mask, prefix)
    question, place = Question.of(model, len(texts.tokens), answer, foil), texts.place(position, by)
    parts, logits, chosen = [], [], np.zeros(0, bool)
    for rows, run in texts.runs(model, place, by, max_bytes):
        asked, bias = question.rows(rows).asked(model)
        terms = [*logit_terms(run, asked, by), *_unembedding_bias(model, bias)]
        parts.append(joined(terms))
        chosen = np.array([each.chosen for each in terms]) | (chosen if len(chosen) else False)
        logits.append(_logits(run, asked, bias))
        if progress is not None:
            progress(rows.stop, len(texts.tokens))
    cap = model.config.logit_cap
    written = np.repeat(chosen, [len(each.index) for each in terms])
    terms = [each for each, some in zip(terms, chosen, strict=True) if some]
    return Attribution(
        arrays={
            **_parts(terms, torch.cat(parts).numpy()[:, written], torch.cat(logits).numpy(), seed),
            **_tokens(model, texts, question),
        },
        axes={"part": [label for each in terms for label in each.labels]},
        settings={"by": by, "position": place, "prefix": texts.prefix, "seed": seed, "logit_cap": cap},
        provenance=provenance(model.provenance, tokens=texts.tokens.cpu(), prefix=texts.prefix, seed=seed),
    )


def _unembedding_bias(model: "Transformer", bias: Float[Tensor, "prompt"]) -> list[Terms]:
    return [] if model.unembed_bias is None else [Terms("bias", -1, "b_U", (-1,), bias[:, None])]


def _logits(
    run: Recorded, asked: Float[Tensor, "prompt d_model"], bias: Float[Tensor, "prompt"]
) -> Float[Tensor, "prompt"]:
    """What the terms should add up to: the normalised stream as the model computes it, unembedded."""
    norm, stream = run.model.ln_final, run.stream
    normalized = stream if norm is None else norm.gained(norm.centre(stream), run.final_scale, stream)
    return ((normalized * asked).sum(-1) + bias).cpu().double()


def _parts(terms: Sequence[Terms], contribution: np.ndarray, logits: np.ndarray, seed: int) -> Arrays:
    """Every term, its mean and interval, and where its part stands."""
    low, high = _interval(contribution, seed)
    columns = {
        "mean": contribution.mean(0),
        "low": low,
        "high": high,
        "part_kind": [each.kind for each in terms for _ in each.index],
        "part_layer": [each.layer for each in terms for _ in each.index],
        "part_index": [index for each in terms for index in each.index],
        "part_expert": [each.ffn for each in terms for _ in each.index],
    }
    return {
        **{name: (values, ("part",)) for name, values in columns.items()},
        "contribution": (contribution.astype(np.float32), ("prompt", "part")),
        "logit": (logits, ("prompt",)),
        "completeness_error": (contribution.sum(1) - logits, ("prompt",)),
    }


def _interval(contribution: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """95 % bootstrap bounds of the mean over prompts, for a block of parts at a time."""
    blocks = [contribution[:, start : start + BLOCK] for start in range(0, contribution.shape[1], BLOCK)]
    bounds = [mean_interval(block.T, seed=seed) for block in blocks]
    return np.concatenate([low for low, _ in bounds]), np.concatenate([high for _, high in bounds])


def _tokens(model: "Transformer", texts: Texts, question: Question) -> Arrays:
    """What was asked; and the text, where all prompts are one."""
    asked = {"answer": question.answers, "foil": question.foils}
    arrays: dict[str, tuple[object, Sequence[str]]] = {}
    for name, ids in asked.items():
        if ids is not None:
            arrays |= {name: (token_texts(model, ids), ("prompt",)), f"{name}_id": (ids, ("prompt",))}
    if len(texts.tokens) == 1:
        arrays["token"] = (token_texts(model, texts.tokens[0].tolist()), ("position",))
    return arrays
