"""Qwen 2 and 3 and their mixtures of experts as GGUF files hold them (`qwen2`, `qwen3`, `qwen2moe`, `qwen3moe`).

Rows of queries and keys are in the published order. Whether the weights of the chosen experts are divided by their sum
is rarely stated: in Qwen 3 they are, in Qwen 2 they are not, as in all of the models that were published.
"""

import functools
from dataclasses import replace

from interp.models.config import ModelConfig
from interp.models.families import gguf_metadata
from interp.models.families.family import Family, Row
from interp.models.families.gguf_rows import ATTENTION, DENSE, ENDS, EXPERTS, NORMS, QK_NORMS, SHARED_EXPERT
from interp.models.sources.checkpoint import Checkpoint

_OUTER = (*ENDS, *NORMS, *ATTENTION)


def read_config(architecture: str, checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata."""
    fields = gguf_metadata.metadata(checkpoint, architecture)
    config = gguf_metadata.shape(fields, checkpoint)
    if architecture in ("qwen3", "qwen3moe"):
        config = replace(config, qk_norm="head")
    if architecture.endswith("moe"):
        moe = gguf_metadata.experts(fields, None, config.d_mlp, renormalise=architecture == "qwen3moe")
        if architecture == "qwen2moe":
            d_shared = fields.integer("expert_shared_feed_forward_length", config.d_mlp)
            moe = replace(moe, d_shared=d_shared, shared_gate=True)
        config = replace(config, moe=moe)
    fields.must_be("attention.sliding_window", 0)
    fields.refuse_others(gguf_metadata.HARMLESS)
    return config


def _family(architecture: str, *rows: Row) -> Family:
    config = functools.partial(read_config, architecture)
    return Family(layout="gguf", architectures=(architecture,), rows=(*_OUTER, *rows), config=config)


QWEN2, QWEN3 = _family("qwen2", *DENSE), _family("qwen3", *DENSE, *QK_NORMS)
QWEN2_MOE, QWEN3_MOE = _family("qwen2moe", *EXPERTS, *SHARED_EXPERT), _family("qwen3moe", *EXPERTS, *QK_NORMS)
