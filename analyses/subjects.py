"""How far token embeddings lie apart: the scale of the noise that hides a subject in causal tracing.

Causal tracing adds Gaussian noise to the embeddings of a subject's tokens. For one level to mean the same in every
model it is stated in units of the standard deviation of embeddings: take the tokens of many subjects, each tokenized
alone, put their rows of W_E one after the other, and take the standard deviation of all numbers in them,

    σ = std { W_E[t, i] : t a token of a subject, i < d_model },    noise = 3 σ.

A token that comes up in several subjects counts each time; n − 1 stands below the sum of squares.

Paper: Meng et al. 2022, "Locating and editing factual associations in GPT" (ROME, arXiv 2202.05262).

What it does NOT tell: how much noise a subject needs to be forgotten; look at the answer under noise. Nor is it a
constant of the model: frequent tokens have other embeddings than rare ones, so it depends on the strings, and what is
reported should name them. The paper's own list is of about a thousand subjects; ours is short and written for this
purpose.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

SUBJECTS: tuple[str, ...] = (
    *("Marie Curie", "Isaac Newton", "Mozart", "Nelson Mandela", "Frida Kahlo", "Srinivasa Ramanujan", "Cleopatra"),
    *("Berlin", "Kenya", "Lake Titicaca", "Mount Kilimanjaro", "Reykjavik", "The Great Barrier Reef", "Paris"),
    *("The Eiffel Tower", "The Taj Mahal", "Hagia Sophia", "The Brooklyn Bridge", "Machu Picchu"),
    *("Walkman", "Windows 95", "PlayStation 2", "Volkswagen Beetle", "Gmail"),
    *("Toyota", "Siemens", "The New York Times", "Nintendo", "Air India"),
    *("Don Quixote", "The Magic Flute", "Seven Samurai", "Guernica", "Moby-Dick"),
    *("Python", "The French Revolution", "Penicillin", "The Nobel Peace Prize", "Sumo", "Manchester United"),
)
"""Subjects of well-known facts, as they would stand at the start of a sentence."""


@torch.no_grad()
def embedding_spread(model: "Transformer", subjects: Sequence[str] = SUBJECTS) -> float:
    """The standard deviation of all numbers in the token embeddings of the subjects; causal tracing takes 3 × this.

    Raises `UsageError` for no subjects, a subject that is empty, and a model without a tokenizer.
    """
    if isinstance(subjects, str) or not all(isinstance(subject, str) and subject for subject in subjects):
        raise UsageError(f"Expected a list of subjects, each a text that is not empty, and got {subjects!r}.")
    if not subjects:
        raise UsageError("There is no subject to measure embeddings on; give at least one text.")
    tokens = [token for subject in subjects for token in model.tokenizer.prompt_ids(subject, "none")]
    rows = model.W_E[torch.tensor(tokens, device=model.W_E.device)]
    return float(rows.cpu().double().std())  # double: a sum over many rows keeps its digits, in any model's precision
