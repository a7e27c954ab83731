"""Which prompt pairs does the model get right? Patching explains an answer only where the model gives it.

For the clean prompt of each pair, with the logits at its last token,

    difference = logit(answer) − logit(foil)              right where it is above 0
    difference = logit(answer) − max logit of the others  for pairs without foils: right where the answer is the argmax

What it does NOT tell: how often the model is right on prompts of this kind. What is left after filtering was chosen by
the model, so report the share before it with every result. Nor does it look at the corrupted prompts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp import metrics
from interp.analyses.last_logits import last_logits, texts_within
from interp.errors import UsageError
from interp.pairs import Pairs

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


@dataclass(frozen=True, eq=False)
class Known:
    """The pairs that the model gets right; `share`, `correct` and `differences` are of all pairs, before filtering."""

    pairs: Pairs
    share: float
    correct: Bool[Tensor, "pair"]
    differences: Float[Tensor, "pair"]

    def __str__(self) -> str:
        mean = float(self.differences.mean())
        return f"{len(self.pairs)} of {len(self.correct)} pairs right ({self.share:.1%}), mean difference {mean:+.2f}"


def known(model: "Transformer", pairs: Pairs, *, max_bytes: int = 256 * 2**20) -> Known:
    """The pairs whose answer the model prefers on the clean prompt, and the share of them.

    Pairs are read in batches whose largest values take about `max_bytes` (but never less than one pair), and logits
    are computed at the last token only. Raises `UsageError` where the model gets none of them right.
    """
    differences = logit_differences(model, pairs, max_bytes=max_bytes)
    correct = differences > 0
    if not correct.any():
        short = -float(differences.max())
        raise UsageError(
            f"The model gets none of the {len(pairs)} pairs right: the best falls short by {short:.2f} logits. "
            "Give other prompts, or a model that knows the answers."
        )
    return Known(pairs.select(correct.nonzero()[:, 0]), float(correct.double().mean()), correct, differences)


@torch.no_grad()
def logit_differences(model: "Transformer", pairs: Pairs, *, max_bytes: int = 256 * 2**20) -> Float[Tensor, "pair"]:
    """How far the answer's logit is above its foil's, or without foils above every other token's, on the CPU."""
    size = texts_within(model, pairs.clean.shape[1], max_bytes)
    parts = [pairs.select(slice(start, start + size)) for start in range(0, len(pairs), size)]
    return torch.cat([_differences(last_logits(model, part.clean, part.mask), part) for part in parts]).cpu()


def _differences(logits: Float[Tensor, "pair 1 d_vocab"], pairs: Pairs) -> Float[Tensor, "pair"]:
    if pairs.foils is not None:
        return metrics.logit_difference(pairs.answers, pairs.foils)(logits)
    answers = torch.tensor(pairs.answers, device=logits.device)[:, None]
    others = logits[:, 0].scatter(-1, answers, -torch.inf).amax(-1)
    own = metrics.logit(pairs.answers)(logits)
    return own - others.to(own.dtype)
