"""What a family of published models is: a table, and a translation of its configuration.

A row such as `("model.layers.{layer}.self_attn.q_proj.weight", "blocks.{layer}.attn.W_Q",
"(head d_head) d_model -> head d_model d_head")` says which published tensor holds which of our weights, and how its
axes are arranged. The axes' names are sizes of the model's configuration, so that the rows also state the shape of
every tensor.
"""

from collections.abc import Callable
from typing import NamedTuple

from interp.models.config import ModelConfig
from interp.models.sources.checkpoint import Checkpoint, Layout


class Row(NamedTuple):
    """One published tensor and the weight of ours that it holds, where the model has it (`when`)."""

    published: str
    ours: str
    axes: str
    when: str = "always"


class Family(NamedTuple):
    """How one way of publishing is read.

    `copies` maps tensors that some files repeat although embeddings are tied to the tensor they must equal; `ignored`
    are shell patterns of stored tensors that are not weights.
    """

    layout: Layout
    architectures: tuple[str, ...]
    rows: tuple[Row, ...]
    config: Callable[[Checkpoint], ModelConfig]
    copies: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()


def conditions(config: ModelConfig) -> dict[str, bool]:
    """The conditions that rows may name, and whether they hold for this model."""
    return {
        "always": True,
        "qkv_bias": config.qkv_bias,
        "o_bias": config.o_bias,
        "mlp_bias": config.mlp_bias,
        "untied": not config.tied_embeddings,
    }


def axis_sizes(config: ModelConfig) -> dict[str, int]:
    """The length of every axis that rows may name."""
    halves = {"half": 2, "pair": config.d_head // 2}  # rotary positions turn elements of the two halves as pairs
    return {**config.axis_sizes, **halves}
