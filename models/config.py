"""What a transformer is made of, as data.

The forward pass reads these fields and nothing else: no model's name decides anything. A family of published
models is a table that turns its configuration into a `ModelConfig` (`models/families`).
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from interp.errors import LoadError

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
RotaryScaling = Literal["default", "linear", "llama3"]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise LoadError(f"The model configuration contradicts itself: {message}.")


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary position embedding (Su et al. 2021) and how its frequencies are stretched to longer contexts.

    `linear` divides every frequency by `factor`; `llama3` leaves wavelengths shorter than
    `original_context / high_freq_factor` alone, divides those longer than `original_context / low_freq_factor`
    by `factor`, and blends in between (the rule of Llama 3.1).
    """

    theta: float = 10_000.0
    scaling: RotaryScaling = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        _require(self.theta > 0, f"rotary theta is {self.theta}, it must be positive")
        _require(self.scaling in ("default", "linear", "llama3"), f"rotary scaling {self.scaling!r} is not known")
        _require(self.factor > 0, f"rotary factor is {self.factor}, it must be positive")
        if self.scaling == "llama3":
            ordered = 0 < self.low_freq_factor < self.high_freq_factor
            _require(
                ordered,
                f"low_freq_factor {self.low_freq_factor} must lie below high_freq_factor {self.high_freq_factor}",
            )


@dataclass(frozen=True)
class ModelConfig:
    """The shape of one model. Validated on construction; raises `LoadError` where fields contradict each other."""

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    d_vocab: int
    n_ctx: int
    norm_eps: float = 1e-5
    activation: Activation = "silu"
    rotary: RotaryConfig = field(default_factory=RotaryConfig)
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "d_vocab", "n_ctx"):
            value = getattr(self, name)
            _require(isinstance(value, int) and value > 0, f"{name} is {value!r}, it must be a positive whole number")
        shared = self.n_heads % self.n_kv_heads == 0
        _require(shared, f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads evenly")
        _require(self.d_head % 2 == 0, f"rotary positions turn pairs, so d_head must be even, not {self.d_head}")
        _require(self.norm_eps > 0, f"norm_eps is {self.norm_eps}, it must be positive")

    @property
    def queries_per_kv(self) -> int:
        """How many query heads read one KV head: query head h uses KV head h // queries_per_kv."""
        return self.n_heads // self.n_kv_heads

    def to_dict(self) -> dict[str, object]:
        """Plain nested dictionary, for provenance and model cards."""
        return dataclasses.asdict(self)
