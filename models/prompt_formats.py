"""What may stand in front of a prompt: the document separator, or the markers of a chat turn.

Neither is read off a file's `bos_token`: in SmolLM2 that is `<|im_start|>`, a chat marker, and a text that begins with
it is the opening of a dialogue, not of a document.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from interp.errors import UsageError

PrefixPolicy = Literal["doc", "none", "chat"]

# Tokens that separate documents in the pre-training stream of published models, when they stand as "bos".
_OPENING_SEPARATORS = ("<|endoftext|>", "<|begin_of_text|>", "<s>", "<bos>")


@dataclass(frozen=True)
class ChatFormat:
    """How one family of models writes a dialogue: what surrounds a single user turn before the model answers."""

    markers: tuple[str, ...]
    before: str
    after: str


CHAT_FORMATS = (
    ChatFormat(
        markers=("<|im_start|>", "<|im_end|>"),
        before="<|im_start|>user\n",
        after="<|im_end|>\n<|im_start|>assistant\n",
    ),
    ChatFormat(
        markers=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        before="<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        after="<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    ChatFormat(
        markers=("<bos>", "<start_of_turn>", "<end_of_turn>"),
        before="<bos><start_of_turn>user\n",
        after="<end_of_turn>\n<start_of_turn>model\n",
    ),
)


def check_policy(policy: str) -> None:
    """Refuse a prefix policy that does not exist."""
    if policy not in get_args(PrefixPolicy):
        raise UsageError(f"The prefix policy is {policy!r}; it must be 'doc', 'none' or 'chat'.")


def document_separator(specials: Collection[str], bos: str | None) -> str | None:
    """The special token that stands before each document in pre-training, or None if the vocabulary names none.

    The stated bos counts only if it is a known separator; otherwise `<|endoftext|>`, which GPT-2, SmolLM2, Qwen and
    many others put between documents.
    """
    if bos in specials and bos in _OPENING_SEPARATORS:
        return bos
    return "<|endoftext|>" if "<|endoftext|>" in specials else None


def chat_format(specials: Collection[str]) -> ChatFormat | None:
    """The first known chat format whose markers are all special tokens of this vocabulary."""
    return next((form for form in CHAT_FORMATS if all(marker in specials for marker in form.markers)), None)
