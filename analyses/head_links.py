"""Does one head do what it does by way of another: does the induction head find its key through a previous-token head?

An induction head looks at the place behind an earlier occurrence of the token that it reads. A key says what stood
BEFORE its own place only if an earlier head wrote that there. The link is tested by blocking it. In the residual that
the receiver's keys read, and nowhere else, the sender's contribution is replaced by its mean over texts at each
position (or left out):

    K input of receiver r  =  resid  −  z_s · W_O^s  +  mean over texts of z_s · W_O^s

Everything else stays what it was, so that only the direct path s → r is blocked. What follows is measured: the prefix
matching of r (`induction.pattern_scores`), which must fall if r finds its keys by s, and the loss on the later repeats.
`path` names the input that is blocked: its keys', its queries' or its values'. Beside every sender stand other heads of
its layer, blocked alike.

It takes two runs: one that records what the senders write, and one sweep in which every pair is a cell.

Query heads of one KV head share its keys and values: blocking the K or V input of r blocks it for all of them, and the
loss is that of the whole group; the prefix matching is that of r alone. A query input is a head's own.

Papers: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, for K-composition; Wang et al. 2022,
Interpretability in the Wild (arXiv 2211.00593), and Goldowsky-Dill et al. 2023 (arXiv 2304.05969), for patching paths.

What it does NOT tell: what reaches the receiver by way of heads and FFNs in between, which is left alone; or that no
other head would do: a receiver may find its keys by several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Unpack, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp import metrics
from interp.analyses.ablation_sets import Controlled, Sets
from interp.analyses.components import Component, Head, HeadName, heads_of
from interp.analyses.induction import pattern_scores
from interp.analyses.reference_values import recorded
from interp.analyses.repeated import LeftOut, Progress, RepeatedText, repeated_text, texts_read
from interp.edits import Edit, Selected
from interp.errors import UsageError
from interp.hooks import HookPoint, Hooks
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import Replay, Sweep
from interp.results import provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Path = Literal["k", "q", "v"]
LinkMethod = Literal["mean", "zero"]


class HeadLinks(Controlled, kind="heads.links"):
    """What blocking the path from one head into another changes, by [sender, receiver].

    `prefix_matching` [sender, receiver, text] is the receiver's with the path blocked, `prefix_matching_base`
    [receiver, text] with all paths open, `prefix_matching_control` [sender, draw, receiver, text] with the path from
    another head of the sender's layer blocked. `prefix_matching_effect` is the mean of the first less that of the
    second, `…_low` and `…_high` its 95 % interval over texts; `…_control_mean`, `…_control_std`, `…_excess` and
    `…_deviations` as in `Ablation`. `nll` and its like are those of the loss on the later repeats, in nats a token.

    `kv_head` [receiver] is the KV head whose input is blocked, for all its query heads (−1 where queries are blocked);
    `controls` [sender] counts the other heads and `controls_are_all` says whether there are no more.
    """

    grid = ("sender", "receiver")
    title = "Links between heads"
    caution = "Only direct paths are blocked: what reaches a head by way of others is left as it was."

    def figure(self, metric: str = "prefix_matching") -> "Figure":
        """What each blocked path changes, beside the controls of its sender."""
        from interp.plots import ranked_bars

        controls, path = "other heads of the sender's layer, mean and standard deviation", str(self.settings["path"])
        return ranked_bars(
            [f"{sender} → {receiver}" for sender in self.axes["sender"] for receiver in self.axes["receiver"]],
            {"the sender": self[f"{metric}_effect"].ravel(), controls: self[f"{metric}_control_mean"].ravel()},
            errors={controls: self[f"{metric}_control_std"].ravel()},
            title=f"{self.title}, blocked at {path.upper()}: {metric.replace('_', ' ')}, {self._text()}",
            metric=f"effect on {metric.replace('_', ' ')}",
            label="link",
        )

    def summary(self) -> list[str]:
        """Two lines a link: the receiver's prefix matching, and the loss, each beside the controls."""
        path = str(self.settings["path"]).upper()
        lines = [f"{self.title}: {path} input without the sender ({self.settings['method']}), {self._text()}"]
        for s, sender in enumerate(self.axes["sender"]):
            for r, receiver in enumerate(self.axes["receiver"]):
                was = float(self["prefix_matching_base"][r].mean())
                matching, loss = (self.interval(metric, s, r) for metric in ("prefix_matching", "nll"))
                lines += [
                    f"  {sender} → {receiver}  prefix matching {was:.3f}, blocked {matching}"
                    f"   controls {self.beside('prefix_matching', s, r)}",
                    f"    loss on later repeats {loss}   controls {self.beside('nll', s, r)}",
                ]
        return [*lines, f"  {self.caution}"]

    def _text(self) -> str:
        return texts_read(self.settings)


@torch.no_grad()
def head_links(
    model: "Transformer",
    senders: Sequence[HeadName],
    receivers: Sequence[HeadName],
    *,
    path: Path = "k",
    method: LinkMethod = "mean",
    controls: int = 20,
    seq_len: int = 25,
    repeats: int = 2,
    n_seqs: int = 8,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    budget: int = 2**30,
    progress: Progress | None = None,
    **left_out: Unpack[LeftOut],
) -> HeadLinks:
    """Block the direct path from every sender into every receiver's K, Q or V input, one at a time.

    Heads are named `"18.6"`, `(18, 6)` or as components. `controls`: how many other heads of a sender's layer, none of
    the senders, are blocked beside it; all there are, where they are fewer. `left_out` are tokens that the texts never
    hold (`LeftOut`).

    Raises `UsageError` for a receiver that does not lie behind a sender, for heads that the model does not have, and
    for models in which what a head writes is normalised before another reads it.
    """
    sending, receiving = heads_of(model, senders), heads_of(model, receivers)
    _check(model, sending, receiving, path, method, n_seqs)
    sets = Sets.drawn(
        model.config, {str(sender): (sender,) for sender in sending}, controls, seed=seed, without=sending
    )
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix, **left_out)
    links = _Links.recorded(model, text, sets, receiving, path, method, budget)
    found = links.swept(budget, progress)
    compared = [sets.compared(name, *values, ("receiver", "text"), axis="sender") for name, values in found.items()]
    return HeadLinks(
        arrays={
            **sets.labels("sender"),
            **{name: array for each in compared for name, array in each.items()},
            "kv_head": ([-1 if path == "q" else links.input_of(place) for place in links.receivers], ("receiver",)),
            "tokens": (text.tokens.numpy(), ("text", "position")),
        },
        axes={"sender": list(sets.tested), "receiver": list(map(str, receiving))},
        settings={
            **text.layout,
            "n_seqs": n_seqs,
            **text.settings,
            **{"path": path, "method": method, "controls": controls},
        },
        provenance=provenance(model.provenance, tokens=text.tokens, prefix=prefix, seed=seed),
    )


def _check(
    model: "Transformer",
    senders: Sequence[Component],
    receivers: Sequence[Component],
    path: str,
    method: str,
    n_seqs: int,
) -> None:
    if path not in get_args(Path) or method not in get_args(LinkMethod):
        raise UsageError(
            f"A path leads into the input of {', '.join(get_args(Path))}, and what a sender writes is replaced by its "
            f"{' or by '.join(get_args(LinkMethod))}; came path={path!r}, method={method!r}."
        )
    if method == "mean" and n_seqs < 2:
        raise UsageError(f"Expected n_seqs ≥ 2, since the mean over one text replaces nothing; got n_seqs={n_seqs}.")
    if {"post_norm", "sum_norm"} & model.points().features:
        raise UsageError(
            "This model normalises what its sublayers write, or the sum of it, before later heads read it, so that no "
            "head's contribution can be taken out of a residual. Take heads away whole: `ablate_heads`."
        )
    first = min(receivers, key=lambda each: each.layer)
    last = max(senders, key=lambda each: each.layer)
    if first.layer <= last.layer:
        raise UsageError(
            f"The receiver {first} does not lie behind the sender {last}; heads read what earlier layers wrote."
        )


@dataclass(frozen=True)
class _Links:
    """Every sender and its controls, every receiver, and what they do while all paths are open."""

    model: "Transformer"
    text: RepeatedText
    senders: Sequence[Head]
    receivers: Sequence[Head]
    path: Path
    method: LinkMethod
    clean: Mapping[str, Tensor]
    """Values of the senders and patterns of the receivers, by point."""

    @classmethod
    def recorded(
        cls,
        model: "Transformer",
        text: RepeatedText,
        sets: Sets,
        receivers: Sequence[Component],
        path: Path,
        method: LinkMethod,
        budget: int,
    ) -> "_Links":
        """Run the texts once, up to the last receiver."""
        sending = [(head.layer, head.index or 0) for (head,) in sets.runs]
        receiving = [(head.layer, head.index or 0) for head in receivers]
        names = list(dict.fromkeys([*map(_z, sending), *map(_pattern, receiving)]))
        return cls(model, text, sending, receiving, path, method, recorded(model, text.tokens, names, budget=budget))

    def input_of(self, receiver: Head) -> int:
        """Which of the inputs at the blocked point is the receiver's: its own, or that of its KV head."""
        return receiver[1] if self.path == "q" else receiver[1] // self.model.config.queries_per_kv

    def swept(self, budget: int, progress: Progress | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Each metric with every path blocked, [run, receiver, text], and with all paths open, [receiver, text]."""
        text, texts, shape = self.text, len(self.text.tokens), (len(self.senders), len(self.receivers))
        later = [column for repeat in range(1, text.repeats) for column in text.predicting(repeat)]
        matching = np.full((*shape, texts), np.nan)

        def edits(run: int, receiver: int) -> Hooks:
            def look(pattern: Tensor, _: HookPoint) -> None:
                matching[run, receiver] = self._matching(pattern, self.receivers[receiver])

            ends = self.senders[run], self.receivers[receiver]
            return [(f"blocks.{ends[1][0]}.hook_{self.path}_input", self._blocked(*ends)), (_pattern(ends[1]), look)]

        sweep = Sweep({"run": range(shape[0]), "receiver": range(shape[1])}, edits)
        loss = {"nll": metrics.loss(text.tokens[:, [column + 1 for column in later]])}
        left = budget - sum(value.nbytes for value in self.clean.values())
        swept = Replay(self.model, text.tokens, sweep, loss, read=later, texts={"text": texts}, budget=left).run(
            progress=progress
        )
        before = np.stack([self._matching(self.clean[_pattern(each)], each) for each in self.receivers])
        base = np.broadcast_to(swept.base["nll"].values, before.shape)
        return {"prefix_matching": (matching, before), "nll": (swept["nll"].values, base)}

    def _matching(self, pattern: Float[Tensor, "text head query_pos key_pos"], receiver: Head) -> np.ndarray:
        """The receiver's prefix matching in every text."""
        layout = {"seq_len": self.text.seq_len, "repeats": self.text.repeats, "prefix_len": self.text.prefix_len}
        return pattern_scores(pattern[:, [receiver[1]]], **layout)["prefix_matching"][:, 0].cpu().numpy()

    def _blocked(self, sender: Head, receiver: Head) -> Edit:
        """Puts the sender's mean, or nothing, in the place of what it writes, where the receiver reads it."""
        layer, index = sender

        def change(chosen: Selected) -> Tensor:
            z = self.clean[_z(sender)][:, :, index]
            new = z.mean(0) if self.method == "mean" else torch.zeros_like(z)
            missing = (new - z) @ self.model.W_O[layer, index]
            return chosen.cells + chosen.fitted(missing[:, :, None], "contribution")

        return Edit(change, {"heads": self.input_of(receiver)})


def _z(head: Head) -> str:
    return f"blocks.{head[0]}.attn.hook_z"


def _pattern(head: Head) -> str:
    return f"blocks.{head[0]}.attn.hook_pattern"
