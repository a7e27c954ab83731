"""What a causal trace restores, and how: the settings that one prompt and many facts share.

    TraceSettings(kinds=("resid", "mlp"), severed="attn", samples=4)

`causal_trace` and `trace_facts` take them by keyword, those of `TraceOptions`, and make one `TraceSettings` of them.
What stands on the kind axis of a result is `rows`: the kinds, then a severed one for each sublayer that was named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

import numpy as np

from interp.analyses.sites import layer_window
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Kind = Literal["resid", "mlp", "attn"]
Sublayer = Literal["mlp", "attn"]

RESTORED: Mapping[str, str] = {
    **{"resid": "hook_resid_post", "mlp": "hook_mlp_out", "attn": "hook_attn_out"},
    **dict.fromkeys((f"severed_{sublayer}" for sublayer in get_args(Sublayer)), "hook_resid_post"),
}
"""What each row puts back."""
SAID: Mapping[Kind, str] = {"resid": "residual stream", "mlp": "FFN outputs", "attn": "attention outputs"}
SEVERED: Mapping[str, Sublayer] = {"severed_mlp": "mlp", "severed_attn": "attn"}
"""The sublayer that each severed row holds at its corrupted values."""


class TraceOptions(TypedDict, total=False):
    """The fields of `TraceSettings`, as keywords."""

    kinds: Sequence[Kind]
    severed: Sublayer | Sequence[Sublayer] | None
    noise: str | float
    noise_subjects: Sequence[str] | None
    samples: int
    window: int
    seed: int
    prefix: PrefixPolicy
    budget: int
    shortcuts: bool


@dataclass(frozen=True)
class TraceSettings:
    """How to trace; `UsageError` on construction for what no model could do.

    `kinds`: what is restored. `severed`: sublayers, one or several, whose outputs at the restored token are held at
    their values in the corrupted run, while the residual stream is restored. `noise`: `"s3"` for normal noise of 3
    standard deviations of the embeddings of `noise_subjects` (all subjects of the bundled facts if None), `"us3"` for
    uniform noise in ± 3 of them, `"u0.3"` for uniform noise in ± 0.3, `"0.3"` or 0.3 for normal noise of that level.
    `window`: how many layers of `mlp` and `attn` are restored together. `budget` and `shortcuts` as in `Replay`.
    """

    kinds: Sequence[Kind] = ("resid", "mlp", "attn")
    severed: Sublayer | Sequence[Sublayer] | None = ()
    noise: str | float = "s3"
    noise_subjects: Sequence[str] | None = None
    samples: int = 10
    window: int = 10
    seed: int = 0
    prefix: PrefixPolicy = "doc"
    budget: int = 2**30
    shortcuts: bool = True

    def __post_init__(self) -> None:
        severed = (self.severed,) if isinstance(self.severed, str) else tuple(self.severed or ())
        _check_names("restores", self.kinds, get_args(Kind), least=1)
        _check_names("severs", severed, get_args(Sublayer), least=0)
        for name, least in (("samples", 1), ("window", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UsageError(f"{name} is {value!r}; a whole number from {least} on was expected.")
        if self.seed >= 2**32:
            raise UsageError(f"seed is {self.seed}; the generator takes whole numbers below 2**32.")
        object.__setattr__(self, "kinds", tuple(self.kinds))
        object.__setattr__(self, "severed", severed)

    @property
    def rows(self) -> tuple[str, ...]:
        """What stands on the kind axis."""
        return (*self.kinds, *(f"severed_{sublayer}" for sublayer in self.severed or ()))

    def stated(self) -> dict[str, object]:
        """What a result says of them; of noise and seed, whoever draws says more."""
        return {"window": self.window, "severed": self.severed, "shortcuts": self.shortcuts}


def window_of(kind: str, layer: int, window: int, n_layers: int) -> range:
    """The layers restored together around one: [ℓ − w//2, ℓ + ⌈w/2⌉ − 1] of sublayers, of a residual stream itself."""
    return layer_window(layer, window if kind in get_args(Sublayer) else 1, n_layers)


def said(kind: str, window: int) -> str:
    """A row in words: `FFN outputs, 10 layers`."""
    if kind in SEVERED:
        return f"{SAID['resid']}, {SAID[SEVERED[kind]].removesuffix(' outputs')} severed"
    words = SAID[kind]  # type: ignore[index]  # a Kind, since it is not severed
    return f"{words}, {window} layers" if kind != "resid" and window != 1 else words


def window_arrays(asked: TraceSettings, n_layers: int) -> dict[str, tuple[object, Sequence[str]]]:
    """`first_layer` and `last_layer` [kind, layer]: which layers are restored together."""
    used = [[window_of(row, layer, asked.window, n_layers) for layer in range(n_layers)] for row in asked.rows]
    return {
        "first_layer": ([[layers[0] for layers in row] for row in used], ("kind", "layer")),
        "last_layer": ([[layers[-1] for layers in row] for row in used], ("kind", "layer")),
    }


def severed_bars(effects: dict[str, np.ndarray], title: str) -> "Figure":
    """Effects by layer, [layer], of the residual stream and of its severed kinds; `UsageError` where none is severed.

    Kinds that restore something else are left out.
    """
    from interp.plots import grouped_bars

    shown = {said(kind, 1): effect for kind, effect in effects.items() if kind.startswith(("resid", "severed"))}
    if not any(kind.startswith("severed") for kind in effects):
        raise UsageError("Nothing was severed in this trace; ask for severed=('mlp', 'attn').")
    layers = range(len(next(iter(shown.values()))))
    return grouped_bars(layers, shown, title=title, x_title="layer", y_title="indirect effect")


def _check_names(does: str, named: Sequence[str], known: Sequence[str], *, least: int) -> None:
    if len(named) < least or isinstance(named, str) or len(set(named)) < len(named) or not set(named) <= set(known):
        raise UsageError(f"A trace {does} some of {', '.join(known)}, each once, not {named!r}.")
