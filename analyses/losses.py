"""How well a model predicts every token of a text: −log p(x_i | x_<i), in nats, in blocks that fit the memory."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.repeated import Progress

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def token_losses(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], max_bytes: int = 256 * 2**20
) -> Float[Tensor, "batch pos"]:
    """−log p of each token given those before it, in nats; NaN for the first, which nothing predicts.

    The logits of at most `max_bytes` of positions are held at once, besides the model's own residual stream.
    """
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    _, cache = model.run_with_cache(tokens, [last], stop_at_layer=model.config.n_layers)
    residual, targets = cache[last][:, :-1].flatten(0, 1), tokens[:, 1:].flatten().to(model.device)
    size = max(1, max_bytes // (3 * 4 * model.config.d_vocab))
    found = []
    for start in range(0, len(targets), size):
        log_probability = model.unembed_residual(residual[None, start : start + size])[0].float().log_softmax(-1)
        found.append(-log_probability.gather(-1, targets[start : start + size, None])[:, 0])
    losses = torch.cat(found).view(tokens.shape[0], -1)
    return torch.cat([losses.new_full((len(losses), 1), torch.nan), losses], -1)


@torch.no_grad()
def losses_by_text(
    model: "Transformer",
    tokens: Int[Tensor, "text pos"],
    *,
    max_bytes: int = 256 * 2**20,
    progress: Progress | None = None,
) -> Float[np.ndarray, "text pos"]:
    """The same for many texts, a batch at a time: which texts share a batch changes nothing."""
    found: list[np.ndarray] = []
    done = 0
    for batch in torch.split(tokens, max(1, max_bytes // (64 * model.config.d_model * tokens.shape[1]))):
        found.append(token_losses(model, batch, max_bytes).cpu().numpy())
        done += len(batch)
        if progress is not None:
            progress(done, len(tokens))
    return np.concatenate(found)
