"""Mistral (`MistralForCausalLM`): Llama without biases, in which every layer may read through a window."""

from dataclasses import replace

from interp.models.config import ModelConfig
from interp.models.families.common import HARMLESS, check_model_type
from interp.models.families.family import Family
from interp.models.families.fields import Fields
from interp.models.families.llama import COPIES, IGNORED, ROWS, shape
from interp.models.sources.checkpoint import Checkpoint


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`. A window of null is none; a file that is silent has the first model's."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    check_model_type(fields, "MistralForCausalLM", "mistral")
    config = shape(fields, n_ctx=131_072, kv_heads=8)
    config = replace(config, window=fields.nullable("sliding_window", 4096))
    fields.refuse_others(HARMLESS)
    return config


FAMILY = Family(
    layout="hf",
    architectures=("MistralForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=COPIES,
    ignored=IGNORED,
)
