"""Shapes made from numbers: a model that nobody has published yet, or a published one with some numbers changed.

    Numbers(layers=32, heads=32, head_dim=128, kv_heads=8).config()      # numbers alone
    Numbers(kv_heads=1).config(read_config("llama-2-7b"))                # a model, changed

Numbers alone make a model built like Llama: gated FFNs, RMS norms, rotary positions, no biases, a matrix of its own for
the unembedding. What they leave open is assumed, and `assumed` says what.
"""

from dataclasses import dataclass, fields, replace

from interp.errors import LoadError, UsageError
from interp.models.config import ModelConfig, MoEConfig

VOCABULARY, CONTEXT, TOP_K = 32_000, 131_072, 2
MOST, MOST_ANYTHING = {"layers": 10_000, "heads": 10_000, "kv_heads": 10_000}, 10**9


def with_layers(config: ModelConfig, count: int) -> ModelConfig:
    """The same shape with so many layers; where layers differ, their pattern goes on or is cut."""
    pattern = config.layers
    layers = tuple(pattern[place % len(pattern)] for place in range(count)) if pattern else ()
    return replace(config, n_layers=count, layers=layers)


@dataclass(frozen=True)
class Numbers:
    """What is known of a shape; None for what is not said. `UsageError` on construction for what no number can be.

    `d_mlp` is the width of the FFN, or of each expert where there are `experts`, of which a token goes through `top_k`.
    """

    layers: int | None = None
    d_model: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    d_mlp: int | None = None
    vocab: int | None = None
    experts: int | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            most = MOST.get(name, MOST_ANYTHING)
            if type(value) is not int or not 1 <= value <= most:
                raise UsageError(f"{option(name)} is {value!r}; a whole number from 1 to {most:,} was expected.")

    @property
    def given(self) -> dict[str, int]:
        """What was said."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: value for name, value in values if value is not None}

    def config(self, base: ModelConfig | None = None) -> ModelConfig:
        """The shape. Raises `UsageError` for numbers that are missing or contradict each other."""
        try:
            return self._alone() if base is None else self._changed(base)
        except LoadError as error:
            raise UsageError(f"{self._said()} cannot be a model: {str(error).partition(': ')[2]}") from error

    @property
    def assumed(self) -> dict[str, int]:
        """What numbers alone leave open, and what is taken for it."""
        config = self.config()
        taken = {
            "d_model": config.d_model,
            "heads": config.n_heads,
            "kv_heads": config.n_kv_heads,
            "head_dim": config.d_head,
            "d_mlp": config.d_mlp,
            "vocab": config.d_vocab,
        }
        if config.moe is not None:
            taken["top_k"] = config.moe.top_k
        return {name: value for name, value in taken.items() if name not in self.given}

    def _alone(self) -> ModelConfig:
        layers, heads = self._needed("layers"), self._needed("heads")
        if self.d_model is None and self.head_dim is None:
            raise UsageError(f"{self._said()}: --d-model or --head-dim is missing; give at least one of the two.")
        d_model = heads * (self.head_dim or 0) if self.d_model is None else self.d_model
        if self.head_dim is None and d_model % heads:
            raise UsageError(
                f"--heads {heads} does not divide --d-model {d_model} into equal heads. Give --head-dim, or heads that "
                "divide it."
            )
        d_head = d_model // heads if self.head_dim is None else self.head_dim
        config = ModelConfig(
            n_layers=layers,
            d_model=d_model,
            n_heads=heads,
            n_kv_heads=self.kv_heads or heads,
            d_head=d_head,
            d_mlp=self.d_mlp or -(-8 * d_model // 3),
            d_vocab=self.vocab or VOCABULARY,
            n_ctx=CONTEXT,
            rotary=None,
            tied_embeddings=False,
        )
        return replace(config, moe=self._experts(config))

    def _changed(self, base: ModelConfig) -> ModelConfig:
        """Only what was said is changed, and the widths of experts with it."""
        names = {"d_model": "d_model", "heads": "n_heads", "kv_heads": "n_kv_heads", "head_dim": "d_head"}
        names |= {"d_mlp": "d_mlp", "vocab": "d_vocab"}
        sizes = {names[name]: value for name, value in self.given.items() if name in names}
        shape = with_layers(base, self.layers) if self.layers else base
        if self.head_dim is not None:  # how much of a head turns changes nothing that is counted
            shape = replace(shape, rotary=None, layers=tuple(replace(each, rotary=None) for each in shape.layers))
        moe = self._experts(shape)
        layers = tuple(replace(each, moe=True) for each in shape.layers) if moe and shape.moe is None else shape.layers
        return replace(shape, **sizes, moe=moe, layers=layers)  # type: ignore[arg-type]  # whole numbers

    def _experts(self, shape: ModelConfig) -> MoEConfig | None:
        old, width = shape.moe, self.d_mlp or shape.d_mlp
        if old is None and self.experts is None:
            if self.top_k is not None:
                raise UsageError(
                    f"--top-k {self.top_k} says how many experts a token goes through; give --experts too."
                )
            return None
        experts = self.experts or (old.n_experts if old else 0)
        top_k = self.top_k or (old.top_k if old else min(TOP_K, experts))
        if top_k > experts:
            raise UsageError(
                f"--top-k {top_k} of --experts {experts} cannot be chosen; at most {experts} were expected."
            )
        if old is None:
            return MoEConfig(experts, top_k, width)
        return replace(old, n_experts=experts, top_k=top_k, d_expert=self.d_mlp or old.d_expert)

    def _needed(self, name: str) -> int:
        if name not in self.given:
            raise UsageError(f"{self._said()}: {option(name)} is missing; give it, or a MODEL whose shape is known.")
        return self.given[name]

    def _said(self) -> str:
        return " ".join(f"{option(name)} {value}" for name, value in self.given.items()) or "A shape without numbers"


def option(name: str) -> str:
    """What a number is called on the command line."""
    return f"--{name.replace('_', '-')}"
