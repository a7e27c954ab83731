"""How surprised is the model by each token of a text, and what did it expect instead?

    surprisal(i) = −log p(x_i | x_<i)      in nats; ln V for a model that knows nothing

Beside it, at every position: the rank of the token that came (1: it was the likeliest), the entropy of what was
expected, and the likeliest tokens. The first token is predicted by nothing, and has none of these.

Surprisal as a measure of how hard a word is to process: Hale 2001, "A Probabilistic Earley Parser as a Psycholinguistic
Model" (NAACL).

What it does NOT tell: where in the model the expectation was formed; that is the lens's question.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.lens_readings import Places, asked_ids, readings
from interp.analyses.vocabulary import token_texts
from interp.models.prompt_formats import PrefixPolicy
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer


class Surprisal(Result, kind="surprisal"):
    """By [position], of the token there: `surprisal` in nats, `rank`, and the entropy of what was expected there.

    At position 0, which nothing predicts, they are NaN, 0 and NaN. `next_*` [position, rank_of_next] are the likeliest
    tokens after that position.
    """

    grid = ("position",)
    title = "Surprisal"
    caution = "A token that was expected may have been expected for many reasons."

    @property
    def mean(self) -> float:
        """Mean surprisal of the tokens that something predicts, in nats; NaN for a text of one token."""
        values = self["surprisal"][1:]
        return float(values.mean()) if values.size else float("nan")

    def figure(self) -> "Figure":
        """The surprisal of each token."""
        from interp.plots import curves, visible

        labels = [f"{visible(str(token), 12)} {place}" for place, token in enumerate(self["token"])]
        values = {"surprisal": self["surprisal"], "entropy of what was expected": self["expected_entropy"]}
        return curves(labels, values, title=self.title, x_title="token", y_title="nats")

    def summary(self) -> list[str]:
        """The mean, and the tokens that surprise most."""
        order = np.argsort(-np.nan_to_num(self["surprisal"], nan=-1.0), kind="stable")[: min(3, len(self["token"]) - 1)]
        most = ", ".join(
            f"{str(self['token'][place])!r} (position {place}) {self['surprisal'][place]:.2f}" for place in order
        )
        return [
            f"{self.title}: {self.mean:.3f} nats a token over {len(self['token']) - 1} tokens",
            f"  most surprising: {most or 'none'}",
            f"  {self.caution}",
        ]


@torch.no_grad()
def surprisal(
    model: "Transformer",
    source: Int[Tensor, "1 pos"] | str,
    *,
    top_k: int = 5,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = 128 * 2**20,
) -> Surprisal:
    """The surprisal of every token of one text, with the `top_k` likeliest tokens at every position.

    `source` is a text (the only case in which `prefix` is added) or tokens of one. About `max_bytes` of logits are held
    at once. Raises `UsageError` for an empty text and a `top_k` that the vocabulary does not have.
    """
    asked_ids(model, (), top_k)
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    places = Places.of(model, source, [last], positions=None, row=None, prefix=prefix)
    text = places.text
    following = torch.tensor([*text[1:], text[-1]])[:, None]  # the last position predicts what is not there
    found = readings(model, [places.final], places.final, following, top_k, max_bytes)
    top = found["top_id"][0]
    words = np.array(token_texts(model, top.reshape(-1).tolist()), dtype=object).reshape(top.shape)
    return Surprisal(
        arrays={
            "token": (token_texts(model, text), ("position",)),
            "token_id": (text, ("position",)),
            "surprisal": (_shifted(-found["followed_log_probability"][0, :, 1], np.nan), ("position",)),
            "rank": (_shifted(found["followed_rank"][0, :, 1], 0), ("position",)),
            "expected_entropy": (_shifted(found["entropy"][0], np.nan), ("position",)),
            "next_token": (words, ("position", "rank_of_next")),
            "next_id": (top, ("position", "rank_of_next")),
            "next_probability": (found["top_probability"][0], ("position", "rank_of_next")),
        },
        axes={"position": range(len(text))},
        settings={"top_k": top_k, "prefix": places.prefix},
        provenance=provenance(model.provenance, tokens=text, prefix=places.prefix),
    )


def _shifted(values: Float[np.ndarray, "pos"] | Int[np.ndarray, "pos"], first: float) -> np.ndarray:
    """What each position says of the next one, moved to that one."""
    return np.concatenate([np.array([first], dtype=values.dtype), values[:-1]])
