"""A transformer written by hand: two attention layers that repeat what they have seen, and nothing else.

Layer 0, head 0 looks at the previous token and copies it into a space of its own. Layer 1, head 0 looks for positions
whose previous token is the one being read, and says the token found there. Head 1 of either layer looks everywhere
alike. So every score is known before anything runs.
"""

import math

import torch

from interp.models.config import ModelConfig, RotaryConfig
from interp.models.transformer import Transformer

VOCABULARY = 20
WIDTH = 64  # token identities 0–19, previous tokens 20–39, one constant 40
D_HEAD = 32
CONSTANT = 2 * VOCABULARY
TURNING = (0, 1, 2)  # rotary pairs that turn by 1, 0.1 and 0.01 radians a position: they tell distances
STILL = [*range(5, 16), *range(21, 32)][:VOCABULARY]  # head dimensions that hardly turn: they carry identities
SHARP = 400.0


def induction_machine() -> Transformer:
    """Embeddings are identities with a constant; rotary theta 10^16 makes pair i turn by 10^−i a position."""
    config = ModelConfig(
        n_layers=2, d_model=WIDTH, n_heads=2, n_kv_heads=1, d_head=D_HEAD, d_mlp=2, d_vocab=VOCABULARY, n_ctx=256,
        rotary=RotaryConfig(theta=1e16), tied_embeddings=True,
    )  # fmt: skip
    model = Transformer(config)
    w = model.weights()
    for name, weight in w.items():
        weight.fill_(1.0 if name.split(".")[-2].startswith("ln") else 0.0)
    identity = torch.eye(VOCABULARY)
    w["embed.W_E"][:, :VOCABULARY] = identity
    w["embed.W_E"][:, CONSTANT] = 1.0
    _look_back_one(w)
    _look_for_what_was_read(w, identity)
    w["ln_final.w"].fill_(20.0)  # certain of what it says
    return model


def _look_back_one(w: dict[str, torch.Tensor]) -> None:
    """Constant query and key, the key turned back by one position, so that cos(distance − 1) is the score."""
    for pair in TURNING:
        angle = 10.0**-pair
        w["blocks.0.attn.W_Q"][0, CONSTANT, pair] = SHARP
        w["blocks.0.attn.W_K"][0, CONSTANT, pair] = math.cos(angle)
        w["blocks.0.attn.W_K"][0, CONSTANT, pair + D_HEAD // 2] = math.sin(angle)
    gain = math.sqrt(2 / WIDTH)  # undoes the norm: a token is an identity and a constant, two ones in 64 places
    w["blocks.0.attn.W_V"][0, range(VOCABULARY), range(VOCABULARY)] = gain
    w["blocks.0.attn.W_O"][0, range(VOCABULARY), range(VOCABULARY, 2 * VOCABULARY)] = 1.0


def _look_for_what_was_read(w: dict[str, torch.Tensor], identity: torch.Tensor) -> None:
    """The query carries the token, the key the previous token; what is found is said ten times as loud as it."""
    w["blocks.1.attn.W_Q"][0, :VOCABULARY, STILL] = SHARP * identity
    w["blocks.1.attn.W_K"][0, VOCABULARY : 2 * VOCABULARY, STILL] = identity
    w["blocks.1.attn.W_V"][0, range(VOCABULARY), range(VOCABULARY)] = 1.0
    w["blocks.1.attn.W_O"][0, range(VOCABULARY), range(VOCABULARY)] = 10.0
