"""Gemma 1, 2 and 3 as GGUF files hold them (`general.architecture` is `gemma`, `gemma2` or `gemma3`).

The one has been added to the gains of norms already, and the rows of queries and keys are in the published order. Which
layers read through a window follows from their number. How scores are scaled is not stated either: by 1 / √d_head,
but in the largest Gemma 2 and 3 by 1 / √(d_model / n_heads), and other readers of the format know these by how many
layers they have. So it is done here.
"""

import functools
from collections.abc import Mapping

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig, RotaryConfig
from interp.models.families import llama_gguf
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "blk.{layer}.", "blocks.{layer}."
_SHARED_SCALE: Mapping[str, int] = {"gemma2": 46, "gemma3": 62}  # layers of the 27B models

ROWS = (
    *(row for row in llama_gguf.ROWS if not row.when.endswith("bias") and "half" not in row.axes),
    Row(_BLOCK + "attn_q.weight", _OURS + "attn.W_Q", "(head d_head) d_model -> head d_model d_head"),
    Row(_BLOCK + "attn_k.weight", _OURS + "attn.W_K", "(kv_head d_head) d_model -> kv_head d_model d_head"),
)
SANDWICH_ROWS = (
    *ROWS,
    Row(_BLOCK + "post_attention_norm.weight", _OURS + "ln1_post.w", "d_model -> d_model"),
    Row(_BLOCK + "post_ffw_norm.weight", _OURS + "ln2_post.w", "d_model -> d_model"),
)
GEMMA3_ROWS = (
    *SANDWICH_ROWS,
    Row(_BLOCK + "attn_q_norm.weight", _OURS + "attn.q_norm.w", "d_head -> d_head"),
    Row(_BLOCK + "attn_k_norm.weight", _OURS + "attn.k_norm.w", "d_head -> d_head"),
)


def read_config(architecture: str, checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in the metadata; an untied unembedding shows in which tensors there are."""
    fields = Fields(_renamed(checkpoint.fields, architecture), f"The metadata of {checkpoint.source}")
    fields.must_be("split.count", 1)
    n_layers, d_model, n_heads = (
        fields.integer(key) for key in ("block_count", "embedding_length", "attention.head_count")
    )
    d_head = fields.integer("attention.key_length", 256)
    fields.must_be("attention.value_length", d_head)
    fields.must_be("rope.dimension_count", d_head)
    turns = _rotary(fields)
    first = architecture == "gemma"
    config = ModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.integer("attention.head_count_kv", n_heads),
        d_head=d_head,
        d_mlp=fields.integer("feed_forward_length"),
        d_vocab=fields.integer("vocab_size", checkpoint.shapes.get("token_embd.weight", (0,))[0]),
        n_ctx=fields.integer("context_length"),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        norms="pre" if first else "sandwich",
        activation="gelu_tanh",
        rotary=turns,
        layers=() if first else _layers(fields, architecture, n_layers, turns),
        qk_norm="head" if architecture == "gemma3" else "none",
        score_scale=None if n_layers != _SHARED_SCALE.get(architecture) else (d_model / n_heads) ** -0.5,
        score_cap=fields.number("attn_logit_softcapping", 50.0) if architecture == "gemma2" else None,
        logit_cap=_logit_cap(fields, architecture),
        embed_scale=d_model**0.5,
        tied_embeddings="output.weight" not in checkpoint.shapes,
    )
    fields.refuse_others(llama_gguf.HARMLESS)
    return config


def _renamed(stated: Mapping[str, object], architecture: str) -> dict[str, object]:
    """The keys without the architecture in front of them."""
    return {key.removeprefix(f"{architecture}."): value for key, value in stated.items()}


def _rotary(fields: Fields) -> RotaryConfig:
    """The rotation of layers that read everything, linearly stretched where that is stated."""
    theta = fields.number("rope.freq_base", 10_000.0)
    kind, factor = fields.word("rope.scaling.type", "none"), fields.number("rope.scaling.factor", 1.0)
    if kind not in ("none", "linear"):
        raise LoadError(f"{fields.source}: rope.scaling.type is {kind!r}; known are none and linear.")
    stretched = kind == "linear" and factor != 1.0
    return RotaryConfig(theta=theta, scaling="linear", factor=factor) if stretched else RotaryConfig(theta=theta)


def _layers(fields: Fields, architecture: str, n_layers: int, full: RotaryConfig) -> tuple[LayerConfig, ...]:
    """Every second layer of Gemma 2, every sixth of Gemma 3, reads everything; in Gemma 3 the others turn faster."""
    third = architecture == "gemma3"
    window, every = fields.integer("attention.sliding_window"), 6 if third else 2
    every = fields.integer("attention.sliding_window_pattern", every)
    if every < 1:
        raise LoadError(f"{fields.source}: attention.sliding_window_pattern is {every}; it must be a positive number.")
    local = RotaryConfig(theta=fields.number("rope.freq_base_swa", 10_000.0)) if third else full
    return tuple(
        LayerConfig(full) if (layer + 1) % every == 0 else LayerConfig(local, window) for layer in range(n_layers)
    )


def _logit_cap(fields: Fields, architecture: str) -> float | None:
    """Stated, or what every Gemma 2 has; 0 says that there is none."""
    stated = fields.number("final_logit_softcapping", 30.0 if architecture == "gemma2" else 0.0)
    return stated or None


def _family(architecture: str, rows: tuple[Row, ...]) -> Family:
    return Family(
        layout="gguf", architectures=(architecture,), rows=rows, config=functools.partial(read_config, architecture)
    )


GEMMA, GEMMA2, GEMMA3 = _family("gemma", ROWS), _family("gemma2", SANDWICH_ROWS), _family("gemma3", GEMMA3_ROWS)
