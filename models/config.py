"""What a transformer is made of, as data.

The forward pass reads these fields and nothing else: no model's name decides anything. A family of published
models is a table that turns its configuration into a `ModelConfig` (`models/families`).
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from interp.errors import LoadError

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
RotaryScaling = Literal["default", "linear", "llama3"]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise LoadError(f"The model configuration contradicts itself: {message}.")


def _require_count(name: str, value: object) -> None:
    """True and False are whole numbers to Python, not here."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    _require(whole, f"{name} is {value!r}, it must be a positive whole number")


def _require_positive(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    _require(number, f"{name} is {value!r}, it must be positive and finite")


def _require_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    _require(value in known, f"{name} is {value!r}, it must be one of {', '.join(known)}")


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
        _require_one_of("rotary scaling", self.scaling, get_args(RotaryScaling))
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor"):
            _require_positive(f"rotary {name}", getattr(self, name))
        _require_count("rotary original_context", self.original_context)
        if self.scaling == "llama3":
            _require(
                self.low_freq_factor < self.high_freq_factor,
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
            _require_count(name, getattr(self, name))
        for name in ("qkv_bias", "o_bias", "mlp_bias", "tied_embeddings"):
            value = getattr(self, name)
            _require(isinstance(value, bool), f"{name} is {value!r}, it must be True or False")
        _require_positive("norm_eps", self.norm_eps)
        _require_one_of("activation", self.activation, get_args(Activation))
        _require(isinstance(self.rotary, RotaryConfig), f"rotary is {self.rotary!r}, it must be a RotaryConfig")
        shared = self.n_heads % self.n_kv_heads == 0
        _require(shared, f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads evenly")
        _require(self.d_head % 2 == 0, f"rotary positions turn pairs, so d_head must be even, not {self.d_head}")

    @property
    def queries_per_kv(self) -> int:
        """How many query heads read one KV head: query head h uses KV head h // queries_per_kv."""
        return self.n_heads // self.n_kv_heads

    @property
    def axis_sizes(self) -> dict[str, int]:
        """The length of every axis that the model fixes, by the name that hook points and weights give it."""
        return {
            "d_model": self.d_model,
            "head": self.n_heads,
            "kv_head": self.n_kv_heads,
            "d_head": self.d_head,
            "d_mlp": self.d_mlp,
            "d_vocab": self.d_vocab,
        }

    def to_dict(self) -> dict[str, object]:
        """Plain nested dictionary, for provenance and model cards."""
        return dataclasses.asdict(self)
