"""How does the model go on once some neurons are suppressed or amplified?

The prompt is continued greedily, as the model is and with each change of the neurons' coefficients (`mlp.hook_post`) in
all tokens, those that are written too. Beside the texts stands, for every token of the unedited continuation,

    P(token | prompt, the unedited tokens before it)      with each change

so that an edit is seen that bends a probability without yet turning a token over.

Paper: Dai et al. 2022, Knowledge Neurons in Pretrained Transformers (arXiv 2104.08696).

What it does NOT tell: whether other neurons would have done the same, nor what else the edit changes
(`interp.analyses.neuron_edits` measures both). One greedy text is one path: a change that is small everywhere may turn
an early token over, and with it all that follow.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analyses.neuron_changes import neuron_edits
from interp.analyses.neurons import Neuron, neurons_of
from interp.analyses.repeated import Progress
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.hooks import Hooks
from interp.results import Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

UNEDITED = "unedited"


class Continuations(Result, kind="facts.continuations"):
    """Texts by [change], the first `unedited`: `text`; `same_tokens`, how many tokens begin as without a change.

    `probability` [change, step]: that of each token of the unedited text, `token` [step], with the change.
    """

    grid = ("change",)
    title = "How it goes on"
    caution = "One greedy text is one path: a small change may turn an early token over, and with it all that follow."

    @property
    def texts(self) -> dict[str, str]:
        """The continuation by change."""
        return {str(change): str(text) for change, text in zip(self.axes["change"], self["text"], strict=True)}

    def figure(self) -> "Figure":
        """The probability of each token of the unedited text, change by change."""
        from interp.plots import curves, visible

        labels = [f"{step} {visible(str(token))}" for step, token in enumerate(self["token"], 1)]
        series = dict(zip(map(str, self.axes["change"]), self["probability"], strict=True))
        title = f"{self.title}: {self.settings['neurons']}"
        return curves(labels, series, title=title, x_title="token of the unedited text", y_title="probability")

    def summary(self) -> list[str]:
        """Each text, and how far it begins as the unedited one."""
        lines = [f"{self.title} with changes of {self.settings['neurons']}"]
        lines += [
            f"  {change:>10} ({same} tokens as unedited): {text!r}"
            for (change, text), same in zip(self.texts.items(), self["same_tokens"].tolist(), strict=True)
        ]
        return [*lines, f"  {self.caution}"]


@torch.no_grad()
def continuations(
    model: "Transformer",
    prompt: str,
    neurons: Sequence[Neuron | str],
    *,
    changes: Sequence[str] = ("zero",),
    means: Mapping[Neuron, float] | None = None,
    max_new_tokens: int = 8,
    prefix: "PrefixPolicy" = "doc",
    progress: Progress | None = None,
) -> Continuations:
    """How the model goes on, greedily, as it is (`unedited`) and with every change of these neurons in all tokens.

    For `mean`, `means` must be given (`mean_coefficients`). Raises `UsageError` as `edit_neurons` does, and where
    nothing is to be written.
    """
    which, tokens = neurons_of(model, neurons), model.to_tokens(prompt, prefix=prefix)
    if "mean" in changes and means is None:
        raise UsageError("What neurons are on average is not known here; give `means`, from `mean_coefficients`.")
    if type(max_new_tokens) is not int or max_new_tokens < 1:
        raise UsageError(f"max_new_tokens is {max_new_tokens!r}; expected a whole number from 1 on.")
    edits: dict[str, Hooks] = {UNEDITED: []}
    edits |= {change: neuron_edits(which, change, means=means) for change in changes}
    start, written, probabilities = tokens.shape[1], list[list[int]](), list[np.ndarray]()
    whole = tokens
    for number, (name, hooks) in enumerate(edits.items(), 1):
        with model.hooks(hooks):
            found = model.generate(tokens, max_new_tokens)
            whole = found if name == UNEDITED else whole
            probabilities.append(_probabilities(model, whole, start).cpu().numpy())
        written.append(found[0, start:].tolist())
        if progress is not None:
            progress(number, len(edits))
    return Continuations(
        arrays={
            "text": (np.array([model.tokenizer.decode(ids) for ids in written], dtype=object), ("change",)),
            "same_tokens": ([_alike(written[0], ids) for ids in written], ("change",)),
            "probability": (np.stack(probabilities), ("change", "step")),
            "token": (np.array(token_texts(model, written[0]), dtype=object), ("step",)),
        },
        axes={"change": list(edits), "step": range(1, len(written[0]) + 1)},
        settings={"neurons": ", ".join(map(str, which)), "max_new_tokens": max_new_tokens, "prefix": prefix},
        provenance=provenance(model.provenance, tokens=tokens.cpu(), prefix=prefix),
    )


def _probabilities(model: "Transformer", whole: Tensor, start: int) -> Float[Tensor, "step"]:
    """The probability of each token from `start` on, with whatever hooks are active."""
    logits = model(whole[:, :-1])[0, start - 1 :].float()
    return logits.softmax(-1).gather(-1, whole[0, start:, None])[:, 0]


def _alike(first: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts share from the start on."""
    return next((at for at, pair in enumerate(zip(first, other, strict=False)) if pair[0] != pair[1]),
                min(len(first), len(other)))  # fmt: skip
