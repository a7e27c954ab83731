r"""Weight processing: other weights that compute the same probabilities, in which a direction says more by itself.

    processed, report = process(model)

Nothing is ever processed unless it is asked for, and what was done stands in the report and in the provenance of every
later result. With x̂ what a norm divides, g its gain and b its bias:

fold_norms          (x̂ ∘ g + b) · W = x̂ · (g ∘ W) + b · W: readers take over gains and biases, which become 1 and 0
fold_value_biases   a pattern sums to 1, so that b_V reaches the output whole: b_O + Σ over heads of b_V · W_O
center_writing      LayerNorm subtracts the mean of the stream, so that nobody reads what is written along (1, …, 1)
center_unembedding  the same number added to all logits of a position changes no probability

Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; the names are those of TransformerLens. Logits
move by a constant at each position where the unembedding is centred; log-probabilities agree within rounding.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.config import ModelConfig
from interp.models.transformer import Transformer

READERS = {
    "ln1": ("attn.W_Q", "attn.W_K", "attn.W_V"),
    "ln2": ("mlp.W_gate", "mlp.W_in", "mlp.W_router", "mlp.shared.W_gate", "mlp.shared.W_in", "mlp.W_shared_gate"),
    "ln_final": ("unembed.W_U",),
}
"""The matrices that read through each norm. All have d_model as their last axis but one."""
WRITERS = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")
"""What is added to the residual stream, d_model last."""


@dataclass(frozen=True)
class Report:
    """Which steps were taken, and what each did; why others were not."""

    done: Mapping[str, str]
    left: Mapping[str, str]


def process(
    model: Transformer,
    *,
    fold_norms: bool | None = None,
    fold_value_biases: bool | None = None,
    center_writing: bool | None = None,
    center_unembedding: bool | None = None,
) -> tuple[Transformer, Report]:
    """A processed copy, and what was done to it; the model itself stays as it is.

    None takes a step where it changes no probability, and the report says why where it does not; True raises
    `UsageError` there. The copy has a matrix of its own for the unembedding, and biases, where a step needs them.
    Processing twice changes nothing more. `UsageError` for half precision, whose rounding would show.
    """
    if model.dtype.itemsize < 4:
        raise UsageError(f"Processing rounds weights once more, too much for {model.dtype}: load the model as float32.")
    asked = {
        "fold_norms": fold_norms,
        "fold_value_biases": fold_value_biases,
        "center_writing": center_writing,
        "center_unembedding": center_unembedding,
    }
    done: dict[str, str] = {}
    left: dict[str, str] = {}
    processed = _copy(model, model.config)
    for name, wanted in asked.items():
        reason = "it was not asked for" if wanted is False else WHY_NOT[name](processed)
        if reason is None:
            processed, done[name] = STEPS[name](processed)
        elif wanted:
            raise UsageError(f"{name} would not leave the model's probabilities as they are: {reason}.")
        else:
            left[name] = reason
    return _named(processed, model, Report(done, left)), Report(done, left)


def _why_not_fold_norms(model: Transformer) -> str | None:
    config = model.config
    if config.norms == "post":
        return "its norms stand in the residual stream itself, which is read and added to by others"
    if config.norms == "output" and not config.final_norm:
        return "what its norms return is added as it is; no matrix reads it alone"
    for layer in range(config.n_layers):
        bias = model.weights().get(f"blocks.{layer}.ln2.b")
        if config.layer(layer).moe and bias is not None and bool(bias.any()):
            return f"the norm before the experts of layer {layer} has a bias, and experts have none to take it over"
    return None


def _why_not_fold_value_biases(model: Transformer) -> str | None:
    return None if model.config.qkv_bias else "there are no value biases"


def _why_not_center_writing(model: Transformer) -> str | None:
    config = model.config
    if config.norm == "rms":
        return "its norms divide by the root mean square and keep the mean, so every reader sees the mean"
    if config.norms != "pre" or not config.final_norm:
        return "some readers see the residual stream as it is, not through a norm that subtracts the mean"
    return None


def _why_not_center_unembedding(model: Transformer) -> str | None:
    capped = model.config.logit_cap is not None
    return "its logits are capped, so a constant added before changes probabilities" if capped else None


def _fold_norms(model: Transformer) -> tuple[Transformer, str]:
    """Every norm that matrices read through."""
    config, weights = model.config, model.weights()
    norms = [name.removesuffix(".w") for name in weights if name.endswith(("ln1.w", "ln2.w", "ln_final.w"))]
    changed = [name for name in norms if not _is_plain(model, name)]
    with_bias = {name.split(".")[-1] for name in changed if f"{name}.b" in weights and weights[f"{name}.b"].any()}
    processed = _copy(
        model,
        replace(
            config,
            qkv_bias=config.qkv_bias or "ln1" in with_bias,
            mlp_bias=config.mlp_bias or "ln2" in with_bias,
            unembed_bias=config.unembed_bias or "ln_final" in with_bias,
            tied_embeddings=config.tied_embeddings and "ln_final" not in changed,
        ),
    )
    for name in changed:
        _fold(processed, name)
    stay = "" if config.norms == "pre" else "; the norms of what sublayers return stay"
    return processed, f"{len(changed)} of {len(norms)} norms folded into what reads through them{stay}"


def _fold(model: Transformer, norm: str) -> None:
    """One norm into its readers, in place."""
    weights, offset = model.weights(), float(model.config.norm_offset)
    prefix, _, kind = norm.rpartition(".")
    gain, bias = _wide(weights[f"{norm}.w"]) + offset, weights.get(f"{norm}.b")
    for reader in READERS[kind]:
        name = f"{prefix}.{reader}" if prefix else reader
        if (matrix := weights.get(name)) is None:
            continue
        if bias is not None and bias.any():
            stem, _, last = name.rpartition(".")
            target = weights[f"{stem}.{last.replace('W_', 'b_')}"]
            target.copy_(_wide(target) + (_wide(bias)[:, None] * _wide(matrix)).sum(-2))
        matrix.copy_(_wide(matrix) * gain[:, None])
    weights[f"{norm}.w"].fill_(1 - offset)
    if bias is not None:
        bias.zero_()


def _is_plain(model: Transformer, norm: str) -> bool:
    """Whether a norm has the gain 1 and no bias already."""
    weights = model.weights()
    bias = weights.get(f"{norm}.b")
    return bool((weights[f"{norm}.w"] == 1 - float(model.config.norm_offset)).all()) and (
        bias is None or not bias.any()
    )


def _fold_value_biases(model: Transformer) -> tuple[Transformer, str]:
    """What every query reads, whatever it looks at."""
    config, weights = model.config, model.weights()
    layers = [layer for layer in range(config.n_layers) if weights[f"blocks.{layer}.attn.b_V"].any()]
    processed = _copy(model, replace(config, o_bias=config.o_bias or bool(layers)))
    for layer in layers:
        attn = f"blocks.{layer}.attn."
        w = {name: weight for name, weight in processed.weights().items() if name.startswith(attn)}
        biases = _wide(w[f"{attn}b_V"]).repeat_interleave(config.queries_per_kv, 0)
        constant = torch.einsum("hd,hdm->m", biases, _wide(w[f"{attn}W_O"]))
        w[f"{attn}b_O"].copy_(_wide(w[f"{attn}b_O"]) + constant)
        w[f"{attn}b_V"].zero_()
    return processed, f"value biases of {len(layers)} layers folded into output biases"


def _center_writing(model: Transformer) -> tuple[Transformer, str]:
    """Everything that is written, its mean over the stream taken off."""
    shifted = any(name == "embed.W_E" for name, _ in _off_centre(model))  # a tied unembedding must not move with it
    processed = _copy(model, replace(model.config, tied_embeddings=model.config.tied_embeddings and not shifted))
    count = 0
    for _, weight in _off_centre(processed):
        weight.copy_(_wide(weight) - _wide(weight).mean(-1, keepdim=True))
        count += 1
    return processed, f"{count} weights centred"


def _off_centre(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Weights that write to the residual stream with a mean that is not zero. A norm behind the embedding takes its."""
    for name, weight in model.weights().items():
        writes = name.rpartition(".")[-1] in WRITERS and not (name == "embed.W_E" and model.config.embed_norm)
        if writes and not _is_centred(weight, -1):
            yield name, weight


def _center_unembedding(model: Transformer) -> tuple[Transformer, str]:
    """The unembedding, its mean over the vocabulary taken off; so too its bias."""
    if _is_centred(model.W_U, -1):
        return model, "it was centred already"
    processed = _copy(model, replace(model.config, tied_embeddings=False))
    for name in ("unembed.W_U", "unembed.b_U"):
        if (weight := processed.weights().get(name)) is not None:
            weight.copy_(_wide(weight) - _wide(weight).mean(-1, keepdim=True))
    return processed, "the mean over the vocabulary is zero"


def _is_centred(weight: Float[Tensor, "*axes width"], axis: int) -> bool:
    """Whether the mean is zero within rounding."""
    wide = _wide(weight)
    rounding = 8 * torch.finfo(weight.dtype).eps * float(wide.abs().max())
    return float(wide.mean(axis).abs().max()) <= rounding


def _copy(model: Transformer, config: ModelConfig) -> Transformer:
    """The same weights in a model of that configuration: new biases are zero, a new unembedding is the embedding."""
    with torch.inference_mode(False):
        copied = Transformer(
            config,
            tokenizer=model.tokenizer if model.has_tokenizer else None,
            device=model.device,
            dtype=model.dtype,
            provenance=model.provenance,
        )
        old = {"unembed.W_U": model.W_U, **model.weights()}
        for name, weight in copied.weights().items():
            if name in old:
                weight.copy_(old[name])
            else:
                weight.zero_()
    return copied


def _named(processed: Transformer, model: Transformer, report: Report) -> Transformer:
    """The processed model, which says so; what was verified is another model."""
    stated = {name: fact for name, fact in model.provenance.items() if name != "verified"}
    processed._provenance = {**stated, "processing": asdict(report)}
    return processed


def _wide(weight: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """float64, where the device has it."""
    return weight if weight.device.type == "mps" else weight.double()


WHY_NOT: Mapping[str, Callable[[Transformer], str | None]] = {
    "fold_norms": _why_not_fold_norms,
    "fold_value_biases": _why_not_fold_value_biases,
    "center_writing": _why_not_center_writing,
    "center_unembedding": _why_not_center_unembedding,
}
"""Why a step would change probabilities; None where it does not."""
STEPS: Mapping[str, Callable[[Transformer], tuple[Transformer, str]]] = {
    "fold_norms": _fold_norms,
    "fold_value_biases": _fold_value_biases,
    "center_writing": _center_writing,
    "center_unembedding": _center_unembedding,
}
