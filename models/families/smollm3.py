"""SmolLM3 (`SmolLM3ForCausalLM`): Llama in which some layers, usually every fourth, do not turn queries and keys."""

from collections.abc import Sequence
from dataclasses import replace

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig
from interp.models.families.common import HARMLESS, check_model_type
from interp.models.families.family import Family
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, ROWS, shape
from interp.models.families.qwen import layers
from interp.models.sources.checkpoint import Checkpoint


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "SmolLM3ForCausalLM", "smollm3")
    bias = fields.boolean("attention_bias", False)
    config = shape(fields, kv_heads=4, theta=2_000_000.0, tied=True)
    config = replace(config, qkv_bias=bias, o_bias=bias, mlp_bias=fields.boolean("mlp_bias", False))
    config = replace(config, layers=_layers(fields, config))
    fields.refuse_others((*HARMLESS, "max_window_layers"))
    return config


def _layers(fields: Fields, config: ModelConfig) -> tuple[LayerConfig, ...]:
    """Which layers turn, and which read through a window: unless stated, those that do not turn, if any do."""
    turning, window = _turning(fields, config.n_layers), fields.nullable("sliding_window", None)
    if not fields.boolean("use_sliding_window", False):
        window = None
    kinds = ["full_attention" if turns or window is None else "sliding_attention" for turns in turning]
    windowed = layers(fields, config, kinds, window) or (LayerConfig(config.rotary),) * config.n_layers
    return tuple(this if turns else replace(this, rotary=None) for this, turns in zip(windowed, turning, strict=True))


def _turning(fields: Fields, n_layers: int) -> Sequence[bool]:
    """Whether each layer turns: 1 in `no_rope_layers`, which despite its name lists those that do."""
    interval = fields.integer("no_rope_layer_interval", 4)
    if "no_rope_layers" not in fields:
        if interval < 1:
            raise LoadError(f"{fields.source}: no_rope_layer_interval is {interval}; it must be a positive number.")
        return [(layer + 1) % interval != 0 for layer in range(n_layers)]
    stated = fields.numbers("no_rope_layers")
    if len(stated) < n_layers or not set(stated) <= {0, 1}:
        raise LoadError(
            f"{fields.source}: no_rope_layers has {len(stated)} entries; 0 or 1 for each of {n_layers} layers was "
            "expected."
        )
    return [value == 1 for value in stated[:n_layers]]


FAMILY = Family(
    layout="hf",
    architectures=("SmolLM3ForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=COPIES,
    ignored=IGNORED,
)
