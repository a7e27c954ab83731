"""A configuration that cannot be is refused where it is made, not where it is used."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.errors import LoadError
from interp.models.config import Activation, RotaryConfig, RotaryScaling
from interp.models.families.common import ACTIVATIONS


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_layers": True}, "n_layers is True, it must be a positive whole number"),
        ({"n_ctx": 2.0}, "n_ctx is 2.0, it must be a positive whole number"),
        ({"d_vocab": 0}, "d_vocab is 0, it must be a positive whole number"),
        ({"n_kv_heads": 4}, "6 query heads cannot share 4 KV heads evenly"),
        ({"d_head": 9}, "9 numbers of a head of 9 cannot be turned"),
        ({"activation": "swishy"}, "activation is 'swishy', it must be one of silu, gelu, gelu_tanh, relu"),
        ({"activation": None}, "activation is None"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0, it must be positive and finite"),
        ({"norm_eps": float("nan")}, "norm_eps is nan"),
        ({"norm_eps": "1e-5"}, "norm_eps is '1e-5'"),
        ({"tied_embeddings": "yes"}, "tied_embeddings is 'yes', it must be True or False"),
        ({"qkv_bias": 1}, "qkv_bias is 1, it must be True or False"),
        ({"rotary": {"theta": 1e4}}, "it must be a RotaryConfig"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        replace(BASE, **fields)


@pytest.mark.parametrize("scaling", ["default", "llama3"])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"theta": 0}, "rotary theta is 0, it must be positive"),
        ({"theta": float("inf")}, "rotary theta is inf"),
        ({"theta": True}, "rotary theta is True"),
        ({"factor": -1.0}, "rotary factor is -1.0"),
        ({"low_freq_factor": 0.0}, "rotary low_freq_factor is 0.0"),
        ({"original_context": 0}, "rotary original_context is 0, it must be a positive whole number"),
        ({"original_context": True}, "rotary original_context is True"),
    ],
)
def test_a_rotation_that_cannot_be_is_refused_by_field(
    scaling: RotaryScaling, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(LoadError, match=message):
        RotaryConfig(scaling=scaling, **fields)


def test_a_scaling_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(LoadError, match="rotary scaling is 'spiral', it must be one of default, linear, ntk"):
        RotaryConfig(scaling="spiral")  # type: ignore[arg-type]


def test_the_bounds_of_the_llama3_rule_must_be_in_order() -> None:
    with pytest.raises(LoadError, match="low_freq_factor 4.0 must lie below high_freq_factor 4.0"):
        RotaryConfig(scaling="llama3", low_freq_factor=4.0)
    assert RotaryConfig(scaling="linear", low_freq_factor=4.0).low_freq_factor == 4.0, "linear does not read it"


@pytest.mark.parametrize("activation", sorted(set(ACTIVATIONS.values())))
def test_every_activation_that_may_be_stated_runs(activation: Activation) -> None:
    model = tiny(replace(CONFIGS["gelu_one_layer"], activation=activation))
    assert bool(torch.isfinite(model(random_tokens(model.config, 1, 4))).all())
