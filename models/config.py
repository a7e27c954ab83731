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
RotaryScaling = Literal["default", "linear", "ntk", "dynamic", "llama3", "yarn", "longrope"]
RotaryPairs = Literal["halves", "adjacent"]
NormKind = Literal["rms", "layer"]
NormPlace = Literal["pre", "post", "output", "sandwich"]
QKNorm = Literal["none", "head", "width"]
Routing = Literal["softmax_then_top_k", "top_k_then_softmax"]


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

    `rotated` numbers of a head turn (None: all), as pairs (i, i + rotated/2) or (2i, 2i + 1). Scalings: `linear`
    divides every frequency by `factor`; `ntk` raises the base, `dynamic` does so as far as the text is longer than
    `original_context`; `llama3` leaves wavelengths shorter than `original_context / high_freq_factor` alone, divides
    those longer than `original_context / low_freq_factor` by `factor`, and blends in between; `yarn` blends between
    `beta_fast` and `beta_slow` turns and scales what is turned; `longrope` divides each frequency by a factor of its
    own, one list for texts up to `original_context`, one for longer ones, and takes `factor`, how many times longer a
    text may be, for what it multiplies cosines and sines with.
    """

    theta: float = 10_000.0
    rotated: int | None = None
    pairs: RotaryPairs = "halves"
    scaling: RotaryScaling = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    attention_factor: float | None = None
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _require_one_of("rotary scaling", self.scaling, get_args(RotaryScaling))
        _require_one_of("rotary pairs", self.pairs, get_args(RotaryPairs))
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"):
            _require_positive(f"rotary {name}", getattr(self, name))
        for name in ("mscale", "mscale_all_dim", "attention_factor"):
            if getattr(self, name) is not None:
                _require_positive(f"rotary {name}", getattr(self, name))
        _require_count("rotary original_context", self.original_context)
        if self.rotated is not None:
            _require_count("rotary rotated", self.rotated)
        if self.scaling == "llama3":
            _require(
                self.low_freq_factor < self.high_freq_factor,
                f"low_freq_factor {self.low_freq_factor} must lie below high_freq_factor {self.high_freq_factor}",
            )
        if self.scaling == "longrope":
            lengths = len(self.short_factor), len(self.long_factor)
            _require(
                lengths[0] == lengths[1] > 0, f"longrope needs a short and a long factor for each pair, not {lengths}"
            )
            for value in (*self.short_factor, *self.long_factor):
                _require_positive("a longrope factor", value)


@dataclass(frozen=True)
class MoEConfig:
    """A mixture of experts: a router chooses `top_k` of `n_experts` gated FFNs of width `d_expert` for each token.

    `routing` says whether the softmax runs over all experts or over the chosen ones; `renormalise` whether the weights
    of the chosen are then divided by their sum; `scaling` multiplies them. `d_shared` is the width of an expert that
    every token goes through, weighted by a gate of its own if `shared_gate`.
    """

    n_experts: int
    top_k: int
    d_expert: int
    routing: Routing = "softmax_then_top_k"
    renormalise: bool = True
    scaling: float = 1.0
    d_shared: int | None = None
    shared_gate: bool = False

    def __post_init__(self) -> None:
        for name in ("n_experts", "top_k", "d_expert"):
            _require_count(f"moe {name}", getattr(self, name))
        _require_one_of("moe routing", self.routing, get_args(Routing))
        _require(self.top_k <= self.n_experts, f"{self.top_k} experts cannot be chosen from {self.n_experts}")
        _require_positive("moe scaling", self.scaling)
        if self.d_shared is not None:
            _require_count("moe d_shared", self.d_shared)


@dataclass(frozen=True)
class LayerConfig:
    """What may differ from layer to layer."""

    rotary: RotaryConfig | None = None
    """How queries and keys are turned; None: this layer does not know positions, unless the embedding does."""
    window: int | None = None
    """How many positions back a query reads, its own included; None: all."""
    moe: bool = False
    score_scale: float | None = None
    """What scores are multiplied with; None: as in the whole model."""

    def __post_init__(self) -> None:
        if self.window is not None:
            _require_count("window", self.window)
        if self.score_scale is not None:
            _require_positive("score_scale", self.score_scale)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of one model. Validated on construction; raises `LoadError` where fields contradict each other.

    `norms`: `pre` before each sublayer; `post` after each addition (Vaswani et al. 2017); `output` on what a sublayer
    returns; `sandwich` before it and on what it returns. `parallel`: attention and FFN read the same residual stream.
    `layers` states what differs between layers; empty, all are `LayerConfig(rotary, window, moe is not None)`.
    """

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    d_vocab: int
    n_ctx: int
    norm: NormKind = "rms"
    norm_eps: float = 1e-5
    norm_offset: bool = False
    """The gain of a norm is 1 + what is stored."""
    norms: NormPlace = "pre"
    parallel: bool = False
    final_norm: bool = True
    activation: Activation = "silu"
    gated: bool = True
    moe: MoEConfig | None = None
    rotary: RotaryConfig | None = field(default_factory=RotaryConfig)
    window: int | None = None
    layers: tuple[LayerConfig, ...] = ()
    learned_positions: bool = False
    position_offset: int = 0
    """Rows of the position embedding before that of position 0."""
    sinusoidal: bool = False
    alibi: bool = False
    qk_norm: QKNorm = "none"
    score_scale: float | None = None
    """What scores are multiplied with; None: 1 / √d_head."""
    score_cap: float | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    embed_scale: float = 1.0
    embed_norm: bool = False
    logit_scale: float = 1.0
    logit_cap: float | None = None
    unembed_bias: bool = False
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "d_vocab", "n_ctx"):
            _require_count(name, getattr(self, name))
        for name in _SWITCHES:
            value = getattr(self, name)
            _require(isinstance(value, bool), f"{name} is {value!r}, it must be True or False")
        for name in ("norm_eps", "embed_scale", "logit_scale"):
            _require_positive(name, getattr(self, name))
        for name in ("score_scale", "score_cap", "logit_cap"):
            if getattr(self, name) is not None:
                _require_positive(name, getattr(self, name))
        for name, known in (("activation", Activation), ("norm", NormKind), ("norms", NormPlace), ("qk_norm", QKNorm)):
            _require_one_of(name, getattr(self, name), get_args(known))
        self._check_layers()
        shared = self.n_heads % self.n_kv_heads == 0
        _require(shared, f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads evenly")
        _require(not (self.parallel and self.norms == "post"), "a parallel block has no norm between its sublayers")

    def _check_layers(self) -> None:
        _require(
            len(self.layers) in (0, self.n_layers),
            f"{len(self.layers)} layers are described, there are {self.n_layers}",
        )
        if self.window is not None:
            _require_count("window", self.window)
        for layer, this in enumerate(self._different_layers):
            _require(
                not this.moe or self.moe is not None, f"layer {layer} is a mixture of experts that is not described"
            )
            if this.rotary is not None:
                _require(isinstance(this.rotary, RotaryConfig), f"rotary is {this.rotary!r}, it must be a RotaryConfig")
                turned = this.rotary.rotated or self.d_head
                _require(
                    turned % 2 == 0 and turned <= self.d_head,
                    f"rotary positions turn pairs, so {turned} numbers of a head of {self.d_head} cannot be turned",
                )

    def layer(self, index: int) -> LayerConfig:
        """What holds for one layer."""
        return self.layers[index] if self.layers else LayerConfig(self.rotary, self.window, self.moe is not None)

    def ffn_width(self, layer: int) -> int:
        """How many vectors of width d_model a token is multiplied with in a layer's FFN: those of experts it chose."""
        matrices = 3 if self.gated else 2
        if not self.layer(layer).moe or self.moe is None:
            return matrices * self.d_mlp
        shared = matrices * (self.moe.d_shared or 0) + self.moe.shared_gate
        return self.moe.n_experts + 3 * self.moe.top_k * self.moe.d_expert + shared

    @property
    def queries_per_kv(self) -> int:
        """How many query heads read one KV head: query head h uses KV head h // queries_per_kv."""
        return self.n_heads // self.n_kv_heads

    @property
    def windows(self) -> set[int | None]:
        """The different windows of the layers."""
        return {layer.window for layer in self._different_layers}

    @property
    def rotaries(self) -> set[RotaryConfig]:
        """The different rotations of the layers."""
        return {layer.rotary for layer in self._different_layers if layer.rotary is not None}

    @property
    def _different_layers(self) -> tuple[LayerConfig, ...]:
        """What is stated layer by layer, else the one layer that all are like: a file may claim any number of them."""
        return self.layers or (self.layer(0),)

    @property
    def axis_sizes(self) -> dict[str, int]:
        """The length of every axis that the model fixes, by the name that hook points and weights give it."""
        sizes = {
            "d_model": self.d_model,
            "head": self.n_heads,
            "kv_head": self.n_kv_heads,
            "d_head": self.d_head,
            "d_mlp": self.d_mlp,
            "d_vocab": self.d_vocab,
        }
        if self.learned_positions:
            sizes["position"] = self.n_ctx + self.position_offset
        if self.moe is not None:
            sizes |= {"expert": self.moe.n_experts, "slot": self.moe.top_k, "d_expert": self.moe.d_expert}
            if self.moe.d_shared is not None:
                sizes["d_shared"] = self.moe.d_shared
        return sizes

    def to_dict(self) -> dict[str, object]:
        """Plain nested dictionary, for provenance and model cards."""
        return dataclasses.asdict(self)


_SWITCHES = (
    *("norm_offset", "parallel", "final_norm", "gated", "learned_positions", "sinusoidal", "alibi"),
    *("qkv_bias", "o_bias", "mlp_bias", "embed_norm", "unembed_bias", "tied_embeddings"),
)
