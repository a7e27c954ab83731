"""Which heads say what they look at? Several quantities go by the name of a copying score; here under names apart.

    ov_eigenvalue   from weights alone: Σλ / Σ|λ| of the circuit from tokens through W_V W_O to logits (Elhage 2021)
    behavioural     on texts said twice: the logit of what followed the first time, above the mean logit
    raised_share    on random tokens: how much of what a head raises are tokens of the text (Olsson 2022)
    ioi_copy        on single tokens: how many are among the top k of what the head says of them (Wang 2022)

The first and the last are defined and explained in `interp.analyses.ov_copying`, the two others in
`interp.analyses.direct_copying`. They answer different questions: a head may copy by its weights and look nowhere
useful; one that raises the next token may do so with little of its output. No two of them have the same scale.

Papers: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Olsson et al. 2022, In-context Learning
and Induction Heads (arXiv 2209.11895); Wang et al. 2022, Interpretability in the Wild (arXiv 2211.00593).

What they do NOT tell: that a head which could copy does (it need not attend to anything worth saying), or that the
model's predictions depend on it. They see the direct path to the logits alone, and no layer between.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Unpack, get_args

import numpy as np

from interp.analyses.direct_copying import OnTexts, direct_scores
from interp.analyses.folded import Embedding
from interp.analyses.intervals import mean_interval
from interp.analyses.ov_copying import in_top, ov_eigenvalue_scores, tokens_to_copy
from interp.analyses.repeated import LeftOut, Progress, RepeatedText, repeated_text, texts_read
from interp.analyses.vocabulary import distinct_texts
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

Score = Literal["ov_eigenvalue", "behavioural", "raised_share", "ioi_copy"]
SCORES: tuple[Score, ...] = get_args(Score)
GRID = ("layer", "head")
METRICS: dict[str, tuple[str, tuple[float, float] | None]] = {
    "ov_eigenvalue": ("OV eigenvalue copying", (-1, 1)),
    "ov_eigenvalue_centred": ("OV eigenvalue copying, logits centred", (-1, 1)),
    "behavioural": ("logit of the next token above the mean", None),
    "raised_share": ("what is raised of the text's tokens, −1 to 1", (-1, 1)),
    "ioi_copy": ("share of tokens copied", (0, 1)),
    "ioi_copy_negative": ("share of tokens suppressed", (0, 1)),
}
"""What each array says, and the range of its colours where it has one."""


class CopyingScores(Result, kind="copying.heads"):
    """The scores of every head, [layer, head], that were asked for; NaN where a head has none.

    `ov_eigenvalue`, `ov_eigenvalue_centred` and `raised_share` lie between −1 and 1, `behavioural` is in logits,
    `ioi_copy` and `ioi_copy_negative` are shares. The last four have bounds of 95 % intervals over texts or tokens
    (`…_low`, `…_high`) and what they are means of: `behavioural_by_text`, `raised_share_by_text` [layer, head, text] on
    the texts `tokens` [text, position]; `copied` and `suppressed` [layer, head, copied_token], whose ids are
    `copied_token_id`. `raised_share_chance` is the share of a head that raises all tokens alike.
    """

    grid = GRID
    title = "Copying scores"
    caution = "A head that could copy need not attend to anything worth saying: see what it attends to, and ablate it."

    @property
    def metrics(self) -> list[str]:
        """The scores that this result has."""
        return [name for name in METRICS if name in self]

    def figure(self, metric: str | None = None) -> "Figure":
        """One score of all heads as a heat map; without a name, the first that there is."""
        from interp.plots import head_heatmap

        name = metric or self.metrics[0]
        words, bounds = METRICS.get(name, (name.replace("_", " "), None))
        title = f"{words[0].upper()}{words[1:]}, of every head"
        return head_heatmap(self[name], title=title, metric=words, layers=self.axes["layer"], bounds=bounds)

    def summary(self) -> list[str]:
        """Of each score, the median over heads, the highest heads and the lowest."""
        lines = [f"{self.title} of {self[self.metrics[0]].size} heads, {self.source}"]
        lines += [self._line(name) for name in self.metrics]
        return [*lines, f"  {self.caution}"]

    @property
    def source(self) -> str:
        """What the scores were taken from, in words."""
        asked = self.settings
        return f"embedding {asked['embedding']}, {texts_read(asked, repeats=2)}, prefix {asked['prefix']}"

    def _line(self, metric: str, count: int = 4) -> str:
        known = self.to_frame().dropna(subset=[metric]).sort_values(metric, kind="stable", ascending=False)
        if known.empty:
            return f"  {METRICS[metric][0]}: no head has one"
        ends = [
            ", ".join(f"{row.layer}.{row.head} {getattr(row, metric):+.4f}" for row in part.itertuples())
            for part in (known.head(count), known.tail(count).iloc[::-1])
        ]
        chance = f", by chance {self['raised_share_chance']:+.4f}" if metric == "raised_share" else ""
        median = f"median {known[metric].median():+.4f}{chance}"
        return f"  {METRICS[metric][0]}: {median}; highest {ends[0]}; lowest {ends[1]}"


def copying_scores(
    model: "Transformer",
    *,
    which: Sequence[Score] = SCORES,
    embedding: Embedding = "tokens",
    seq_len: int = 25,
    n_seqs: int = 16,
    tokens: Sequence[str | int] | None = None,
    top_k: int = 5,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
    **left_out: Unpack[LeftOut],
) -> CopyingScores:
    """The copying scores of every head; `which` leaves some out (`raised_share` costs the most).

    `embedding` is what stands for a token in `ov_eigenvalue`: its embedding, or `block_0`, the residual stream behind
    block 0 where the token is the whole text behind the prefix, which layer 0 does not read (NaN). `ioi_copy` always
    takes the latter, for `tokens`: ids or texts of one token; by default the names of people that are one token behind
    a space, or 50 random ones where the tokenizer has fewer than 10 of these. Texts are those of
    `score_heads(repeats=2)`; `left_out` are tokens that these never hold (`LeftOut`). About `max_bytes` of logits are
    held at once.

    Raises `UsageError` for a post-norm model, whose heads have no direct path to the logits; for a score, an embedding
    or a token that does not exist; for a `top_k` outside the vocabulary; for texts longer than the context.
    """
    _check(model, which, embedding, top_k)
    ids = tokens_to_copy(model, tokens, seed) if "ioi_copy" in which else []
    on_texts: list[OnTexts] = [score for score in get_args(OnTexts) if score in which]
    text = None
    if on_texts:
        layout = {"seq_len": seq_len, "repeats": 2, "n_seqs": n_seqs}
        text = repeated_text(model, **layout, seed=seed, prefix=prefix, **left_out)
    step = _counted(progress, model.config.n_layers * (len(which) - len(on_texts) + n_seqs * bool(on_texts)))
    asked = {"which": list(which), "embedding": embedding, "tokens": ids, "top_k": top_k}
    arrays: dict[str, NamedArray] = {}
    if "ov_eigenvalue" in which:
        scores = ov_eigenvalue_scores(model, embedding=embedding, prefix=prefix, step=step)
        arrays |= {score: NamedArray(values, GRID) for score, values in scores.items()}
    if text is not None:
        by_text = direct_scores(model, text, on_texts, max_bytes=max_bytes, step=step)
        arrays |= _on_texts(by_text, text, model.config.d_vocab, seed)
    if ids:
        copied, suppressed = in_top(model, ids, top_k=top_k, prefix=prefix, max_bytes=max_bytes, step=step)
        arrays |= _on_tokens(copied, suppressed, ids, seed)
    return CopyingScores(
        arrays=arrays,
        axes={"copied_token": distinct_texts(model, ids)} if ids else {},
        settings={
            **asked,
            **{"seq_len": seq_len, "n_seqs": n_seqs, "seed": seed, "prefix": prefix},
            **({} if text is None else text.settings),
        },
        provenance=provenance(model.provenance, tokens=None if text is None else text.tokens, prefix=prefix, seed=seed),
    )


def _check(model: "Transformer", which: Sequence[Score], embedding: Embedding, top_k: int) -> None:
    if model.config.norms == "post":
        raise UsageError(
            "This model normalises the residual stream itself after every addition, so no head has a direct path to "
            "the logits that copying could be read from. Patch or ablate its heads instead."
        )
    if isinstance(which, str) or not which or not set(which) <= set(SCORES) or len(set(which)) < len(which):
        raise UsageError(f"which={which!r}: expected a list of scores out of {', '.join(SCORES)}, each once.")
    if embedding not in get_args(Embedding):
        raise UsageError(f"embedding={embedding!r}: expected one of {', '.join(get_args(Embedding))}.")
    if not 1 <= top_k <= model.config.d_vocab:
        raise UsageError(f"top_k is {top_k}; expected 1 to {model.config.d_vocab}, the size of the vocabulary.")


def _counted(progress: Progress | None, total: int) -> Callable[..., None]:
    """A function that is called with how much was done since, in layers of one text or of one table."""
    done = 0

    def step(count: int = 1) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return step


def _on_texts(
    by_text: Mapping[OnTexts, np.ndarray], text: RepeatedText, d_vocab: int, seed: int
) -> dict[str, NamedArray]:
    """Means over texts, their intervals, and the values of every text, [layer, head, text]."""
    arrays = {"tokens": NamedArray(text.tokens.numpy(), ("text", "position"))}
    for score, values in by_text.items():
        arrays |= _mean(score, values, seed)
        arrays[f"{score}_by_text"] = NamedArray(values, (*GRID, "text"))
    if "raised_share" in by_text:  # half of seq_len + 1 tokens have been read at a row, on average
        arrays["raised_share_chance"] = NamedArray((text.seq_len + 1) / d_vocab - 1, ())
    return arrays


def _on_tokens(copied: np.ndarray, suppressed: np.ndarray, ids: Sequence[int], seed: int) -> dict[str, NamedArray]:
    """Shares of tokens, their intervals, and which tokens they are; NaN for layer 0."""
    arrays = {"copied_token_id": NamedArray(ids, ("copied_token",))}
    for score, name, values in (("ioi_copy", "copied", copied), ("ioi_copy_negative", "suppressed", suppressed)):
        counted = values.astype(np.float64)
        counted[0] = np.nan
        arrays |= _mean(score, counted, seed)
        arrays[name] = NamedArray(values, (*GRID, "copied_token"))
    return arrays


def _mean(score: str, values: np.ndarray, seed: int) -> dict[str, NamedArray]:
    """The mean over the last axis and the bounds of its interval."""
    low, high = mean_interval(values, seed=seed)
    return {
        score: NamedArray(values.mean(-1), GRID),
        f"{score}_low": NamedArray(low, GRID),
        f"{score}_high": NamedArray(high, GRID),
    }
