"""How far token embeddings lie apart: the scale of the noise that hides a subject in causal tracing.

Causal tracing adds Gaussian noise to the embeddings of a subject's tokens. For one level to mean the same in every
model it is stated in units of the standard deviation of embeddings: take the tokens of many subjects, each tokenized
alone, put their embeddings one after the other, and take the standard deviation of all numbers in them,

    σ = std { e_i(t) : t a token of a subject, i < d_model },    noise = 3 σ.

e(t) is what noise is added to: the row of W_E, times the factor and behind the norm that some models put there.

A token that comes up in several subjects counts each time; n − 1 stands below the sum of squares.

Paper: Meng et al. 2022, "Locating and editing factual associations in GPT" (ROME, arXiv 2202.05262).

What it does NOT tell: how much noise a subject needs to be forgotten; look at the answer under noise. Nor is it a
constant of the model: frequent tokens have other embeddings than rare ones, so it depends on the strings, and what is
reported should name them. By default they are all subjects of the bundled facts; the paper took those of its data set.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from interp.analyses.fact_data import bundled_facts
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def bundled_subjects() -> tuple[str, ...]:
    """The subject of every bundled fact; one that several facts are about stands there as often."""
    return tuple(fact.subject for fact in bundled_facts())


@torch.no_grad()
def embedding_spread(model: "Transformer", subjects: Sequence[str]) -> float:
    """The standard deviation of all numbers in the token embeddings of the subjects; causal tracing takes 3 × this.

    Raises `UsageError` for no subjects, a subject that is empty, and a model without a tokenizer.
    """
    if isinstance(subjects, str) or not all(isinstance(subject, str) and subject for subject in subjects):
        raise UsageError(f"Expected a list of subjects, each a text that is not empty, and got {subjects!r}.")
    if not subjects:
        raise UsageError("There is no subject to measure embeddings on; give at least one text.")
    tokens = [token for subject in subjects for token in model.tokenizer.prompt_ids(subject, "none")]
    _, cache = model.run_with_cache(torch.tensor(tokens)[:, None], ["hook_embed"], stop_at_layer=0)
    rows = cache["hook_embed"].cpu()
    return float(rows.double().std())  # double: a sum over many rows keeps its digits, in any model's precision
