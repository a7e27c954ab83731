"""Models in memory, shared by all sessions: at most two, the least recently used one goes.

Hooks of a model live in the running context, so sessions cannot see each other's; each model has one lane of jobs, so
they do not fight for its cores either.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interp.apps.dashboard.options import Options, inside
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "bfloat16", "float16", "float64")
KEPT = 2


@dataclass(frozen=True)
class Chosen:
    """Which model, on which device (auto: the best that is there), with which number format."""

    model: str
    device: str = "auto"
    dtype: str = "float32"

    @property
    def lane(self) -> str:
        """The lane of jobs of this model."""
        return f"{self.model}|{self.device}|{self.dtype}"

    def words(self) -> list[str]:
        """The same as options of a command."""
        device = [] if self.device == "auto" else ["--device", self.device]
        return ["--model", self.model, *device, "--dtype", self.dtype]

    def call(self) -> str:
        """The same in Python."""
        device = "" if self.device == "auto" else f", device={self.device!r}"
        return f"interp.load({self.model!r}{device}, dtype={self.dtype!r})"


@dataclass(frozen=True)
class Offer:
    """A model that can be chosen; `here` says whether its weights are on this machine."""

    name: str
    here: bool


class Shelf:
    """The models of one process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._models: OrderedDict[Chosen, Transformer] = OrderedDict()

    def offers(self) -> list[Offer]:
        """Known models, the one of the start, and those that lie in the folders of the start."""
        from interp.models.sources.wheel import WHEEL_MODELS, is_cached

        found = {name: Offer(name, is_cached(model)) for name, model in WHEEL_MODELS.items()}
        names = [self._options.model, *map(str, self._in_folders())]
        return list({**{name: Offer(name, True) for name in names if name not in found}, **found}.values())

    def _in_folders(self) -> list[Path]:
        """Model folders and .gguf files that stand directly in the folders of the start, or are those."""
        found = []
        for folder in self._options.models:
            inner = sorted(folder.iterdir()) if folder.is_dir() else []
            own = [path for path in (folder, *inner) if path.resolve().is_relative_to(folder.resolve())]
            found += [path for path in own if path.suffix == ".gguf" or (path / "config.json").is_file()]
        return found

    def resolved(self, name: str) -> str:
        """The name as `interp.load` takes it. Raises `UsageError` for what may not be loaded from here."""
        if name in {offer.name for offer in self.offers()}:
            return name
        if not self._options.models:
            raise UsageError(
                f"{name[:80]!r} is none of the models that are offered. To open others, start the dashboard with "
                "--models FOLDER, or with --model NAME."
            )
        return str(inside(name, self._options.models, "models"))

    def get(self, chosen: Chosen) -> "Transformer | None":
        """The model, if it is in memory."""
        with self._lock:
            if chosen in self._models:
                self._models.move_to_end(chosen)
            return self._models.get(chosen)

    def load(self, chosen: Chosen, progress: Callable[[int, int], None]) -> None:
        """Bring the model into memory; what was used least recently makes room before."""
        import interp

        name = self.resolved(chosen.model)
        with self._lock:
            while len(self._models) >= KEPT:
                self._models.popitem(last=False)
        device = None if chosen.device == "auto" else chosen.device
        model = interp.load(name, device=device, dtype=chosen.dtype, progress=progress)
        with self._lock:
            self._models[chosen] = model


def identity(model: "Transformer") -> tuple[str, str, str]:
    """What of a model decides its numbers: the hash of its weights, device, number format."""
    stated = model.provenance
    sha256 = str(stated.get("weights_sha256") or f"in memory, {id(model)}")
    return sha256, str(model.device), str(model.dtype)
