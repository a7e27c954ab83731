"""Which sublayer writes the answer: where would what it adds at the last token, read by itself, say it?

With a_ℓ and m_ℓ what attention and the FFN of layer ℓ add to the residual stream at the last token, and o the answer,

    extracted by attention in ℓ:  argmax W_U · norm_f(a_ℓ) = o        by the FFN:  argmax W_U · norm_f(m_ℓ) = o

through the final norm, whose gain decides which directions count; how long a_ℓ is does not matter, as dividing by its
norm changes no argmax. (Biases of a LayerNorm and of the unembedding are added as the model adds them.) Over facts that
the model knows: the share of them extracted in each layer, and in any layer at all, with 95 % intervals (Wilson 1927).

Paper: Geva et al. 2023, "Dissecting recall of factual associations in auto-regressive language models" (arXiv
2304.14767), who read sublayers without the final norm.

What it does NOT tell: that the answer came from there. A sublayer may add much to the answer's logit while another
token stands first in what it adds; and one that says the answer may repeat what stands in the stream already. Direct
logit attribution adds up; this counts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.analyses.intervals import share_interval
from interp.analyses.left_out import first_token_lines
from interp.analyses.recall import Batch, Recalls
from interp.analyses.vocabulary import token_texts
from interp.facts import Fact
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Arrays, Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

SUBLAYERS = {"attn": "attention", "mlp": "FFN"}


class Extraction(Result, kind="extraction"):
    """Which sublayers would say the answer at the last token.

    `said` [sublayer, layer, fact] is the token that each would say, `extracted` whether that is the answer. By
    [sublayer, layer]: `rate`, the share of the facts, with `rate_low` and `rate_high`. `any_rate` [sublayer] is the
    share extracted in at least one layer, likewise; `relation_any` [relation, sublayer] the same of each relation, of
    `relation_count` [relation] facts. `answer_tokens` [fact]: how many the answer has, of which the first is looked
    for. `reason` [excluded]: why a fact is not counted.
    """

    grid = ("sublayer", "layer")
    title = "Extraction of the answer at the last token"
    caution = "A sublayer that would say the answer may repeat what stands there already; another may add more to it."

    def figure(self) -> "Figure":
        """The share of facts extracted by attention and by the FFN, layer by layer."""
        from interp.plots import curves

        return curves(
            list(self.axes["layer"]),
            {SUBLAYERS[str(name)]: self.at("rate", sublayer=name) for name in self.axes["sublayer"]},
            title=self.headline(),
            x_title="layer",
            y_title="share of facts",
            bounds=(0.0, 1.0),
        )

    def headline(self) -> str:
        """How many prompts were asked."""
        asked = self.settings
        if "prompt" in asked:
            return f"{self.title}: {asked['answer']!r} after {asked['prompt']!r}"
        return f"{self.title}: {len(self.axes['fact'])} known of {asked['facts']} facts"

    def summary(self) -> list[str]:
        """In how many facts each kind of sublayer says the answer in any layer, and where most often."""
        lines = [self.headline()]
        if self.settings.get("answer") != self.settings.get("prediction"):
            lines.append(f"  the model's own answer is {self.settings['prediction']!r}")
        for place, name in enumerate(self.axes["sublayer"]):
            share, low, high = (float(self[f"any_{end}"][place]) for end in ("rate", "low", "high"))
            rate = self["rate"][place]
            top = int(rate.argmax())
            most = f", most in layer {self.axes['layer'][top]} ({rate[top]:.0%})" if share else ""
            lines.append(f"  {SUBLAYERS[str(name)]}: in any layer {share:.0%} [{low:.0%}, {high:.0%}]{most}")
        return [*lines, *first_token_lines(self), f"  {self.caution}"]


@torch.no_grad()
def extraction(
    model: "Transformer",
    facts: str | Iterable[Fact],
    *,
    subject: str | None = None,
    answer: str | int | None = None,
    occurrence: int | None = None,
    prefix: PrefixPolicy = "doc",
    budget: int = 2**30,
    progress: Callable[[int, int], None] | None = None,
) -> Extraction:
    """What every sublayer would say at the last token, in all facts that the model knows, or after one prompt.

    Settings as in `attention_knockout`; `budget` bounds what is kept of a batch of prompts. Raises `UsageError` for
    what cannot be asked, and where the model knows none of the facts.
    """
    recalls = Recalls.of(model, facts, subject=subject, answer=answer, occurrence=occurrence, prefix=prefix)
    ids = np.zeros((len(SUBLAYERS), model.config.n_layers, len(recalls.asked)), dtype=np.int64)
    done = 0
    for batch in recalls.batches(model, budget):
        ids[..., batch.places] = _said(model, batch).cpu().numpy()
        done += len(batch.recalls)
        if progress is not None:
            progress(done, len(recalls.asked))
    extracted = ids == np.array([each.answer for each in recalls.asked])
    texts = np.array(token_texts(model, ids.ravel().tolist()), dtype=object).reshape(ids.shape)
    return Extraction(
        arrays={
            "said": (texts, ("sublayer", "layer", "fact")),
            "extracted": (extracted, ("sublayer", "layer", "fact")),
            **_rates(extracted, [each.relation for each in recalls.asked]),
            **recalls.labels(model),
        },
        axes={"sublayer": list(SUBLAYERS), **recalls.axes},
        settings=recalls.settings,
        provenance=provenance(model.provenance, tokens=recalls.tokens, prefix=prefix),
    )


def _said(model: "Transformer", batch: Batch) -> Int[Tensor, "sublayer layer text"]:
    """The token that each sublayer's output at the last token would say by itself."""
    points = [[f"blocks.{layer}.hook_{name}_out" for layer in range(model.config.n_layers)] for name in SUBLAYERS]
    wanted = [name for row in points for name in row]
    _, cache = model.run_with_cache(
        batch.tokens, wanted, positions=[-1], mask=batch.mask, stop_at_layer=model.config.n_layers
    )
    rows = [torch.stack([model.unembed_residual(cache[name][:, 0]).argmax(-1) for name in row]) for row in points]
    return torch.stack(rows)


def _rates(extracted: np.ndarray, relations: Sequence[str]) -> Arrays:
    """Shares of the facts, [sublayer, layer, fact] → by layer and in any layer, over all and by relation."""
    count = np.array(extracted.shape[-1])
    anywhere, hits = np.asarray(extracted.any(1)), extracted.sum(-1)
    low, high = share_interval(hits, count)
    any_low, any_high = share_interval(anywhere.sum(-1), count)
    members = [np.array([each == name for each in relations]) for name in dict.fromkeys(relations)]
    return {
        "rate": (hits / count, ("sublayer", "layer")),
        "rate_low": (low, ("sublayer", "layer")),
        "rate_high": (high, ("sublayer", "layer")),
        "any_rate": (anywhere.mean(-1), ("sublayer",)),
        "any_low": (any_low, ("sublayer",)),
        "any_high": (any_high, ("sublayer",)),
        "relation_any": ([anywhere[:, each].mean(-1) for each in members], ("relation", "sublayer")),
        "relation_count": ([int(each.sum()) for each in members], ("relation",)),
    }
