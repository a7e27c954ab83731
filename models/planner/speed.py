"""How fast a machine is: operations and bytes a second, published or measured.

    seconds = max(operations / operations per second, bytes moved / bytes per second)

the roofline of Williams et al. 2009 ("Roofline: an insightful visual performance model", CACM 52). Where operations and
bytes meet, at (operations per second) / (bytes per second) operations a byte, lies the ridge: work with fewer waits for
memory, work with more for the processor.
"""

from dataclasses import dataclass, replace

from interp.hooks import edits_replaced
from interp.models.config import ModelConfig
from interp.models.operations import run_flops
from interp.models.planner.memory import weight_bytes
from interp.models.planner.shape import with_layers
from interp.models.replay_cost import time_layer
from interp.models.transformer import Transformer

MOST_BYTES = 2**27  # weights that are made to measure a machine, unless a single layer has more
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

    Made-up weights are float32, at most 128 MiB of them; a layer that has more is measured narrower.
    """
    subject = model if isinstance(model, Transformer) else _made_up(model)
    config, itemsize = with_layers(subject.config, 1), subject.dtype.itemsize
    with edits_replaced({}):
        computing, moving = (time_layer(subject, tokens) for tokens in (MANY, FEW))
    flops = run_flops(config, FEW, batch=MANY // FEW, read=0)
    return Speed(flops / computing, weight_bytes(config, FEW, itemsize, logits=False) / moving)


def _narrower(config: ModelConfig) -> ModelConfig:
    """Half as wide, with as many heads as that leaves."""
    moe = config.moe and replace(config.moe, d_expert=-(-config.moe.d_expert // 2))
    halved = {"d_model": -(-config.d_model // 2), "d_mlp": -(-config.d_mlp // 2)}
    return replace(config, **halved, n_heads=max(1, config.n_heads // 2), n_kv_heads=1, moe=moe)  # type: ignore[arg-type]


def _made_up(config: ModelConfig) -> Transformer:
    """Some layers of that shape whose weights are all alike, and a short vocabulary."""
    one = replace(with_layers(config, 1), d_vocab=256, n_ctx=min(config.n_ctx, 2048))
    while weight_bytes(one, MANY) > MOST_BYTES:
        one = _narrower(one)
    model = Transformer(with_layers(one, max(1, min(config.n_layers, MOST_BYTES // weight_bytes(one, MANY)))))
    for weight in model.weights().values():
        weight.fill_(0.01)  # numbers near nought would be slow
    return model
