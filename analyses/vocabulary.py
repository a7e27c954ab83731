"""Token ids and their texts, for models with and without a tokenizer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.tokenizer import Tokenizer
    from interp.models.transformer import Transformer


def tokenizer_of(model: "Transformer") -> "Tokenizer | None":
    """The model's tokenizer, or None for a model that came without one (asking such a model for it is an error)."""
    try:
        return model.tokenizer
    except UsageError:
        return None


def token_texts(model: "Transformer", ids: Sequence[int]) -> list[str]:
    """The text of each id; the number itself for a model without a tokenizer."""
    tokenizer = tokenizer_of(model)
    return [str(index) for index in ids] if tokenizer is None else tokenizer.str_tokens(ids)


def token_id(model: "Transformer", token: str | int) -> int:
    """The id of a token given as an id or as text. Raises `UsageError` for several tokens and ids outside."""
    if isinstance(token, str):
        return model.to_single_token(token)
    if not 0 <= token < model.config.d_vocab:
        raise UsageError(f"{token} is no token id: expected 0 to {model.config.d_vocab - 1}, or the token's text.")
    return int(token)


def distinct_texts(model: "Transformer", ids: Sequence[int]) -> list[str]:
    """A name for each id: its text, with the id where two share a text (pieces of one character look alike)."""
    texts = token_texts(model, ids)
    return [text if texts.count(text) == 1 else f"{text} [{index}]" for text, index in zip(texts, ids, strict=True)]
