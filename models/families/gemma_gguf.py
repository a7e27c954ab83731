"""Gemma 1, 2 and 3 as GGUF files hold them (`general.architecture` is `gemma`, `gemma2` or `gemma3`).

The one has been added to the gains of norms already. Which layers read through a window follows from their number. How
scores are scaled is not stated either: by 1 / √d_head, but in the largest Gemma 2 and 3 by 1 / √(d_model / n_heads).
Other readers of the format know these by how many layers they have, and so it is done here.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig, RotaryConfig
from interp.models.families import gguf_metadata
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.gguf_rows import ATTENTION, BLOCK, DENSE, ENDS, NORMS, OURS, QK_NORMS
from interp.models.sources.checkpoint import Checkpoint

_LARGEST: Mapping[str, int] = {"gemma2": 46, "gemma3": 62}  # layers of the 27B models

ROWS = (*ENDS, *NORMS, *ATTENTION, *DENSE)
SANDWICH_ROWS = (
    *ROWS,
    Row(BLOCK + "post_attention_norm.weight", OURS + "ln1_post.w", "d_model -> d_model"),
    Row(BLOCK + "post_ffw_norm.weight", OURS + "ln2_post.w", "d_model -> d_model"),
)


def read_config(architecture: str, checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata."""
    fields = gguf_metadata.metadata(checkpoint, architecture)
    config = gguf_metadata.shape(fields, checkpoint)
    config = replace(config, activation="gelu_tanh", embed_scale=config.d_model**0.5)
    if architecture != "gemma":
        largest = config.n_layers == _LARGEST[architecture]
        config = replace(
            config,
            norms="sandwich",
            score_scale=(config.d_model / config.n_heads) ** -0.5 if largest else None,
            logit_cap=_cap(fields, "final_logit_softcapping", 30.0 if architecture == "gemma2" else 0.0),
        )
    if architecture == "gemma2":
        config = replace(config, score_cap=_cap(fields, "attn_logit_softcapping", 50.0))
        config = replace(config, layers=_layers(fields, config, config.rotary, every=2))
    if architecture == "gemma3":
        local = RotaryConfig(theta=fields.number("rope.freq_base_swa", 10_000.0))
        config = replace(config, qk_norm="head", layers=_layers(fields, config, local, every=6))
    fields.refuse_others(gguf_metadata.HARMLESS)
    return config


def _cap(fields: Fields, key: str, default: float) -> float | None:
    """A bound, stated or the default; 0 says that there is none."""
    return fields.number(key, default) or None


def _layers(fields: Fields, config: ModelConfig, local: RotaryConfig | None, *, every: int) -> tuple[LayerConfig, ...]:
    """The last layer of each group reads everything, the others through a window, where they may turn otherwise."""
    window, every = (
        fields.integer("attention.sliding_window"),
        fields.integer("attention.sliding_window_pattern", every),
    )
    if every < 1:
        raise LoadError(f"{fields.source}: attention.sliding_window_pattern is {every}; it must be a positive number.")
    full, windowed = LayerConfig(config.rotary), LayerConfig(local, window)
    return tuple(full if (layer + 1) % every == 0 else windowed for layer in range(config.n_layers))


def _family(architecture: str, *rows: Row) -> Family:
    config = functools.partial(read_config, architecture)
    return Family(layout="gguf", architectures=(architecture,), rows=rows, config=config)


GEMMA, GEMMA2 = _family("gemma", *ROWS), _family("gemma2", *SANDWICH_ROWS)
GEMMA3 = _family("gemma3", *SANDWICH_ROWS, *QK_NORMS)
