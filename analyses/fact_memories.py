"""FFN memories over many facts: do the neurons that write most speak for the answer, and at which token?

For every fact that the model knows, the dominant sub-updates of each layer (`memories.py`) at two tokens of its prompt:

    subject_last    the last token of the subject, where a fact is thought to be looked up
    last            the last token, from which the answer is said

and for each the rank of the answer, the first token of " " + object, among all tokens by the scores of w · m · v: rank
1 is what the sub-update promotes most. `share` [role, layer] is the share of facts of which at least one of these
sub-updates has the answer among its first `near`; chance, for words at random, is about top_k · near / vocabulary.

Facts that the model does not know, and those that cannot be measured, are left out and named; the others go on.

Papers: Geva et al. 2022 (arXiv 2203.14680); Meng et al. 2022 (arXiv 2202.05262), for the two tokens.

What it does NOT tell: that such a neuron is where the fact is kept. It may promote the answer in every prompt of the
relation, and at the subject much is written that no token can be read from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.analyses.ffn_values import chosen_layers, memories_read
from interp.analyses.known_facts import known_facts
from interp.analyses.left_out import first_token_lines
from interp.analyses.memories import dominant
from interp.analyses.projection import FinalNorm, project
from interp.analyses.repeated import Progress
from interp.analyses.sub_updates import points_read, sub_updates
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance
from interp.selection import Index

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

ROLES = ("subject_last", "last")
CELL = ("fact", "role", "layer", "rank")


class FactMemories(Result, kind="memories.facts"):
    """The dominant sub-updates of [fact, role, layer, rank]: `name`, `coefficient`, `dominance`, `promoted_token`.

    `answer_score` and `answer_rank` are those of the fact's `answer` [fact] among all tokens. `share` [role, layer].
    `relation`, `prompt` [fact] and `answer_tokens`, of which the first is `answer`; `reason` [excluded], why a fact is
    not among them, by its id.
    """

    grid = CELL
    title = "FFN memories of facts"
    caution = "A neuron that promotes the answer need not be where the fact is kept."

    @property
    def excluded(self) -> Mapping[str, str]:
        """Id of each fact that was left out → why."""
        return dict(zip(map(str, self.axes["excluded"]), map(str, self["reason"]), strict=True))

    def figure(self) -> "Figure":
        """By layer, the share of facts of which a dominant sub-update speaks for the answer, at both tokens."""
        from interp.plots import curves

        series = {role.replace("_", " "): self.at("share", role=role) for role in ROLES}
        title = f"{self.title}: the answer among the first {self.settings['near']} tokens of a dominant sub-update"
        return curves(self.axes["layer"], series, title=title, x_title="layer", y_title="share of facts")

    def summary(self) -> list[str]:
        """At each token the layer in which most facts find their answer, and how many facts are left out."""
        count = len(self.axes["fact"])
        lines = [f"{self.title}: {count} known facts, the {self.settings['top_k']} strongest neurons of each layer"]
        for role in ROLES:
            share = self.at("share", role=role)
            best = int(share.argmax())
            lines.append(
                f"  {role.replace('_', ' ')} token: one of them has the answer among its first "
                f"{self.settings['near']} in up to {share[best]:.0%} of facts (layer {self.axes['layer'][best]})"
            )
        out = len(self.excluded)
        left = f"  {out} of {count + out} facts are left out"
        return [*lines, left, *first_token_lines(self), f"  {self.caution}"]


@torch.no_grad()
def fact_memories(
    model: "Transformer",
    facts: Iterable[Fact],
    *,
    layer: Index | None = None,
    top_k: int = 5,
    near: int = 100,
    final_norm: FinalNorm | None = "gain",
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 64 * 2**20,
    progress: Progress | None = None,
) -> FactMemories:
    """The `top_k` dominant sub-updates of these layers for every fact that the model knows.

    Raises `UsageError` where it knows none of them, for layers that do not exist, for more sub-updates than a token
    has, and as `filter_facts` does.
    """
    layers = chosen_layers(model, layer)
    _check(model, layers, top_k, near)
    known = known_facts(model, facts, prefix=prefix)
    how, rows = _How(layers, top_k, final_norm, max_bytes), []
    for fact, subject_last, answer in zip(known.facts, known.of("subject_last"), known.answers, strict=True):
        rows.append(_one(model, model.to_tokens(fact.prompt, prefix=prefix), subject_last, answer, how))
        if progress is not None:
            progress(len(rows), len(known.facts))
    stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    promoted = token_texts(model, stacked.pop("promoted_id").flatten().tolist())
    excluded = known.left_out
    arrays = {
        **{name: NamedArray(values, CELL) for name, values in stacked.items()},
        "promoted_token": NamedArray(np.array(promoted, dtype=object).reshape(stacked["name"].shape), CELL),
        "share": NamedArray((stacked["answer_rank"] <= near).any(-1).mean(0), ("role", "layer")),
        "answer": NamedArray(token_texts(model, known.answers), ("fact",)),
        **known.labels,
        "relation": NamedArray([fact.relation for fact in known.facts], ("fact",)),
        "prompt": NamedArray([fact.prompt for fact in known.facts], ("fact",)),
        "reason": NamedArray(np.array(list(excluded.values()), dtype=object), ("excluded",)),
    }
    return FactMemories(
        arrays=arrays,
        axes={
            "fact": [fact.id for fact in known.facts],
            "role": ROLES,
            "layer": layers,
            "rank": range(1, top_k + 1),
            "excluded": list(excluded),
        },
        settings={"layer": layers, "top_k": top_k, "near": near, "final_norm": final_norm, "prefix": prefix},
        provenance=provenance(known.asked.provenance),
    )


def _check(model: "Transformer", layers: list[int], top_k: int, near: int) -> None:
    fewest = min(memories_read(model.config, layer) for layer in layers)
    if not 1 <= top_k <= fewest:
        raise UsageError(f"top_k is {top_k}; expected 1 to {fewest}, the neurons that write at one token.")
    if near < 1:
        raise UsageError(f"near is {near}; expected at least 1, the token that a sub-update promotes most.")


@dataclass(frozen=True)
class _How:
    """What holds for all facts."""

    layers: list[int]
    top_k: int
    final_norm: FinalNorm | None
    max_bytes: int


def _one(
    model: "Transformer", tokens: Int[Tensor, "1 pos"], subject_last: int, answer: int, how: _How
) -> dict[str, np.ndarray]:
    """What is kept of one fact, [role, layer, rank]."""
    places = [subject_last, tokens.shape[1] - 1]
    stop = max(how.layers) + 1
    _, cache = model.run_with_cache(tokens, points_read(model, how.layers), positions=places, stop_at_layer=stop)
    found = [
        dominant(model, layer, sub_updates(model, cache, layer, row=0, column=column), how.top_k)
        for column in range(len(places))
        for layer in how.layers
    ]
    written = torch.cat([vectors for _, vectors in found])
    read = project(model, written, top_k=1, tracked=[answer], final_norm=how.final_norm, max_bytes=how.max_bytes)
    words = {"promoted_id": read.top_id, "answer_score": read.tracked_score, "answer_rank": read.tracked_rank}
    kept = {name: values[:, 0].cpu().numpy() for name, values in words.items()}
    for name in ("name", "coefficient", "dominance"):
        kept[name] = np.concatenate([numbers[name] for numbers, _ in found])
    return {name: values.reshape(len(places), len(how.layers), -1) for name, values in kept.items()}
