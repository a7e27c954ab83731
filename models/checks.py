"""What a forward pass refuses before it starts. Nothing is ever truncated, clamped or padded behind the caller's back.

Values are looked at on the CPU only: reading them back from an accelerator would stall it, so ids that are already
there are not checked.
"""

import torch
from torch import Tensor

from interp.errors import BudgetError, UsageError
from interp.models.config import ModelConfig

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8)


def check_tokens(tokens: Tensor, mask: Tensor | None, config: ModelConfig, *, continued: bool = False) -> None:
    """Raise `UsageError` unless these are token ids [batch, pos] that the model can read, with a mask that fits.

    Only rows that continue earlier ones may hold nothing but padding: their text has ended.
    """
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.dtype not in _WHOLE:
        came = f"{tuple(tokens.shape)} {tokens.dtype}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise UsageError(
            f"Tokens are an integer tensor [batch, pos], not {came}; make them with `model.to_tokens(text)`."
        )
    batch, length = tokens.shape
    if batch == 0 or length == 0:
        raise UsageError(f"There are no tokens: the shape is ({batch}, {length}). Give at least one token.")
    if length > config.n_ctx:
        raise UsageError(f"{length} tokens came, the context holds {config.n_ctx}; shorten the text or split it.")
    if tokens.device.type == "cpu":
        outside = tokens[(tokens < 0) | (tokens >= config.d_vocab)]
        if len(outside):
            raise UsageError(
                f"Token id {outside[0].item()} is out of range: the vocabulary has ids 0 to {config.d_vocab - 1}."
            )
    if mask is not None:
        _check_mask(mask, tokens, continued)


def _check_mask(mask: Tensor, tokens: Tensor, continued: bool) -> None:
    if not isinstance(mask, Tensor) or mask.shape != tokens.shape or mask.dtype != torch.bool:
        wanted = tuple(tokens.shape)
        came = f"{tuple(mask.shape)} {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
        raise UsageError(f"The mask is a boolean tensor {wanted}, True at real tokens, not {came}.")
    if not continued and mask.device.type == "cpu" and not bool(mask.any(-1).all()):
        raise UsageError("The mask leaves a sequence without any real token; drop that row.")


def check_budget(needed: int, budget: int | None, what: str) -> None:
    """Raise `BudgetError` with the figure where recording would take more bytes than the caller allows."""
    if budget is not None and needed > budget:
        figures = f"{needed:,} bytes ({needed / 2**20:.1f} MiB), the budget is {budget:,}"
        raise BudgetError(f"Recording {what} takes {figures}; choose fewer points or positions.")
