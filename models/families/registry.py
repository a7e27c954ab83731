"""All families. To add one: write its file with a `FAMILY`, and name it here."""

from collections.abc import Mapping

from interp.errors import LoadError, nearest
from interp.models.families import (
    bloom,
    gemma,
    gemma_gguf,
    gpt2,
    gpt2_gguf,
    gpt_neo,
    gpt_neox,
    gptj,
    llama,
    llama_gguf,
    mistral,
    mixtral,
    olmo,
    opt,
    phi3,
    phi3_gguf,
    qwen,
    qwen_gguf,
    qwen_moe,
    smollm3,
)
from interp.models.families.family import Family
from interp.models.sources.checkpoint import Checkpoint

FAMILIES: tuple[Family, ...] = (
    llama.FAMILY,
    llama_gguf.FAMILY,
    mistral.FAMILY,
    qwen.QWEN2,
    qwen.QWEN3,
    smollm3.FAMILY,
    mixtral.FAMILY,
    qwen_moe.QWEN2_MOE,
    qwen_moe.QWEN3_MOE,
    olmo.OLMO2,
    olmo.OLMOE,
    phi3.FAMILY,
    gpt2.FAMILY,
    gpt_neox.FAMILY,
    gptj.FAMILY,
    gpt_neo.FAMILY,
    opt.FAMILY,
    bloom.FAMILY,
    gemma.GEMMA,
    gemma.GEMMA2,
    gemma.GEMMA3,
    gemma.GEMMA3_WITH_IMAGES,
    qwen_gguf.QWEN2,
    qwen_gguf.QWEN3,
    qwen_gguf.QWEN2_MOE,
    qwen_gguf.QWEN3_MOE,
    phi3_gguf.FAMILY,
    gpt2_gguf.FAMILY,
    gemma_gguf.GEMMA,
    gemma_gguf.GEMMA2,
    gemma_gguf.GEMMA3,
)


def family_of(checkpoint: Checkpoint) -> Family:
    """The family that reads this checkpoint; raises `LoadError` listing the supported architectures."""
    _check_layers(checkpoint, checkpoint.fields)
    return family_named(checkpoint)


def family_named(checkpoint: Checkpoint) -> Family:
    """The same by the architecture alone, where there are no tensors to compare with."""
    readable = [family for family in FAMILIES if family.layout == checkpoint.layout]
    for family in readable:
        if checkpoint.architecture in family.architectures:
            return family
    known = [name for family in readable for name in family.architectures]
    raise LoadError(
        f"{checkpoint.source} has the architecture {checkpoint.architecture!r}, which is not supported."
        f"{nearest(checkpoint.architecture, known)} Supported: {', '.join(known)}."
    )


_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")


def _check_layers(checkpoint: Checkpoint, fields: Mapping[str, object]) -> None:
    """Refuse more layers than there are tensors before a family writes out what each of them is like."""
    present = len(checkpoint.shapes)
    for key, value in fields.items():
        stated = key in _LAYERS or key.endswith(".block_count")
        if stated and isinstance(value, int) and value > present:
            raise LoadError(f"{checkpoint.source} should have {value} layers but holds only {present} tensors.")
    inner = fields.get("text_config")
    if isinstance(inner, dict):
        _check_layers(checkpoint, inner)
