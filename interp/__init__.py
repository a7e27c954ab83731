"""A mechanistic-interpretability laboratory: a transformer in which every intermediate value has a name.

    import interp

    model = interp.load("smollm2-135m")
    logits, cache = model.run_with_cache(model.to_tokens("The Eiffel Tower is in"))
    cache["pattern", 5]

This is the public surface. A name is imported from its module when it is first used, so that `import interp` (and
with it `interp --help`) costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp import analyses as analyses
    from interp import edits as edits
    from interp import errors as errors
    from interp import metrics as metrics
    from interp import points as points
    from interp.apps.cli import main as main
    from interp.cache import ActivationCache as ActivationCache
    from interp.errors import InterpError as InterpError
    from interp.hooks import HookPoint as HookPoint
    from interp.models.config import ModelConfig as ModelConfig
    from interp.models.kv_cache import KVCache as KVCache
    from interp.models.loading import from_transformers as from_transformers
    from interp.models.loading import known_models as known_models
    from interp.models.loading import load as load
    from interp.models.loading import pull as pull
    from interp.models.tokenizer import Tokenizer as Tokenizer
    from interp.models.transformer import Transformer as Transformer
    from interp.results import Result as Result
    from interp.runs.reader import Run as Run
    from interp.runs.reader import open_run as open_run

__version__ = "0.1.0"

_HOMES = {
    "load": "interp.models.loading",
    "from_transformers": "interp.models.loading",
    "known_models": "interp.models.loading",
    "pull": "interp.models.loading",
    "Transformer": "interp.models.transformer",
    "ModelConfig": "interp.models.config",
    "KVCache": "interp.models.kv_cache",
    "Tokenizer": "interp.models.tokenizer",
    "ActivationCache": "interp.cache",
    "HookPoint": "interp.hooks",
    "Result": "interp.results",
    "Run": "interp.runs.reader",
    "open_run": "interp.runs.reader",
    "InterpError": "interp.errors",
    "points": "interp.points",
    "edits": "interp.edits",
    "errors": "interp.errors",
    "metrics": "interp.metrics",
    "analyses": "interp.analyses",
    "main": "interp.apps.cli",
}
"""name -> the module that it lives in, or that it is."""

__all__ = sorted({*_HOMES, "__version__"} - {"main"})  # main is the door of `python -m interp`, not of scripts


if not TYPE_CHECKING:  # a type checker knows the names above, and should complain about any other

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            from interp.errors import nearest

            raise AttributeError(f"module 'interp' has no attribute {name!r}.{nearest(name, __all__)}")
        home = _HOMES[name]
        module = importlib.import_module(home)
        value = module if home == f"interp.{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
