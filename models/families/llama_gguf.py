"""Llama as GGUF files hold it (`general.architecture = llama`), and Mistral and Mixtral, which go by the same name.

Rotary positions turn pairs of elements of a head. Hugging Face keeps the first elements of all pairs, then the second
ones (half, pair); these files store each pair side by side (pair, half). The rows of the query and key projections are
therefore read in that order and put back. The window of the first Mistral is not stated in its files: beyond 4,096
tokens they make another model of it.
"""

from dataclasses import replace

from interp.models.config import ModelConfig
from interp.models.families import gguf_metadata
from interp.models.families.family import Family, Row
from interp.models.families.gguf_rotary import FREQUENCIES, LONG, SHORT
from interp.models.families.gguf_rows import ATTENTION, DENSE, ENDS, EXPERTS, NORMS, SEPARATE_EXPERTS
from interp.models.sources.checkpoint import Checkpoint

_TURNED = ("attn.W_Q", "attn.W_K", "attn.b_Q", "attn.b_K")


def _by_pairs(row: Row) -> Row:
    """A row of queries or keys whose rows lie pair by pair."""
    stored, ours = row.axes.split("->")
    return row._replace(axes=f"{stored.replace('d_head', 'pair half')}->{ours.replace('d_head', '(half pair)')}")


ROWS = (
    *ENDS,
    *NORMS,
    *(_by_pairs(row) if row.ours.endswith(_TURNED) else row for row in ATTENTION),
    *DENSE,
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata. Experts, where there are any, are as wide as the FFN would be."""
    fields = gguf_metadata.metadata(checkpoint, "llama")
    config = gguf_metadata.shape(fields, checkpoint)
    if fields.integer("expert_count", 0):
        config = replace(config, moe=gguf_metadata.experts(fields, config.d_mlp, config.d_mlp, renormalise=True))
    fields.must_be("expert_used_count", 0 if config.moe is None else config.moe.top_k)
    fields.must_be("attention.sliding_window", 0)
    fields.refuse_others(gguf_metadata.HARMLESS)
    return config


FAMILY = Family(
    layout="gguf",
    architectures=("llama",),
    rows=ROWS,
    config=read_config,
    ignored=(FREQUENCIES, LONG, SHORT),
    variants=(EXPERTS, SEPARATE_EXPERTS),
)
