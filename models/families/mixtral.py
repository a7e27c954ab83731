"""Mixtral (`MixtralForCausalLM`): Mistral with a mixture of experts in every layer (Jiang et al. 2024)."""

from dataclasses import replace

from interp.models.config import ModelConfig, MoEConfig
from interp.models.families.common import check_model_type
from interp.models.families.experts import FUSED, HARMLESS_HERE, OUTER_ROWS, separate_rows
from interp.models.families.family import Family
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, shape
from interp.models.families.older import integer
from interp.models.sources.checkpoint import Checkpoint


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`. The weights of the chosen experts always add up to one."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "MixtralForCausalLM", "mixtral")
    config = shape(fields, n_ctx=131_072, kv_heads=8, theta=1_000_000.0)
    moe = MoEConfig(
        n_experts=integer(fields, "num_experts", "num_local_experts", default=8),
        top_k=fields.integer("num_experts_per_tok", 2),
        d_expert=config.d_mlp,
    )
    norm_eps, window = fields.number("rms_norm_eps", 1e-5), fields.nullable("sliding_window", None)
    fields.refuse_others(HARMLESS_HERE)
    return replace(config, moe=moe, norm_eps=norm_eps, window=window)


FAMILY = Family(
    layout="hf",
    architectures=("MixtralForCausalLM",),
    rows=OUTER_ROWS,
    config=read_config,
    copies=COPIES,
    ignored=IGNORED,
    variants=(
        separate_rows("block_sparse_moe.gate", "block_sparse_moe.experts.{expert}", "w1", "w3", "w2"),
        FUSED,
    ),
)
