"""Attention knockout: when does what the model knows of a subject reach the token that says the answer?

The last token of a prompt is kept from reading

    subject        the tokens of the subject
    non_subject    all others but the prefix and itself
    last           itself
    random         as many of those others as the subject has tokens, drawn at random: the control

in all heads and in a window of layers around each layer, [ℓ − w//2, ℓ + ⌈w/2⌉ − 1] cut at both ends. The edges are
blocked before the softmax, so that rows still sum to 1 (`analyses/edges.py`). Where the answer's probability P falls,
something was read at those layers that the answer needs:

    change = 100 · (P blocked − P) / P

Facts that the model does not know are left out, by name. In facts with fewer other tokens than the subject has there is
no control; `subject_beyond_random` compares the two on the facts that have both. A control is the mean over `draws`.

Paper: Geva et al. 2023, "Dissecting recall of factual associations in auto-regressive language models" (arXiv
2304.14767), without the control. They average the changes of single facts; here the mean is that of probabilities,
see `recall_effects`. A window of 9 of the 48 layers of their model is one of 5 or 6 of 30.

What it does NOT tell: what is read there, or which head reads it. What was read in layers before the window is there
already; what other tokens have read of the subject still reaches the last one by way of them. And windows overlap, so
that a curve is smoother than what it shows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.analyses.edges import blocking
from interp.analyses.recall import Batch, Recall, Recalls
from interp.analyses.recall_effects import ENDS, Effects, RecallEffects, averaged, swept
from interp.analyses.sites import layer_window
from interp.analyses.windows import Windows
from interp.errors import UsageError
from interp.facts import Fact
from interp.hooks import Hooks
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import Progress
from interp.results import Arrays, provenance
from interp.selection import Index

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Block = Literal["subject", "non_subject", "last", "random"]
BLOCKS: tuple[Block, ...] = get_args(Block)


class AttentionKnockout(RecallEffects, kind="knockout.attention"):
    """What it does to the answer that the last token cannot read some others; see `RecallEffects` for the arrays.

    Cuts are the blocks that were asked for. `subject_beyond_random` [layer], with `…_low` and `…_high`: the change in %
    by blocking the subject less that by blocking random tokens, over the facts that have both.
    """

    title = "Attention knockout"
    caution = "What was read in layers before the window, or by way of other tokens, still reaches the last one."

    @property
    def window_said(self) -> str:
        """How a window lies around the layer that names it."""
        return f"the middle of a window of {self.settings['window']}"

    def summary(self) -> list[str]:
        """As of all cuts, and the subject beside its control."""
        *lines, caution = super().summary()
        if "subject_beyond_random" in self and not np.isnan(self["subject_beyond_random"]).all():
            place = int(np.nanargmin(self["subject_beyond_random"]))
            excess, low, high = (float(self[f"subject_beyond_random{end}"][place]) for end in ("", "_low", "_high"))
            interval = "" if np.isnan(low) else f" [{low:+.0f}, {high:+.0f}]"
            layer = self.axes["layer"][place]
            lines.append(f"  subject less as many random tokens: {excess:+.0f} points{interval} at layer {layer}")
        return [*lines, caution]


@torch.no_grad()
def attention_knockout(
    model: "Transformer",
    facts: str | Iterable[Fact],
    *,
    subject: str | None = None,
    answer: str | int | None = None,
    occurrence: int | None = None,
    blocks: Sequence[Block] = BLOCKS,
    window: int = 5,
    layers: Index | None = None,
    draws: int = 3,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    budget: int = 2**30,
    shortcuts: bool = True,
    progress: Progress | None = None,
) -> AttentionKnockout:
    """Keep the last token from reading some others, around each layer, in all facts that the model knows.

    `facts`: facts, or one prompt with its `subject` (and `answer`, the model's own by default; `occurrence`, which one,
    where the prompt names the subject several times). `layers`: around which, all by default. `draws`: how often random
    tokens are drawn for each fact, by (seed, its tokens). `budget` and `shortcuts` as in `Replay`; `progress` counts
    cells times facts.

    Raises `UsageError` for what cannot be asked, and where the model knows none of the facts.
    """
    cuts = _cuts(blocks, draws, seed)
    around = Windows.of(model, layers, window, layer_window)
    recalls = Recalls.of(model, facts, subject=subject, answer=answer, occurrence=occurrence, prefix=prefix)
    found = swept(
        model,
        recalls,
        cuts,
        around,
        lambda batch: _hooks(batch, cuts, around, seed),
        budget=budget,
        shortcuts=shortcuts,
        progress=progress,
    )
    effects = _controls_averaged(found, recalls, cuts, blocks)
    return AttentionKnockout(
        arrays={
            **effects.arrays([each.relation for each in recalls.asked], seed=seed),
            **_beyond_random(effects, blocks, seed),
            **around.labels(),
            **recalls.labels(model),
        },
        axes={"cut": list(blocks), "layer": list(around.by_name), **recalls.axes},
        settings={
            **recalls.settings,
            **{"blocks": list(blocks), "window": window, "draws": draws, "seed": seed, "shortcuts": shortcuts},
        },
        provenance=provenance(model.provenance, tokens=recalls.tokens, prefix=prefix, seed=seed),
    )


def _cuts(blocks: Sequence[Block], draws: int, seed: int) -> list[str]:
    """The blocks, every draw of random tokens by itself."""
    if isinstance(blocks, str) or not blocks or len(set(blocks)) < len(blocks) or not set(blocks) <= set(BLOCKS):
        raise UsageError(f"Blocks are some of {', '.join(BLOCKS)}, each once, not {blocks!r}.")
    for name, value, least in (("draws", draws, 1), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise UsageError(f"{name} is {value!r}; a whole number from {least} on was expected.")
    return [
        cut
        for block in blocks
        for cut in ([f"random {draw}" for draw in range(draws)] if block == "random" else [block])
    ]


def blocked_keys(recall: Recall, cut: str, seed: int = 0) -> tuple[int, ...]:
    """The positions that the last token cannot read; none where the cut does not apply to this prompt.

    `cut` is a block, or "random 0", "random 1", … for one draw.
    """
    if cut == "subject":
        return recall.subject
    if cut == "last":
        return (recall.last,)
    if cut == "non_subject":
        return recall.others
    if len(recall.others) < len(recall.subject):
        return ()
    generator = np.random.default_rng([seed, int(cut.split()[1]), *recall.ids])
    return tuple(sorted(generator.choice(recall.others, len(recall.subject), replace=False).tolist()))


def _hooks(batch: Batch, cuts: Sequence[str], around: Windows, seed: int) -> Callable[[str, int], Hooks]:
    """The edges of each cut blocked around a layer, for the prompts of a batch."""

    def edges(cut: str) -> Bool[Tensor, "text query_pos key_pos"]:
        keys = batch.marked([blocked_keys(recall, cut, seed) for recall in batch.recalls])
        whole = torch.zeros(*keys.shape, keys.shape[-1], dtype=torch.bool)
        whole[:, -1] = keys
        return whole

    blocked = {cut: edges(cut) for cut in cuts}
    return lambda cut, layer: blocking(blocked[cut], around.by_name[layer])


def _controls_averaged(found: Effects, recalls: Recalls, cuts: Sequence[str], blocks: Sequence[Block]) -> Effects:
    """The mean over the draws of random tokens in place of them all; NaN where a block does not apply to a fact."""
    rows = [[place for place, cut in enumerate(cuts) if cut.split()[0] == block] for block in blocks]
    there = np.array([[bool(blocked_keys(each, cuts[row[0]])) for each in recalls.asked] for row in rows])
    values = {
        name: np.where(there[:, None], np.stack([each[row].mean(0) for row in rows]), np.nan)
        for name, each in found.values.items()
    }
    return Effects(values, found.base)


def _beyond_random(effects: Effects, blocks: Sequence[Block], seed: int) -> Arrays:
    """The subject's change less that of its control, where both were asked for."""
    if not {"subject", "random"} <= set(blocks):
        return {}
    both, base = [blocks.index("subject"), blocks.index("random")], effects.base["probability"]
    subject, random = effects.moved["probability"][both]
    there = np.asarray(effects.there[both].all(0))
    ends = averaged(100 * (subject - random)[None], base, there[None], seed=seed)
    return {f"subject_beyond_random{end}": (each[0], ("layer",)) for end, each in zip(ENDS, ends, strict=True)}
