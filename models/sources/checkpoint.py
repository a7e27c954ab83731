"""A published model that has been opened but not yet read: its configuration, tensor shapes, and how to read them.

Every source (a GGUF file, a folder, a model in memory) is turned into this one form; the families translate it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from interp.models.tokenizer import Tokenizer

Layout = Literal["hf", "gguf"]


class ReadTensor(Protocol):
    """Reads one stored tensor, or a range of its leading axis, onto the CPU in a floating dtype."""

    def __call__(self, name: str, rows: slice | None = None) -> Tensor:
        """Values of `name`; a slice of whole rows keeps the memory in use small."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """An opened model.

    Attributes:
        source: what to call it in messages and provenance, such as a path or a hub id with its revision.
        layout: which naming convention the tensors follow.
        architecture: the published name that selects the family, such as "LlamaForCausalLM".
        fields: the published configuration or metadata.
        shapes: stored tensors and their shapes, leading axis first.
        read: reads a tensor; raises `LoadError` if its storage cannot be decoded.
        tokenizer: builds the tokenizer, or returns None where the source has none.
        sha256: computes the hash that identifies the weights.
    """

    source: str
    layout: Layout
    architecture: str
    fields: Mapping[str, object]
    shapes: Mapping[str, tuple[int, ...]]
    read: ReadTensor
    tokenizer: Callable[[], Tokenizer | None]
    sha256: Callable[[], str]
