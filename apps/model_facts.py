"""What a model is, in rows of (name, value): for `interp models show` and for the card in a report."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from interp.models.config import ModelConfig
    from interp.models.description import Description
    from interp.models.tokenizer import Tokenizer
    from interp.models.transformer import Transformer

Facts = list[tuple[str, str]]

NORM_PLACES = {
    "pre": "pre-norm",
    "post": "post-norm",
    "output": "on what sublayers return",
    "sandwich": "before sublayers and on what they return",
}


def weight_bytes(model: "Transformer") -> int:
    """Bytes that the weights take in memory."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def size(count: float) -> str:
    """Bytes for people.

    >>> size(46080), size(538_060_032)
    ('45.0 KiB', '513.1 MiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"


def shape_facts(model: "Transformer") -> Facts:
    """Sizes and kinds of the parts of a model in memory."""
    in_memory = f"{size(weight_bytes(model))}, {_dtype(model.dtype)} on {model.device}"
    return [*config_facts(model.config, model.dtype), ("Weights in memory", in_memory)]


def config_facts(config: "ModelConfig", dtype: "torch.dtype") -> Facts:
    """Sizes and kinds of the parts of a model of this shape."""
    from interp.models.planner import kv_bytes_per_token, parameters

    counted = parameters(config)
    active = f", {counted.total_active:,} active for a token" if config.moe else ""
    return [
        ("Parameters", f"{counted.total:,}{active}"),
        ("Layers", f"{config.n_layers}" + (", attention and FFN in parallel" if config.parallel else "")),
        ("Attention heads", f"{config.n_heads} query, {config.n_kv_heads} key/value, {config.d_head} wide"),
        ("Residual stream", f"{config.d_model} wide"),
        *_ffn_facts(config),
        ("Positions", _positions(config)),
        *_window_facts(config),
        ("Normalisation", _normalisation(config)),
        ("Unembedding", f"{config.d_vocab:,} tokens, {'tied' if config.tied_embeddings else 'untied'}"),
        ("Context", f"{config.n_ctx:,} tokens"),
        ("Keys and values", f"{size(kv_bytes_per_token(config, dtype.itemsize))} a token"),
    ]


def described_facts(described: "Description", dtype: "torch.dtype") -> Facts:
    """All that is known of a model without its weights."""
    from interp.models.planner import parameters

    needed = size(parameters(described.config).total * dtype.itemsize)
    facts = [("Name", described.name), *_published_facts(described)]
    if described.weights_sha256:
        facts.append(("SHA-256 of the weights", described.weights_sha256))
    facts += [*config_facts(described.config, dtype), ("Weights in memory", f"{needed} as {_dtype(dtype)}")]
    if described.is_preset:
        return [*facts, ("Weights", "not here: a preset is a shape; load a folder, a .gguf file or a hub id")]
    return [*facts, *tokenizer_facts(described.tokenizer)]


def origin_facts(model: "Transformer") -> Facts:
    """Name, licence, source and hash, as far as they are known."""
    from interp.models.loading import known_models

    stated = model.provenance
    facts = [("Name", str(stated["model"]))]
    for known in known_models():
        if known.name == stated["model"]:
            facts += [("Published as", known.description), ("Licence", known.licence), ("From", known.source)]
    if stated.get("revision"):
        facts.append(("Revision", str(stated["revision"])))
    if stated.get("source"):
        facts.append(("File", _path(str(stated["source"]))))
    if stated.get("weights_sha256"):
        facts.append(("SHA-256 of the weights", str(stated["weights_sha256"])))
    return facts


def tokenizer_facts(tokenizer: "Tokenizer | None") -> Facts:
    """How text becomes tokens."""
    if tokenizer is None:
        return [("Tokenizer", "none: this model came without one")]
    separator = tokenizer.doc_separator_id
    shown = "none" if separator is None else f"{tokenizer.str_tokens([separator])[0]} (id {separator})"
    return [
        ("Vocabulary", f"{tokenizer.d_vocab:,} tokens, {len(tokenizer.special_ids)} of them special"),
        ("Document separator", shown),
    ]


def _published_facts(described: "Description") -> Facts:
    facts = [("Published as", described.published_as), ("Licence", described.licence or "not stated in its files")]
    facts.append(("From", described.published_at))
    facts.append(("Figures from" if described.is_preset else "File", _path(described.source)))
    return [(name, value) for name, value in facts if value]


def _ffn_facts(config: "ModelConfig") -> Facts:
    """The dense layers and the mixtures of experts, whichever there are."""
    sparse = sum(config.layer(layer).moe for layer in range(config.n_layers))
    facts, gated = [], "gated" if config.gated else "ungated"
    if sparse < config.n_layers:
        facts.append(("FFN", f"{config.d_mlp:,} neurons, {config.activation}, {gated}"))
    if config.moe is not None and sparse:
        moe = config.moe
        shared = "" if moe.d_shared is None else f", and a shared one of {moe.d_shared:,}"
        where = "" if sparse == config.n_layers else f", in {sparse} layers"
        words = f"{moe.top_k} of {moe.n_experts}, each {moe.d_expert:,} neurons, {config.activation}{shared}{where}"
        facts.append(("Experts", words))
    return facts


def _positions(config: "ModelConfig") -> str:
    """Every way in which the model knows positions."""
    known = [
        f"rotary ({rotary.scaling}), θ = {rotary.theta:,.0f}"
        for rotary in sorted(config.rotaries, key=lambda rotary: rotary.theta)
    ]
    known += ["learned"] * config.learned_positions + ["sinusoidal"] * config.sinusoidal + ["ALiBi"] * config.alibi
    without = sum(config.layer(layer).rotary is None for layer in range(config.n_layers))
    if config.rotaries and without:
        known.append(f"none in {without} layers")
    return "; ".join(known) or "none"


def _window_facts(config: "ModelConfig") -> Facts:
    widths = [config.layer(layer).window for layer in range(config.n_layers)]
    found = sorted({width for width in widths if width is not None})
    parts = [f"{width:,} tokens in {widths.count(width)} of {config.n_layers} layers" for width in found]
    return [("Window of attention", "; ".join(parts))] if parts else []


def _normalisation(config: "ModelConfig") -> str:
    kind = "RMS" if config.norm == "rms" else "LayerNorm"
    return f"{kind}, {NORM_PLACES[config.norms]}, ε = {config.norm_eps:g}"


def _dtype(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")


def _path(source: str) -> str:
    """A path below the home folder, as people write it."""
    return source.replace(str(Path.home()), "~", 1)
