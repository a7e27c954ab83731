"""Is a high-scoring head a cause? Take it away and see what the second repeat costs; take others away to compare.

A head is taken away by mean ablation: its output at each position is replaced by its mean over the texts at that
position (`attn.hook_z`). The controls are heads of the same layers, drawn at random: without them, "removing a head
raises the loss" says nothing.

What it does NOT tell: what the head does on ordinary text, or whether others would take over after training without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.analyses.repeat_loss import token_losses

if TYPE_CHECKING:
    import pandas as pd

    from interp.analyses.repeated import RepeatedText
    from interp.models.transformer import Transformer

Head = tuple[int, int]
"""(layer, head)."""

Progress = Callable[[int, int], None]
TOGETHER = "all together"


@dataclass(frozen=True)
class Removal:
    """Heads to take away together; `control` if they were drawn at random to compare `label` with."""

    label: str
    heads: tuple[Head, ...]
    control: bool = False


def planned(best: Sequence[Head], n_heads: int, *, controls: int, seed: int) -> list[Removal]:
    """Each of the best heads alone, then all together; after each, `controls` random draws from the same layers."""
    groups = [((head,), named(head)) for head in best] + [(tuple(best), TOGETHER)]
    found: list[Removal] = []
    for index, (heads, label) in enumerate(groups):
        found.append(Removal(label, heads))
        shuffled = {layer: _shuffled(layer, best, n_heads, seed, index) for layer, _ in heads}
        found += [Removal(label, _drawn(heads, shuffled, draw), control=True) for draw in range(controls)]
    return found


def named(head: Head) -> str:
    """`18.6` for head 6 of layer 18."""
    return f"{head[0]}.{head[1]}"


def _shuffled(layer: int, best: Sequence[Head], n_heads: int, seed: int, index: int) -> list[int]:
    """The other heads of a layer in random order; all of them, in a layer that holds nothing but the best."""
    free = [head for head in range(n_heads) if (layer, head) not in best] or list(range(n_heads))
    return [int(head) for head in np.random.default_rng([seed, index, layer]).permutation(free)]


def _drawn(heads: Sequence[Head], shuffled: Mapping[int, list[int]], draw: int) -> tuple[Head, ...]:
    """As many heads of each layer as `heads` has there; later draws take the next ones, so that they differ."""
    chosen: list[Head] = []
    for layer, order in shuffled.items():
        count = min(sum(where == layer for where, _ in heads), len(order))
        chosen += [(layer, order[(draw * count + place) % len(order)]) for place in range(count)]
    return tuple(chosen)


@torch.no_grad()
def removal_losses(
    model: "Transformer", text: "RepeatedText", removals: Sequence[Removal], progress: Progress
) -> "pd.DataFrame":
    """Loss in nats on the first and the last repeat without each group of heads; the first row removes nothing."""
    import pandas as pd

    rows = []
    for done, removal in enumerate([Removal("nothing", ()), *removals]):
        progress(done, len(removals) + 1)
        with model.hooks(_hooks(removal.heads)):
            first, last = _repeat_means(token_losses(model, text.tokens), text)
        rows.append(
            {
                "removed": removal.label,
                "heads": " ".join(named(head) for head in removal.heads),
                "control": removal.control,
                "first_repeat_loss": first,
                "last_repeat_loss": last,
            }
        )
    progress(len(removals) + 1, len(removals) + 1)
    frame = pd.DataFrame(rows)
    frame["increase"] = frame["last_repeat_loss"] - frame["last_repeat_loss"].iloc[0]
    return frame


def _hooks(heads: Sequence[Head]) -> list[tuple[str, Callable[..., Tensor | None]]]:
    from interp import edits

    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return [(f"blocks.{layer}.attn.hook_z", edits.mean("batch", heads=which)) for layer, which in by_layer.items()]


def _repeat_means(losses: Tensor, text: "RepeatedText") -> tuple[float, float]:
    """Mean loss on the first and the last repeat, each over its second token on: nothing foretells where it starts."""
    starts = (text.prefix_len, text.prefix_len + text.seq_len * (text.repeats - 1))
    first, last = (float(losses[:, start + 1 : start + text.seq_len].mean()) for start in starts)
    return first, last


def compared(frame: "pd.DataFrame") -> "pd.DataFrame":
    """One row a group: what its removal costs, and what the controls cost at the least, on average and at the most."""
    import pandas as pd

    rows: list[Mapping[str, object]] = []
    for label in frame.loc[~frame.control & (frame.heads != ""), "removed"]:
        group = frame[frame.removed == label]
        controls = group.loc[group.control, "increase"]
        [increase] = group.loc[~group.control, "increase"]
        rows.append(
            {
                "removed": label,
                "increase": increase,
                "control_mean": controls.mean(),
                "control_lowest": controls.min(),
                "control_highest": controls.max(),
                "controls": len(controls),
            }
        )
    return pd.DataFrame(rows)
