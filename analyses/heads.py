"""Is a high-scoring head a cause? Take it away and see what the second repeat costs; take others away to compare.

A head is taken away by mean ablation on repeated random texts: its output at each position is replaced by its mean over
the texts at that position (`attn.hook_z`). For a group of heads G,

    increase(G) = NLL_R without G − NLL_R with all heads

where NLL_R is the mean loss on the last repeat, from its second token on. Each head is taken away alone, then all
together; and each time as many other heads of the same layers, drawn at random. Without these controls, "removing a
head raises the loss" says nothing.

Papers: Olsson et al. 2022, In-context Learning and Induction Heads (arXiv 2209.11895), for ablating induction heads;
Wang et al. 2022, Interpretability in the Wild (arXiv 2211.00593), for the mean over other texts.

What it does NOT tell: what a head does on ordinary text; how it brings the loss down; or that a head which costs
little alone does nothing, since others may do the same work.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp import edits
from interp.analyses.losses import token_losses
from interp.analyses.repeated import Progress, RepeatedText, repeated_text
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Head = tuple[int, int]
"""(layer, head)."""

TOGETHER = "all together"


@dataclass(frozen=True)
class Removal:
    """Heads to take away together, and for each control as many others of the same layers."""

    label: str
    heads: tuple[Head, ...]
    controls: tuple[tuple[Head, ...], ...]


class HeadRemoval(Result, kind="heads.removal"):
    """What it costs to take heads away: `increase` [removed] in nats a token, and that of the controls.

    `control_increase` is [removed, draw]; `control_mean`, `control_lowest` and `control_highest` [removed] sum it up.
    `loss` [removed, repeat] and `control_loss` [removed, draw, repeat] leave out the first token of each repeat;
    `loss_with_all` [repeat] takes nothing away. `heads` and `control_heads` name them, `18.6` for head 6 of layer 18.
    """

    grid = ("removed",)
    title = "Heads taken away"
    caution = "What a removal costs on random tokens does not say what the head does on ordinary text."

    def runs(self) -> "pd.DataFrame":
        """One row a run: nothing removed, then each group of heads and its controls; loss by first and last repeat."""
        import pandas as pd

        rows = [("nothing", "", False, self["loss_with_all"])]
        for place, label in enumerate(self.axes["removed"]):
            rows.append((str(label), self["heads"][place], False, self["loss"][place]))
            controls = zip(self["control_heads"][place], self["control_loss"][place], strict=True)
            rows += [(str(label), heads, True, loss) for heads, loss in controls]
        frame = pd.DataFrame([row[:3] for row in rows], columns=["removed", "heads", "control"])
        frame["first_repeat_loss"] = [loss[0] for *_, loss in rows]
        frame["last_repeat_loss"] = [loss[-1] for *_, loss in rows]
        return frame.assign(increase=frame["last_repeat_loss"] - frame["last_repeat_loss"].iloc[0])

    def figure(self) -> "Figure":
        """What each removal costs, beside its controls, as bars."""
        from interp.plots import ranked_bars

        return ranked_bars(
            [str(label) for label in self.axes["removed"]],
            {
                "the heads": self["increase"],
                "controls, mean": self["control_mean"],
                "controls, highest": self["control_highest"],
            },
            title=f"{self.title}: loss on the last repeat, {self._text()}",
            metric="increase (nats a token)",
            label="removed",
        )

    def summary(self) -> list[str]:
        """One line a removal: what it costs, and what the controls cost."""
        lines = [f"{self.title}: increase of the loss on the last repeat, nats a token, {self._text()}"]
        lines += [
            f"  {row.removed:>12}  {row.increase:+.3f}   controls {row.control_mean:+.3f}"
            f" ({row.control_lowest:+.3f} to {row.control_highest:+.3f})"
            for row in self.to_frame().itertuples()
        ]
        return [*lines, f"  {self.caution}"]

    def _text(self) -> str:
        asked = self.settings
        return f"{asked['n_seqs']} random texts of {asked['repeats']} × {asked['seq_len']} tokens"


@torch.no_grad()
def remove_heads(
    model: "Transformer",
    heads: Sequence[Head],
    *,
    controls: int = 3,
    seq_len: int = 25,
    repeats: int = 2,
    n_seqs: int = 8,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> HeadRemoval:
    """Take away each of the `heads`, (layer, head), alone, then all together; and others of the same layers to compare.

    All texts pass through the model at once, since a head is replaced by its mean over them. Raises `UsageError` for
    heads that the model does not have or that are named twice, and for fewer than two texts or no control.
    """
    _check(model, heads, controls, n_seqs)
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix)
    plan = planned(heads, model.config.n_heads, controls=controls, seed=seed)
    groups = [(), *(group for removal in plan for group in (removal.heads, *removal.controls))]
    losses = []
    for done, group in enumerate(groups, start=1):
        losses.append(_loss_without(model, text, group, max_bytes))
        if progress is not None:
            progress(done, len(groups))
    settings = {"seq_len": seq_len, "repeats": repeats, "prefix_len": text.prefix_len, "n_seqs": n_seqs}
    return HeadRemoval(
        arrays=_arrays(plan, np.stack(losses), text),
        axes={"removed": [removal.label for removal in plan], "repeat": range(1, repeats + 1)},
        settings={**settings, "heads": list(map(list, heads)), "controls": controls, "seed": seed, "prefix": prefix},
        provenance=provenance(model.provenance, tokens=text.tokens, prefix=prefix, seed=seed),
    )


def _check(model: "Transformer", heads: Sequence[Head], controls: int, n_seqs: int) -> None:
    layers, width = model.config.n_layers, model.config.n_heads
    missing = [head for head in heads if not (0 <= head[0] < layers and 0 <= head[1] < width)]
    if missing or not heads or len(set(heads)) != len(heads):
        what = f"{missing[0]} is none of them" if missing else "one is named twice" if heads else "none is named"
        raise UsageError(
            f"Heads to remove are pairs (layer, head), layers 0 to {layers - 1}, heads 0 to {width - 1}: {what}."
        )
    if controls < 1 or n_seqs < 2:
        raise UsageError(
            f"Expected controls ≥ 1, to compare with, and n_seqs ≥ 2, since the mean over one text removes nothing; "
            f"got controls={controls}, n_seqs={n_seqs}."
        )


def planned(heads: Sequence[Head], n_heads: int, *, controls: int, seed: int) -> list[Removal]:
    """Each head alone, then, if there are several, all together; each with `controls` draws from the same layers."""
    groups = [((head,), named(head)) for head in heads] + ([(tuple(heads), TOGETHER)] if len(heads) > 1 else [])
    return [
        Removal(label, group, tuple(_controls(group, heads, n_heads, controls, (seed, index))))
        for index, (group, label) in enumerate(groups)
    ]


def _controls(
    group: Sequence[Head], heads: Sequence[Head], n_heads: int, controls: int, seed: tuple[int, int]
) -> Iterator[tuple[Head, ...]]:
    """As many heads of each layer as `group` has there; later draws take the next ones, so that they differ.

    None of `heads` is drawn, unless a layer has no other.
    """
    orders: dict[int, list[int]] = {}
    for layer in dict.fromkeys(layer for layer, _ in group):
        free = [head for head in range(n_heads) if (layer, head) not in heads] or list(range(n_heads))
        orders[layer] = np.random.default_rng([*seed, layer]).permutation(free).tolist()
    for draw in range(controls):
        chosen: list[Head] = []
        for layer, order in orders.items():
            count = min(sum(where == layer for where, _ in group), len(order))
            chosen += [(layer, order[(draw * count + place) % len(order)]) for place in range(count)]
        yield tuple(chosen)


def named(head: Head) -> str:
    """`18.6` for head 6 of layer 18."""
    return f"{head[0]}.{head[1]}"


def _loss_without(model: "Transformer", text: RepeatedText, heads: Sequence[Head], max_bytes: int) -> np.ndarray:
    """Mean loss by repeat, each over its second token on: nothing foretells where it starts."""
    with model.hooks(_hooks(heads)):
        losses = token_losses(model, text.tokens, max_bytes)
    by_repeat = losses[:, text.prefix_len :].reshape(-1, text.repeats, text.seq_len)
    return by_repeat[:, :, 1:].double().mean((0, 2)).cpu().numpy()


def _hooks(heads: Sequence[Head]) -> list[tuple[str, Callable[..., Tensor | None]]]:
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return [(f"blocks.{layer}.attn.hook_z", edits.mean("batch", heads=which)) for layer, which in by_layer.items()]


def _arrays(plan: list[Removal], losses: np.ndarray, text: RepeatedText) -> dict[str, NamedArray]:
    """`losses` [run, repeat]: with all heads, then each group followed by its controls."""
    with_all, runs = losses[0], losses[1:].reshape(len(plan), -1, text.repeats)
    increase = runs[..., -1] - with_all[-1]
    control = increase[:, 1:]
    names = [[" ".join(map(named, group)) for group in removal.controls] for removal in plan]
    return {
        "heads": NamedArray([" ".join(map(named, removal.heads)) for removal in plan], ("removed",)),
        "increase": NamedArray(increase[:, 0], ("removed",)),
        "control_mean": NamedArray(control.mean(1), ("removed",)),
        "control_lowest": NamedArray(control.min(1), ("removed",)),
        "control_highest": NamedArray(control.max(1), ("removed",)),
        "control_heads": NamedArray(np.array(names, dtype=object), ("removed", "draw")),
        "control_increase": NamedArray(control, ("removed", "draw")),
        "loss_with_all": NamedArray(with_all, ("repeat",)),
        "loss": NamedArray(runs[:, 0], ("removed", "repeat")),
        "control_loss": NamedArray(runs[:, 1:], ("removed", "draw", "repeat")),
        "tokens": NamedArray(text.tokens.numpy(), ("text", "position")),
    }
