"""Phi-3, 3.5 and 4 as GGUF files hold them (`general.architecture = phi3`).

Query, key and value rows are one tensor, gate and up rows another, in the published order. A window of 0 is none. Files
of the spring of 2024 state no window at all: the models of that time read 2,047 positions back where they take texts of
4,096, and otherwise as far as any text goes.
"""

from dataclasses import replace

from interp.models.config import ModelConfig
from interp.models.families import gguf_metadata
from interp.models.families.family import Family, Row
from interp.models.families.gguf_rotary import LONG, SHORT
from interp.models.families.gguf_rows import ATTENTION, BLOCK, ENDS, NORMS, OURS
from interp.models.families.phi3 import JOINED_ROWS
from interp.models.sources.checkpoint import Checkpoint

_NAMES = {"attn": BLOCK + "attn_qkv.weight", "mlp": BLOCK + "ffn_up.weight"}

ROWS = (
    *ENDS,
    *NORMS,
    *(row._replace(published=_NAMES[row.ours.split(".")[2]]) for row in JOINED_ROWS),
    *(row for row in ATTENTION if row.ours.endswith("W_O")),
    Row(BLOCK + "ffn_down.weight", OURS + "mlp.W_out", "d_model d_mlp -> d_mlp d_model"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata."""
    fields = gguf_metadata.metadata(checkpoint, "phi3")
    config = gguf_metadata.shape(fields, checkpoint, partial=True)
    window = fields.integer("attention.sliding_window", 2047 if config.n_ctx == 4096 else 0)
    fields.refuse_others(gguf_metadata.HARMLESS)
    return replace(config, window=window or None)


FAMILY = Family(layout="gguf", architectures=("phi3",), rows=ROWS, config=read_config, ignored=(LONG, SHORT))
