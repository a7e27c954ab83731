"""OLMo 2 and OLMoE (`Olmo2ForCausalLM`, `OlmoeForCausalLM`): OLMo et al. 2024, Muennighoff et al. 2024.

Both normalise queries, and keys, as one row across all heads. OLMo 2 has no norm before its sublayers but one on what
each returns; OLMoE has Llama's norms, and a mixture of experts in every layer.
"""

from dataclasses import replace

from interp.errors import LoadError
from interp.models.config import ModelConfig, MoEConfig
from interp.models.families.common import HARMLESS, check_model_type
from interp.models.families.experts import FUSED, HARMLESS_HERE, OUTER_ROWS, SEPARATE
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, ROWS, shape
from interp.models.families.older import integer
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "model.layers.{layer}.", "blocks.{layer}."

_WIDE_NORM_ROWS = (
    Row(_BLOCK + "self_attn.q_norm.weight", _OURS + "attn.q_norm.w", "(head d_head) -> (head d_head)"),
    Row(_BLOCK + "self_attn.k_norm.weight", _OURS + "attn.k_norm.w", "(kv_head d_head) -> (kv_head d_head)"),
)
_OUTPUT_NORM_ROWS = (
    Row(_BLOCK + "post_attention_layernorm.weight", _OURS + "ln1_post.w", "d_model -> d_model"),
    Row(_BLOCK + "post_feedforward_layernorm.weight", _OURS + "ln2_post.w", "d_model -> d_model"),
)


def read_olmo2(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of OLMo 2 in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "Olmo2ForCausalLM", "olmo2")
    config = replace(_shape(fields, n_ctx=2048), norms="output")
    fields.refuse_others(HARMLESS)
    return config


def read_olmoe(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of OLMoE in `config.json`."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "OlmoeForCausalLM", "olmoe")
    _refuse_clipping(fields)
    config = _shape(fields, n_ctx=4096)
    moe = MoEConfig(
        n_experts=integer(fields, "num_local_experts", "num_experts", default=64),
        top_k=fields.integer("num_experts_per_tok", 8),
        d_expert=config.d_mlp,
        renormalise=fields.boolean("norm_topk_prob", False),
    )
    fields.refuse_others(HARMLESS_HERE)
    return replace(config, moe=moe)


def _shape(fields: Fields, *, n_ctx: int) -> ModelConfig:
    bias = fields.boolean("attention_bias", False)
    config = shape(fields, n_ctx=n_ctx)
    return replace(config, norm_eps=fields.number("rms_norm_eps", 1e-5), qk_norm="width", qkv_bias=bias, o_bias=bias)


def _refuse_clipping(fields: Fields) -> None:
    if "clip_qkv" in fields:
        raise LoadError(
            f"{fields.source}: clip_qkv is {fields.number('clip_qkv')}; queries, keys and values that are clipped are "
            "not supported here, so it must be null."
        )


OLMO2 = Family(
    layout="hf",
    architectures=("Olmo2ForCausalLM",),
    rows=(
        *(row for row in ROWS if not row.ours.startswith((f"{_OURS}ln1.", f"{_OURS}ln2."))),
        *_WIDE_NORM_ROWS,
        *_OUTPUT_NORM_ROWS,
    ),
    config=read_olmo2,
    copies=COPIES,
    ignored=IGNORED,
)
OLMOE = OLMO2._replace(
    architectures=("OlmoeForCausalLM",),
    rows=(*OUTER_ROWS, *_WIDE_NORM_ROWS),
    config=read_olmoe,
    variants=(SEPARATE, FUSED),
)
