"""What published models of 2019 to 2022 have in common: layer norms with biases, ungated FFNs, fused projections."""

from interp.errors import LoadError
from interp.models.families.family import Row
from interp.models.families.fields import Fields

OLDER_HARMLESS = ("*_pdrop", "*dropout*", "layerdrop", "summary_*", "gradient_checkpointing", "init_std")
"""Fields that these configurations have for training, and for heads other than that of the language model."""


def norm_rows(published: str, ours: str, when: str = "always") -> tuple[Row, ...]:
    """Gain and bias of a layer norm."""
    return (
        Row(f"{published}.weight", f"{ours}.w", "d_model -> d_model", when),
        Row(f"{published}.bias", f"{ours}.b", "d_model -> d_model", when),
    )


def ungated_rows(first: str, second: str, when: str = "always") -> tuple[Row, ...]:
    """Both linear maps of an FFN without a gate; `when` is for their biases."""
    ours = "blocks.{layer}.mlp."
    return (
        Row(f"{first}.weight", f"{ours}W_in", "d_mlp d_model -> d_model d_mlp"),
        Row(f"{first}.bias", f"{ours}b_in", "d_mlp -> d_mlp", when),
        Row(f"{second}.weight", f"{ours}W_out", "d_model d_mlp -> d_mlp d_model"),
        Row(f"{second}.bias", f"{ours}b_out", "d_model -> d_model", when),
    )


def separate_rows(block: str) -> tuple[Row, ...]:
    """Queries, keys and values in a linear map each, with biases where the model has them."""
    ours = "blocks.{layer}.attn."
    rows: list[Row] = []
    for letter in "QKV":
        stem = f"{block}{letter.lower()}_proj"
        rows.append(Row(f"{stem}.weight", f"{ours}W_{letter}", "(head d_head) d_model -> head d_model d_head"))
        rows.append(Row(f"{stem}.bias", f"{ours}b_{letter}", "(head d_head) -> head d_head", "qkv_bias"))
    return tuple(rows)


def output_rows(stem: str) -> tuple[Row, ...]:
    """The linear map that heads write through, with a bias where the model has one."""
    return (
        Row(f"{stem}.weight", "blocks.{layer}.attn.W_O", "d_model (head d_head) -> head d_head d_model"),
        Row(f"{stem}.bias", "blocks.{layer}.attn.b_O", "d_model -> d_model", "o_bias"),
    )


def fused_rows(stem: str) -> tuple[Row, ...]:
    """One linear map in which query, key and value of a head follow each other, head by head."""
    ours = "blocks.{layer}.attn."
    weight, bias = "(head three d_head) d_model -> head d_model d_head", "(head three d_head) -> head d_head"
    rows: list[Row] = []
    for index, letter in enumerate("QKV"):
        rows.append(Row(f"{stem}.weight", f"{ours}W_{letter}", weight, at=("three", index)))
        rows.append(Row(f"{stem}.bias", f"{ours}b_{letter}", bias, "qkv_bias", at=("three", index)))
    return tuple(rows)


def integer(fields: Fields, *names: str, default: int | None = None) -> int:
    """A whole number that may be stated under several names, the same under each; the last is the usual one."""
    stated = {name: fields.integer(name) for name in names if name in fields}
    if len(set(stated.values())) > 1:
        listed = ", ".join(f"{name} = {value}" for name, value in stated.items())
        raise LoadError(f"{fields.source} contradicts itself: {listed} are names of one size.")
    return next(iter(stated.values())) if stated else fields.integer(names[-1], default)
