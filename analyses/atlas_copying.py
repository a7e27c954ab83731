"""What heads say of what they look at, for the head atlas: the copying scores that cost little beside its texts.

They are those of `interp.analyses.copying`, which defines them: OV eigenvalues, plain and centred; the logit of the
right token on the atlas's random sequences, said twice; names, or random tokens where the tokenizer has few of these,
among the top five of what a head says of them, and of its reverse. The raised share, which takes the logits of every
head at every row, is left out.

What they do NOT tell: that a head looks at anything worth saying.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from interp.analyses.copying import METRICS, Score, copying_scores
from interp.analyses.repeated import Progress, counted, texts_read
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

WHICH: tuple[Score, ...] = ("ov_eigenvalue", "behavioural", "ioi_copy")
COPYING = tuple(name for name in METRICS if name != "raised_share")
"""The scores that heads can be ordered by."""


class RandomTexts(TypedDict):
    """Which random sequences are read, and the memory for it."""

    seq_len: int
    n_seqs: int
    seed: int
    prefix: PrefixPolicy
    max_bytes: int


@dataclass(frozen=True)
class Copied:
    """Copying scores [layer, head] with the bounds of their intervals, and what they were taken from; or why not."""

    arrays: Mapping[str, NamedArray] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def measured(cls, model: "Transformer", progress: Progress | None, **how: Unpack[RandomTexts]) -> "Copied":
        """Those of every head; none, and the reason, for a model that has no copying scores."""
        try:
            found = copying_scores(model, which=WHICH, progress=progress, **how)
        except UsageError as reason:
            return cls(settings={"copying": False, "no_copying": str(reason)})
        names = [name + end for name in COPYING for end in ("", "_low", "_high")]
        arrays = {name: found.named(name) for name in names if name in found}
        return cls(arrays, {"copying": True, "copied_tokens": found.axes["copied_token"]})


def source(settings: Mapping[str, object]) -> str:
    """What the copying scores of an atlas with these settings were taken from, in words."""
    tokens = settings["copied_tokens"]
    count = len(tokens) if isinstance(tokens, Sequence) else 0
    return f"copying: from weights, on {texts_read(settings, repeats=2)}, and on {counted(count, 'token')} one by one"


def told(scores: Mapping[str, np.ndarray], layer: int, head: int) -> list[str]:
    """The scores of one head in words."""
    return [f"{METRICS[name][0]} {values[layer, head]:+.3f}" for name, values in scores.items()]
