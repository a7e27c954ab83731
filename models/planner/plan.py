"""All that can be said of a model before it is loaded, in one object; and of several side by side.

plan = plan_model("llama-3.1-8b", context=131_072, users=16, on="h200")
plan.serving.total
plans_frame([plan, plan_model("mixtral-8x7b")])
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from interp.errors import UsageError
from interp.models.config import ModelConfig
from interp.models.planner.accelerators import EFFICIENCY, Accelerator, accelerator, known_accelerator
from interp.models.planner.flops import TokenFlops, token_flops
from interp.models.planner.intensity import Step, decode_step, prefill_step
from interp.models.planner.memory import ITEMSIZE, Serving, Sharing, head_sharing, kv_bytes, serving
from interp.models.planner.parameters import Parameters, parameters
from interp.models.planner.reading import read_shape
from interp.models.planner.speed import Speed

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

CONTEXTS = (1024, 4096, 16_384, 65_536, 131_072)
"""Where a figure shows keys and values."""


@dataclass(frozen=True)
class ModelPlan:
    """What a model of this shape takes. `UsageError` on construction for a context or users that cannot be."""

    name: str
    config: ModelConfig
    dtype: str = "bfloat16"
    context: int = 4096
    users: int = 1
    on: Accelerator | None = None
    efficiency: float = EFFICIENCY

    def __post_init__(self) -> None:
        for name in ("context", "users"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise UsageError(f"{name} is {value!r}; a whole number from 1 on was expected.")
        if self.dtype not in ITEMSIZE:
            raise UsageError(f"The number format is {self.dtype!r}; expected one of {', '.join(ITEMSIZE)}.")

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return ITEMSIZE[self.dtype]

    @property
    def parameters(self) -> Parameters:
        """By component, all and active."""
        return parameters(self.config)

    @property
    def flops(self) -> TokenFlops:
        """Of a token."""
        return token_flops(self.config)

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one text at the context, as the cache of this package keeps them."""
        return kv_bytes(self.config, self.context, self.itemsize)

    @property
    def kv_bytes_needed(self) -> int:
        """Those that are still read: of layers with a window, its tokens alone."""
        return kv_bytes(self.config, self.context, self.itemsize, windowed=True)

    @property
    def sharing(self) -> list[Sharing]:
        """MHA, GQA and MQA of this shape."""
        return head_sharing(self.config, self.itemsize)

    @property
    def serving(self) -> Serving:
        """Memory for all users."""
        return serving(self.config, self.users, self.context, self.itemsize)

    @property
    def decode(self) -> Step:
        """One token for every user."""
        return decode_step(self.config, self.context, batch=self.users, itemsize=self.itemsize)

    @property
    def prefill(self) -> Step:
        """Reading one text of the context's length."""
        return prefill_step(self.config, self.context, itemsize=self.itemsize)

    @property
    def speed(self) -> Speed | None:
        """Of the accelerator, if one was named."""
        return None if self.on is None else accelerator(self.on.name, dtype=self.dtype, efficiency=self.efficiency)

    @property
    def users_that_fit(self) -> int | None:
        """How many contexts find room on the accelerator beside the weights."""
        if self.on is None:
            return None
        one = serving(self.config, 1, self.context, self.itemsize)
        return max(0, (self.on.memory - one.weights) // (one.kv + one.workspace))

    def to_dict(self) -> dict[str, object]:
        """Everything as plain values."""
        counted, flops = self.parameters, self.flops
        return {
            "name": self.name,
            **{name: getattr(self, name) for name in ("dtype", "context", "users")},
            "config": self.config.to_dict(),
            "parameters": counted.total,
            "active_parameters": counted.total_active,
            "parameters_by_component": counted.stored,
            "active_by_component": counted.active,
            "weight_bytes": self.serving.weights,
            "flops_per_token": {
                "without_attention": flops.without_attention,
                "attention_per_key": flops.per_key,
                "decode": flops.decode(self.context),
                "prefill": flops.prefill(self.context) / self.context,
            },
            "kv_bytes_per_token": self.kv_bytes // self.context,
            "kv_bytes": self.kv_bytes,
            "kv_bytes_needed": self.kv_bytes_needed,
            "sharing": [asdict(each) for each in self.sharing],
            "serving": {**asdict(self.serving), "total": self.serving.total},
            "decode": _step(self.decode, self.speed),
            "prefill": _step(self.prefill, self.speed),
            "on": self._on(),
        }

    def row(self) -> dict[str, object]:
        """The figures of a table with one row a model."""
        counted, flops = self.parameters, self.flops
        row: dict[str, object] = {
            **{name: getattr(self, name) for name in ("name", "dtype", "context", "users")},
            **{"layers": self.config.n_layers, "d_model": self.config.d_model},
            **{"heads": self.config.n_heads, "kv_heads": self.config.n_kv_heads, "head_dim": self.config.d_head},
            "parameters": counted.total,
            "active_parameters": counted.total_active,
            **{f"parameters_{name}": count for name, count in counted.stored.items()},
            "flops_per_token_without_attention": flops.without_attention,
            "flops_per_token_decode": flops.decode(self.context),
            "flops_per_token_prefill": flops.prefill(self.context) / self.context,
            "kv_bytes_per_token": self.kv_bytes // self.context,
            "kv_bytes": self.kv_bytes,
            "kv_bytes_needed": self.kv_bytes_needed,
            "weight_bytes": self.serving.weights,
            "workspace_bytes": self.serving.workspace,
            "serving_bytes": self.serving.total,
            "decode_intensity": self.decode.intensity,
            "prefill_intensity": self.prefill.intensity,
        }
        if self.speed is not None:
            row |= {f"{name}_seconds": getattr(self, name).seconds(self.speed) for name in ("decode", "prefill")}
            row |= {"ridge": self.speed.ridge, "users_that_fit": self.users_that_fit}
        return row

    def _on(self) -> dict[str, object] | None:
        if self.on is None or self.speed is None:
            return None
        return {
            **asdict(self.on),
            "efficiency": self.efficiency,
            "ridge": self.speed.ridge,
            "users_that_fit": self.users_that_fit,
        }


def plan_model(
    model: str | os.PathLike[str] | ModelConfig,
    *,
    name: str | None = None,
    dtype: str = "bfloat16",
    context: int = 4096,
    users: int = 1,
    on: str | None = None,
    efficiency: float = EFFICIENCY,
) -> ModelPlan:
    """The plan of a shape, of a preset, or of whatever `load` takes: only its configuration is read."""
    config = model if isinstance(model, ModelConfig) else read_shape(model)
    called = name or ("shape" if isinstance(model, ModelConfig) else os.fspath(model))
    known = None if on is None else known_accelerator(on)
    return ModelPlan(called, config, dtype, context, users, known, efficiency)


def plans_frame(plans: Sequence[ModelPlan]) -> "pd.DataFrame":
    """Several plans side by side, a row each."""
    import pandas as pd

    return pd.DataFrame([plan.row() for plan in plans])


def plans_figure(plans: Sequence[ModelPlan]) -> "Figure":
    """Parameters by component, a bar a model; and keys and values of one text against its length."""
    from interp.plots_planner import sizes_figure

    contexts = sorted({*CONTEXTS, *(plan.context for plan in plans)})
    stored: Mapping[str, Mapping[str, int]] = {plan.name: plan.parameters.stored for plan in plans}
    kept = {plan.name: [kv_bytes(plan.config, context, plan.itemsize) for context in contexts] for plan in plans}
    return sizes_figure(stored, contexts, kept)


def _step(step: Step, speed: Speed | None) -> dict[str, object]:
    told: dict[str, object] = {**asdict(step), "intensity": step.intensity}
    return told if speed is None else {**told, "bound": step.bound(speed), "seconds": step.seconds(speed)}
