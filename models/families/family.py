"""What a family of published models is: a table, and a translation of its configuration.

A row such as `("model.layers.{layer}.self_attn.q_proj.weight", "blocks.{layer}.attn.W_Q",
"(head d_head) d_model -> head d_model d_head")` says which published tensor holds which of our weights, and how its
axes are arranged. The axes' names are sizes of the model's configuration, so that the rows also state the shape of
every tensor.

One published tensor may hold several of our weights, each with a row of its own: stacked along an axis that the row
names (`at`), one after the other in its rows (`after`), or the same for several (a norm that serves two sublayers).
Where every expert has a tensor of its own, `{expert}` in the published name counts them, and the row states the axes
of one.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from interp.models.config import ModelConfig
from interp.models.sources.checkpoint import Checkpoint, Layout


class Row(NamedTuple):
    """One published tensor and the weight of ours that it holds, where the model has it (`when`).

    `at` takes one index of an axis that only the published side has, such as `("three", 1)`. `after` lists what lies
    before this part in the tensor's rows, each as a product of axes such as "head d_head". `shift` is added to the
    values read: 1.0 for a gain that is stored as its distance from one.
    """

    published: str
    ours: str
    axes: str
    when: str = "always"
    at: tuple[str, int] | None = None
    after: tuple[str, ...] = ()
    shift: float = 0.0


class Family(NamedTuple):
    """How one way of publishing is read.

    `copies` maps tensors that some files repeat although embeddings are tied to the tensor they must equal; `ignored`
    are shell patterns of stored tensors that are not weights. All names are written without the `prefixes` that some
    files put before every one of them (but the unembedding's). `variants` are alternative continuations of `rows`, for
    what some files arrange in another way: the one that fits the stored names is taken.
    """

    layout: Layout
    architectures: tuple[str, ...]
    rows: tuple[Row, ...]
    config: Callable[[Checkpoint], ModelConfig]
    copies: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    variants: tuple[tuple[Row, ...], ...] = ((),)

    @property
    def tables(self) -> tuple[tuple[Row, ...], ...]:
        """The rows together with each of the variants."""
        return tuple(self.rows + variant for variant in self.variants)


CONDITIONS: Mapping[str, Callable[[ModelConfig, int], bool]] = {
    "always": lambda config, layer: True,
    "qkv_bias": lambda config, layer: config.qkv_bias,
    "o_bias": lambda config, layer: config.o_bias,
    "mlp_bias": lambda config, layer: config.mlp_bias,
    "untied": lambda config, layer: not config.tied_embeddings,
    "gated": lambda config, layer: config.gated,
    "dense": lambda config, layer: not config.layer(layer).moe,
    "moe": lambda config, layer: config.layer(layer).moe,
    "shared_expert": lambda config, layer: (
        config.moe is not None and config.layer(layer).moe and config.moe.d_shared is not None
    ),
    "shared_gate": lambda config, layer: config.moe is not None and config.layer(layer).moe and config.moe.shared_gate,
    "qk_norm": lambda config, layer: config.qk_norm != "none",
    "learned_positions": lambda config, layer: config.learned_positions,
    "embed_norm": lambda config, layer: config.embed_norm,
    "final_norm": lambda config, layer: config.final_norm,
    "unembed_bias": lambda config, layer: config.unembed_bias,
    "layer_norm": lambda config, layer: config.norm == "layer",
    "rotary": lambda config, layer: config.layer(layer).rotary is not None,
}
"""The conditions that rows may name, each for one layer of a model."""


def holds(config: ModelConfig, condition: str, layer: int) -> bool:
    """Whether a layer has what a row is for; `a & b` asks for both. `KeyError` for a condition that there is not."""
    parts = [CONDITIONS[name] for name in condition.split(" & ")]
    return all(part(config, layer) for part in parts)


def axis_sizes(config: ModelConfig) -> dict[str, int]:
    """The length of every axis that rows may name; an axis of one number is written `1`."""
    halves = {"half": 2, "pair": config.d_head // 2}  # rotary positions turn elements of the two halves as pairs
    return {**config.axis_sizes, **halves, "1": 1, "two": 2, "three": 3}
