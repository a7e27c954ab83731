"""What published mixtures of experts that are built like Llama have in common: rows of tensors, and settings.

Files have one tensor an expert and matrix. In memory, and in files that keep that form, `transformers` 5 has one for
all experts, gate above up. A family takes both as its variants.
"""

from collections.abc import Sequence

from interp.errors import LoadError
from interp.models.config import LayerConfig, ModelConfig
from interp.models.families.common import HARMLESS
from interp.models.families.family import Row
from interp.models.families.fields import Fields
from interp.models.families.llama import ROWS

_FFN, _OURS = "model.layers.{layer}.mlp.", "blocks.{layer}.mlp."

OUTER_ROWS = tuple(row for row in ROWS if not row.ours.startswith(_OURS))
"""Everything but the FFN."""

DENSE_ROWS = tuple(row._replace(when="dense") for row in ROWS if row.ours.startswith(f"{_OURS}W_"))
"""The FFN of layers that are no mixture."""

SHARED_ROWS = (
    *(
        row._replace(
            published=row.published.replace(".mlp.", ".mlp.shared_expert."),
            ours=row.ours.replace(".mlp.", ".mlp.shared."),
            axes=row.axes.replace("d_mlp", "d_shared"),
            when="shared_expert",
        )
        for row in DENSE_ROWS
    ),
    Row(_FFN + "shared_expert_gate.weight", _OURS + "W_shared_gate", "1 d_model -> d_model 1", "shared_gate"),
)
"""The expert that every token goes through, and its gate."""

HARMLESS_HERE = (*HARMLESS, "output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
"""A mixture's losses and noise, in training alone."""


def separate_rows(router: str, expert: str, gate: str, up: str, down: str) -> tuple[Row, ...]:
    """One tensor an expert and matrix; `router` and `expert` are the modules' names in a layer."""
    stem = f"model.layers.{{layer}}.{expert}."
    return (
        _router_row(router),
        Row(f"{stem}{gate}.weight", _OURS + "W_gate", "d_expert d_model -> d_model d_expert", "moe"),
        Row(f"{stem}{up}.weight", _OURS + "W_in", "d_expert d_model -> d_model d_expert", "moe"),
        Row(f"{stem}{down}.weight", _OURS + "W_out", "d_model d_expert -> d_expert d_model", "moe"),
    )


def _router_row(name: str) -> Row:
    return Row(f"model.layers.{{layer}}.{name}.weight", _OURS + "W_router", "expert d_model -> d_model expert", "moe")


_BOTH, _EACH = "expert (two d_expert) d_model -> expert d_model d_expert", "expert d_model d_expert"

SEPARATE = separate_rows("mlp.gate", "mlp.experts.{expert}", "gate_proj", "up_proj", "down_proj")
FUSED = (
    _router_row("mlp.gate"),
    Row(_FFN + "experts.gate_up_proj", _OURS + "W_gate", _BOTH, "moe", at=("two", 0)),
    Row(_FFN + "experts.gate_up_proj", _OURS + "W_in", _BOTH, "moe", at=("two", 1)),
    Row(_FFN + "experts.down_proj", _OURS + "W_out", f"{_EACH} -> expert d_expert d_model", "moe"),
)


def sparse_layers(fields: Fields, n_layers: int) -> list[bool]:
    """Which layers are mixtures: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`."""
    step, dense = fields.integer("decoder_sparse_step", 1), fields.listed("mlp_only_layers", [])
    if step < 1 or not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in dense):
        raise LoadError(
            f"{fields.source}: decoder_sparse_step is {step} and mlp_only_layers is {dense}; a positive number and a "
            "list of layers were expected."
        )
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(n_layers)]


def with_experts(config: ModelConfig, layers: Sequence[LayerConfig], sparse: Sequence[bool]) -> tuple[LayerConfig, ...]:
    """One entry a layer, each a mixture or not; none at all where all layers are alike."""
    layers = layers or [LayerConfig(config.rotary, config.window)] * config.n_layers
    mixed = tuple(LayerConfig(this.rotary, this.window, moe) for this, moe in zip(layers, sparse, strict=True))
    alike = config.moe is not None and set(mixed) == {LayerConfig(config.rotary, config.window, moe=True)}
    return () if alike else mixed
