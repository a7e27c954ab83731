"""What repetition is worth: the loss on random tokens the first time and the second.

On `x = prefix ⊕ s ⊕ s …` of random tokens,

    NLL(i) = −log p(x_i | x_<i),       gain(r) = mean NLL of repeat 1 − mean NLL of repeat r

and the drop is gain(2). The first token of each repeat is left out everywhere: in repeat 2 nothing announces that the
sequence begins again, and without a prefix the very first token has no prediction. So every repeat averages over the
same tokens of s. 95 % intervals are those of a bootstrap over texts; a gain is resampled as one, both repeats of a text
together.

Paper: Olsson et al. 2022, In-context Learning and Induction Heads (arXiv 2209.11895).

What it does NOT tell: which heads bring the drop about, nor how much the model learns from natural contexts (the
in-context-learning score of the same paper is another quantity).
"""

from typing import TYPE_CHECKING, Unpack

import numpy as np

from interp.analyses.intervals import bracketed, mean_interval, standard_error
from interp.analyses.losses import losses_by_text
from interp.analyses.repeated import LeftOut, Progress, RepeatedText, repeated_text
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer


class RepeatLoss(Result, kind="induction.repeat_loss"):
    """Loss in nats of every predicted token, [text, repeat, place in the sequence], and its means.

    `nll` [text, repeat, place] is NaN where a token has no prediction (the first one without a prefix); `mean`
    [repeat] leaves out place 0, `mean_se` is its standard error over texts, `mean_low` and `mean_high` bound its 95 %
    interval. `gain` [repeat], with `gain_low` and `gain_high`, is how much better than the first time. `tokens` [text,
    position] were read.
    """

    grid = ("repeat", "place")
    title = "Loss on a repeated random sequence"
    caution = "The drop says that the model uses the repetition, not which heads do."

    @property
    def drop(self) -> float:
        """Nats per token that the second time is better than the first."""
        return float(self["gain"][1])

    def figure(self) -> "Figure":
        """The loss along the sequence, one line a repeat."""
        from interp.plots import curves

        series = {f"repeat {repeat}": self.at("nll_by_place", repeat=repeat) for repeat in self.axes["repeat"]}
        title = f"{self.title}: {self.drop:.2f} nats less the second time"
        return curves(self.axes["place"], series, title=title, x_title="place in the sequence", y_title="loss (nats)")

    def summary(self) -> list[str]:
        """The mean loss of each repeat, one a line, with what it gains on the first."""
        lines = [f"{self.title}, nats a token:"]
        for row in self.to_frame(("repeat",)).itertuples():
            gained = f"  {row.gain:.2f}{bracketed(row.gain_low, row.gain_high, 2)} better" if row.repeat > 1 else ""
            lines.append(f"  repeat {row.repeat}  {row.mean:.2f}{bracketed(row.mean_low, row.mean_high, 2)}{gained}")
        return [*lines, f"  {self.caution}"]


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
    **left_out: Unpack[LeftOut],
) -> RepeatLoss:
    """The loss on repeated random texts, repeat by repeat: the same texts that `score_heads` reads for these settings.

    `left_out` are tokens that these never hold (`LeftOut`). Raises `UsageError` for texts that cannot be drawn or do
    not fit the context, as `repeated_text` does.
    """
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix, **left_out)
    losses = losses_by_text(model, text.tokens, max_bytes=max_bytes, progress=progress)
    return RepeatLoss(
        arrays=_arrays(losses, text, seed),
        axes={"repeat": range(1, repeats + 1)},
        settings={**text.layout, "n_seqs": n_seqs, **text.settings},
        provenance=provenance(model.provenance, tokens=text.tokens, **text.settings),
    )


def _arrays(losses: np.ndarray, text: RepeatedText, seed: int) -> dict[str, tuple[object, tuple[str, ...]]]:
    nll = losses[:, text.prefix_len :].reshape(len(losses), text.repeats, text.seq_len)
    by_text = nll[:, :, 1:].astype(np.float64).mean(-1).T
    gain = by_text[:1] - by_text
    bounds = {"mean": mean_interval(by_text, seed=seed), "gain": mean_interval(gain, seed=seed)}
    return {
        "nll_by_place": (nll.astype(np.float64).mean(0), ("repeat", "place")),
        "mean": (by_text.mean(-1), ("repeat",)),
        "mean_se": (standard_error(by_text), ("repeat",)),
        "gain": (gain.mean(-1), ("repeat",)),
        **{f"{name}_low": (low, ("repeat",)) for name, (low, _) in bounds.items()},
        **{f"{name}_high": (high, ("repeat",)) for name, (_, high) in bounds.items()},
        "nll": (nll, ("text", "repeat", "place")),
        "tokens": (text.tokens.numpy(), ("text", "position")),
    }
