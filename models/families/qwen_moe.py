"""The mixtures of experts among the Qwen models (`Qwen2MoeForCausalLM`, `Qwen3MoeForCausalLM`).

Qwen 2's has an expert that every token goes through, weighted by a gate of its own. In both, some layers may have a
dense FFN, and the weights of the chosen experts are divided by their sum only if the configuration says so.
"""

from dataclasses import replace

from interp.models.config import ModelConfig, MoEConfig
from interp.models.families.common import check_model_type
from interp.models.families.experts import (
    DENSE_ROWS,
    FUSED,
    HARMLESS_HERE,
    OUTER_ROWS,
    SEPARATE,
    SHARED_ROWS,
    sparse_layers,
    with_experts,
)
from interp.models.families.family import Family
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, shape
from interp.models.families.older import integer
from interp.models.families.qwen import QK_NORM_ROWS, layers
from interp.models.sources.checkpoint import Checkpoint


def read_qwen2(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Qwen 2's in `config.json`. Windows, where used, are in every second layer of the first."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Qwen2MoeForCausalLM", "qwen2_moe")
    config = replace(shape(fields, kv_heads=16), qkv_bias=fields.boolean("qkv_bias", True))
    moe = _experts(fields, n_experts=60, top_k=4, d_expert=1408)
    moe = replace(moe, d_shared=fields.integer("shared_expert_intermediate_size", 5632), shared_gate=True)
    window, windowed = _window(fields), fields.integer("max_window_layers", 28)
    kinds = [
        "sliding_attention" if window is not None and layer % 2 == 0 and layer < windowed else "full_attention"
        for layer in range(config.n_layers)
    ]
    config = replace(config, moe=moe)
    by_layer = with_experts(config, layers(fields, config, kinds, window), sparse_layers(fields, config.n_layers))
    fields.refuse_others(HARMLESS_HERE)
    return replace(config, layers=by_layer)


def read_qwen3(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of Qwen 3's in `config.json`. A window, where used, is in every layer."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Qwen3MoeForCausalLM", "qwen3_moe")
    bias = fields.boolean("attention_bias", False)
    config = replace(shape(fields, kv_heads=4), qkv_bias=bias, o_bias=bias, qk_norm="head")
    config = replace(config, moe=_experts(fields, n_experts=128, top_k=8, d_expert=768), window=_window(fields))
    by_layer = with_experts(config, (), sparse_layers(fields, config.n_layers))
    fields.refuse_others((*HARMLESS_HERE, "max_window_layers"))
    return replace(config, layers=by_layer)


def _experts(fields: Fields, *, n_experts: int, top_k: int, d_expert: int) -> MoEConfig:
    return MoEConfig(
        n_experts=integer(fields, "num_local_experts", "num_experts", default=n_experts),
        top_k=fields.integer("num_experts_per_tok", top_k),
        d_expert=fields.integer("moe_intermediate_size", d_expert),
        renormalise=fields.boolean("norm_topk_prob", False),
    )


def _window(fields: Fields) -> int | None:
    window = fields.nullable("sliding_window", 4096)
    return window if fields.boolean("use_sliding_window", False) else None


QWEN2_MOE = Family(
    layout="hf",
    architectures=("Qwen2MoeForCausalLM",),
    rows=(*OUTER_ROWS, *DENSE_ROWS, *SHARED_ROWS),
    config=read_qwen2,
    copies=COPIES,
    ignored=IGNORED,
    variants=(SEPARATE, FUSED),
)
QWEN3_MOE = QWEN2_MOE._replace(
    architectures=("Qwen3MoeForCausalLM",), rows=(*OUTER_ROWS, *QK_NORM_ROWS, *DENSE_ROWS), config=read_qwen3
)
