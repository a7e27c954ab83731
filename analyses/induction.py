"""Which heads look at what followed the same token earlier, and what the model gains from it.

On a random sequence that is repeated, `x = prefix ⊕ s ⊕ s …` with |s| = S, nothing can be predicted in the first
repeat and everything afterwards. An induction head at a token of a later repeat looks one place AFTER the earlier
occurrences of that token:

    PM(h) = mean over texts and rows q of repeats 2..R of  Σ_{j=1}^{rep(q)−1} A_h[q, q − jS + 1]

Only rows of repeats 2..R count and the denominator is the number of rows, so an ideal head scores exactly 1 and a head
that looks at the first position exactly 0 (thresholds of tools that average whole diagonals, or divide by all
attention, do not carry over). Beside it stand

    previous token   mean A[q, q−1]            duplicate token   mean over repeats 2..R of Σ_j A[q, q − jS]
    current token    mean A[q, q]              sink              mean A[q, 0]

(previous, current and sink over all rows after the first token behind the prefix), the sink-free share
ΣPM / Σ(1 − A[q,0]) over all texts, a ratio of sums, and what uniform attention would score.

Papers: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Olsson et al. 2022, In-context Learning
and Induction Heads (arXiv 2209.11895).

What it does NOT tell: that a head copies what it looks at, or that the model's second-repeat predictions depend on it.
That takes an ablation. Scores on random tokens need not carry over to natural text.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.repeated import Progress, RepeatedText, check_layout, repeated_text
from interp.errors import UsageError
from interp.hooks import HookPoint, recorders_active
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

SCORES = ("prefix_matching", "previous_token", "duplicate_token", "current_token", "sink")
MEASURED = (*SCORES, "sink_free")
ROWS_IN_CACHE = 1024  # on a CPU, half of 16 × 101 tokens at a time takes 13 % less than all: activations stay in cache


def _stripe(
    pattern: Float[Tensor, "batch head query_pos key_pos"], back: int, first_key: int
) -> Float[Tensor, "batch head"]:
    """Sum of A[q, q − back] over the rows whose key lies at `first_key` or later."""
    return pattern.diagonal(-back, -2, -1)[..., first_key:].sum(-1, dtype=torch.float32)


def pattern_scores(
    pattern: Float[Tensor, "batch head query_pos key_pos"], *, seq_len: int, repeats: int, prefix_len: int
) -> dict[str, Float[Tensor, "batch head"]]:
    """The five scores of every head on every text, and `sink_free`, the mean attention not on position 0.

    `sink_free` is taken over the rows of `prefix_matching`, so that their quotient is the sink-free score. Reads
    diagonals of the pattern and never writes to it.
    """
    check_layout(seq_len, repeats, prefix_len)
    length = prefix_len + seq_len * repeats
    if tuple(pattern.shape[-2:]) != (length, length):
        raise UsageError(
            f"A pattern of {pattern.shape[-2]} queries and {pattern.shape[-1]} keys came: {prefix_len} + {repeats} × "
            f"{seq_len} = {length} of each were expected."
        )
    repeated_rows = (repeats - 1) * seq_len
    later_rows = length - prefix_len - 1
    earlier = range(1, repeats)
    matching = torch.stack([_stripe(pattern, j * seq_len - 1, prefix_len + 1) for j in earlier]).sum(0)
    duplicate = torch.stack([_stripe(pattern, j * seq_len, prefix_len) for j in earlier]).sum(0)
    first = pattern[..., 0]
    return {
        "prefix_matching": matching / repeated_rows,
        "previous_token": _stripe(pattern, 1, prefix_len) / later_rows,
        "duplicate_token": duplicate / repeated_rows,
        "current_token": _stripe(pattern, 0, prefix_len + 1) / later_rows,
        "sink": first[..., prefix_len + 1 :].sum(-1, dtype=torch.float32) / later_rows,
        "sink_free": 1 - first[..., prefix_len + seq_len :].sum(-1, dtype=torch.float32) / repeated_rows,
    }


def uniform_scores(*, seq_len: int, repeats: int, prefix_len: int) -> dict[str, float]:
    """What a head that looks at all earlier positions alike would score, for each of `SCORES`."""
    check_layout(seq_len, repeats, prefix_len)
    rows = np.arange(prefix_len + seq_len * repeats)
    even = 1 / (rows + 1)
    repeated = rows[prefix_len + seq_len :]
    earlier = float(np.mean(((repeated - prefix_len) // seq_len) / (repeated + 1)))
    later = float(np.mean(even[prefix_len + 1 :]))
    return dict(zip(SCORES, (earlier, later, earlier, later, later), strict=True))


class InductionScores(Result, kind="induction.heads"):
    """Five scores a head, [layer, head], with the standard error over texts (`…_se`) and the value of every text.

    `prefix_matching_by_text` and its like are [layer, head, text]; `uniform` is what even attention would score;
    `tokens` [text, position] are the ids that were read.
    """

    grid = ("layer", "head")
    title = "Induction heads"
    caution = "A score says where a head looks, not what it does: check with an ablation before calling it a cause."

    def ranked(self, count: int = 10, metric: str = "prefix_matching") -> "pandas.DataFrame":
        """The highest heads by one score, with all their scores."""
        return self.top(metric, count)[["layer", "head", *SCORES, "prefix_matching_sink_free", "prefix_matching_se"]]

    def figure(self, metric: str = "prefix_matching") -> "Figure":
        """One score of all heads as a heat map."""
        from interp.plots import head_heatmap

        words = metric.replace("_", " ")
        title = f"{words.capitalize()} of every head, {self._text()}"
        return head_heatmap(self[metric], title=title, metric=words, layers=self.axes["layer"])

    def ranked_figure(self, count: int = 10) -> "Figure":
        """The five scores of the heads that match prefixes best, as bars with standard errors."""
        from interp.plots import ranked_bars

        best = self.top("prefix_matching", count)
        return ranked_bars(
            [f"{layer}.{head}" for layer, head in zip(best["layer"], best["head"], strict=True)],
            {score.replace("_", " "): best[score].to_numpy() for score in SCORES},
            errors={score.replace("_", " "): best[f"{score}_se"].to_numpy() for score in SCORES},
            title=f"Where the best prefix-matching heads look, {self._text()}",
            metric="mean attention",
            baseline=("uniform", float(self.at("uniform", score="prefix_matching"))),
        )

    @staticmethod
    def _spread(error: float) -> str:
        return "" if np.isnan(error) else f" ± {error:.3f}"

    def _text(self) -> str:
        asked = self.settings
        return f"{asked['n_seqs']} random texts of {asked['repeats']} × {asked['seq_len']} tokens"

    def summary(self) -> list[str]:
        """The best heads, one a line, and how common they are."""
        matching, even = self["prefix_matching"], float(self.at("uniform", score="prefix_matching"))
        lines = [f"{self.title}: {self._text()}, prefix {self.settings.get('prefix')}"]
        lines += [
            f"  {f'{row.layer}.{row.head}':>6}  prefix matching {row.prefix_matching:.3f}"
            f"{self._spread(row.prefix_matching_se)}  previous {row.previous_token:.3f}"
            f"  duplicate {row.duplicate_token:.3f}  current {row.current_token:.3f}  sink {row.sink:.3f}"
            for row in self.ranked(8).itertuples()
        ]
        above = [f"{int((matching > level).sum())} above {level}" for level in (0.4, 0.2)]
        lines.append(f"  of {matching.size} heads: {', '.join(above)}; uniform attention would score {even:.4f}")
        return [*lines, f"  {self.caution}"]


def score_heads(
    model: "Transformer",
    *,
    seq_len: int = 50,
    repeats: int = 2,
    n_seqs: int = 16,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> InductionScores:
    """The five scores of every head on repeated random texts.

    Patterns are reduced layer by layer as they appear, `max_bytes` of them at a time (but never less than one text),
    and nothing is computed after the last one. Texts are drawn from (seed, index), so batches change nothing.
    Raises `UsageError` for a layout that is not a repetition or does not fit the context.
    """
    text = repeated_text(model, seq_len=seq_len, repeats=repeats, n_seqs=n_seqs, seed=seed, prefix=prefix)
    return score_text(model, text, max_bytes=max_bytes, progress=progress, seed=seed, prefix=prefix)


def score_text(
    model: "Transformer",
    text: RepeatedText,
    *,
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
    **settings: object,
) -> InductionScores:
    """The same scores on repeated texts of your own; `settings` are noted in the result."""
    layout = {"seq_len": text.seq_len, "repeats": text.repeats, "prefix_len": text.prefix_len}
    uniform = uniform_scores(**layout)  # checks the layout before anything runs
    by_text = _scores_by_text(model, text, max_bytes, progress)
    return InductionScores(
        arrays=_arrays(by_text, uniform, text.tokens.numpy()),
        axes={"score": SCORES},
        settings={**layout, "n_seqs": len(text.tokens), **settings},
        provenance=provenance(model.provenance, tokens=text.tokens, **settings),
    )


def _arrays(by_text: dict[str, np.ndarray], uniform: dict[str, float], tokens: np.ndarray) -> dict[str, NamedArray]:
    """Means and standard errors over texts, the sink-free ratio of sums, and what they were made from."""
    grid = ("layer", "head")
    arrays: dict[str, NamedArray] = {}
    for score in SCORES:
        values = by_text[score].astype(np.float64)
        spread = values.std(-1, ddof=1) if values.shape[-1] > 1 else np.full(values.shape[:-1], np.nan)
        arrays[score] = NamedArray(values.mean(-1), grid)
        arrays[f"{score}_se"] = NamedArray(spread / np.sqrt(values.shape[-1]), grid)
    matched, free = (by_text[part].astype(np.float64).sum(-1) for part in ("prefix_matching", "sink_free"))
    # a head with no attention off the sink has nothing that could match: 0, not 0/0
    ratio = np.divide(matched, free, out=np.zeros_like(matched), where=free > 0)
    arrays["prefix_matching_sink_free"] = NamedArray(ratio, grid)
    arrays |= {f"{score}_by_text": NamedArray(by_text[score], (*grid, "text")) for score in SCORES}
    arrays["uniform"] = NamedArray([uniform[score] for score in SCORES], ("score",))
    arrays["tokens"] = NamedArray(tokens, ("text", "position"))
    return arrays


class _LastPattern(Exception):
    """Raised at the last layer's pattern, to end a forward pass of which nothing else is needed."""


def _texts_at_once(model: "Transformer", text: RepeatedText, max_bytes: int) -> int:
    """How many texts one forward pass takes: as many as the patterns of one layer have room for, split evenly."""
    n_seqs, length = text.tokens.shape
    most = max(1, max_bytes // (model.config.n_heads * length**2 * model.embed.element_size()))
    if model.device.type == "cpu":
        most = max(1, min(most, ROWS_IN_CACHE // length))
    return -(-n_seqs // -(-n_seqs // most))


@torch.no_grad()
def _scores_by_text(
    model: "Transformer", text: RepeatedText, max_bytes: int, progress: Progress | None
) -> dict[str, np.ndarray]:
    """Every score of every head on every text, [layer, head, text], a batch of texts at a time."""
    n_seqs = len(text.tokens)
    batches: list[Float[Tensor, "layer score batch head"]] = []
    done = 0
    for tokens in torch.split(text.tokens, _texts_at_once(model, text, max_bytes)):
        batches.append(_batch_scores(model, tokens, text))
        done += len(tokens)
        if progress is not None:
            progress(done, n_seqs)
    by_text = torch.cat(batches, 2).cpu().numpy()
    return {name: by_text[:, index].transpose(0, 2, 1) for index, name in enumerate(MEASURED)}


def _batch_scores(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], text: RepeatedText
) -> Float[Tensor, "layer score batch head"]:
    """One forward pass, each layer's pattern reduced to scores when it appears and then let go."""
    found: list[Float[Tensor, "score batch head"]] = []

    def reduce(pattern: Tensor, point: HookPoint) -> Tensor:
        scores = pattern_scores(pattern, seq_len=text.seq_len, repeats=text.repeats, prefix_len=text.prefix_len)
        found.append(torch.stack([scores[name] for name in MEASURED]))
        if len(found) == model.config.n_layers:
            raise _LastPattern
        return pattern

    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.n_layers)]
    with recorders_active(reduce, names), suppress(_LastPattern):
        model(tokens)
    return torch.stack(found)
