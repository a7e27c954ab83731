"""Shapes made from numbers: a model that nobody has published yet, or a published one with some numbers changed."""

from dataclasses import replace

from interp.models.config import ModelConfig


def with_layers(config: ModelConfig, count: int) -> ModelConfig:
    """The same shape with so many layers; where layers differ, their pattern goes on or is cut."""
    pattern = config.layers
    return replace(
        config, n_layers=count, layers=tuple(pattern[place % len(pattern)] for place in range(count)) if pattern else ()
    )
