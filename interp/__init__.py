"""A mechanistic-interpretability laboratory: a transformer in which every intermediate value has a name."""

__version__ = "0.1.0"
