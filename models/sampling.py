"""How the next token is chosen from logits: greedily, or by chance with the usual cuts.

In order, as in Hugging Face's generation: repetition penalty (Keskar et al. 2019), temperature, top-k (Fan et al.
2018), top-p (Holtzman et al. 2020). Temperature 0 takes the likeliest token. Chance comes from (seed, row), so the
batch mates of a row change nothing.
"""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import UsageError


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling`, as keyword arguments."""

    temperature: float
    top_k: int | None
    top_p: float | None
    repetition_penalty: float
    seed: int


@dataclass(frozen=True)
class Sampling:
    """Rules for choosing; `UsageError` where one is out of range."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        rules = {
            "temperature must be 0 (greedy) or more": self.temperature >= 0,
            "top_k must be at least 1": self.top_k is None or self.top_k >= 1,
            "top_p must lie above 0 and at most at 1": self.top_p is None or 0 < self.top_p <= 1,
            "repetition_penalty must be above 0": self.repetition_penalty > 0,
            "the seed must be 0 or more": self.seed >= 0,
        }
        broken = [rule for rule, kept in rules.items() if not kept]
        if broken:
            raise UsageError(f"Out of range: {'; '.join(broken)} (given: {self}).")

    def generators(self, batch: int) -> list[torch.Generator]:
        """One source of chance a row."""
        # torch keeps 32 bits of a seed: those of another row must differ there
        states = [np.random.SeedSequence([self.seed, row]).generate_state(1)[0] for row in range(batch)]
        return [torch.Generator().manual_seed(int(state)) for state in states]

    def choose(
        self,
        logits: Float[Tensor, "batch d_vocab"],
        seen: Bool[Tensor, "batch d_vocab"],
        generators: list[torch.Generator],
    ) -> Int[Tensor, "batch"]:
        """The next token of every row; `seen` marks the tokens that stand in its text already."""
        logits = logits.float()
        if self.repetition_penalty != 1.0:
            penalised = torch.where(logits > 0, logits / self.repetition_penalty, logits * self.repetition_penalty)
            logits = torch.where(seen, penalised, logits)
        if self.temperature == 0:
            return logits.max(-1).indices  # argmax of torch takes half as long again
        probabilities = self._cut(logits / self.temperature).softmax(-1).cpu()
        drawn = [
            torch.multinomial(row, 1, generator=generator)
            for row, generator in zip(probabilities, generators, strict=True)
        ]
        return torch.cat(drawn).to(logits.device)

    def _cut(self, logits: Float[Tensor, "batch d_vocab"]) -> Float[Tensor, "batch d_vocab"]:
        """−inf where top-k or top-p leave a token out."""
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits = logits.masked_fill(logits < logits.topk(self.top_k, -1).values[:, -1:], -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            ordered, order = logits.sort(-1, descending=True)
            mass = ordered.softmax(-1).cumsum(-1)
            beyond = mass - ordered.softmax(-1) >= self.top_p  # the token that reaches the mass stays
            logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
        return logits
