"""One tiny published model of a family, as plain data: its class in `transformers` and the fields of its configuration.

A module beside this one has the cases of some families, by name, in `CASES`; `test_family_parity.py` finds them all.
"""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """What to build, and what the comparison has to know about it.

    `lengths`: texts that are compared; one should be longer than any window or rotary threshold. `per_call`: rotary
    frequencies depend on how long the text of one call is, so that a text read in pieces is held against the
    reference's own pieces. `offset_norms`: gains are stored as their distance from one. `padded`, `decode`: switches
    for what a published class cannot do itself (a padded batch, reading in pieces). `seeds`: how many models the error
    in bfloat16 is averaged over; more where rounding may choose another expert.
    """

    model: str
    fields: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = (1, 7, 23)
    per_call: bool = False
    offset_norms: bool = False
    padded: bool = True
    decode: bool = True
    seeds: int = 3

    def build(self, seed: int = 0) -> torch.nn.Module:
        """The published model with random weights, none of them zero, in float32 and with explicit attention."""
        import transformers

        published = getattr(transformers, self.model)
        config = published.config_class(**{"attn_implementation": "eager", "pad_token_id": None} | self.fields)
        hf = published(config).eval().requires_grad_(False)
        randomise(hf, seed=seed, gain=0.0 if self.offset_norms else 1.0)
        return hf


def randomise(hf: torch.nn.Module, *, seed: int, gain: float) -> None:
    """Normal weights of standard deviation 0.3, biases too; those of norms around `gain`."""
    generator = torch.Generator().manual_seed(seed)
    gains = {
        id(parameter)
        for module in hf.modules()
        if "Norm" in type(module).__name__
        for name, parameter in module.named_parameters(recurse=False)
        if name == "weight"
    }
    for parameter in hf.parameters():
        parameter.normal_(0, 0.3, generator=generator)
        if id(parameter) in gains:
            parameter.add_(gain)
