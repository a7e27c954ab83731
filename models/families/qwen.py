"""Qwen 2, 2.5 and 3 (`Qwen2ForCausalLM`, `Qwen3ForCausalLM`).

Qwen 2 is Llama with biases on queries, keys and values alone; Qwen 3 has none by default, and normalises each head's
queries and keys before they turn. In both the later layers may read through a window.
"""

from collections.abc import Sequence
from dataclasses import replace

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig
from interp.models.families.common import HARMLESS, check_model_type, layer_kinds
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, ROWS, shape
from interp.models.sources.checkpoint import Checkpoint

_FULL, _SLIDING = "full_attention", "sliding_attention"

QK_NORM_ROWS = (
    Row("model.layers.{layer}.self_attn.q_norm.weight", "blocks.{layer}.attn.q_norm.w", "d_head -> d_head", "qk_norm"),
    Row("model.layers.{layer}.self_attn.k_norm.weight", "blocks.{layer}.attn.k_norm.w", "d_head -> d_head", "qk_norm"),
)


def read_qwen2(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Qwen 2 and 2.5 in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Qwen2ForCausalLM", "qwen2")
    fields.must_be("use_mrope", False)
    config = replace(shape(fields, kv_heads=32), qkv_bias=True)
    config = replace(config, layers=windowed(fields, config))
    fields.refuse_others(HARMLESS)
    return config


def read_qwen3(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Qwen 3 in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Qwen3ForCausalLM", "qwen3")
    bias = fields.boolean("attention_bias", False)
    config = replace(shape(fields, kv_heads=32, d_head=128), qkv_bias=bias, o_bias=bias, qk_norm="head")
    config = replace(config, layers=windowed(fields, config))
    fields.refuse_others(HARMLESS)
    return config


def windowed(fields: Fields, config: ModelConfig) -> tuple[LayerConfig, ...]:
    """Which layers read through a window: those that `layer_types` names, else all from `max_window_layers` on."""
    window, first = fields.nullable("sliding_window", 4096), fields.integer("max_window_layers", 28)
    if not fields.boolean("use_sliding_window", False):
        window = None
    kinds = [_FULL if window is None or layer < first else _SLIDING for layer in range(config.n_layers)]
    return layers(fields, config, kinds, window)


def layers(fields: Fields, config: ModelConfig, default: Sequence[str], window: int | None) -> tuple[LayerConfig, ...]:
    """One entry a layer, from `layer_types` or its default; none at all where no layer has a window."""
    stated = "layer_types" in fields
    kinds = layer_kinds(fields, config.n_layers, {_FULL: _FULL, _SLIDING: _SLIDING}, _FULL) if stated else default
    if _SLIDING not in kinds:
        return ()
    if window is None:
        raise LoadError(
            f"{fields.source} contradicts itself: layer_types names layers with a sliding window, but "
            "use_sliding_window is false or there is no sliding_window. Correct whichever is wrong in a copy of the "
            "configuration."
        )
    return tuple(LayerConfig(config.rotary, window if kind == _SLIDING else None) for kind in kinds)


QWEN2 = Family(
    layout="hf",
    architectures=("Qwen2ForCausalLM",),
    rows=ROWS,
    config=read_qwen2,
    copies=COPIES,
    ignored=IGNORED,
)
QWEN3 = QWEN2._replace(architectures=("Qwen3ForCausalLM",), rows=(*ROWS, *QK_NORM_ROWS), config=read_qwen3)
