"""What does taking these heads away do here, on this one text, beside other heads of their layers?

    effect = M without the heads − M with all of them

for three metrics M: the mean loss of the tokens of the text, the log-probability of one token at its end (the model's
own answer unless another is named), and KL(with ‖ without) of what is said at its end. A head is replaced by its mean
over the tokens of this text, by nothing, or by nothing with all patterns kept (`interp.analyses.ablation` says what
each means). Beside it stand other heads of the same layers, as many as are taken away: all there are, or `controls`.

Paper: Wang et al. 2022, Interpretability in the Wild (arXiv 2211.00593), for comparing with other heads.

What it does NOT tell: anything beyond this text; nor that a head which costs nothing does nothing, since others may do
the same work.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import metrics
from interp.analyses.ablation import Ablation, ablate
from interp.analyses.attention_read import Source, both
from interp.analyses.components import HeadName, heads_of
from interp.analyses.last_logits import last_logits
from interp.analyses.repeated import Progress
from interp.analyses.vocabulary import token_id, token_texts
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

OneText = Literal["mean", "zero", "pattern_preserving"]
"""How a head is taken away from one text, which has no other to lend it values."""


class LocalAblation(Ablation, kind="ablation.local"):
    """An `Ablation` on one text, with the metrics `loss`, `log_probability` of `settings["answer"]`, and `kl`."""

    title = "Taken away from this text"


@torch.no_grad()
def ablate_here(
    model: "Transformer",
    source: Source,
    heads: Sequence[HeadName],
    *,
    answer: str | int | None = None,
    since: int = 1,
    method: OneText = "mean",
    controls: int = 8,
    seed: int = 0,
    prefix: PrefixPolicy = "doc",
    budget: int = 2**30,
    progress: Progress | None = None,
) -> LocalAblation:
    """What it costs to take these heads (`"18.6"`, `(18, 6)`) away from one text, together, and others of their layers.

    The loss is that of the tokens from position `since` on. `answer`: the token whose log-probability is measured at
    the end, text or id; the model's own if None. Raises `UsageError` for heads that the model does not have, an
    answer of several tokens, and a `since` outside.
    """
    if method not in get_args(OneText):
        raise UsageError(f"From one text heads are taken away by {', '.join(get_args(OneText))}, not by {method!r}.")
    named = heads_of(model, heads)
    tokens = both(model, source, None, prefix)
    length = tokens.shape[1]
    if not 1 <= since < length:
        raise UsageError(f"The loss counts from position {since} on; expected one from 1 to {length - 1}.")
    base = last_logits(model, tokens, None)
    chosen = int(base[0, -1].argmax()) if answer is None else token_id(model, answer)
    found = ablate(
        model,
        tokens,
        {", ".join(map(str, named)): named},
        metric=_metrics(tokens, since, chosen, base),
        method=method,
        mean_over="tokens",
        controls=controls,
        seed=seed,
        read=list(range(since - 1, length)),
        budget=budget,
        progress=progress,
    )
    said = {"answer": token_texts(model, [chosen])[0], "since": since, "heads": [str(head) for head in named]}
    return LocalAblation(
        arrays=found.arrays, axes=found.axes, settings={**found.settings, **said}, provenance=found.provenance
    )


def _metrics(
    tokens: Int[Tensor, "1 pos"], since: int, answer: int, base: Float[Tensor, "1 1 d_vocab"]
) -> dict[str, metrics.Metric]:
    """Those of the columns from `since` − 1 on, the last of which foretells nothing of the text."""
    loss = metrics.loss(tokens[:, since:])
    return {
        "loss": metrics.Metric("loss", f"tokens from {since} on", lambda logits: loss(logits[:, :-1])),
        "log_probability": metrics.log_probability(answer),
        "kl": metrics.kl_divergence(base[:, -1]),
    }
