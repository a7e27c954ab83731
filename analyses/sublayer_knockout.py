"""What is a subject without what its own FFNs, or its attention, make of it?

What a sublayer adds to the residual stream at the tokens of the subject, and nowhere else, is replaced in a window of
layers from each layer on, [ℓ, ℓ + w − 1] cut where the model ends, by

    mean    what it adds at the tokens of other subjects, on average
    zero    nothing

and the probability, log-probability and logit of the answer are measured. Early FFNs are where an attribute is thought
to be added to a subject, before the last token reads it. Zero takes the stream out of its usual range, so that part of
what it shows is the shock; the two stand side by side.

The mean is over the subjects' tokens of `reference` facts, each in its sentence; by default of every eighth of those
that come along. It is one vector a layer, and does not depend on which facts are measured.

Paper: Geva et al. 2023, "Dissecting recall of factual associations in auto-regressive language models" (arXiv
2304.14767), where sublayers are cancelled in windows of 10 layers and what is measured is the share of words about the
subject that its last token can be read as; here it is the answer itself.

What it does NOT tell: that a sublayer which costs much holds the fact: early layers also put a word together from its
pieces, without which nothing is known of it. Windows from different layers overlap.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.fact_data import bundled_facts
from interp.analyses.recall import Batch, Recall, Recalls, recall_of
from interp.analyses.recall_effects import RecallEffects, swept
from interp.analyses.reference_values import recorded
from interp.analyses.windows import Windows, layers_from
from interp.edits import Edit, Selected
from interp.errors import UsageError
from interp.facts import Fact
from interp.hooks import Hooks
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import Progress
from interp.results import provenance
from interp.selection import Index

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Sublayer = Literal["mlp", "attn"]
ReplacedBy = Literal["mean", "zero"]
SUBLAYERS: tuple[Sublayer, ...] = get_args(Sublayer)
REPLACED_BY: tuple[ReplacedBy, ...] = get_args(ReplacedBy)
FACTS_AT_ONCE = 8  # of the reference, whose values are kept at every layer


class SublayerKnockout(RecallEffects, kind="knockout.sublayers"):
    """What it does to the answer that a sublayer adds nothing of its own at the subject; see `RecallEffects`.

    Cuts are named "mlp mean", "attn zero" and so on.
    """

    title = "Sublayers knocked out at the subject"
    caution = "Early layers also put words together from their pieces: what costs much need not hold the fact."

    @property
    def window_said(self) -> str:
        """How a window lies from the layer that names it."""
        return f"the first of a window of {self.settings['window']}"


@torch.no_grad()
def sublayer_knockout(
    model: "Transformer",
    facts: str | Iterable[Fact],
    *,
    subject: str | None = None,
    answer: str | int | None = None,
    occurrence: int | None = None,
    sublayers: Sequence[Sublayer] = SUBLAYERS,
    methods: Sequence[ReplacedBy] = REPLACED_BY,
    window: int = 5,
    layers: Index | None = None,
    reference: Iterable[Fact] | None = None,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
) -> SublayerKnockout:
    """Replace what sublayers add at the subject, in `window` layers from each layer on, in all facts that are known.

    `reference`: facts whose subjects' tokens the mean is over; those that cannot be tokenized are left out. `seed` is
    that of the bootstrap. All else as in `attention_knockout`.

    Raises `UsageError` for what cannot be asked, and where the model knows none of the facts.
    """
    for what, given, known in (("Sublayers", sublayers, SUBLAYERS), ("Methods", methods, REPLACED_BY)):
        if isinstance(given, str) or not given or len(set(given)) < len(given) or not set(given) <= set(known):
            raise UsageError(f"{what} are some of {', '.join(known)}, each once, not {given!r}.")
    onward = Windows.of(model, layers, window, layers_from)
    recalls = Recalls.of(model, facts, subject=subject, answer=answer, occurrence=occurrence, prefix=prefix)
    cuts = {f"{sublayer} {method}": (sublayer, method) for sublayer in sublayers for method in methods}
    read = _reference(model, reference, prefix) if "mean" in methods else []
    means = _means(model, read, sublayers, budget)
    found = swept(
        model,
        recalls,
        list(cuts),
        onward,
        lambda batch: _hooks(batch, cuts, onward, means),
        budget=budget,
        shortcuts=shortcuts,
        progress=progress,
    )
    return SublayerKnockout(
        arrays={
            **found.arrays([each.relation for each in recalls.asked], seed=seed),
            **onward.labels(),
            **recalls.labels(model),
        },
        axes={"cut": list(cuts), "layer": list(onward.by_name), **recalls.axes},
        settings={
            **recalls.settings,
            **{"sublayers": list(sublayers), "methods": list(methods), "window": window, "seed": seed},
            **{"reference": [each.name for each in read], "shortcuts": shortcuts},
        },
        provenance=provenance(model.provenance, tokens=recalls.tokens, prefix=prefix, seed=seed),
    )


def _point(sublayer: Sublayer, layer: int) -> str:
    return f"blocks.{layer}.hook_{sublayer}_out"


def _reference(model: "Transformer", facts: Iterable[Fact] | None, prefix: PrefixPolicy) -> list[Recall]:
    """The facts whose subjects have tokens of their own."""
    found = []
    for fact in bundled_facts()[::8] if facts is None else facts:
        try:
            found.append(recall_of(model, fact, prefix))
        except UsageError:
            continue
    if not found:
        raise UsageError("None of the reference facts has a subject with tokens of its own; name others.")
    return found


def _means(
    model: "Transformer", read: Sequence[Recall], sublayers: Sequence[Sublayer], budget: int
) -> Mapping[str, Float[Tensor, "d_model"]]:
    """What each sublayer adds at the subjects' tokens on average, by its point."""
    names = [_point(sublayer, layer) for layer in range(model.config.n_layers) for sublayer in sublayers]
    total, count = dict.fromkeys(names, torch.zeros(model.config.d_model, device=model.device)), 0
    for start in range(0, len(read), FACTS_AT_ONCE):
        batch = Batch.of(read, range(len(read))[start : start + FACTS_AT_ONCE], model.tokenizer.pad_id)
        inside = batch.marked([each.subject for each in batch.recalls]).to(model.device)
        found = recorded(model, batch.tokens, names, mask=batch.mask, budget=budget)
        total = {name: total[name] + found[name][inside].sum(0) for name in names}
        count += int(inside.sum())
    return {name: value / count for name, value in total.items()} if read else {}


def _hooks(
    batch: Batch,
    cuts: Mapping[str, tuple[Sublayer, ReplacedBy]],
    onward: Windows,
    means: Mapping[str, Float[Tensor, "d_model"]],
) -> Callable[[str, int], Hooks]:
    """A sublayer's outputs replaced at the subjects of a batch."""
    inside = batch.marked([each.subject for each in batch.recalls])
    columns = inside.any(0).nonzero()[:, 0].tolist()
    marks = inside[:, columns, None].float()

    def replaced(name: str, method: ReplacedBy) -> Edit:
        def change(chosen: Selected) -> Tensor:
            new = torch.zeros_like(chosen.cells) if method == "zero" else means[name].to(chosen.cells)
            return torch.where(chosen.fitted(marks, "mask of subjects") > 0, new, chosen.cells)

        return Edit(change, {"positions": columns})

    def hooks(cut: str, layer: int) -> Hooks:
        sublayer, method = cuts[cut]
        names = [_point(sublayer, each) for each in onward.by_name[layer]]
        return [(name, replaced(name, method)) for name in names]

    return hooks
