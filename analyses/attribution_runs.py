"""The runs that a logit attribution reads: what was asked of which texts, and what was recorded of them where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.analyses.folded import wide
from interp.analyses.neurons import post_points
from interp.analyses.reference_values import chosen_experts
from interp.analyses.sub_updates import gate_input, has_shared_gate
from interp.analyses.vocabulary import token_id, token_texts
from interp.cache import ActivationCache
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.selection import indices

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

By = Literal["sublayer", "head", "source", "head_source", "neuron", "expert"]
"""How finely the stream is taken apart. What a choice does not name stays whole: `head` leaves FFNs as they are."""

BY_SOURCE = ("source", "head_source")
"""Those that read keys and values of other positions."""


@dataclass(frozen=True)
class Recorded:
    """What one run computed at the position whose logits are explained; `keys` holds the values of all positions."""

    model: "Transformer"
    cache: ActivationCache
    column: int
    keys: ActivationCache | None = None

    def at(self, name: str) -> Float[Tensor, "prompt *axes"]:
        """The value of a point there, in float32 or wider."""
        return wide(self.cache[name].select(self.cache.points[name].position_axis, self.column))

    @property
    def stream(self) -> Float[Tensor, "prompt d_model"]:
        """What leaves the last layer."""
        return self.at(_stream(self.model))

    @property
    def final_scale(self) -> Float[Tensor, "prompt 1"]:
        """The divisor of the final norm in this run."""
        norm = self.model.ln_final
        assert norm is not None
        known = "ln_final.hook_scale" in self.cache
        return self.at("ln_final.hook_scale") if known else norm.divisor(norm.centre(self.stream))


def needed_points(model: "Transformer", by: By) -> list[str]:
    """The points that the terms are made from, at one position; `source` also needs `attn.hook_v` of all positions.

    Raises `UsageError` where the model's stream or FFNs are no such sum.
    """
    _check(model, by)
    names = [name for name in ("hook_embed", "hook_pos_embed") if name in model.points()]
    for layer in range(model.config.n_layers):
        block = f"blocks.{layer}."
        attention = {"head": ("attn.hook_z",), "source": ("attn.hook_pattern",), "head_source": ("attn.hook_pattern",)}
        names += [block + name for name in attention.get(by, ("hook_attn_out",))]
        names += [block + name for name in _ffn_points(model, layer, by)]
        norms = [f"{block}{norm}.hook_scale" for norm in ("ln1_post", "ln2_post")]
        names += [name for name in norms if name in model.points() and by != "sublayer"]
    return [*names, _stream(model)]


def _stream(model: "Transformer") -> str:
    return f"blocks.{model.config.n_layers - 1}.hook_resid_post"


def _ffn_points(model: "Transformer", layer: int, by: By) -> tuple[str, ...]:
    if by == "neuron":
        return _neuron_points(model, layer)
    if by == "expert" and model.config.layer(layer).moe:
        shared = "mlp.shared.hook_out"
        there = (shared,) if f"blocks.{layer}.{shared}" in model.points() else ()
        return ("mlp.hook_expert_out", "mlp.hook_expert_indices", "mlp.hook_expert_weights", *there)
    return ("hook_mlp_out",)


def _neuron_points(model: "Transformer", layer: int) -> tuple[str, ...]:
    """Coefficients, and what those of experts are weighted by."""
    names = post_points(model.config, layer)
    if model.config.layer(layer).moe:
        names += [chosen_experts(layer), f"blocks.{layer}.mlp.hook_expert_weights"]
        names += [gate_input(model, layer)] * has_shared_gate(model, layer)
    return tuple(name.removeprefix(f"blocks.{layer}.") for name in names)


def _check(model: "Transformer", by: By) -> None:
    if by not in get_args(By):
        raise UsageError(f"A logit is attributed by one of {', '.join(get_args(By))}, not by {by!r}.")
    if model.config.norms == "post":
        raise UsageError(
            "This model normalises its residual stream after every addition, so that its logits are no sum of what was "
            "written. Read the stream layer by layer with the logit lens, or patch it."
        )
    experts = any(model.config.layer(layer).moe for layer in range(model.config.n_layers))
    if by == "expert" and not experts:
        raise UsageError("This model has no mixture of experts. Take by='neuron', or by='sublayer'.")


# ------------------------------------------------------------------------------------------------- what was asked


Token = str | int


@dataclass(frozen=True)
class Question:
    """What is asked of each prompt: ids of the answers, and of the foils where there are any."""

    answers: list[int]
    foils: list[int] | None

    @classmethod
    def of(
        cls, model: "Transformer", count: int, answer: Token | Sequence[Token], foil: Token | Sequence[Token] | None
    ) -> "Question":
        """The question to `count` prompts. Raises `UsageError` for too many or too few, and for equal tokens."""
        answers = _ids(model, "answers", answer, count)
        foils = None if foil is None else _ids(model, "foils", foil, count)
        alike = [row for row, each in enumerate(answers) if foils is not None and foils[row] == each]
        if alike:
            token = token_texts(model, [answers[alike[0]]])[0]
            raise UsageError(f"Answer and foil of prompt {alike[0]} are both {token!r}; name two different tokens.")
        return cls(answers, foils)

    def rows(self, rows: slice) -> "Question":
        """That to some of the prompts."""
        return Question(self.answers[rows], None if self.foils is None else self.foils[rows])

    def asked(self, model: "Transformer") -> tuple[Float[Tensor, "prompt d_model"], Float[Tensor, "prompt"]]:
        """Rows of the unembedding, and of its bias, one a prompt: the answer's less the foil's."""
        weight, bias = _unembedding_rows(model, self.answers)
        if self.foils is None:
            return weight, bias
        other, other_bias = _unembedding_rows(model, self.foils)
        return weight - other, bias - other_bias


def _ids(model: "Transformer", what: str, given: Token | Sequence[Token], count: int) -> list[int]:
    tokens = [given] * count if isinstance(given, str | int) else list(given)
    if len(tokens) != count:
        raise UsageError(f"{len(tokens)} {what} came with {count} prompts; give one for all, or one a prompt.")
    return [token_id(model, token) for token in tokens]


def _unembedding_rows(model: "Transformer", ids: list[int]) -> tuple[Tensor, Tensor]:
    bias, scale = model.unembed_bias, model.config.logit_scale
    weight = wide(model.W_U[:, ids].mT) * scale
    return weight, weight.new_zeros(len(ids)) if bias is None else wide(bias.data[ids]) * scale


# ------------------------------------------------------------------------------------------------------- the texts


@dataclass(frozen=True)
class Texts:
    """The prompts as tokens; or what was recorded of them before, in `cache`."""

    tokens: Int[Tensor, "prompt pos"]
    mask: Bool[Tensor, "prompt pos"] | None
    prefix: str
    cache: ActivationCache | None = None

    @classmethod
    def of(
        cls,
        model: "Transformer",
        source: ActivationCache | Tensor | str | Sequence[str],
        mask: Bool[Tensor, "prompt pos"] | None,
        prefix: PrefixPolicy,
    ) -> "Texts":
        """The prompts in any of the forms in which they may come. Raises `UsageError` for a mask where one is known."""
        if mask is not None and not isinstance(source, Tensor):
            raise UsageError("A mask says which of given tokens are real; a text or a cache brings its own mask.")
        if isinstance(source, ActivationCache):
            return cls(source.tokens, source.mask, "as given", source)
        if isinstance(source, Tensor):
            return cls(source, mask, "as given")
        tokens, padded = model.to_batch(source, prefix=prefix, side="left")
        return cls(tokens, None if bool(padded.all()) else padded, prefix)

    def place(self, position: int, by: By) -> int:
        """The position, counted from the start. Raises `UsageError` where it is outside or padding."""
        place = indices([position], self.tokens.shape[1], f"the positions of {self.tokens.shape[1]} tokens")[0]
        if self.mask is not None and not bool(self.mask[:, place].all()):
            row = int((~self.mask[:, place]).nonzero()[0, 0])
            raise UsageError(f"Position {place} of prompt {row} is padding; pad on the left to read last tokens at -1.")
        if self.mask is not None and by in BY_SOURCE and not bool(self.mask.all()):
            raise UsageError(f"Key positions of padded texts do not correspond; by={by!r} takes texts of one length.")
        return place

    def runs(self, model: "Transformer", place: int, by: By, max_bytes: int) -> Iterator[tuple[slice, Recorded]]:
        """What is needed at that position, of so many texts at a time as about `max_bytes` have room for."""
        if self.cache is not None:
            yield slice(0, len(self.tokens)), _recorded(model, self.cache, place, by)
            return
        points, keys = needed_points(model, by), ["blocks.*.attn.hook_v"] if by in BY_SOURCE else []
        length = self.tokens.shape[1]
        needed = model.cache_bytes(1, length, points, positions=[place])
        needed += model.cache_bytes(1, length, keys) if keys else 0
        size = max(1, max_bytes // needed)
        for start in range(0, len(self.tokens), size):
            rows = slice(start, min(start + size, len(self.tokens)))
            cache = self._run(model, rows, points, [place])
            yield rows, Recorded(model, cache, 0, self._run(model, rows, keys, None) if keys else None)

    def _run(
        self, model: "Transformer", rows: slice, points: list[str], positions: list[int] | None
    ) -> ActivationCache:
        mask = None if self.mask is None else self.mask[rows]
        end = model.config.n_layers
        return model.run_with_cache(self.tokens[rows], points, positions=positions, mask=mask, stop_at_layer=end)[1]


def _recorded(model: "Transformer", cache: ActivationCache, place: int, by: By) -> Recorded:
    """A cache that was given, at one position. Raises `UsageError` where it was not recorded there."""
    if cache.positions is None:
        return Recorded(model, cache, place, cache)
    if by in BY_SOURCE:
        raise UsageError(f"This cache holds the positions {cache.positions}; by={by!r} needs all, positions=None.")
    if place not in cache.positions:
        raise UsageError(f"Position {place} was not recorded; this cache holds {cache.positions}.")
    return Recorded(model, cache, cache.positions.index(place))
