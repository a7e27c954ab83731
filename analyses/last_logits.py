"""The logits at the last token of many prompts: in batches of bounded memory, unembedding one position of each."""

from typing import TYPE_CHECKING

from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.models.config import ModelConfig

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def last_logits(
    model: "Transformer", tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None
) -> Float[Tensor, "batch 1 d_vocab"]:
    """What the model says after each text; shorter ones are padded on the left, so that their last token is last."""
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    _, cache = model.run_with_cache(tokens, [last], positions=[-1], mask=mask, stop_at_layer=model.config.n_layers)
    return model.unembed_residual(cache[last])


def texts_within(model: "Transformer", pos: int, max_bytes: int) -> int:
    """How many texts of that length a batch may have, at least one.

    Counted are the values alive at once: in a layer's FFN, in its attention, or the logits and two copies.
    """
    return texts_that_fit(model.config, model.dtype.itemsize, pos, max_bytes)


def texts_that_fit(config: ModelConfig, itemsize: int, pos: int, max_bytes: int) -> int:
    """The same from the model's shape alone."""
    ffn, attention = pos * (4 * config.d_model + 3 * config.d_mlp), 2 * config.n_heads * pos**2
    return max(1, max_bytes // (itemsize * max(ffn, attention, 3 * config.d_vocab)))
