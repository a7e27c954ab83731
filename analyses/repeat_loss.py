"""What repetition is worth: the loss on random tokens the first time and the second.

On `x = prefix ⊕ s ⊕ s …` of random tokens,

    NLL(i) = −log p(x_i | x_<i),       drop = mean NLL of repeat 1 − mean NLL of repeat 2

The first token of each repeat is left out everywhere: in repeat 2 nothing announces that the sequence begins again, and
without a prefix the very first token has no prediction. So every repeat averages over the same tokens of s.

Paper: Olsson et al. 2022, In-context Learning and Induction Heads (arXiv 2209.11895).

What it does NOT tell: which heads bring the drop about, nor how much the model learns from natural contexts (the
in-context-learning score of the same paper is another quantity).
"""

from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.losses import losses_by_text
from interp.analyses.repeated import Progress, RepeatedText, repeated_text
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer


class RepeatLoss(Result, kind="induction.repeat_loss"):
    """Loss in nats of every predicted token, [text, repeat, place in the sequence], and its means.

    `nll` [text, repeat, place] is NaN where a token has no prediction (the first one without a prefix); `mean`
    [repeat] leaves out place 0, `mean_se` is its standard error over texts; `tokens` [text, position] were read.
    """

    grid = ("repeat", "place")
    title = "Loss on a repeated random sequence"
    caution = "The drop says that the model uses the repetition, not which heads do."

    @property
    def drop(self) -> float:
        """Nats per token that the second time is better than the first."""
        return float(self["mean"][0] - self["mean"][1])

    def figure(self) -> "Figure":
        """The loss along the sequence, one line a repeat."""
        from interp.plots import curves

        series = {f"repeat {repeat}": self.at("nll_by_place", repeat=repeat) for repeat in self.axes["repeat"]}
        title = f"{self.title}: {self.drop:.2f} nats less the second time"
        return curves(self.axes["place"], series, title=title, x_title="place in the sequence", y_title="loss (nats)")

    def summary(self) -> list[str]:
        """The mean loss of each repeat and the drop."""
        pairs = zip(self.axes["repeat"], self["mean"], self["mean_se"], strict=True)
        means = ", ".join(
            f"repeat {repeat} {mean:.2f}" + ("" if np.isnan(spread) else f" ± {spread:.2f}")
            for repeat, mean, spread in pairs
        )
        return [f"{self.title}, nats a token: {means}", f"  the second time is {self.drop:.2f} nats better"]


def repeat_loss(
    model: "Transformer",
    *,
    seq_len: int = 50,
    repeats: int = 2,
    n_seqs: int = 16,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> RepeatLoss:
    """The loss on repeated random texts, repeat by repeat: the same texts that `score_heads` reads for that seed."""
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix)
    losses = losses_by_text(model, text.tokens, max_bytes=max_bytes, progress=progress)
    settings = {"seq_len": seq_len, "repeats": repeats, "prefix_len": text.prefix_len, "n_seqs": n_seqs}
    return RepeatLoss(
        arrays=_arrays(losses, text),
        axes={"repeat": range(1, repeats + 1)},
        settings={**settings, "seed": seed, "prefix": prefix},
        provenance=provenance(model.provenance, tokens=text.tokens, prefix=prefix, seed=seed),
    )


def _arrays(losses: np.ndarray, text: RepeatedText) -> dict[str, tuple[object, tuple[str, ...]]]:
    nll = losses[:, text.prefix_len :].reshape(len(losses), text.repeats, text.seq_len)
    by_text = nll[:, :, 1:].astype(np.float64).mean(-1)
    spread = by_text.std(0, ddof=1) if len(by_text) > 1 else np.full(text.repeats, np.nan)
    return {
        "nll_by_place": (nll.astype(np.float64).mean(0), ("repeat", "place")),
        "mean": (by_text.mean(0), ("repeat",)),
        "mean_se": (spread / np.sqrt(len(by_text)), ("repeat",)),
        "nll": (nll, ("text", "repeat", "place")),
        "tokens": (text.tokens.numpy(), ("text", "position")),
    }
