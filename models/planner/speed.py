"""How fast a machine is: operations and bytes a second, published or measured.

    seconds = max(operations / operations per second, bytes moved / bytes per second)

the roofline of Williams et al. 2009 ("Roofline: an insightful visual performance model", CACM 52). Where operations and
bytes meet, at (operations per second) / (bytes per second) operations a byte, lies the ridge: work with fewer waits for
memory, work with more for the processor.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from interp.hooks import edits_replaced
from interp.models.config import ModelConfig
from interp.models.operations import run_flops
from interp.models.planner.memory import weight_bytes
from interp.models.planner.shape import with_layers
from interp.models.replay_cost import Clock
from interp.models.transformer import Transformer

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 2**28  # weights that are made to measure a machine, unless a single layer has more
FEW, MANY = 8, 512  # tokens: so few that the weights' way from memory counts, so many that it does not


@dataclass(frozen=True)
class Speed:
    """Operations and bytes a second that a machine is taken to reach."""

    flops_per_second: float
    bytes_per_second: float
    name: str = "this machine"

    def seconds(self, flops: float, moved: float) -> float:
        """The longer of computing and moving."""
        return max(flops / self.flops_per_second, moved / self.bytes_per_second)

    @property
    def ridge(self) -> float:
        """Operations a byte at which both take as long."""
        return self.flops_per_second / self.bytes_per_second


def this_machine(model: Transformer | ModelConfig) -> Speed:
    """Measure this machine on layers of a model's shape (under 2 seconds); of a bare shape, layers are made up.

    Made-up weights are float32, at most 256 MiB of them; a layer that has more is measured narrower.
    """
    subject = model if isinstance(model, Transformer) else _made_up(model)
    config, itemsize = subject.config, subject.dtype.itemsize
    with edits_replaced({}):
        clock = Clock(subject, MANY)
    layer = with_layers(config, 1)
    flops = run_flops(layer, 1, batch=MANY, read=0)
    moved = weight_bytes(layer, FEW, itemsize, logits=False)
    return Speed(flops / clock.layer[MANY], moved / clock.layer[FEW])


def _made_up(config: ModelConfig) -> Transformer:
    """Some layers of that shape with random weights, and a short vocabulary."""
    one = replace(with_layers(config, 1), d_vocab=1024, n_ctx=min(config.n_ctx, 2048))
    while weight_bytes(one, MANY) > MOST_BYTES and one.d_mlp > 64:
        experts = None if one.moe is None else replace(one.moe, d_expert=max(1, one.moe.d_expert // 2))
        one = replace(one, d_mlp=one.d_mlp // 2, moe=experts)
    count = max(1, min(config.n_layers, MOST_BYTES // weight_bytes(one, MANY)))
    model = Transformer(with_layers(one, count))
    for weight in model.weights().values():
        _fill(weight)
    return model


def _fill(weight: "Tensor") -> None:
    torch.nn.init.normal_(weight, std=0.02, generator=torch.Generator().manual_seed(0))
