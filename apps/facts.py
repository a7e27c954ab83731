"""What a model is, in rows of (name, value): for `interp models show` and for the card in a report."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def kv_bytes_per_token(model: "Transformer") -> int:
    """Bytes that keys and values take for every token: 2 · layers · KV heads · head width · bytes a number."""
    config = model.config
    return 2 * config.n_layers * config.n_kv_heads * config.d_head * model.dtype.itemsize


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


def shape_facts(model: "Transformer") -> list[tuple[str, str]]:
    """Sizes and kinds of the parts."""
    config = model.config
    tied = ", tied" if config.tied_embeddings else ", untied"
    return [
        ("Parameters", f"{model.n_parameters:,}"),
        ("Layers", f"{config.n_layers}"),
        ("Attention heads", f"{config.n_heads} query, {config.n_kv_heads} key/value, {config.d_head} wide"),
        ("Residual stream", f"{config.d_model} wide"),
        ("FFN", f"{config.d_mlp:,} neurons, {config.activation}, gated"),
        ("Positions", f"rotary ({config.rotary.scaling}), θ = {config.rotary.theta:,.0f}"),
        ("Normalisation", f"RMS, pre-norm, ε = {config.norm_eps:g}"),
        ("Unembedding", f"{config.d_vocab:,} tokens{tied}"),
        ("Context", f"{config.n_ctx:,} tokens"),
        ("Keys and values", f"{size(kv_bytes_per_token(model))} a token"),
        (
            "Weights in memory",
            f"{size(weight_bytes(model))}, {str(model.dtype).removeprefix('torch.')} on {model.device}",
        ),
    ]


def origin_facts(model: "Transformer") -> list[tuple[str, str]]:
    """Name, licence, source and hash, as far as they are known."""
    from interp.models.loading import known_models

    stated = model.provenance
    facts = [("Name", str(stated["model"]))]
    for known in known_models():
        if known.name == stated["model"]:
            facts += [("Published as", known.description), ("Licence", known.licence), ("From", known.source)]
    if stated.get("source"):
        facts.append(("File", str(stated["source"]).replace(str(Path.home()), "~", 1)))
    if stated.get("weights_sha256"):
        facts.append(("SHA-256 of the weights", str(stated["weights_sha256"])))
    return facts


def tokenizer_facts(model: "Transformer") -> list[tuple[str, str]]:
    """How text becomes tokens."""
    from interp.analyses.vocabulary import tokenizer_of

    tokenizer = tokenizer_of(model)
    if tokenizer is None:
        return [("Tokenizer", "none: this model came without one")]
    separator = tokenizer.doc_separator_id
    shown = "none" if separator is None else f"{tokenizer.str_tokens([separator])[0]} (id {separator})"
    return [
        ("Vocabulary", f"{tokenizer.d_vocab:,} tokens, {len(tokenizer.special_ids)} of them special"),
        ("Document separator", shown),
    ]
