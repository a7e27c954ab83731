"""Every kind of hook point that a model of some shape has, from its configuration alone."""

from collections import Counter

from interp.models.config import ModelConfig
from interp.models.transformer import point_table


def point_shapes(config: ModelConfig) -> dict[str, tuple[str, str]]:
    """Every kind of hook point: name with `{layer}` → its axes with the sizes that are fixed, and where it exists.

    Where layers differ in the axes of a point, each variant has an entry of its own, told apart by its layers.
    """
    table = point_table(config)
    kinds: dict[tuple[str, str], list[int]] = {}
    for name in table:
        prefix, layer, rest = name.split(".", 2) if name.startswith("blocks.") else ("", "-1", name)
        kind = f"blocks.{{layer}}.{rest}" if prefix else name
        kinds.setdefault((kind, table.shape_of(name)), []).append(int(layer))
    times = Counter(kind for kind, _ in kinds)
    return {
        kind if times[kind] == 1 else f"{kind} ({_where(layers, config)})": (shape, _where(layers, config))
        for (kind, shape), layers in kinds.items()
    }


def _where(layers: list[int], config: ModelConfig) -> str:
    """The layers that have a point, in words."""
    if layers == [-1]:
        return "once"
    return "every layer" if len(layers) == config.n_layers else f"layers {', '.join(map(str, layers))}"
